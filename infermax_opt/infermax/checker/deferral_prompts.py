"""Tool of the proof by deferral: what a request counts of the prompts and the waits that it may see."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from infermax_opt.infermax.checker.deferral_waits import (
    ALL,
    LEAST_ROOT,
    LEVEL_ROOT_BITS,
    OWN_BITS,
    Life,
    Waits,
)

#: Bits after the point of the part of a prompt that counts though it may come before the first token.
KEPT_BITS = 16
#: Steps of checking: a prompt at both ends of a cell, at a level that is new, and in a cell; a cell.
LOOK_STEPS, TABLE_STEPS, PASS_STEPS, WATCH_STEPS = 6, 1, 2, 50


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


class Prompts:
    """The prompts that a request may see, cell by cell, up to where they are known."""

    def __init__(self, waits: Waits, life: Life):
        self.waits, self.life, self.bits = waits, life, waits.bits
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

    def level_of(self, root: int) -> int:
        """The level of a root, in parts of a tick."""
        return (ALL - self.life.share) * root * root << self.bits - OWN_BITS - 2 * LEVEL_ROOT_BITS

    def pass_cell(self, cell: int) -> None:
        """Take what it has of all waits in a cell; those that begin in it count only after it."""
        self.before, window, starts = self.now, self.life.window, self.waits.starts
        self.waits.instance.work.spend(WATCH_STEPS)
        if cell not in window:
            self.now = self.shares
            return
        present = bisect_left(self.begins, starts[cell + 1])
        self.waits.instance.work.spend(PASS_STEPS * present + len(self.waits.new[cell]))
        self.shares += [0] * (present - len(self.shares))
        head, worths = self.waits.columns[cell]
        first = place = max(0, head - self.low)
        mine = worths[max(0, self.low - head) :][: max(0, present - first)]
        last = first + len(mine)
        aged = [bisect_right(self.untils, starts[cell] - age) for age in reversed(self.waits.ages)]
        # The oldest come first.
        for weight, to in zip(self.life.weights[cell - window.start][::-1], [*aged, last], strict=True):
            to = min(to, last)
            if place < to:
                given = mine[place - first : to - first]
                self.shares[place:to] = [
                    share + weight * worth for share, worth in zip(self.shares[place:to], given, strict=True)
                ]
                place = to
        self.now = self.shares.copy()
        for k in self.waits.new[cell]:
            if self.low <= k < self.low + present:
                self.now[k - self.low] = 0

    def at_ends(self, root: int, limit: int) -> tuple[int, int, int]:
        """What counts but for tokens and the end: at both ends of a cell, and later.

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
