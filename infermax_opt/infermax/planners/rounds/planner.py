"""Plans for batches that all take the same time (`in_rounds`): annealing on the order of serial generation.

Nobody pauses, so a schedule is a start round for each request.  Serial generation starts one after the
other as soon as it fits until it ends, and the order is searched.  It may be that no order gives the
optimum, as a request that starts later is smaller while another peaks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule

__all__ = ["MOST_REQUESTS", "RoundsPlanner"]

#: Requests beyond which too few orders are tried to be worth it.
MOST_REQUESTS = 2000
#: Most rounds of all requests one after the other.
MOST_ROUNDS = 10**7
#: Requests placed between two moments at which the clock is read and the order becomes that of the starts.
PLACED = 50_000
#: Rounds by which the sum of latencies may grow in a step, on average, as a multiple of the mean output: when
#: a run of annealing starts, and when it ends.
HOT, COLD = 2.5, 0.15
#: Runs until the deadline, or without one, and then looks at the clock in a run.
RUNS, LOOKS = 2, 300


class RoundsPlanner:
    """Searches start rounds for one instance.

    Parameters
    ----------
    instance : Instance
        In rounds.
    seed : int
        The same seed tries the same orders, as many as there is time for.
    """

    def __init__(self, instance: Instance, *, seed: int = 0):
        import numpy as np

        from infermax_opt.infermax.planners.rounds._kernel import Requests

        self.instance, self._seed = instance, seed
        self._alpha = instance.cost.seconds.alpha[0]
        alpha = self._alpha
        columns = zip(
            *[(r.input_tokens, r.output_tokens, int(r.arrival / alpha)) for r in instance.requests],
            strict=True,
        )
        self._requests = Requests(*[np.array(column, np.int64) for column in columns])

    @staticmethod
    def takes(instance: Instance) -> bool:
        """Whether an instance in rounds is small enough."""
        last = max(kind.arrival for kind in instance.types) / instance.cost.seconds.alpha[0]
        rounds = last + instance.output_tokens
        return len(instance.requests) <= MOST_REQUESTS and rounds <= MOST_ROUNDS

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans.

        Parameters
        ----------
        deadline : float, optional
            Moment of `time.monotonic` at which to stop.
        """
        import numpy as np

        from infermax_opt.infermax.planners.rounds._kernel import CHANCES

        requests, capacity = self._requests, self.instance.system.kv_capacity
        area = requests.outputs * (2 * requests.inputs + requests.outputs - 1)
        first = np.argsort(requests.arrival * capacity * 2 + area, kind="stable")
        rounds = int(requests.arrival.max() + requests.outputs.sum())
        used, best = np.zeros(rounds, np.int64), None
        scale, random = float(requests.outputs.mean()), np.random.default_rng(self._seed)
        order = first.copy()
        for run, share in _progress(deadline):
            if share == 0:
                order = first.copy()
            heat = scale * HOT * (COLD / HOT) ** share
            steps = max(1, PLACED // len(first)) if best is not None else 0
            chances = random.random((steps, CHANCES))
            value, starts = _anneal()(requests, capacity, order, used, chances, heat)
            if best is None or value < best:
                best = value
                yield f"rounds:{run}", self.schedule(starts.tolist())

    def schedule(self, starts: list[int]) -> Schedule:
        """The schedule in which each request starts in its round.

        Parameters
        ----------
        starts : list of int
            Rounds before each start.
        """
        instance = self.instance
        begun: dict[int, dict[str, int]] = {}
        ends: dict[int, int] = {}
        for request, start in zip(instance.requests, starts, strict=True):
            begun.setdefault(start, {})[request.id] = request.input_tokens
            ends[start] = max(ends.get(start, 0), start + request.output_tokens)
        batches: list[Batch] = []
        now = end = 0  # the round after the last batch, and the one after all that run
        for start in sorted(begun):
            until = min(start, end)
            if until > now:
                batches.append(Batch(tokens={}, decode_all=True, repeat=until - now))
            waits = start * self._alpha if start > until else None
            batches.append(Batch(tokens=begun[start], start=waits, decode_all=end > start))
            now, end = start + 1, max(end, ends[start])
        if end > now:
            batches.append(Batch(tokens={}, decode_all=True, repeat=end - now))
        return Schedule(instance.name, tuple(batches))


def _progress(deadline: float | None) -> Iterator[tuple[int, float]]:
    """The number of each run of annealing, and the share of it that is over, again and again."""
    begin = time.monotonic()
    for run in range(RUNS):
        yield run, 0.0
        if deadline is None:
            yield from ((run, look / LOOKS) for look in range(1, LOOKS))
            continue
        start, end = (begin + (deadline - begin) * k / RUNS for k in (run, run + 1))
        while (now := time.monotonic()) < end:
            yield run, max(1e-9, (now - start) / (end - start))


@functools.cache
def _anneal() -> Callable[..., Any]:
    """The annealing, compiled."""
    from infermax_opt.infermax.planners.rounds import _kernel

    return compiled(_kernel.anneal, _kernel.HELPERS)
