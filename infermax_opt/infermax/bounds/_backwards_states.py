"""States of paths backwards, multisets of parts; see `infermax_opt.infermax.bounds.backwards`."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from infermax_opt.infermax.bounds._kernels_backwards import Links
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Relaxation", "linked_relaxations", "relaxations"]

#: Parts of a state at most, without and with prices of leaving: which of them are new is tried in all ways,
#: the fewest first.
MOST_PARTS, LINKED_PARTS = 12, 21
#: Classes of prompts at most.
CLASSES = 3
#: Memory beyond which nothing is tried, as even weighing relaxations takes seconds.
MOST_CAPACITY = 1000
#: Choices of classes times M squared, at most: weighing one takes as many steps as it has parts, M times.
MOST_CHOICES = 10**7
#: Steps that the checker counts to list a state, to find where one leads, for one that a part leaves, and for
#: a loop beside what it goes through.
LISTED, FOUND, LEFT, LOOP = 20, 5, 1, 10

#: Hold and class of a request in memory.
Part = tuple[int, int]
Ints = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Relaxation:
    """Holds at which requests leave, rising, one for each class of prompts.

    Parameters
    ----------
    instance : Instance
    leave : tuple of int
    linked : bool
        Whether parts are not told apart: those of all classes may leave, for a price, or stay.
    """

    instance: Instance
    leave: tuple[int, ...]
    linked: bool = False

    @cached_property
    def capacity(self) -> int:
        """M."""
        return self.instance.system.kv_capacity

    def part(self, kind: RequestType) -> Part:
        """Peak of a request, and its class; class -1 where it has left before it is seen."""
        peak, number = kind.input_tokens + kind.output_tokens - 1, self.group(kind)
        return peak, -1 if peak <= self.leave[number] else 0 if self.linked else number

    def group(self, kind: RequestType) -> int:
        """Class of a request."""
        return bisect.bisect_left(self.leave, kind.input_tokens - 1)

    @property
    def exits(self) -> tuple[int, ...]:
        """Holds at which parts may leave for a price, rising: those of all classes but the first."""
        return self.leave[1:] if self.linked else ()

    @cached_property
    def sorts(self) -> list[Part]:
        """Different parts with which requests appear, those of class -1 last."""
        return sorted({self.part(kind) for kind in self.instance.types}, key=lambda p: (p[1] < 0, p))

    @cached_property
    def sort_numbers(self) -> list[int]:
        """Index in `sorts` of each kind of request."""
        index = {part: k for k, part in enumerate(self.sorts)}
        return [index[self.part(kind)] for kind in self.instance.types]

    @cached_property
    def parts(self) -> list[Part]:
        """All parts that there can be, smallest first."""
        tops = Counter[int]()
        for hold, number in self.sorts:
            tops[number] = max(tops[number], hold)
        leave = self.leave[:1] if self.linked else self.leave
        return sorted((hold, c) for c, d in enumerate(leave) for hold in range(d + 1, tops[c] + 1))

    @cached_property
    def totals(self) -> list[int]:
        """Number of states with a total of at most 0, 1, ... M."""
        return list(itertools.accumulate(_ways([hold for hold, _ in self.parts], self.capacity)))

    def steps(self, appear: Sequence[int], rounds: int) -> int:
        """Steps that the checker counts, rounded up.

        `appear`: rounds in which a request of each kind may end; `rounds`: all that are looked at.
        """
        every, kinds = self.totals[-1], self.instance.types
        steps = (LISTED + FOUND * (1 + len(self.sorts) + len(self.exits))) * (every + 1)
        steps += rounds * (LOOP + every * 3 // 5 + 2 * len(kinds))
        for d in self.exits:  # states with a part that leaves are as many as those with room for it
            steps += rounds * (LOOP + LEFT * self.totals[max(0, self.capacity - d - 1)] + len(kinds))
        for kind, most in zip(kinds, appear, strict=True):
            grown = self.totals[self.capacity - self.part(kind)[0]]
            steps += len(kind.members) * most * (LOOP + grown * 3 // 5)
        return steps

    @cached_property
    def lost(self) -> int:
        """Tokens that requests hold for a round each after they have left, less what all lose alike."""
        short = 0
        for kind in self.instance.types:
            peak, number = self.part(kind)
            i = kind.input_tokens
            leave = self.leave[number] if number >= 0 else peak
            short += len(kind.members) * sum(range(i, leave + 1))
        return short

    def links(self) -> Links:
        """Where all states lead to, by rising totals."""
        found = _Listed(np.array([hold for hold, _ in self.parts], np.int64), self.capacity)
        index = {part: k for k, part in enumerate(self.parts)}
        sort_of = np.full(len(self.parts) + 1, -1, np.int32)
        grown, offset, every = [], [0], np.arange(len(found.total), dtype=np.int32)
        for number, part in enumerate(self.sorts):
            room = self.totals[self.capacity - part[0]]
            if part[1] >= 0:
                sort_of[index[part]] = number
            grown.append((found.plus(index[part]) if part[1] >= 0 else every)[:room])
            offset.append(offset[-1] + room)
        shorter = [index.get((hold - 1, c), -1) for hold, c in self.parts]
        return Links(
            found.shrunk(np.array(shorter, np.int64)), np.concatenate(grown), np.array(offset, np.int64),
            sort_of[found.parts], found.less, *self._exit_links(found, index),
        )  # fmt: skip

    def _exit_links(self, found: _Listed, index: dict[Part, int]) -> tuple[Ints, Ints, Ints, Ints]:
        """The last columns of `Links`; `index`: numbers of the parts."""
        leaving: list[Ints] = [np.zeros(0, np.int32)]
        left: list[Ints] = [np.zeros(0, np.int32)]
        tally = np.zeros((len(self.exits), 2, len(found.total)), np.int8)
        ends = np.zeros(len(self.exits) + 1, np.int64)
        for c, d in enumerate(self.exits):
            if (d + 1, 0) in index:
                before, after = found.minus(index[d + 1, 0])
                leaving.append(before)
                left.append(after)
                tally[c] = [found.count(index[hold, 0]) for hold in (d + 1, d)]
            ends[c + 1] = ends[c] + (len(leaving[-1]) if (d + 1, 0) in index else 0)
        return np.concatenate(leaving), np.concatenate(left), ends, tally


class _Listed:
    """Multisets of parts, each of them one of fewer parts and a last, which is no smaller than any other.

    Those that follow from one stand side by side, so that where a part leads is a matter of adding.  What
    is told outside is by rising totals.

    Parameters
    ----------
    hold : array
        Of the parts, smallest first.
    capacity : int
        The largest total.
    """

    def __init__(self, hold: Ints, capacity: int):
        self._hold, self._capacity = hold, capacity
        total = parent = last = np.zeros(1, np.int64)
        totals, parents, lasts, self._levels = [total], [parent], [last], [slice(0, 1)]
        starts: list[Ints] = []
        end = 1
        while len(total):
            room = np.maximum(0, np.searchsorted(hold, capacity - total, "right") - last)
            starts.append(end + np.cumsum(room) - room)
            level = self._levels[-1]
            parent = np.repeat(np.arange(level.start, level.stop), room)
            within = np.arange(len(parent)) - np.repeat(np.cumsum(room) - room, room)
            last = np.repeat(last, room) + within
            total = np.repeat(total, room) + hold[last]
            totals.append(total)
            parents.append(parent)
            lasts.append(last)
            self._levels.append(slice(end, end + len(total)))
            end += len(total)
        self._levels = [level for level in self._levels if level.stop > level.start]
        self._total: Ints = np.concatenate(totals)
        self._parent: Ints = np.concatenate(parents)
        self._last: Ints = np.concatenate(lasts)
        self._start: Ints = np.concatenate(starts)
        self._order = np.argsort(self._total, kind="stable")
        self._rank = np.empty(end, np.int32)
        self._rank[self._order] = np.arange(end)
        self.total = self._total[self._order]

    def _child(self, state: Ints, part: Ints | int) -> Ints:
        """The state with one part more, which is no smaller than any other."""
        found: Ints = self._start[state] + part - self._last[state]
        return found

    def plus(self, part: int) -> Ints:
        """The state with one part more; meaningless where it does not fit."""
        to = np.zeros(len(self._total), np.int64)
        to[0] = self._child(to[0], part)
        for level in self._levels[1:]:
            last, parent = self._last[level], to[self._parent[level]]
            fits = self._total[level] + self._hold[part] <= self._capacity
            here = np.arange(level.start, level.stop)
            found = np.where(
                last <= part, self._child(here, part), self._child(np.where(fits, parent, 0), last)
            )
            to[level] = np.where(fits, found, 0)
        return self._rank[to[self._order]]

    def minus(self, part: int) -> tuple[Ints, Ints]:
        """States with some part, by falling totals, and the same without it."""
        to = np.full(len(self._total), -1, np.int64)
        for level in self._levels[1:]:
            last, parent = self._last[level], self._parent[level]
            without = to[parent]
            found = np.where(without >= 0, self._child(without, last), -1)
            to[level] = np.where(last == part, parent, np.where(last > part, found, -1))
        those = self._order[to[self._order] >= 0][::-1]
        return self._rank[those], self._rank[to[those]]

    def count(self, part: int) -> Ints:
        """How many of some part there are in each state."""
        number = np.zeros(len(self._total), np.int8)
        for level in self._levels[1:]:
            number[level] = number[self._parent[level]] + (self._last[level] == part)
        return number[self._order]

    def shrunk(self, shorter: Ints) -> Ints:
        """The states a round before; `shorter`: what becomes of each part, -1 where it leaves."""
        to = np.zeros(len(self._total), np.int64)
        for level in self._levels[1:]:
            before, part = to[self._parent[level]], shorter[self._last[level]]
            to[level] = np.where(part >= 0, self._child(before, part), before)
        return self._rank[to[self._order]]

    @cached_property
    def parts(self) -> Ints:
        """A row for each state: its parts, rising, then -1."""
        rows = np.full((len(self._total), len(self._levels) - 1), -1, np.int32)
        for width, level in enumerate(self._levels[1:]):
            rows[level] = rows[self._parent[level]]
            rows[level, width] = self._last[level]
        return rows[self._order]

    @cached_property
    def less(self) -> Ints:
        """A row for each state: the same without each of its parts, then -1."""
        rows = np.full((len(self._total), len(self._levels) - 1), -1, np.int32)
        for width, level in enumerate(self._levels[1:]):
            parent, last = self._parent[level], self._last[level]
            rows[level, width] = parent
            for j in range(width):
                rows[level, j] = self._child(rows[parent, j], last)
        return np.where(rows >= 0, self._rank[rows], -1)[self._order].astype(np.int32)


def _ways(holds: Sequence[int], capacity: int) -> list[int]:
    """Number of multisets of holds with each total."""
    ways = [1] + [0] * capacity
    for hold in holds:
        for total in range(hold, capacity + 1):
            ways[total] += ways[total - hold]
    return ways


def linked_relaxations(instance: Instance) -> Iterator[Relaxation]:
    """Those with prices of leaving, the one with the most states first."""
    prompts = sorted({kind.input_tokens - 1 for kind in instance.types})
    capacity = instance.system.kv_capacity
    for k in range(len(prompts) - 1) if capacity <= MOST_CAPACITY else ():
        if capacity // (prompts[k] + 1) <= LINKED_PARTS:
            yield Relaxation(instance, tuple(prompts[k:]), linked=True)


def relaxations(instance: Instance) -> Iterator[Relaxation]:
    """Ways to choose when requests leave, with few parts at once: of one class, then of several."""
    prompts = sorted({kind.input_tokens - 1 for kind in instance.types})
    capacity = instance.system.kv_capacity
    least = capacity // (MOST_PARTS + 1)
    last = max(prompts[-1], least)
    while last < capacity <= MOST_CAPACITY:
        yield Relaxation(instance, (last,))
        last += 1 + last // 16
    others = [leave for leave in prompts[:-1] if leave >= least]
    for count in range(1, CLASSES):
        if math.comb(len(others), count) * capacity**2 <= MOST_CHOICES:
            for some in itertools.combinations(others, count):
                yield Relaxation(instance, (*some, prompts[-1]))
