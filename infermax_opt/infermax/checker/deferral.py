"""Proof: deferral, by prices of time and by shares of the time for which prompts wait."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.deferral_waits import (
    ALL,
    LEAST_ROOT,
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
#: Bits after the point of the part of a prompt that counts though it may come before the first token, and of
#: the root of the least level.
KEPT_BITS, LIGHT_BITS = 16, 14
#: Steps of checking: a prompt at both ends of a cell, and in a cell; an end, a row at it, and cells of a row,
#: of which so many are one.
LOOK_STEPS, TABLE_STEPS, PASS_STEPS, ENDING_STEPS, ROW_STEPS, CELLS_A_STEP = 6, 1, 2, 50, 12, 4


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


class Losses(NamedTuple):
    """What is lost if a first token comes after the first of some prompts, least over how many these are.

    `queue`: least of what is lost as a whole less the time before who comes then; `kept`: what of that is
    not lost at the begin of a cell.  `lost`, `lost_before`: all of them at its end and begin; `least`,
    `least_before`: what the wait counts then, less what is lost.
    """

    queue: int = 0
    kept: int = 0
    lost: int = 0
    lost_before: int = 0
    least: int = 0
    least_before: int = 0


def lose(losses: Losses, part: int, olds: list[int], news: list[int], gaps: list[int]) -> Losses:
    """The same after some more prompts.

    Parameters
    ----------
    losses : Losses
    part : int
        Of the time before the first token that counts of itself, beside that of prompts.
    olds, news : list of int
        What each counts at the begin and the end of a cell.
    gaps : list of int
        Work that there was time for until each came.
    """
    queue, kept, lost, lost_before, least, least_before = losses
    for old, new, gap in zip(olds, news, gaps, strict=False):
        # What came before this prompt is lost, and no more than there is time for of what comes after.
        if lost - gap <= queue:
            queue, kept = lost - gap, lost - lost_before
        lost += new
        lost_before += old
        value = part * (lost - queue >> KEPT_BITS) - lost
        if value < least:
            least = value
        if value + kept < least_before:
            least_before = value + kept
    return Losses(queue, kept, lost, lost_before, least, least_before)


def lesser(shares: list[int], caps: list[int]) -> list[int]:
    """The lesser of each two."""
    return [share if share < cap else cap for share, cap in zip(shares, caps, strict=False)]


class LastMoment:
    """The least that a request counts; `step` is a' in ticks."""

    def __init__(self, waits: Waits, life: Life, step: int):
        self.waits, self.life, self.step, self.bits = waits, life, step, waits.bits
        self.low = bisect_left(waits.begins, life.earliest)
        high = bisect_left(waits.begins, waits.starts[life.window.stop])
        self.begins, self.untils = waits.begins[self.low : high], waits.untils[self.low : high]
        self.works = [other.some.times * other.prompt for other in waits.lives[self.low : high]]
        self.spans = [begin - life.earliest for begin in self.begins]
        # Of each prompt: what it has of that wait, and what of that counts at both ends of a cell.
        self.shares: list[int] = []
        self.before: list[int] = []
        self.now: list[int] = []
        self.tables: dict[int, tuple[list[int], list[int], Losses, int]] = {}
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
            self.pass_cell(c)
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
        left, right, on = self.prompts(root, starts[e] - self.life.some.later)
        rest = (1 << self.bits) - self.level_of(root)
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

    def level_of(self, root: int) -> int:
        """The level of a root, in parts of a tick."""
        return (ALL - self.life.share) * root * root << self.bits - OWN_BITS - 2 * LEVEL_ROOT_BITS

    def after(self, end: int) -> int:
        """What it counts at least if its last token comes no sooner."""
        some, first, share = self.life.some, self.life.first, self.life.share
        ticks = (ALL - share) * (first + some.tokens[0]) + share * (end - some.until)
        return ticks * self.step << 2 * ROOT_BITS + self.bits - OWN_BITS

    def pass_cell(self, cell: int) -> None:
        """Take what it has of all waits in a cell; those that begin in it count only after it."""
        self.before, window, starts = self.now, self.life.window, self.waits.starts
        if cell not in window:
            self.now = self.shares
            return
        present = bisect_left(self.begins, starts[cell + 1])
        self.waits.instance.work.spend(ENDING_STEPS + PASS_STEPS * present + len(self.waits.new[cell]))
        self.shares += [0] * (present - len(self.shares))
        head, worths = self.waits.columns[cell]
        place = max(0, head - self.low)
        mine = worths[max(0, self.low - head) :][: max(0, present - place)]
        last, done = place + len(mine), 0
        aged = [bisect_right(self.untils, starts[cell] - age) for age in reversed(self.waits.ages)]
        # The oldest come first.
        for weight, to in zip(self.life.weights[cell - window.start][::-1], [*aged, last], strict=True):
            if place < min(to, last):
                to = min(to, last)
                given = mine[done : done + to - place]
                self.shares[place:to] = [
                    share + weight * worth for share, worth in zip(self.shares[place:to], given, strict=True)
                ]
                place, done = to, done + to - place
        self.now = self.shares.copy()
        for k in self.waits.new[cell]:
            if self.low <= k < self.low + present:
                self.now[k - self.low] = 0

    def prompts(self, root: int, limit: int) -> tuple[int, int, int]:
        """Prompts and the wait for its first token, but for what the end adds: at both ends of a cell, later.

        Parameters
        ----------
        root : int
            Of the level, over that of the least one.
        limit : int
            The first token is no later.
        """
        life, square = self.life, root * root
        many = bisect_right(self.begins, limit, 0, len(self.now))
        if root not in self.tables:
            self.tables[root] = self.table(root)
        caps, gaps, state, done = self.tables[root]
        part = (square - LEAST_ROOT**2 << KEPT_BITS) // square
        # Who counts in full counts so at all later ends, too.
        known = min(many, len(self.before))
        full = next((k for k in range(done, known) if self.before[k] < caps[k]), known)
        self.waits.instance.work.spend(LOOK_STEPS * (len(self.now) + 1 - done))
        state = lose(state, part, caps[done:full], caps[done:full], gaps[done:full])
        self.tables[root] = caps, gaps, state, full
        olds = lesser(self.before[full:], caps[full:]) + [0] * (len(self.now) - max(full, len(self.before)))
        news = lesser(self.now[full:], caps[full:])
        last = lose(state, part, olds[: many - full], news, gaps[full:])
        slope = self.level_of(root) - (ALL - life.share << self.bits - OWN_BITS)
        own = (life.first << OWN_BITS) - life.share * (life.some.until + life.first)
        fixed = own << self.bits - OWN_BITS
        fixed += self.level_of(root) * life.some.tokens[0] + slope * life.earliest
        now = state.lost + sum(news) + last.least
        on = min(now, slope * (limit - life.earliest))
        return fixed + state.lost + sum(olds) + last.least_before, fixed + now, fixed + on

    def table(self, root: int) -> tuple[list[int], list[int], Losses, int]:
        """Most that each prompt counts at a level, work that there was time for before it; what is lost."""
        level = self.level_of(root)
        self.waits.instance.work.spend(TABLE_STEPS * len(self.works))
        return [level * work for work in self.works], [level * span for span in self.spans], Losses(), 0

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
