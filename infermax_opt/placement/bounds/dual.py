r"""Bounds on the fresh workers from one row: dual-feasible functions, and how many requests fit at most.

A dual-feasible function turns a row into another (`infermax_opt.core.dual_feasible`): what is lacking of it
is at most what fresh workers have of it.

*Count.*  Of the requests T with weights from some one on, at most q fit on a fresh worker, if the q + 1
smallest of T do not; on a worker with room R likewise.  So weight 1 for those in T is a row of capacity q.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from infermax_opt.placement.bounds.rows import Row

__all__ = ["Found", "Multiset", "best_count", "best_function"]

#: Thresholds are tried down to this share of the capacity; functions with more steps than this are not.
MOST_STEPS = 24
#: Thresholds of each kind that are tried on a row.
MOST_THRESHOLDS = 120


class Multiset:
    """Whole numbers from 0 on, and sums over them of the functions of `infermax_opt.core.dual_feasible`."""

    def __init__(self, values: Sequence[int]):
        self.values = sorted(value for value in values if value)
        self.sums = [0, *accumulate(self.values)]

    def __len__(self) -> int:
        return len(self.values)

    def from_on(self, least: int) -> int:
        """How many are `least` or more."""
        return len(self.values) - bisect_left(self.values, least)

    def equal(self, value: int) -> int:
        """How many are `value`."""
        return bisect_right(self.values, value) - bisect_left(self.values, value)

    def cut(self, capacity: int, t: int) -> int:
        """Sum of `cut`."""
        low, high = bisect_left(self.values, t), bisect_right(self.values, capacity - t)
        return self.sums[high] - self.sums[low] + capacity * (len(self.values) - high)

    def steps(self, capacity: int, t: int) -> int:
        """Sum of `steps`."""
        most = capacity // t
        half, more = (capacity + 1) // 2, capacity // 2 + 1
        # Below half each multiple of t counts 2; above, each multiple that the rest falls short of.
        below = above = 0
        for j in range(1, most + 1):
            if j * t < half:
                below += self.from_on(j * t) - self.from_on(half)
            # n(C - x) < j, that is x > C - j t.
            above += self.from_on(max(more, capacity - j * t + 1))
        middle = self.equal(half) if capacity % 2 == 0 else 0
        return 2 * below + 2 * above + most * middle

    def parts(self, capacity: int, k: int) -> int:
        """Sum of `parts`."""
        total = 0
        for j in range(1, k + 2):
            edge = -(-j * capacity // (k + 1))
            total += capacity * self.from_on(edge)
            if edge * (k + 1) == j * capacity:
                # Where m is whole: k x in place of C m = (k + 1) x.
                total -= edge * self.equal(edge)
        return total


@dataclass(frozen=True, slots=True)
class Found:
    """Fresh workers needed: `lacking` beyond the workers in use, of which each takes `capacity`."""

    fresh: int
    lacking: int
    capacity: int
    function: str
    parameter: int


def best_function(row: Row) -> Found | None:
    """The best of the functions on a row; None where nothing is lacking."""
    items, rooms, capacity = Multiset(row.weights), Multiset(row.rooms), row.capacity
    best: Found | None = None
    for name, parameter in _tried(items, capacity):
        sums = getattr(Multiset, name)
        lacking = sums(items, capacity, parameter) - sums(rooms, capacity, parameter)
        whole = {"cut": capacity, "steps": 2 * (capacity // parameter), "parts": parameter * capacity}[name]
        fresh = -(-lacking // whole)
        if fresh > (0 if best is None else best.fresh):
            best = Found(fresh, lacking, whole, name, parameter)
    return best


def _tried(items: Multiset, capacity: int) -> Iterator[tuple[str, int]]:
    distinct = sorted(set(items.values))
    half = distinct[: bisect_right(distinct, capacity // 2)]
    # What is just left beside a large one is a threshold, too.
    beside = [capacity - x + 1 for x in distinct[len(half) :] if capacity - x < capacity // 2]
    for t in _thinned([*half, *beside]):
        yield "cut", t
    least = capacity // MOST_STEPS + 1
    fine = {t for t in [*half, *beside, capacity // 2 + 1] if t >= least}
    fine |= {x // j for x in distinct for j in (2, 3) if x // j >= least}
    for t in _thinned(sorted(fine)):
        yield "steps", t
    for k in range(1, MOST_STEPS):
        yield "parts", k


def _thinned(values: Sequence[int]) -> Sequence[int]:
    step = -(-len(values) // MOST_THRESHOLDS)
    return values[:: max(1, step)]


def best_count(row: Row, above: int = 0) -> tuple[Found, int] | None:
    """The best count on a row, and how many are in T; None where it says no more than `above`."""
    items = Multiset(row.weights)
    values, sums, number = items.values, items.sums, len(items)
    best: tuple[Found, int] | None = None
    for start in range(number):
        if start and values[start] == values[start - 1]:
            continue

        def fitting(room: int, start: int = start) -> int:
            return bisect_right(sums, sums[start] + room) - 1 - start

        most, least = fitting(row.capacity), above if best is None else best[0].fresh
        if -(-(number - start) // most) <= least:
            continue
        lacking = number - start - sum(fitting(room) for room in row.rooms)
        fresh = -(-lacking // most)
        if fresh > least:
            best = Found(fresh, lacking, most, "count", values[start]), number - start
    return best
