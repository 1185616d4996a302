"""Proof: lingering, by prices over time, where requests count for as long as they are expected to stay."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import ROOT_BITS, Guest, Tables, guest, in_chunks, token_tables
from infermax_opt.infermax.checker.instance import SIZE_STEPS, Instance
from infermax_opt.infermax.checker.interaction import THETA_BITS, Cells, read_cells
from infermax_opt.infermax.checker.pieces import Piece

#: Most groups of later tokens.
MOST_BUNCHES = 64
#: Steps of checking a delay, and a group of tokens.
DELAY_STEPS, BUNCH_STEPS = 30, 30
#: A delay that is never reached.
NEVER = 1 << 200


class Bunch(NamedTuple):
    """Later tokens in a row: least times alone before and after them; sums of a', y, g and w."""

    before: int
    after: int
    fixed: int
    roots: int
    gains: int
    works: int


def lingering(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Who leaves before it is expected to has had short batches.

    See `infermax_opt.infermax.bounds.lingering`.

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
    theta, unit = evidence["theta"].whole(0, 1 << THETA_BITS), evidence["unit"].whole(0)
    groups, stays = evidence["groups"].whole(1, MOST_BUNCHES), evidence["stays"].integers(len(instance.kinds))
    require(min(stays) >= 0, "stays: one is below 0")
    tables = token_tables(instance, piece)
    instance.work.spend(2 * SIZE_STEPS * len(tables.roots) + BUNCH_STEPS * groups * len(stays))
    gains = gains_of(tables, unit)
    guests = [guest(instance, key, count, piece, tables) for key, count in instance.kinds.items()]
    cells = read_cells(instance, evidence["cells"], list(zip(guests, stays, strict=True)), step)
    spans = zip([0, *cells.ends], cells.ends, cells.root, strict=False)
    total = -theta * sum((end - start) * root * root for start, end, root in spans)
    for (i, o, _), some, stay in zip(instance.kinds, guests, stays, strict=True):
        tokens = bunches(i, o, groups, tables, gains)
        choice = Choice(some, tokens, theta, stay, step, piece.alpha + instance.p0)
        total += some.times * least_of_delays(instance, choice, cells)
    whole = step << 2 * ROOT_BITS + THETA_BITS
    return Fraction(total, whole * instance.scale * sum(instance.kinds.values()))


def gains_of(tables: Tables, unit: int) -> tuple[list[int], list[int]]:
    """Sums of y and of g over later tokens, by the tokens cached after them."""
    roots, gains = [0], [0]
    for (a, b), (low, high) in zip(pairwise(tables.works), pairwise(tables.roots), strict=True):
        y = min(high - low, (b - a << 2 * ROOT_BITS) // unit) if unit else high - low
        roots.append(y)
        gains.append(math.isqrt(y * (unit + y)) - y)
    return list(accumulate(roots)), list(accumulate(gains))


def bunches(i: int, o: int, groups: int, tables: Tables, gains: tuple[list[int], list[int]]) -> list[Bunch]:
    """The later tokens of a request, in groups as equal as can be.

    Parameters
    ----------
    i, o : int
        Its input and output tokens.
    groups : int
        At most.
    tables : Tables
    gains : tuple of lists of int
        Sums of y and g.
    """
    many, last = min(groups, o - 1), i + o - 1
    cuts = [i + (o - 1) * k // many for k in range(many + 1)] if many else []
    found = []
    for a, b in pairwise(cuts):
        sums = (column[b] - column[a] for column in (tables.fixed, *gains, tables.works))
        found.append(Bunch(tables.alone[a] - tables.alone[i], tables.alone[last] - tables.alone[b], *sums))
    return found


class Choice(NamedTuple):
    """A request that chooses its delay: bunches of tokens, theta, its stay, a' and alpha + p0 in ticks."""

    some: Guest
    tokens: list[Bunch]
    theta: int
    stay: int
    step: int
    chunk: int

    def part(self, which: int, price: int) -> tuple[int, int]:
        """What the prompt, or a bunch of tokens, pays at a price, and its part of a stay."""
        some, unit = self.some, self.step << 2 * ROOT_BITS
        if which == 0:
            chunks = in_chunks(self.chunk, some.chunks, some.square, price, unit)
            return price * some.linear + chunks * unit, (some.lone - some.later) * unit
        one = self.tokens[which - 1]
        paid = one.fixed * unit + price * (2 * one.roots * self.step + price * one.works)
        return paid, one.fixed * unit + 2 * price * one.gains * self.step

    def whole(self, prices: list[int]) -> tuple[int, int]:
        """What it pays in all at these prices, and its stay."""
        parts = [self.part(which, price) for which, price in enumerate(prices)]
        return sum(paid for paid, _ in parts), sum(stays for _, stays in parts)

    def worth(self, delay: int, paid: int, stays: int) -> int:
        """Theta times what it pays, less what is missing, and the rest of its latency.

        Parameters
        ----------
        delay : int
            In ticks.
        paid, stays : int
            In small units.
        """
        unit = self.step << 2 * ROOT_BITS
        latency = (self.some.lone + delay) * unit
        missing = max(0, self.stay * unit - max(stays, latency))
        return ((1 << THETA_BITS) - self.theta) * latency + self.theta * (paid - missing)


def least_of_delays(instance: Instance, choice: Choice, cells: Cells) -> int:
    """What a request pays at least, over all delays, in small units.

    Parameters
    ----------
    instance : Instance
    choice : Choice
    cells : Cells
    """
    some, tokens, ends, unit = choice.some, choice.tokens, cells.ends, choice.step << 2 * ROOT_BITS
    first = some.lone - some.later

    def reached(which: int) -> int:
        """By which delay its cells go on to the next one that is cheaper than all before."""
        cell = lower[which][at[which]]
        return ends[cell - 1] - since[which] if cell <= len(ends) else NEVER

    begins = [some.begin, *(some.begin + first + one.before for one in tokens)]
    since = [some.until + first, *(some.until + some.lone - one.after for one in tokens)]
    values = [cells.work, *([cells.root] * len(tokens))]
    lower = [cells.lower[1], *([cells.lower[0]] * len(tokens))]
    at = list(map(cheapest_cell, [instance] * len(since), [ends] * len(since), values, begins, since))
    cheapest = choice.whole([unit, *([0] * len(tokens))])
    prices = [table[cell] for table, cell in zip(values, at, strict=True)]
    paid, stays = choice.whole(prices)
    when, best = [reached(which) for which in range(len(at))], choice.worth(0, paid, stays)
    while (delay := min(when)) < NEVER and choice.worth(delay, *cheapest) < best:
        instance.work.spend(DELAY_STEPS)
        for which in [k for k, moment in enumerate(when) if moment == delay]:
            at[which] = lower[which][at[which]]
            old, new = choice.part(which, prices[which]), choice.part(which, values[which][at[which]])
            paid, stays = paid + new[0] - old[0], stays + new[1] - old[1]
            prices[which], when[which] = values[which][at[which]], reached(which)
        best = min(best, choice.worth(delay, paid, stays))
    return best


def cheapest_cell(instance: Instance, ends: list[int], prices: list[int], begin: int, end: int) -> int:
    """The first cell with the least price between two moments.

    Parameters
    ----------
    instance : Instance
    ends, prices : list of int
        Of cells.
    begin, end : int
    """
    low, high = bisect_right(ends, begin), bisect_right(ends, end)
    instance.work.spend(high - low + DELAY_STEPS)
    return min(range(low, high + 1), key=prices.__getitem__)
