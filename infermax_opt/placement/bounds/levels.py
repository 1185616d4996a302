r"""How many requests workers can hold in all: a bound from how many hold k or more, for every k.

Let the weights of the requests of a row, the smallest first, have the prefix sums P.  If q fresh workers
hold k requests or more each, these weigh P(k q) at least, and q C at most.  P(k q) / q rises with q, as it is
k times the mean of the k q smallest; so the largest such q, q_k, is found by halving.  Of F fresh workers at
most min(F, q_k) hold k or more, so together they hold sum over k of min(F, q_k) requests at most.  A worker
in use holds as many of the smallest as fit in its room.  F is too small while all of these are fewer than
the requests.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass

from infermax_opt.placement.bounds.rows import Row

__all__ = ["Levels", "best_levels"]

#: Most requests on a fresh worker for which levels are looked at.
MOST_LEVELS = 4_000


@dataclass(frozen=True)
class Levels:
    """Fresh workers needed: one less and those in use hold `held` requests, the latter `taken` of them."""

    fresh: int
    held: int
    taken: int


def best_levels(row: Row) -> Levels | None:
    """The bound of a row; None if too many requests fit on a worker, or none needs a fresh one."""
    sums = [0, *itertools.accumulate(sorted(row.weights))]
    number = len(row.weights)
    most = bisect.bisect_right(sums, row.capacity) - 1
    taken = sum(bisect.bisect_right(sums, room) - 1 for room in row.rooms)
    if not 1 <= most <= MOST_LEVELS or taken >= number:
        return None
    counts = [_workers_with(sums, row.capacity, k) for k in range(1, most + 1)]

    def held(fresh: int) -> int:
        return taken + sum(min(fresh, count) for count in counts)

    low, high = 0, number
    while high - low > 1:
        middle = (low + high) // 2
        if held(middle) < number:
            low = middle
        else:
            high = middle
    return Levels(low + 1, held(low), taken)


def _workers_with(sums: list[int], capacity: int, k: int) -> int:
    """Most fresh workers that hold k requests or more each."""
    low, high = 0, (len(sums) - 1) // k
    while low < high:
        middle = (low + high + 1) // 2
        if sums[k * middle] <= middle * capacity:
            low = middle
        else:
            high = middle - 1
    return low
