"""MultiRes: who asks for what is nearest to what is free, of compute and of KV (section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.instance import System
from infermax_opt.infermax.schedulers.reservation.job import Job

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["NearestQueue"]


class NearestQueue:
    """Requests that wait, their demands in columns.

    Parameters
    ----------
    system : System
    size : callable
        KV tokens that a job asks for.
    """

    def __init__(self, system: System, size: Callable[[Job], int]):
        self._system, self._size = system, size
        self._jobs: list[Job] = []
        self._at: dict[Job, int] = {}
        self._demands: npt.NDArray[np.int64] | None = None  # tokens and KV, by job

    def add(self, job: Job) -> None:
        """Let a job wait."""
        import numpy as np

        if self._demands is None:
            self._demands = np.zeros((2, 64), np.int64)
        count = len(self._jobs)
        if count == self._demands.shape[1]:
            self._demands = np.concatenate((self._demands, 0 * self._demands), axis=1)
        self._demands[:, count] = job.target, self._size(job)
        self._at[job] = count
        self._jobs.append(job)

    def discard(self, job: Job) -> None:
        """Take a job out; the last one takes its place."""
        assert self._demands is not None
        at, last = self._at.pop(job), self._jobs.pop()
        if last is not job:
            self._jobs[at], self._at[last] = last, at
            self._demands[:, at] = self._demands[:, len(self._jobs)]

    def nearest(self, kv: int, tokens: int, first: bool, split: bool) -> Job | None:
        """Of those that fit, the one whose demands are nearest to what is free, in shares of all there is.

        Parameters
        ----------
        kv, tokens : int
            Free KV, and room in the batch.
        first, split : bool
            Whether the batch holds no prompt yet; whether one that fits into none may be split then.
        """
        import numpy as np

        if self._demands is None or not self._jobs:
            return None
        asked = self._demands[:, : len(self._jobs)]
        fits = asked[1] <= kv
        whole = asked[0] <= tokens
        if first and split and not (fits & whole).any():
            whole = asked[0] > 0
        fits &= whole
        if not fits.any():
            return None
        away = ((asked[0] - tokens) / self._system.max_batch_tokens) ** 2
        away += ((asked[1] - kv) / self._system.kv_capacity) ** 2
        ties = np.flatnonzero(fits & (away == away[fits].min()))
        return min((self._jobs[k] for k in ties.tolist()), key=lambda job: job.order)

    def pick(self, limit: int) -> Job | None:
        """The one that is nearest to so much KV, prompts aside."""
        return self.nearest(limit, self._system.max_batch_tokens, True, True)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs)
