"""Proof: arc lengths, by the number of bins and outputs rounded up to few lengths."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate, pairwise

from infermax_opt.makespan.checker.instance import Instance
from infermax_opt.makespan.checker.stages import cover, rounds


def arc_lengths(instance: Instance) -> int:
    """Least over the number of bins: prefill stages, and rounds with outputs rounded up to few lengths."""
    levels, clients, lap = instance.levels, instance.clients, instance.round
    prefill, lengths = Prefill(instance), Lengths(instance)
    least, fixed = rounds(instance), cover(instance)
    # Nodes fall into classes, for the rounds that are busy on average.
    busy = -(-instance.tokens // clients)
    classes = -(-busy // lengths.values[-1])
    bins = max(-(-instance.requests // clients), -(-instance.prompts // levels[-1][0]), classes)
    best, now = None, prefill.on_hull(bins)
    while True:
        spare = lengths.least_waste(useful_lengths(bins, classes))
        decode = max(least, -(-(instance.tokens + spare) // clients))
        here = max(fixed, prefill.rounded_up(bins, now)) + decode * lap
        best = here if best is None else min(best, here)
        following = prefill.on_hull(bins + 1)  # and no less later on, once it rises
        later = (max(fixed, math.ceil(following)) if following >= now else fixed) + least * lap
        if bins >= instance.requests or later >= best:
            return best
        if decode == least and following < now:
            return later  # what many more bins would save at most
        bins, now = bins + 1, following


def useful_lengths(bins: int, classes: int) -> int:
    """Most distinct lengths of arcs between the nodes of so many bins that are of use."""
    if classes < 2:
        return bins * (bins + 1) // 2
    full = bins + 1 - classes
    return full * (full - 1) // 2 + 2 * full + classes - 1


class Prefill:
    """Least ticks of exactly so many prefill stages for all prompts."""

    def __init__(self, instance: Instance):
        self.work, self.prompts, self.base = instance.work, instance.prompts, instance.levels[0][1]
        self.grain = math.gcd(*(time - self.base for _, time in instance.levels)) or 1
        hull: list[tuple[int, int]] = []  # of tokens and ticks of a stage, from below
        for x, y in [(0, self.base), *instance.levels]:
            while len(hull) > 1:
                (x0, y0), (x1, y1) = hull[-2:]
                if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                    break
                hull.pop()
            hull.append((x, y))
        self.edges = [(x, y, Fraction(b - y, a - x)) for (x, y), (a, b) in pairwise(hull)]

    def on_hull(self, bins: int) -> Fraction:
        """Ticks of so many stages, each with as many tokens on average; convex in their number."""
        self.work.spend(30 + 30 * len(self.edges))
        return max(bins * y + (self.prompts - bins * x) * slope for x, y, slope in self.edges)

    def rounded_up(self, bins: int, ticks: Fraction) -> int:
        """The next sum of so many levels."""
        return bins * self.base + math.ceil((ticks - bins * self.base) / self.grain) * self.grain


class Lengths:
    """Least total rounding up of all outputs to so many distinct lengths or fewer."""

    def __init__(self, instance: Instance):
        outputs = instance.outputs
        self.work, self.values = instance.work, sorted(outputs)
        self.count = [0, *accumulate(outputs[value] for value in self.values)]
        self.total = [0, *accumulate(value * outputs[value] for value in self.values)]
        self.row, self.lengths = [0, *(self.waste(0, j) for j in range(1, len(self.values) + 1))], 1

    def waste(self, i: int, j: int) -> int:
        """What the outputs from the i-th to before the j-th value lose if they all become the largest."""
        return self.values[j - 1] * (self.count[j] - self.count[i]) - (self.total[j] - self.total[i])

    def least_waste(self, lengths: int) -> int:
        """Least waste with so many lengths; they must not fall from call to call."""
        if lengths >= len(self.values):
            return 0
        while self.lengths < lengths:
            self.row, self.lengths = self.one_more(), self.lengths + 1
        return self.row[-1]

    def one_more(self) -> list[int]:
        """Least waste of the first j values, for each j, with one length more.

        The best last segment begins no earlier for a larger j, so that half of the j narrow down the others.
        """
        row, size = self.row, len(self.values)
        self.work.spend(20 * size + 6 * size * size.bit_length())
        found, todo = [0] * (size + 1), [(1, size, 0, size - 1)]
        while todo:
            low, high, first, last = todo.pop()
            j = (low + high) // 2
            found[j], at = min(
                (row[i] + self.waste(i, j), i) for i in {0, *range(first, min(last, j - 1) + 1)}
            )
            if low < j:
                todo.append((low, j - 1, first, max(first, at)))
            if j < high:
                todo.append((j + 1, high, max(first, at), last))
        return found
