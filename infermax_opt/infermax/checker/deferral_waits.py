"""Tool of the proof by deferral: requests that watch the prompts of others, and what each wait is worth."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import Guest, Tables, guest, in_groups, token_tables
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, SIZE_STEPS, Instance
from infermax_opt.infermax.checker.pieces import Piece

#: Parts of a window, and those of them that make up the stay.
WINDOW_PARTS, STAY_PARTS = 15, 10
#: Bits after the point: of shares of a wait, and of roots of levels; a share of all.
OWN_BITS, LEVEL_ROOT_BITS = 10, 4
ALL = 1 << OWN_BITS
#: Most groups of later tokens and ages, and largest weight and root of a level; the least root.
MOST_ROWS, MOST_AGES, MOST_WEIGHT, MOST_ROOT, LEAST_ROOT = 64, 16, 2**20, 2**10, 1 << LEVEL_ROOT_BITS
#: Steps of a cell of a window, once and for each weight, of one of a wait, and of one that is only filled in.
WINDOW_STEPS, WEIGHT_STEPS, WAIT_STEPS, ZERO_STEPS = 9, 3, 7, 1


class WatchedRow(NamedTuple):
    """A prompt, or later tokens in a row: least times before and after them, roots of work, and work."""

    before: int
    after: int
    roots: int
    works: int


class Life(NamedTuple):
    """A request that chooses when its first and its last token come.

    `prompt`: the least work of its prompt.  `share`: of its own wait.  `window`: cells in which it has a
    weight, and `weights` of these, one for each age of who waits.  `levels`: roots of levels with the number
    of cells of each.
    """

    some: Guest
    first: int
    prompt: int
    groups: list[WatchedRow]
    share: int
    window: range
    weights: list[list[int]]
    levels: list[list[int]]

    @property
    def earliest(self) -> int:
        """The first moment at which its first token may be there."""
        return self.some.begin + self.first


class Waits:
    """What each request that waits for its prompt is worth to those who watch it, cell by cell.

    `starts`, `roots`: of cells; `ages`: at which other weights count; `lives`: all requests by arrival;
    `bits`: after the point of a tick.
    """

    def __init__(
        self, instance: Instance, starts: list[int], roots: list[int], ages: list[int], lives: list[Life],
        bits: int,
    ):  # fmt: skip
        self.bits, self.instance, self.starts, self.roots, self.lives = bits, instance, starts, roots, lives
        self.ages, self.dearest = ages, max(roots)
        self.begins, self.untils = zip(*((life.some.begin, life.some.until) for life in lives), strict=True)
        #: In each cell the first of some requests in a row, and what a weight of 1 has of each, all
        #: equal ones together; who is new.
        self.columns: list[tuple[int, list[int]]] = [(0, [])] * len(roots)
        self.new: list[list[int]] = [[] for _ in roots]
        there: list[list[int]] = [[0] * len(roots) for _ in range(len(ages) + 1)]
        watchers, last = sorted(lives, key=lambda life: -life.earliest), 0
        for k, life in enumerate(lives):
            while watchers and watchers[-1].earliest <= life.some.begin:
                other = watchers.pop()
                for c, weights in zip(other.window, other.weights, strict=True):
                    for all_of_age, weight in zip(there, weights, strict=True):
                        all_of_age[c] += other.some.times * weight
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
                total = there[bisect_right(ages, starts[c] - life.some.until)][c]
                worth = ((ALL - life.share) * span << bits - OWN_BITS) // max(1, total)
                worths.append(life.some.times * worth)


def read_ages(evidence: Field) -> list[int]:
    """Ages in ticks, of which each begins new weights.

    Parameters
    ----------
    evidence : Field
    """
    ages = evidence["ages"].integers()
    require(len(ages) <= MOST_AGES, f"ages: there are more than {MOST_AGES}")
    require(all(a < b for a, b in pairwise([0, *ages])), "ages: they do not rise from above 0 on")
    return ages


def read_lives(
    instance: Instance, evidence: Field, piece: Piece, starts: list[int], ages: list[int]
) -> list[Life]:
    """All requests, in the order in which their kinds appear.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    piece : Piece
    starts : list of int
        Of cells, and of the time after them.
    ages : list of int
    """
    many, tables = len(instance.kinds), token_tables(instance, piece)
    groups = evidence["groups"].whole(1, MOST_ROWS)
    stays, shares = evidence["stays"].integers(many), evidence["shares"].integers(many)
    require(min(stays) >= 1, "stays: one is below 1")
    require(all(0 <= share <= ALL for share in shares), f"shares: one is not from 0 to {ALL}")
    weights = [row.integers(WINDOW_PARTS * (len(ages) + 1)) for row in evidence["weights"].items()]
    levels = [[run.integers(2) for run in row.items()] for row in evidence["levels"].items()]
    require(len(weights) == len(levels) == many, "weights, levels: not as many as kinds of requests")
    instance.work.spend(many * (REQUEST_STEPS + SIZE_STEPS * groups))
    lives = []
    for n, (key, count) in enumerate(instance.kinds.items()):
        require(all(0 <= weight <= MOST_WEIGHT for weight in weights[n]), "weights: one is out of range")
        check_levels(levels[n], len(starts))
        some = guest(instance, key, count, piece, tables)
        i, o, _ = key
        prompt = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
        end = some.begin - (-WINDOW_PARTS * stays[n] // STAY_PARTS)
        window = range(bisect_right(starts, some.begin) - 1, min(len(starts) - 1, bisect_left(starts, end)))
        instance.work.spend((WINDOW_STEPS + WEIGHT_STEPS * (len(ages) + 1)) * len(window))
        each = [weights[n][part::WINDOW_PARTS] for part in range(WINDOW_PARTS)]
        parts = (max(0, starts[c] - some.begin) * STAY_PARTS // stays[n] for c in window)
        lives.append(
            Life(
                some, some.lone - some.later, prompt, groups_of(some, prompt, i, o, groups, tables),
                shares[n], window, [each[part] for part in parts], levels[n],
            )
        )  # fmt: skip
    return lives


def check_levels(runs: list[list[int]], cells: int) -> None:
    """Roots of levels g over that of the least g, each for so many cells.

    Parameters
    ----------
    runs : list of [int, int]
        Roots of levels, with cells.
    cells : int
    """
    require(bool(runs), "levels: a request has none")
    require(all(cells >= many >= 1 for _, many in runs), "levels: a number of cells is out of range")
    require(sum(many for _, many in runs) <= cells, "levels: there are more than cells")
    sound = all(LEAST_ROOT <= root <= MOST_ROOT for root, _ in runs)
    require(sound, f"levels: a root is not from {LEAST_ROOT} to {MOST_ROOT}")


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
    last, alone = i + o - 1, tables.alone
    found = [WatchedRow(0, some.later, 0, prompt)]
    for a, b in in_groups(i, o, groups):
        before, after = some.lone - some.later + alone[a] - alone[i], alone[last] - alone[b]
        found.append(
            WatchedRow(before, after, tables.roots[b] - tables.roots[a], tables.works[b] - tables.works[a])
        )
    return found
