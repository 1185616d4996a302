"""States of paths backwards, multisets of parts; see `infermax_opt.infermax.bounds.backwards`."""

from __future__ import annotations

import bisect
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from infermax_opt.infermax.bounds._kernels_backwards import Links
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Relaxation", "relaxations"]

#: Parts of a state at most: which of them are new is tried in all ways.
MOST_PARTS = 12
#: Classes of prompts at most.
CLASSES = 3
#: Memory beyond which nothing is tried, as even weighing relaxations takes seconds.
MOST_CAPACITY = 1000
#: Choices of classes times M squared, at most: weighing one takes as many steps as it has parts, M times.
MOST_CHOICES = 10**7
#: Steps that the checker counts to list a state, and for a loop beside what it goes through.
LISTED, LOOP = 60, 10

#: Hold and class of a request in memory.
Part = tuple[int, int]
State = tuple[Part, ...]


@dataclass(frozen=True)
class Relaxation:
    """Holds at which requests leave, rising, one for each class of prompts.

    Parameters
    ----------
    instance : Instance
    leave : tuple of int
    """

    instance: Instance
    leave: tuple[int, ...]

    @cached_property
    def capacity(self) -> int:
        """M."""
        return self.instance.system.kv_capacity

    def part(self, kind: RequestType) -> Part:
        """Peak of a request, and its class; class -1 where it has left before it is seen."""
        peak = kind.input_tokens + kind.output_tokens - 1
        number = bisect.bisect_left(self.leave, kind.input_tokens - 1)
        return peak, number if peak > self.leave[number] else -1

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
        return sorted((hold, c) for c, d in enumerate(self.leave) for hold in range(d + 1, tops[c] + 1))

    @cached_property
    def totals(self) -> list[int]:
        """Number of states with a total of at most 0, 1, ... M."""
        ways = [1] + [0] * self.capacity
        for hold, _ in self.parts:
            for total in range(hold, self.capacity + 1):
                ways[total] += ways[total - hold]
        return list(itertools.accumulate(ways))

    def steps(self, appear: Sequence[int], rounds: int) -> int:
        """Steps that the checker counts, rounded up.

        `appear`: rounds in which a request of each kind may end; `rounds`: all that are looked at.
        """
        every, kinds = self.totals[-1], self.instance.types
        steps = LISTED * (every + 1) + rounds * (LOOP + every * 3 // 5 + 2 * len(kinds))
        for kind, most in zip(kinds, appear, strict=True):
            grown = self.totals[self.capacity - self.part(kind)[0]]
            steps += LISTED * (grown + 1) + len(kind.members) * most * (LOOP + grown * 3 // 5)
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

    def states(self) -> list[State]:
        """All states, by their totals."""
        found: list[State] = [()]
        ends = [(0, 0)]  # total, and the first part that may be added
        for state, (total, first) in zip(found, ends, strict=False):
            for k in range(first, len(self.parts)):
                if total + self.parts[k][0] > self.capacity:
                    break
                found.append((*state, self.parts[k]))
                ends.append((total + self.parts[k][0], k))
        return sorted(found, key=lambda state: (sum(hold for hold, _ in state), state))

    def links(self) -> Links:
        """Where all states lead to."""
        states = self.states()
        number = {state: k for k, state in enumerate(states)}
        shrunk = [number[self._shrunk(state)] for state in states]
        grown, offset = [], [0]
        index = {part: k for k, part in enumerate(self.sorts)}
        width = max(len(state) for state in states)
        sort, less = np.full((2, len(states), width), -1, np.int32)
        for part in self.sorts:
            fits = self.totals[self.capacity - part[0]]
            grown += [
                number[tuple(sorted((*state, part)))] if part[1] >= 0 else k
                for k, state in enumerate(states[:fits])
            ]
            offset.append(len(grown))
        for k, state in enumerate(states):
            for j, part in enumerate(state):
                if part in index:
                    sort[k, j] = index[part]
                less[k, j] = number[state[:j] + state[j + 1 :]]
        return Links(
            np.array(shrunk, np.int32), np.array(grown, np.int32), np.array(offset, np.int64), sort, less
        )

    def _shrunk(self, state: State) -> State:
        """The state a round before: every part holds a token less, or has left."""
        return tuple((hold - 1, c) for hold, c in state if hold - 1 > self.leave[c])


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
