"""Proof: deferral, by prices of time and by shares of the time for which prompts wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import sub

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.deferral_waits import (
    ALL,
    LEVEL_ROOT_BITS,
    OWN_BITS,
    Life,
    Waits,
    read_lives,
)
from infermax_opt.infermax.checker.guests import ROOT_BITS
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.interaction import read_roots
from infermax_opt.infermax.checker.pieces import Piece

#: Cells after a window that count as one.
WIDE = 8
#: Bits after the point of a tick in what prompts count: so many at least, and with those of a'.
TICK_BITS, STEP_BITS = 12, 40
#: Steps of checking: a prompt at an end of a cell, and in a cell; an end, a row at it, and a cell of a row.
LOOK_STEPS, PASS_STEPS, ENDING_STEPS, ROW_STEPS, WALK_STEPS = 2, 1, 50, 10, 3


def deferral(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Whom no prompt slows down, prompts wait for.

    See `infermax_opt.infermax.bounds.deferral`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    step = piece.alpha + instance.d0
    require(step > 0, "piece: a batch that decodes takes no time")
    ends, roots = read_roots(instance, evidence["cells"], len(instance.kinds))
    require(bool(ends), "cells: there are none")
    starts = [0, *ends]
    lives = sorted(read_lives(instance, evidence, piece, starts), key=lambda life: life.some.begin)
    bits = max(TICK_BITS, STEP_BITS - step.bit_length())
    waits = Waits(instance, starts, roots, lives, bits)
    spans = zip(pairwise(starts), roots, strict=True)
    total = -sum((end - start) * root * root for (start, end), root in spans) << bits
    total += sum(life.some.times * LastMoment(waits, life, step).least() for life in lives)
    whole = step << 2 * ROOT_BITS + bits
    return Fraction(total, whole * instance.scale * sum(instance.kinds.values()))


class LastMoment:
    """The least that a request counts; `step` is a' in ticks."""

    def __init__(self, waits: Waits, life: Life, step: int):
        self.waits, self.life, self.step, self.bits = waits, life, step, waits.bits
        self.low = bisect_left(waits.begins, life.earliest)
        high = bisect_left(waits.begins, waits.starts[life.window.stop])
        self.begins = waits.begins[self.low : high]
        self.others = waits.lives[self.low : high]
        self.shares: list[int] = []
        self.several = any(other.some.times > 1 for other in self.others)
        self.tables: dict[int, tuple[list[int], list[int]]] = {}
        self.cheapest: list[int | None] = [None] * len(life.groups)
        self.ahead = [bisect_right(waits.starts, life.some.begin + one.before) - 1 for one in life.groups]
        self.runs = list(accumulate(many for _, many in life.levels))
        self.linear = self.squared = 0

    def least(self) -> int:
        """Over all cells in which its last token may be made, in small units."""
        starts, window, later = self.waits.starts, self.life.window, self.life.some.later
        possible, cells = bisect_right(starts, self.life.earliest + later) - 1, len(starts) - 1
        best, c, root = self.after(starts[-1]), window.start, self.root_of(window.start)
        before = self.at_edge(root, self.life.some.begin, [])
        while c < cells:
            e = self.end_of(c)
            if e > possible and self.after(starts[c]) >= best:
                break  # who ends later counts no less
            self.waits.instance.work.spend(ENDING_STEPS)
            new, following = self.pass_cell(c), self.end_of(e) if e < cells else e
            limit, ahead = starts[following] - later, self.root_of(e)
            if following > possible or e == cells:
                now = self.at_edge(root, limit, new)
                if e > possible:
                    slope = (1 << self.bits) - self.level_of(root)
                    least = min(before + slope * starts[c], now + slope * starts[e])
                    best = min(best, self.priced(least, root, e))
                before = now if ahead == root else self.at_edge(ahead, limit, new)
            c, root = e, ahead
        return best

    def end_of(self, cell: int) -> int:
        """The cell after those that count as one with it."""
        if cell < self.life.window.stop:
            return cell + 1
        return min(len(self.waits.starts) - 1, cell + WIDE)

    def root_of(self, cell: int) -> int:
        """The root of its level in a cell; the last one goes on."""
        run = bisect_right(self.runs, cell - self.life.window.start)
        return self.life.levels[min(run, len(self.runs) - 1)][0]

    def after(self, end: int) -> int:
        """What it counts at least if its last token comes no sooner."""
        some, first, share = self.life.some, self.life.first, self.life.share
        ticks = (ALL - share) * (first + some.tokens[0]) + share * (end - some.until)
        return ticks * self.step << 2 * ROOT_BITS + self.bits - OWN_BITS

    def pass_cell(self, cell: int) -> list[int]:
        """Take what it has of all waits in a cell of its window; those that count only after it."""
        window = self.life.window
        if cell not in window:
            return []
        present = bisect_left(self.begins, self.waits.starts[cell + 1])
        self.waits.instance.work.spend(PASS_STEPS * present + len(self.waits.new[cell]))
        self.shares += [0] * (present - len(self.shares))
        weight, (head, worths) = self.life.weights[cell - window.start], self.waits.columns[cell]
        skipped = max(0, head - self.low)
        mine = worths[max(0, self.low - head) : max(0, self.low - head + present)]
        self.shares[skipped : skipped + len(mine)] = [
            share + weight * worth for share, worth in zip(self.shares[skipped:], mine, strict=False)
        ]
        return [k - self.low for k in self.waits.new[cell] if self.low <= k < self.low + present]

    def at_edge(self, root: int, limit: int, new: list[int]) -> int:
        """Its wait for the first token, no later than a limit, and prompts, but for what the end adds.

        Parameters
        ----------
        root : int
            Of the level.
        limit : int
        new : list of int
            Prompts that do not count yet.
        """
        life = self.life
        self.waits.instance.work.spend(LOOK_STEPS * (len(self.shares) + 1))
        if root not in self.tables:
            self.tables[root] = self.table(root)
        caps, rises = self.tables[root]
        counts = list(map(min, self.shares, caps))
        for k in new:
            counts[k] = 0
        if self.several:
            counts = [other.some.times * one for other, one in zip(self.others, counts, strict=False)]
        lost = list(accumulate(counts, initial=0))
        # The first token is there at once, or just after a prompt has come, which then is not seen.
        moments = rises[: 1 + bisect_right(self.begins, limit, 0, len(counts))]
        own = (life.first << OWN_BITS) - life.share * (life.some.until + life.first)
        fixed = (own << self.bits - OWN_BITS) + self.level_of(root) * life.some.tokens[0]
        least: int = min(map(sub, moments, lost))
        return least + lost[-1] + fixed

    def table(self, root: int) -> tuple[list[int], list[int]]:
        """Most that each prompt counts at a level, and the wait until its own first token at each moment."""
        level = self.level_of(root)
        self.waits.instance.work.spend(LOOK_STEPS * len(self.others))
        slope = (self.life.share << self.bits - OWN_BITS) + level - (1 << self.bits)
        caps = [level * other.prompt for other in self.others]
        return caps, [slope * moment for moment in (self.life.earliest, *self.begins)]

    def level_of(self, root: int) -> int:
        """The level of a root, in parts of a tick."""
        return root * root << self.bits - 2 * LEVEL_ROOT_BITS

    def priced(self, ticks: int, root: int, end: int) -> int:
        """That, and its prompt and tokens at the least r up to the end of a cell, in small units.

        Parameters
        ----------
        ticks : int
            In parts of a tick.
        root : int
            Of the level.
        end : int
            The cell after it.
        """
        starts, prices, work = self.waits.starts, self.waits.roots, self.waits.instance.work
        work.spend(ROW_STEPS * len(self.life.groups))
        for n, one in enumerate(self.life.groups):
            last = min(end, bisect_right(starts, starts[end] - one.after))
            work.spend(WALK_STEPS * max(0, last - self.ahead[n]))
            for c in range(self.ahead[n], last):
                lowest = self.cheapest[n]
                if lowest is None or prices[c] < lowest:
                    self.linear += (prices[c] - (lowest or 0)) * one.roots
                    self.squared += (prices[c] ** 2 - (lowest or 0) ** 2) * one.works
                    self.cheapest[n] = prices[c]
            self.ahead[n] = max(self.ahead[n], last)
        tokens = self.linear * root * self.step << 1 + self.bits - LEVEL_ROOT_BITS
        return (ticks * self.step << 2 * ROOT_BITS) + tokens + (self.squared << self.bits)
