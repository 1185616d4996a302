"""What each request counts at least in `deferral`, exactly: the work of a prompt, or its wait."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds import _kernels_deferral_exact as kernels
from infermax_opt.infermax.bounds._deferral_search import (
    LEVEL_BITS,
    PARTS,
    SHARE_BITS,
    STAY_PARTS,
    WIDEST,
    Choices,
)
from infermax_opt.infermax.bounds._kernels_deferral_exact import LIMB, PART_BITS
from infermax_opt.infermax.bounds.interaction import ROOT_BITS

Integers = npt.NDArray[Any]

__all__ = ["Member", "Row", "Waits"]

#: Bits after the point of what prompts and the wait count, in ticks: so many at least, and with those of a'.
TICK_BITS, STEP_BITS = 18, 40
#: The least root of levels.
ONE = 1 << LEVEL_BITS
#: Numbers below this fit into 64 bits, sums of two of them, too; and so do upper parts of so many bits.
SMALL, UPPER = 1 << 62, 45
#: Bits after the point of the root of the least g.
LIGHT_BITS = 14


class Row(NamedTuple):
    """A prompt or later tokens in a row: least times alone before and after them, roots of work, and work.

    Times from the arrival and to the last token, in ticks; roots in units of 2**-ROOT_BITS.
    """

    before: int
    after: int
    roots: int
    works: int


class Member(NamedTuple):
    """Equal requests: how many, and what each takes and counts, in ticks.

    `begin`, `until`: arrival, rounded down and up.  `first`, `later`: least times of the first token and of
    the others.  `prompt`: least work of the prompt.  `fixed`: of later tokens.  `rows`: prompt and groups.
    """

    times: int
    outputs: int
    begin: int
    until: int
    first: int
    later: int
    prompt: int
    fixed: int
    rows: tuple[Row, ...]


class Waits:
    """All requests by arrival, and what the wait of each for its prompt is worth to those before it.

    Parameters
    ----------
    members : sequence of Member
    choices : Choices
    step : int
        a' in ticks.
    """

    def __init__(self, members: Sequence[Member], choices: Choices, step: int):
        order = sorted(range(len(members)), key=lambda i: members[i].begin)
        self.step, self.bits = step, max(TICK_BITS, STEP_BITS - step.bit_length())
        self.members = [members[i] for i in order]
        self.stays, self.shares = [choices.stays[i] for i in order], [choices.shares[i] for i in order]
        self.weights, self.levels = [choices.weights[i] for i in order], [choices.levels[i] for i in order]
        rows = ((some.begin, some.until, some.prompt, some.times) for some in self.members)
        columns: list[list[int]] = list(map(list, zip(*rows, strict=True)))
        self.begins, self.untils, prompts, counts = columns
        self.starts, self.ages = [0, *(end for end, _ in choices.cells)], choices.ages
        self.roots = [root for _, root in choices.cells]
        self.dearest = max(self.roots)
        level = self._highest()
        #: No more than this counts of any wait.
        self.most = level * max(prompts)
        small = self._is_small(level)
        self.dtype = np.int64 if small else np.object_
        self.watch, self.count = _kernels(small)
        #: The work of each prompt, and how many there are.
        self.prompts, self.counts = self.array(prompts), self.array(counts)
        #: Who begins to wait in each cell.
        self.fresh: list[list[int]] = [[] for _ in self.roots]
        #: In each cell, the first of those in a row that may wait, and what that is worth at weight 1.
        self.columns = [(k, self.array(worths)) for k, worths in self._columns()]

    def _highest(self) -> int:
        """The highest level g that any request may have."""
        root = max(root for runs in self.levels for root, _ in runs)
        return root * root << self.bits - 2 * LEVEL_BITS

    def _is_small(self, level: int) -> bool:
        """Whether all numbers of the kernels fit into 64 bits, with no g above this level."""
        longest = max(self.starts[self.window(i).stop] - begin for i, begin in enumerate(self.begins))
        prompts = sum(some.times * some.prompt for some in self.members)
        largest = max(self.most, level * min(longest, 1 << LIMB))
        return largest < SMALL and level * (longest + prompts) < 1 << LIMB + UPPER

    def array(self, numbers: Sequence[int]) -> Integers:
        """Numbers in 64 bits, where all numbers here fit into them."""
        return np.array(numbers, dtype=self.dtype)

    def part(self, i: int, cell: int) -> int:
        """The part of the window of a request to which a cell belongs."""
        return max(0, self.starts[cell] - self.begins[i]) * STAY_PARTS // self.stays[i]

    def window(self, i: int) -> range:
        """The cells in which a request has a weight."""
        end = self.begins[i] - (-PARTS * self.stays[i] // STAY_PARTS)
        first = bisect_right(self.starts, self.begins[i]) - 1
        return range(first, min(len(self.roots), bisect_left(self.starts, end)))

    def _columns(self) -> list[tuple[int, list[int]]]:
        """Share out each wait."""
        members, starts = self.members, self.starts
        columns: list[tuple[int, list[int]]] = [(0, [])] * len(self.roots)
        ready = sorted(range(len(members)), key=lambda i: members[i].begin + members[i].first)
        there, watching, last = [[0] * len(self.roots) for _ in range(len(self.ages) + 1)], 0, 0
        for k, (some, share) in enumerate(zip(members, self.shares, strict=True)):
            while watching < len(ready):
                i = ready[watching]
                if members[i].begin + members[i].first > some.begin:
                    break
                window = self.window(i)
                for c in window:
                    own = self.weights[i][self.part(i, c) :: PARTS]
                    for weights, weight in zip(there, own, strict=True):
                        weights[c] += members[i].times * weight
                last, watching = max(last, window.stop), watching + 1
            waited, rest = some.until + some.first, (1 << SHARE_BITS) - share
            first = bisect_right(starts, waited) - 1
            if first < last:
                self.fresh[first].append(k)
            for c in range(first, last):
                span = starts[c + 1] - max(starts[c], waited)
                if not columns[c][1]:
                    columns[c] = k, []
                since, worths = columns[c]
                worths.extend([0] * (k - since - len(worths)))
                total = there[bisect_right(self.ages, starts[c] - some.until)][c]
                worth = (rest * span << self.bits - SHARE_BITS) // total if total else 0
                worths.append(min(self.most, worth))
        return columns

    def total(self) -> int:
        """What all requests count, less what the prices take."""
        spans = (b - a for a, b in pairwise(self.starts))
        taken = sum(span * root * root for span, root in zip(spans, self.roots, strict=True)) << self.bits
        return sum(some.times * Life(self, i).least() for i, some in enumerate(self.members)) - taken


class Life:
    """What one request counts at least, over all times of its first and of its last token.

    Parameters
    ----------
    waits : Waits
    i : int
        Its place.
    """

    def __init__(self, waits: Waits, i: int):
        self._waits, self._some, self._i, self._bits = waits, waits.members[i], i, waits.bits
        self._window, self._earliest = waits.window(i), self._some.begin + self._some.first
        self._roots = [root for root, many in waits.levels[i] for _ in range(many)]
        #: The least g, which is what it does not count of its own wait, and the root of that.
        self._rest = (1 << SHARE_BITS) - waits.shares[i]
        self._light = math.isqrt(self._rest << 2 * LIGHT_BITS - SHARE_BITS)
        self._weights = [waits.array(waits.weights[i][part::PARTS]) for part in range(PARTS)]
        #: Prompts that it may see: how many have come; when each comes, its work, how many such there are.
        self._low = bisect_left(waits.begins, self._earliest)
        self._high = max(self._low, bisect_left(waits.begins, waits.starts[self._window.stop]))
        self._there = 0
        self._times = waits.array([begin - self._earliest for begin in waits.begins[self._low : self._high]])
        self._works, self._counts = (some[self._low : self._high] for some in (waits.prompts, waits.counts))
        #: What it has of the waits of each, and what of that counts at both ends of a cell.
        self._shares, self._before, self._now = np.zeros((3, self._high - self._low), dtype=waits.dtype)
        #: Of each row, the least r so far and the next cell to look at.
        self._lowest = [waits.dearest] * len(self._some.rows)
        self._next = [
            bisect_right(waits.starts, self._some.begin + row.before) - 1 for row in self._some.rows
        ]

    def least(self) -> int:
        """In ticks, times a' and two to the power of 2 ROOT_BITS + bits."""
        starts, cells, window = self._waits.starts, len(self._waits.roots), self._window
        possible = bisect_right(starts, self._earliest + self._some.later) - 1
        best = self._late(starts[-1])
        for c in chain(window, range(max(window.start, window.stop), cells, WIDEST)):
            e = c + 1 if c < window.stop else min(cells, c + WIDEST)
            if e > possible and self._late(starts[c]) >= best:
                break
            self._watch_cell(c)
            if e > possible:
                value, later = self._in_cell(c, e, best)
                if later is not None and later >= best:
                    break
                best = min(best, value)
        return best

    def _in_cell(self, c: int, e: int, best: int) -> tuple[int, int | None]:
        """What it counts if it ends in some cells, and if later: None if that is not of use.

        Parameters
        ----------
        c, e : int
            The first of the cells, and the one after them.
        best : int
            The least so far.
        """
        starts, root = self._waits.starts, self._roots[min(c - self._window.start, len(self._roots) - 1)]
        rest = (1 << self._bits) - self._level(root)
        left, right, after = self._prompts(root, starts[e] - self._some.later)
        self._follow(e)
        value = self._priced(root, min(left + rest * starts[c], right + rest * starts[e]), self._lowest)
        if value < best or rest < 0:
            return value, None
        cheapest = min(self._waits.roots[min(self._next) : self._end_by(best)], default=self._waits.dearest)
        return value, self._priced(root, after + rest * starts[e], [min(r, cheapest) for r in self._lowest])

    def _late(self, end: int) -> int:
        """What it counts at least if it ends no sooner."""
        some, share = self._some, self._waits.shares[self._i]
        ticks = self._rest * (some.first + some.fixed) + share * (end - some.until)
        return ticks * self._waits.step << 2 * ROOT_BITS + self._bits - SHARE_BITS

    def _end_by(self, best: int) -> int:
        """The cell before which it ends, or it counts that much."""
        starts = self._waits.starts
        return bisect_left(starts, best, 0, len(self._waits.roots), key=self._late)

    def _watch_cell(self, cell: int) -> None:
        """Take its share of waits in a cell of its window."""
        waits, low, high = self._waits, self._low, self._high
        if cell >= self._window.stop:
            self._before[:], self._now[:] = self._now, self._shares
            return
        self._there = there = bisect_left(waits.begins, waits.starts[cell + 1], low, high) - low
        since, worths = waits.columns[cell]
        ages = [bisect_right(waits.untils, waits.starts[cell] - age, low, high) - low for age in waits.ages]
        waits.watch(
            self._shares, self._before, self._now, worths, since - low, there,
            np.array(ages, dtype=np.int64), self._weights[waits.part(self._i, cell)], waits.most,
        )  # fmt: skip
        # A wait that begins in this cell counts nothing yet.
        self._now[[k - low for k in waits.fresh[cell] if low <= k < low + there]] = 0

    def _prompts(self, root: int, limit: int) -> tuple[int, int, int]:
        """Prompts and the wait for the first token at both ends of a cell, and after it; in 2**-bits ticks.

        Parameters
        ----------
        root : int
            Of g, over that of the least g.
        limit : int
            The first token is no later.
        """
        waits, low, there = self._waits, self._low, self._there
        level, square = self._level(root), root * root
        late = bisect_right(waits.begins, limit, low, low + there) - low
        part = (square - ONE * ONE << PART_BITS) // square
        sums = waits.count(
            self._before, self._now, self._works, self._counts, self._times, level, part, there, late
        )  # fmt: skip
        sooner, lost, every, least = ((int(upper) << LIMB) + int(lower) for upper, lower in sums)
        some, share = self._some, waits.shares[self._i]
        slope = level - (self._rest << self._bits - SHARE_BITS)
        own = (some.first << SHARE_BITS) - share * (some.until + some.first)
        fixed = (own << self._bits - SHARE_BITS) + level * some.fixed + slope * self._earliest
        after = min(every + least, slope * (limit - self._earliest))
        return fixed + sooner + lost, fixed + every + least, fixed + after

    def _level(self, root: int) -> int:
        """The level g of a root, in units of 2**-bits."""
        return self._rest * root * root << self._bits - SHARE_BITS - 2 * LEVEL_BITS

    def _follow(self, end: int) -> None:
        """See which r are the least for its prompt and tokens, if it ends before this cell."""
        starts, prices = self._waits.starts, self._waits.roots
        for m, row in enumerate(self._some.rows):
            after = min(end, bisect_right(starts, starts[end] - row.after))
            if after > self._next[m]:
                self._lowest[m] = min(self._lowest[m], *prices[self._next[m] : after])
                self._next[m] = after

    def _priced(self, root: int, ticks: int, lowest: Sequence[int]) -> int:
        """That and what its prompt and tokens count at some r.

        Parameters
        ----------
        root : int
            Of g, over that of the least g.
        ticks : int
            In units of 2**-bits.
        lowest : sequence of int
            Of each row, the r.
        """
        linear = squared = 0
        for low, row in zip(lowest, self._some.rows, strict=True):
            linear += low * row.roots
            squared += low * low * row.works
        step = self._waits.step
        roots = linear * root * self._light * step << 1 + self._bits - LEVEL_BITS - LIGHT_BITS
        return (ticks * step << 2 * ROOT_BITS) + roots + (squared << self._bits)


@functools.cache
def _kernels(small: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if not small:
        return kernels.watch, kernels.count
    helpers = kernels.add, kernels.less, kernels.product, kernels.scaled
    return compiled(kernels.watch, ()), compiled(kernels.count, helpers)
