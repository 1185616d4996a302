"""Proof: deferral, by prices of time and by shares of the time for which prompts wait."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.deferral_prompts import Prompts
from infermax_opt.infermax.checker.deferral_waits import (
    ALL,
    LEVEL_ROOT_BITS,
    OWN_BITS,
    Life,
    Waits,
    read_ages,
    read_lives,
)
from infermax_opt.infermax.checker.guests import ROOT_BITS
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.interaction import read_roots
from infermax_opt.infermax.checker.pieces import Piece

#: Cells after a window that count as one.
WIDE = 8
#: Bits after the point of a tick in what prompts count: so many at least, and with those of a'.
TICK_BITS, STEP_BITS = 18, 40
#: Bits after the point of the root of the least level.
LIGHT_BITS = 14
#: Steps of checking: a row at the end of a cell, and cells of a row, of which so many are one.
ROW_STEPS, CELLS_A_STEP = 12, 4


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
    ages = read_ages(evidence)
    lives = sorted(read_lives(instance, evidence, piece, starts, ages), key=lambda life: life.some.begin)
    bits = max(TICK_BITS, STEP_BITS - step.bit_length())
    waits = Waits(instance, starts, roots, ages, lives, bits)
    spans = zip(pairwise(starts), roots, strict=True)
    total = -sum((end - start) * root * root for (start, end), root in spans) << bits
    total += sum(life.some.times * LastMoment(waits, life, step).least() for life in lives)
    whole = step << 2 * ROOT_BITS + bits
    return Fraction(total, whole * instance.scale * sum(instance.kinds.values()))


class LastMoment:
    """The least that a request counts; `step` is a' in ticks."""

    def __init__(self, waits: Waits, life: Life, step: int):
        self.waits, self.life, self.step, self.bits = waits, life, step, waits.bits
        self.prompts = Prompts(waits, life)
        self.cheapest = [waits.dearest] * len(life.groups)
        self.ahead = [bisect_right(waits.starts, life.some.begin + one.before) - 1 for one in life.groups]
        self.runs = list(accumulate(many for _, many in life.levels))
        self.light = math.isqrt(ALL - life.share << 2 * LIGHT_BITS - OWN_BITS)

    def least(self) -> int:
        """Over all cells in which its last token may be made, in small units."""
        starts, cells = self.waits.starts, len(self.waits.roots)
        possible = bisect_right(starts, self.life.earliest + self.life.some.later) - 1
        best, c = self.after(starts[-1]), self.life.window.start
        while c < cells:
            e = self.end_of(c)
            if e > possible and self.after(starts[c]) >= best:
                break  # who ends later counts no less
            self.prompts.pass_cell(c)
            if e > possible:
                value, later = self.in_cell(c, e, best)
                if later is not None and later >= best:
                    break  # nor does who ends after this cell
                best = min(best, value)
            c = e
        return best

    def in_cell(self, c: int, e: int, best: int) -> tuple[int, int | None]:
        """What it counts if it ends in some cells, and if later: None if that is not known.

        Parameters
        ----------
        c, e : int
            The first of the cells, and the one after them.
        best : int
            The least so far.
        """
        starts, root = self.waits.starts, self.root_of(c)
        left, right, on = self.prompts.at_ends(root, starts[e] - self.life.some.later)
        rest = (1 << self.bits) - self.prompts.level_of(root)
        self.follow(e)
        value = self.priced(min(left + rest * starts[c], right + rest * starts[e]), root, self.cheapest)
        if value < best or rest < 0:
            return value, None
        return value, self.priced(on + rest * starts[e], root, self.to_come(best))

    def end_of(self, cell: int) -> int:
        """The cell after those that count as one with it."""
        if cell < self.life.window.stop:
            return cell + 1
        return min(len(self.waits.starts) - 1, cell + WIDE)

    def root_of(self, cell: int) -> int:
        """The root of its level in a cell, over that of the least level; the last one goes on."""
        run = bisect_right(self.runs, cell - self.life.window.start)
        return self.life.levels[min(run, len(self.runs) - 1)][0]

    def after(self, end: int) -> int:
        """What it counts at least if its last token comes no sooner."""
        some, first, share = self.life.some, self.life.first, self.life.share
        ticks = (ALL - share) * (first + some.tokens[0]) + share * (end - some.until)
        return ticks * self.step << 2 * ROOT_BITS + self.bits - OWN_BITS

    def follow(self, end: int) -> None:
        """See which r are the least for its prompt and tokens, if it ends no later than a cell begins."""
        starts, prices = self.waits.starts, self.waits.roots
        self.waits.instance.work.spend(ROW_STEPS * len(self.life.groups))
        for n, one in enumerate(self.life.groups):
            last = min(end, bisect_right(starts, starts[end] - one.after))
            if last > self.ahead[n]:
                self.waits.instance.work.spend((last - self.ahead[n]) // CELLS_A_STEP)
                self.cheapest[n] = min(self.cheapest[n], *prices[self.ahead[n] : last])
                self.ahead[n] = last

    def to_come(self, best: int) -> list[int]:
        """The same if it ends at any time at which it may count less than the best so far."""
        starts, first = self.waits.starts, min(self.ahead)
        last = bisect_left(starts, best, 0, len(self.waits.roots), key=self.after)
        self.waits.instance.work.spend(
            ROW_STEPS * len(self.life.groups) + max(0, last - first) // CELLS_A_STEP
        )
        lowest = min(self.waits.roots[first:last], default=max(self.cheapest))
        return [min(lowest, each) for each in self.cheapest]

    def priced(self, ticks: int, root: int, lowest: list[int]) -> int:
        """That, and its prompt and tokens at some r, in small units.

        Parameters
        ----------
        ticks : int
            In parts of a tick.
        root : int
            Of the level, over that of the least one.
        lowest : list of int
            The r of each row.
        """
        linear = sum(low * one.roots for low, one in zip(lowest, self.life.groups, strict=True))
        squared = sum(low * low * one.works for low, one in zip(lowest, self.life.groups, strict=True))
        after = 1 + self.bits - LEVEL_ROOT_BITS - LIGHT_BITS
        tokens = linear * root * self.light * self.step << after
        return (ticks * self.step << 2 * ROOT_BITS) + tokens + (squared << self.bits)
