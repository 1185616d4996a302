"""Tool of the proof backwards: multisets of what requests hold, and where they lead."""

from __future__ import annotations

import bisect
from typing import NamedTuple

from infermax_opt.infermax.checker.instance import Instance

#: Steps of listing a state, and of finding where one leads.
STATE_STEPS, FOUND_STEPS = 20, 5


class Part(NamedTuple):
    """With which requests end: what it holds, its class of holds to leave at (-1: it is not seen)."""

    hold: int
    group: int


class Memories:
    """Multisets of parts that fit: each is one of fewer parts and a last, which is no smaller than any other.

    Those that follow from one stand side by side.  Outside they have numbers by rising totals.

    Parameters
    ----------
    instance : Instance
    leave : list of int
        Holds at which requests leave.
    ends : list of Part
        With which requests end.
    """

    def __init__(self, instance: Instance, leave: list[int], ends: list[Part]):
        tops = [max([part.hold for part in ends if part.group == k], default=0) for k in range(len(leave))]
        instance.work.spend(sum(max(0, top - low) for low, top in zip(leave, tops, strict=True)))
        self.parts = sorted(Part(h, k) for k, top in enumerate(tops) for h in range(leave[k] + 1, top + 1))
        self.instance, self.leave = instance, leave
        holds = [part.hold for part in self.parts]
        self.totals, self.parents, self.lasts, self.starts = [0], [0], [0], list[int]()
        for state, total in enumerate(self.totals):
            self.starts.append(len(self.totals))
            first = self.lasts[state]
            room = max(first, bisect.bisect_right(holds, instance.capacity - total)) - first
            instance.work.spend(STATE_STEPS * (room + 1))
            self.totals += [total + hold for hold in holds[first : first + room]]
            self.parents += [state] * room
            self.lasts += range(first, first + room)
        self.order = sorted(range(len(self.totals)), key=self.totals.__getitem__)
        self.numbers = [0] * len(self.order)
        for number, state in enumerate(self.order):
            self.numbers[state] = number

    def more(self, state: int, k: int) -> int:
        """The state with part k more, which is no smaller than any other and fits."""
        return self.starts[state] + k - self.lasts[state]

    def grown(self, part: Part) -> list[int]:
        """Numbers of the states with one part more; the first states, as many as have room, have one."""
        room = self.instance.capacity - part.hold
        self.instance.work.spend(FOUND_STEPS * len(self.totals))
        if part.group < 0:
            return list(range(sum(total <= room for total in self.totals)))
        k, to = self.parts.index(part), list[int]()
        for state, (total, parent, last) in enumerate(
            zip(self.totals, self.parents, self.lasts, strict=True)
        ):
            fits = total <= room
            to.append(-1 if not fits else self.more(state, k) if last <= k else self.more(to[parent], last))
        return [self.numbers[to[state]] for state in self.order if to[state] >= 0]

    def left(self, part: Part) -> tuple[list[int], list[int]]:
        """Numbers of the states with a part, by falling totals, and of the same without it."""
        self.instance.work.spend(FOUND_STEPS * len(self.totals))
        if part not in self.parts:
            return [], []
        k, to = self.parts.index(part), [-1]
        for parent, last in zip(self.parents[1:], self.lasts[1:], strict=True):
            other = to[parent] if last > k else -1
            to.append(parent if last == k else self.more(other, last) if other >= 0 else -1)
        those = [state for state in reversed(self.order) if to[state] >= 0]
        return [self.numbers[state] for state in those], [self.numbers[to[state]] for state in those]

    def shrunk(self) -> list[int]:
        """Numbers of the states a round before: parts hold a token less, or have left."""
        self.instance.work.spend(FOUND_STEPS * len(self.totals))
        index, to = {part: k for k, part in enumerate(self.parts)}, [0]
        after = [index.get(Part(hold - 1, of), -1) for hold, of in self.parts]
        for parent, last in zip(self.parents[1:], self.lasts[1:], strict=True):
            k = after[last]
            to.append(self.more(to[parent], k) if k >= 0 else to[parent])
        return [self.numbers[to[state]] for state in self.order]
