"""Longest first, then exact splits of two machines: good assignments within milliseconds.

Sums of subsets are the bits of one large whole number, which Python shifts as fast as memory allows.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Sequence

__all__ = ["balance", "longest_first"]

#: Failures of the most loaded machine with all others, in a row, before the search gives up.
STALLS = 6
#: How often the most loaded machine takes part in a random split.
OFTEN = 0.3


def longest_first(lengths: Sequence[int], machines: int) -> list[list[int]]:
    """Each job, longest first, on the machine with the least load (Graham 1969).

    Parameters
    ----------
    lengths : sequence of int
        Longest first.

    Returns
    -------
    list of list of int
        Lengths per machine.
    """
    parts: list[list[int]] = [[] for _ in range(machines)]
    heap = [(0, k) for k in range(machines)]
    for length in lengths:
        load, k = heap[0]
        parts[k].append(length)
        heapq.heapreplace(heap, (load + length, k))
    return parts


def split(items: list[int], low: int, high: int) -> list[int] | None:
    """Positions of items with the largest sum in [low, high], or None."""
    bits, steps = 1, []
    for item in items:
        steps.append(bits)
        bits |= bits << item
    total = (bits & ((1 << (high + 1)) - 1)).bit_length() - 1
    if total < low:
        return None
    taken = []
    for position in range(len(items) - 1, -1, -1):
        if not steps[position] >> total & 1:
            taken.append(position)
            total -= items[position]
    return taken


def balance(
    parts: list[list[int]], target: int, *, seed: int, rounds: int, deadline: float | None
) -> list[list[int]]:
    """Split the most loaded machine and another one anew, until no load exceeds `target`.

    A pair is split as evenly as possible, if that leaves both below the largest load.  Where no
    other machine helps, a few pairs are split at random; often the most loaded machine is one of
    them, so that an instance without slack does not get stuck.

    Parameters
    ----------
    parts : list of list of int
        Lengths per machine; left as they are.
    target : int
        Load at which to stop.
    seed : int
    rounds : int
        Most pairs tried.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Returns
    -------
    list of list of int
        The best found.
    """
    rng = random.Random(seed)
    pairs = _Pairs([list(part) for part in parts], rng)
    best, least, stalls = parts, max(pairs.loads), 0
    while rounds > 0 and (deadline is None or time.monotonic() < deadline):
        top, worst = pairs.worst()
        if top < least:
            best, least, stalls = [list(part) for part in pairs.parts], top, 0
        if top <= target:
            break
        tried, better = pairs.relieve(worst, rounds, deadline)
        rounds -= tried
        if better:
            continue
        stalls += 1
        if stalls > STALLS:
            break
        for _ in range(max(2, len(parts) // 8)):
            pairs.shake(worst, top)
    return best


class _Pairs:
    """Machines whose jobs move in pairs of machines.

    `parts`: lengths per machine; `loads`: their sums.
    """

    def __init__(self, parts: list[list[int]], rng: random.Random):
        self.parts, self.rng = parts, rng
        self.loads = [sum(part) for part in parts]
        self.heap = [(-load, k) for k, load in enumerate(self.loads)]
        heapq.heapify(self.heap)

    def worst(self) -> tuple[int, int]:
        """Largest load, and a machine that has it."""
        # Entries of loads that have changed since are skipped.
        while -self.heap[0][0] != self.loads[self.heap[0][1]]:
            heapq.heappop(self.heap)
        return -self.heap[0][0], self.heap[0][1]

    def relieve(self, worst: int, rounds: int, deadline: float | None) -> tuple[int, bool]:
        """Split `worst` and another one, to the good of both; pairs tried, and whether that worked."""
        top, m = self.loads[worst], len(self.loads)
        order = sorted(range(m), key=self.loads.__getitem__)
        # Those with room first, but not always the same.
        start = self.rng.randrange(max(1, m // 4))
        tried = 0
        for other in order[start:] + order[:start]:
            total = top + self.loads[other]
            if other == worst or (total + 1) // 2 >= top:
                continue
            tried += 1
            if self._part(worst, other, total - top + 1, total // 2):
                return tried, True
            if tried >= rounds or (deadline is not None and time.monotonic() >= deadline):
                break
        return tried, False

    def shake(self, worst: int, top: int) -> None:
        """Split two machines anew at random, neither above `top`."""
        m = len(self.loads)
        a = worst if self.rng.random() < OFTEN else self.rng.randrange(m)
        b = self.rng.randrange(m)
        if a != b:
            total = self.loads[a] + self.loads[b]
            self._part(a, b, total - top, min(top, self.rng.randrange(total // 2, total + 1)))

    def _part(self, a: int, b: int, low: int, high: int) -> bool:
        """Give b the largest sum in [low, high] of the jobs of both, and a the rest; whether there is one."""
        items = self.parts[a] + self.parts[b]
        self.rng.shuffle(items)
        taken = split(items, max(0, low), high)
        if taken is None:
            return False
        inside = set(taken)
        self._put(a, [item for p, item in enumerate(items) if p not in inside])
        self._put(b, [items[p] for p in taken])
        return True

    def _put(self, k: int, part: list[int]) -> None:
        self.parts[k], self.loads[k] = part, sum(part)
        heapq.heappush(self.heap, (-self.loads[k], k))
