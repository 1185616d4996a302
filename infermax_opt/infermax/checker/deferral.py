"""Proof: deferral, by prices of time and by shares of the time for which prompts wait."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import sub
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import ROOT_BITS, Guest, Tables, guest, token_tables
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, SIZE_STEPS, Instance
from infermax_opt.infermax.checker.interaction import read_roots
from infermax_opt.infermax.checker.pieces import Piece

#: Parts of a window, those of them that make up the stay, and cells after it that count as one.
WINDOW_PARTS, STAY_PARTS, WIDE = 15, 10, 8
#: Bits after the point: of shares of a wait, and of roots of levels; a share of all.
OWN_BITS, LEVEL_ROOT_BITS = 10, 4
ALL = 1 << OWN_BITS
#: Bits after the point of a tick in what prompts count: so many at least, and with those of a'.
TICK_BITS, STEP_BITS = 12, 40
#: Most groups of later tokens, and largest weight and root of a level.
MOST_ROWS, MOST_WEIGHT, MOST_ROOT = 64, 2**20, 2**10
#: Steps of checking: a prompt at an end of a cell, and in a cell; an end, a row at it, and a cell of a row.
LOOK_STEPS, PASS_STEPS, ENDING_STEPS, ROW_STEPS, WALK_STEPS = 2, 1, 50, 10, 3
#: Steps of a cell of a window, of one of a wait, and of one that is only filled in.
WINDOW_STEPS, WAIT_STEPS, ZERO_STEPS = 12, 6, 1


class WatchedRow(NamedTuple):
    """A prompt, or later tokens in a row: least times before and after them, roots of work, and work."""

    before: int
    after: int
    roots: int
    works: int


class Life(NamedTuple):
    """A request that chooses when its first and its last token come.

    `prompt`: the least work of its prompt.  `share`: of its own wait.  `window`: cells in which it has a
    weight, and `weights` of these.  `levels`: roots of levels with the number of cells of each.
    """

    some: Guest
    first: int
    prompt: int
    groups: list[WatchedRow]
    share: int
    window: range
    weights: list[int]
    levels: list[list[int]]

    @property
    def earliest(self) -> int:
        """The first moment at which its first token may be there."""
        return self.some.begin + self.first


class Waits:
    """What each request that waits for its prompt is worth to those who watch it, cell by cell.

    `starts`, `roots`: of cells; `lives`: all requests by arrival; `bits`: after the point of a tick.
    """

    def __init__(self, instance: Instance, starts: list[int], roots: list[int], lives: list[Life], bits: int):
        self.bits, self.instance, self.starts, self.roots, self.lives = bits, instance, starts, roots, lives
        self.begins = [life.some.begin for life in lives]
        #: In each cell the first of some requests in a row, and what a weight of 1 has of them; who is new.
        self.columns: list[tuple[int, list[int]]] = [(0, [])] * len(roots)
        self.new: list[list[int]] = [[] for _ in roots]
        there, watchers, last = [0] * len(roots), sorted(lives, key=lambda life: -life.earliest), 0
        for k, life in enumerate(lives):
            while watchers and watchers[-1].earliest <= life.some.begin:
                other = watchers.pop()
                for c, weight in zip(other.window, other.weights, strict=True):
                    there[c] += other.some.times * weight
                last = max(last, other.window.stop)
            since = life.some.until + life.first
            first = bisect_right(starts, since) - 1
            if first < last:
                self.new[first].append(k)
            instance.work.spend(WAIT_STEPS * max(1, last - first))
            for c in range(first, last):
                span = starts[c + 1] - max(starts[c], since)
                if not self.columns[c][1]:
                    self.columns[c] = k, []
                head, worths = self.columns[c]
                instance.work.spend(ZERO_STEPS * (k - head - len(worths)))
                worths += [0] * (k - head - len(worths))
                worths.append(((ALL - life.share) * span << bits - OWN_BITS) // max(1, there[c]))


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


def read_lives(instance: Instance, evidence: Field, piece: Piece, starts: list[int]) -> list[Life]:
    """All requests, in the order in which their kinds appear.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    piece : Piece
    starts : list of int
        Of cells, and of the time after them.
    """
    many, tables = len(instance.kinds), token_tables(instance, piece)
    groups = evidence["groups"].whole(1, MOST_ROWS)
    stays, shares = evidence["stays"].integers(many), evidence["shares"].integers(many)
    require(min(stays) >= 1, "stays: one is below 1")
    require(all(0 <= share <= ALL for share in shares), f"shares: one is not from 0 to {ALL}")
    weights = [row.integers(WINDOW_PARTS) for row in evidence["weights"].items()]
    levels = [[run.integers(2) for run in row.items()] for row in evidence["levels"].items()]
    require(len(weights) == len(levels) == many, "weights, levels: not as many as kinds of requests")
    instance.work.spend(many * (REQUEST_STEPS + SIZE_STEPS * groups))
    lives = []
    for n, (key, count) in enumerate(instance.kinds.items()):
        require(all(0 <= weight <= MOST_WEIGHT for weight in weights[n]), "weights: one is out of range")
        check_levels(levels[n], shares[n], len(starts))
        some = guest(instance, key, count, piece, tables)
        i, o, _ = key
        prompt = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
        end = some.begin - (-WINDOW_PARTS * stays[n] // STAY_PARTS)
        window = range(bisect_right(starts, some.begin) - 1, min(len(starts) - 1, bisect_left(starts, end)))
        instance.work.spend(WINDOW_STEPS * len(window))
        parts = (max(0, starts[c] - some.begin) * STAY_PARTS // stays[n] for c in window)
        lives.append(
            Life(
                some, some.lone - some.later, prompt, groups_of(some, prompt, i, o, groups, tables),
                shares[n], window, [weights[n][part] for part in parts], levels[n],
            )
        )  # fmt: skip
    return lives


def check_levels(runs: list[list[int]], share: int, cells: int) -> None:
    """Levels g, each for so many cells: with the share of its own wait they are 1 or more.

    Parameters
    ----------
    runs : list of [int, int]
        Roots of levels, with cells.
    share, cells : int
    """
    require(bool(runs), "levels: a request has none")
    require(all(cells >= many >= 1 for _, many in runs), "levels: a number of cells is out of range")
    require(sum(many for _, many in runs) <= cells, "levels: there are more than cells")
    high_enough = (ALL - share) << 2 * LEVEL_ROOT_BITS
    sound = all(0 <= root <= MOST_ROOT and root * root * ALL >= high_enough for root, _ in runs)
    require(sound, "levels: one is so low that waiting pays")


def groups_of(some: Guest, prompt: int, i: int, o: int, groups: int, tables: Tables) -> list[WatchedRow]:
    """The prompt, and later tokens in groups as equal as can be.

    Parameters
    ----------
    some : Guest
    prompt : int
        Least work of the prompt.
    i, o : int
        Its input and output tokens.
    groups : int
        At most.
    tables : Tables
    """
    many, last, alone = min(groups, o - 1), i + o - 1, tables.alone
    cuts = [i + (o - 1) * k // many for k in range(many + 1)] if many else []
    found = [WatchedRow(0, some.later, 0, prompt)]
    for a, b in pairwise(cuts):
        before, after = some.lone - some.later + alone[a] - alone[i], alone[last] - alone[b]
        found.append(
            WatchedRow(before, after, tables.roots[b] - tables.roots[a], tables.works[b] - tables.works[a])
        )
    return found


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
