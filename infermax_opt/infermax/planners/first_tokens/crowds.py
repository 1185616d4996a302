"""Who shares batches so that fewer are given up for a percentile of the latencies of first tokens.

One prompt after the other, a crowd is those that come while the machine is busy.  Where such a crowd has
to give up somebody, it may not have to if several prompts are cut and processed beside each other: they
share the fixed time of their batches, and where attention is "square", smaller parts take less in all.
So sizes of parts and batches are tried for each such crowd, beside a limit that is made small.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.objective import rank
from infermax_opt.infermax.planners.first_tokens._state import ANY
from infermax_opt.infermax.planners.first_tokens.given_up import CLOSE, fewest, least_limit

if TYPE_CHECKING:
    from infermax_opt.infermax.data.cost import Coefficients
    from infermax_opt.infermax.planners.first_tokens.aims import Floats, Whole

__all__ = ["Crowds", "Sizes"]

#: Requests of a crowd, at most, and who may be given up in it: sets of so many, so many tried.
CROWD, FEW, SETS = 16, 2, 200
#: Most tokens of a part of a prompt, and of a batch, in parts of the best size where alone.
PIECES = (0.34, 0.45, 0.57, 0.68, 0.85, 1.02, 1.25, 1.7, 2.3)
ROOMS = (0.57, 0.85, 1.14, 1.42, 1.7, 2.3)
#: The least limit is looked for from this part of the one without sharing.
LOWEST = 0.7

#: Requests, each with the most tokens of a part of it (`ANY` if it shares with nobody), and of a batch that
#: begins with it.
Sizes = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Crowds:
    """Requests on one machine.

    Attributes
    ----------
    arrival, work : array
        Of each request: seconds, and those of its prompt alone, cut as is best.
    inputs, parts : array
        Tokens of each prompt, and the most of a part where it is alone.
    unit, top : int
        Tokens of the part that is best, and the most of a batch.
    cost : Coefficients
        Of batches, in seconds.
    exact : bool
        Whether attention is.
    """

    arrival: Floats
    work: Floats
    inputs: Whole
    parts: Whole
    unit: int
    top: int
    cost: Coefficients
    exact: bool

    def least(self, which: Whole, percent: int) -> tuple[frozenset[int], Sizes] | None:
        """Who is given up, and how the others share batches; nothing if no smaller limit was found.

        Parameters
        ----------
        which : array
            Requests that count.
        percent : int
            Percentile of their latencies.
        """
        order = which[np.argsort(self.arrival[which], kind="stable")]
        spare = len(order) - rank(percent, len(order))
        gone = least_limit(self.arrival[order], self.work[order], percent)
        crowds = [(crowd, self._longest(crowd)) for crowd in self._apart(order)]
        high = self._longest(np.delete(order, sorted(gone)))
        low, best = LOWEST * high, None
        while high > CLOSE * low:
            middle = (low + high) / 2
            found = self._at(crowds, middle, spare)
            if found is None:
                low = middle
            else:
                best, high = found, middle
        return best

    def _longest(self, order: Whole) -> float:
        """The longest that one of these takes, one after the other."""
        now, longest = 0.0, 0.0
        for arrival, work in zip(self.arrival[order].tolist(), self.work[order].tolist(), strict=True):
            now = max(now, arrival) + work
            longest = max(longest, now - arrival)
        return longest

    def _apart(self, order: Whole) -> Iterator[Whole]:
        """Crowds, by arrival."""
        begin, now = 0, -np.inf
        for k, i in enumerate(order.tolist()):
            if self.arrival[i] >= now and k > begin:
                yield order[begin:k]
                begin = k
            now = max(now, self.arrival[i]) + self.work[i]
        yield order[begin:]

    def _at(
        self, crowds: Sequence[tuple[Whole, float]], limit: float, spare: int
    ) -> tuple[frozenset[int], Sizes] | None:
        """Who is given up for a limit, and sizes; nothing if they are more than may be.

        Parameters
        ----------
        crowds : sequence of (array, float)
            Each with the longest that one of it takes where nobody shares.
        limit : float
            Seconds.
        spare : int
            Who may be given up.
        """
        out: set[int] = set()
        sizes = {i: (ANY, part) for i, part in enumerate(self.parts.tolist())}
        for crowd, longest in crowds:
            if longest <= limit:
                continue
            columns = (crowd.tolist(), self.arrival[crowd].tolist(), self.work[crowd].tolist())
            alone = fewest(list(zip(*columns, strict=True)), limit, len(crowd)) or frozenset()
            gone, size = self._sharing(crowd, limit, alone)
            if size is not None:
                sizes.update(dict.fromkeys(crowd.tolist(), size))
            out |= gone
            if len(out) > spare:
                return None
        return frozenset(out), tuple((i, piece, room) for i, (piece, room) in sizes.items())

    def _sharing(
        self, crowd: Whole, limit: float, gone: frozenset[int]
    ) -> tuple[frozenset[int], tuple[int, int] | None]:
        """Fewer who are given up in a crowd and the sizes for it, or the same and none.

        Parameters
        ----------
        crowd : array
        limit : float
            Seconds.
        gone : frozenset of int
            Who is given up where nobody shares.
        """
        arrival, inputs = self.arrival[crowd] - self.arrival[crowd[0]], self.inputs[crowd]
        if len(crowd) > CROWD:
            return gone, None
        for count in range(min(len(gone), FEW + 1)):
            for some in itertools.islice(itertools.combinations(range(len(crowd)), count), SETS):
                out = np.isin(np.arange(len(crowd)), some)
                for piece, room in self._grid():
                    if _in_time()(arrival, inputs, out, limit, piece, room, self.cost, self.exact):
                        return frozenset(crowd[out].tolist()), (piece, room)
        return gone, None

    def _grid(self) -> list[tuple[int, int]]:
        """Sizes of parts and batches that are tried."""
        pieces, rooms = (
            sorted({max(1, min(self.top, round(part * self.unit))) for part in parts})
            for parts in (PIECES, ROOMS)
        )
        return [(piece, room) for piece in pieces for room in rooms if room >= piece]


@functools.cache
def _in_time() -> Callable[..., Any]:
    """The loop, compiled."""
    from infermax_opt.infermax.planners.first_tokens import _crowd_kernel

    return compiled(_crowd_kernel.in_time, _crowd_kernel.HELPERS)
