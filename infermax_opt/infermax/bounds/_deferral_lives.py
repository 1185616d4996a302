"""What each request counts at least in `deferral`, exactly: the work of a prompt, or its wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from infermax_opt.infermax.bounds._deferral_search import (
    LEVEL_BITS,
    PARTS,
    SHARE_BITS,
    STAY_PARTS,
    WIDEST,
    Choices,
)
from infermax_opt.infermax.bounds.interaction import ROOT_BITS

Integers = npt.NDArray[Any]

__all__ = ["Member", "Row", "Waits"]

#: Bits after the point of what prompts and the wait count, in ticks: so many at least, and with those of a'.
TICK_BITS, STEP_BITS = 12, 40
#: Numbers below this fit into 64 bits, sums of two of them, too.
SMALL = 1 << 62


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
        self.begins = [some.begin for some in self.members]
        self.starts = [0, *(end for end, _ in choices.cells)]
        self.roots = [root for _, root in choices.cells]
        self.dtype = np.int64 if self._is_small() else np.object_
        #: Who begins to wait in each cell.
        self.fresh: list[list[int]] = [[] for _ in self.roots]
        #: In each cell, the first of those in a row that may wait, and what that is worth at weight 1.
        self.columns = [(k, np.array(worths, dtype=self.dtype)) for k, worths in self._columns()]

    def _is_small(self) -> bool:
        """Whether all numbers in columns of prompts fit into 64 bits."""
        longest = max(self.starts[self.window(i).stop] - begin for i, begin in enumerate(self.begins))
        level = max(root * root for runs in self.levels for root, _ in runs) << self.bits - 2 * LEVEL_BITS
        prompts = sum(some.times * some.prompt for some in self.members)
        return max((level + (2 << self.bits)) * longest, level * prompts) < SMALL

    def part(self, i: int, cell: int) -> int:
        """The part of the window of a request to which a cell belongs; there may be none so late."""
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
        there, watching, last = [0] * len(self.roots), 0, 0
        for k, (some, share) in enumerate(zip(members, self.shares, strict=True)):
            while watching < len(ready):
                i = ready[watching]
                if members[i].begin + members[i].first > some.begin:
                    break
                window = self.window(i)
                for c in window:
                    there[c] += members[i].times * self.weights[i][self.part(i, c)]
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
                worths.append((rest * span << self.bits - SHARE_BITS) // there[c] if there[c] else 0)
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
        self._window, begins = waits.window(i), waits.begins
        self._earliest = self._some.begin + self._some.first
        self._low = bisect_left(begins, self._earliest)
        high = bisect_left(begins, waits.starts[self._window.stop])
        #: Prompts that it may see: when they come, how many have come, and what it has of the waits of each.
        self._begins, self._active = begins[self._low : high], 0
        self._members = waits.members[self._low : high]
        self._shares = np.zeros(len(self._begins), dtype=waits.dtype)
        self._counts = np.array([some.times for some in self._members], dtype=waits.dtype)
        self._tables: dict[int, tuple[int, Integers, Integers]] = {}
        #: Of each row, the least r so far and the next cell to look at; what all rows count then.
        self._lowest: list[int | None] = [None] * len(self._some.rows)
        self._linear = self._squared = 0
        self._next = [
            bisect_right(waits.starts, self._some.begin + row.before) - 1 for row in self._some.rows
        ]

    def least(self) -> int:
        """In ticks, times a' and two to the power of 2 ROOT_BITS + bits."""
        starts, some, cells = self._waits.starts, self._some, len(self._waits.roots)
        possible = bisect_right(starts, self._earliest + some.later) - 1
        roots = [root for root, many in self._waits.levels[self._i] for _ in range(many)]
        window, best = self._window, self._late(starts[-1])
        left = self._edge(roots[0], some.begin, [])
        for c in chain(window, range(max(window.start, window.stop), cells, WIDEST)):
            e = c + 1 if c < window.stop else min(cells, c + WIDEST)
            if e > possible and self._late(starts[c]) >= best:
                break
            fresh = self._watch_cell(c)
            following = e + 1 if e < window.stop else e + WIDEST
            if following <= possible:
                continue
            limit = starts[min(cells, following)] - some.later
            root = roots[min(c - window.start, len(roots) - 1)]
            right = self._edge(root, limit, fresh)
            if e > possible:
                grown = (1 << self._bits) - self._level(root)
                least = min(left + grown * starts[c], right + grown * starts[e])
                best = min(best, self._priced(root, least, e))
            ahead = roots[min(e - window.start, len(roots) - 1)]
            left = right if ahead == root else self._edge(ahead, limit, fresh)
        return best

    def _late(self, end: int) -> int:
        """What it counts at least if it ends no sooner."""
        some, share = self._some, self._waits.shares[self._i]
        rest = (1 << SHARE_BITS) - share
        ticks = rest * (some.first + some.fixed) + share * (end - some.until)
        return ticks * self._waits.step << 2 * ROOT_BITS + self._bits - SHARE_BITS

    def _watch_cell(self, cell: int) -> list[int]:
        """Take its share of waits in a cell of its window; return who has none before the end of it."""
        if cell >= self._window.stop:
            return []
        waits, low = self._waits, self._low
        self._active = active = bisect_left(self._begins, waits.starts[cell + 1])
        weight = waits.weights[self._i][waits.part(self._i, cell)]
        since, worths = waits.columns[cell]
        mine = worths[max(0, low - since) : max(0, low - since + active)]
        skipped = max(0, since - low)
        known: Any = self._shares[skipped:active]
        known[: len(mine)] = known[: len(mine)] + weight * mine[: len(known)]
        return [k - low for k in waits.fresh[cell] if 0 <= k - low < active]

    def _edge(self, root: int, limit: int, fresh: Sequence[int]) -> int:
        """The wait for the first token, and prompts, without what grows with the end; in 2**-bits ticks.

        Parameters
        ----------
        root : int
            Of g.
        limit : int
            The first token is no later.
        fresh : sequence of int
            Prompts that count nothing yet.
        """
        if root not in self._tables:
            self._tables[root] = self._table(root)
        slope, rises, caps = self._tables[root]
        active = self._active
        paid = np.minimum(self._shares[:active], caps[:active])
        paid[fresh] = 0
        lost = np.add.accumulate(paid * self._counts[:active])
        late = bisect_right(self._begins, limit, 0, active)
        least = min(0, int((rises[:late] - lost[:late]).min())) if late else 0
        some, share = self._some, self._waits.shares[self._i]
        own = (some.first << SHARE_BITS) - share * (some.until + some.first)
        prompts = slope * self._earliest + (int(lost[-1]) if active else 0)
        return least + prompts + (own << self._bits - SHARE_BITS) + self._level(root) * some.fixed

    def _table(self, root: int) -> tuple[int, Integers, Integers]:
        """How a wait for the first token counts at a level, that up to each prompt, and most of each."""
        level, dtype = self._level(root), self._waits.dtype
        slope = (self._waits.shares[self._i] << self._bits - SHARE_BITS) + level - (1 << self._bits)
        caps = [level * some.prompt for some in self._members]
        rises = [slope * (begin - self._earliest) for begin in self._begins]
        return slope, np.array(rises, dtype=dtype), np.array(caps, dtype=dtype)

    def _level(self, root: int) -> int:
        """The level g of a root, in units of 2**-bits."""
        return root * root << self._bits - 2 * LEVEL_BITS

    def _priced(self, root: int, ticks: int, end: int) -> int:
        """That and what its prompt and tokens count at the least r up to the end of a cell.

        Parameters
        ----------
        root : int
            Of g.
        ticks : int
            In units of 2**-bits.
        end : int
            The cell after it.
        """
        starts, prices = self._waits.starts, self._waits.roots
        for m, row in enumerate(self._some.rows):
            after = min(end, bisect_right(starts, starts[end] - row.after))
            for c in range(self._next[m], after):
                low, price = self._lowest[m], prices[c]
                if low is None or price < low:
                    self._lowest[m] = price
                    self._linear += (price - (low or 0)) * row.roots
                    self._squared += (price * price - (low or 0) ** 2) * row.works
            if after > self._next[m]:
                self._next[m] = after
        step = self._waits.step
        roots = self._linear * root * step << 1 + self._bits - LEVEL_BITS
        return (ticks * step << 2 * ROOT_BITS) + roots + (self._squared << self._bits)
