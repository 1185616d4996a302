"""Proof: lingering, by prices over time, where requests count for as long as they are expected to stay."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.guests import ROOT_BITS, Tables, guest, in_chunks, in_groups, token_tables
from infermax_opt.infermax.checker.instance import SIZE_STEPS, Instance
from infermax_opt.infermax.checker.interaction import THETA_BITS, Cells
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.windows import Expected, expected

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
    shares, fading = counted_shares(evidence, theta, len(stays)), "shares" in evidence
    asked = list(zip(guests, stays, shares, strict=True))
    windows, cells = expected(instance, evidence["cells"], asked, theta, step, fading)
    spans = zip([0, *cells.ends], cells.ends, cells.root, strict=False)
    total = -theta * sum((end - start) * root * root for start, end, root in spans)
    for (i, o, _), window in zip(instance.kinds, windows, strict=True):
        tokens = bunches(i, o, groups, tables, gains)
        choice = Choice(window, tokens, theta, step, piece.alpha + instance.p0)
        total += window.some.times * least_of_delays(instance, choice, cells)
    whole = step << 2 * ROOT_BITS + THETA_BITS
    return Fraction(total, whole * instance.scale * sum(instance.kinds.values()))


def counted_shares(evidence: Field, theta: int, kinds: int) -> list[int]:
    """The share of each kind of requests, theta unless it is said.

    Parameters
    ----------
    evidence : Field
    theta, kinds : int
    """
    if "shares" not in evidence:
        return [theta] * kinds
    shares = evidence["shares"].integers(kinds)
    require(all(0 < share <= theta for share in shares), "shares: one is not from 1 to theta")
    return shares


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
    last, found = i + o - 1, []
    for a, b in in_groups(i, o, groups):
        sums = (column[b] - column[a] for column in (tables.fixed, *gains, tables.works))
        found.append(Bunch(tables.alone[a] - tables.alone[i], tables.alone[last] - tables.alone[b], *sums))
    return found


class Choice(NamedTuple):
    """A request that chooses its delay: its window, bunches of tokens, theta, a' and alpha + p0 in ticks."""

    window: Expected
    tokens: list[Bunch]
    theta: int
    step: int
    chunk: int

    def part(self, which: int, price: int) -> tuple[int, int]:
        """What the prompt, or a bunch of tokens, pays at a price, and its part of a stay."""
        some, unit = self.window.some, self.step << 2 * ROOT_BITS
        if which == 0:
            work = price // self.window.share
            chunks = in_chunks(self.chunk, some.chunks, some.square, work, unit)
            return work * some.linear + chunks * unit, (some.lone - some.later) * unit
        one, own = self.tokens[which - 1], math.isqrt(self.theta * price**2 // self.window.share)
        paid = one.fixed * unit + own * (2 * one.roots * self.step + own * one.works)
        return paid, one.fixed * unit + 2 * price * one.gains * self.step

    def whole(self, prices: list[int]) -> tuple[int, int]:
        """What it pays in all at these prices, and its stay."""
        parts = [self.part(which, price) for which, price in enumerate(prices)]
        return sum(paid for paid, _ in parts), sum(stays for _, stays in parts)

    def worth(self, life: int, paid: int, stays: int) -> int:
        """Its share of what it pays and of how much longer it stays, less what is missing, and the rest.

        Parameters
        ----------
        life, paid, stays : int
            In small units.
        """
        share, missing = self.window.share, self.window.missing(life, self.step << 2 * ROOT_BITS)
        return ((1 << THETA_BITS) - share) * life + share * (paid + max(0, stays - life) - missing)


def least_of_delays(instance: Instance, choice: Choice, cells: Cells) -> int:
    """What a request pays at least, over all delays, in small units.

    Parameters
    ----------
    instance : Instance
    choice : Choice
    cells : Cells
    """
    some, tokens, ends, unit = choice.window.some, choice.tokens, cells.ends, choice.step << 2 * ROOT_BITS
    if not choice.window.share:
        return some.lone * unit << THETA_BITS
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
    cheapest, _ = choice.whole([cells.work[-1], *([0] * len(tokens))])
    prices = [table[cell] for table, cell in zip(values, at, strict=True)]
    paid, stays = choice.whole(prices)
    when, life = [reached(which) for which in range(len(at))], some.lone * unit
    best = choice.worth(life, paid, stays)
    while True:
        before, delay = life, min(when)
        life = (some.lone + delay) * unit
        if before < stays < life:
            best = min(best, choice.worth(stays, paid, stays))
        if delay == NEVER or choice.worth(life, cheapest, 0) >= best:
            return best  # longer delays count for more
        instance.work.spend(DELAY_STEPS)
        for which in [k for k, moment in enumerate(when) if moment == delay]:
            at[which] = lower[which][at[which]]
            old, new = choice.part(which, prices[which]), choice.part(which, values[which][at[which]])
            paid, stays = paid + new[0] - old[0], stays + new[1] - old[1]
            prices[which], when[which] = values[which][at[which]], reached(which)
        best = min(best, choice.worth(life, paid, stays))


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
