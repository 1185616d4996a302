r"""The lingering bound on the mean end-to-end latency with arrivals: who leaves early has had short batches.

`interaction` counts a request as there while it surely is: for as long as it takes alone.  But a request
that decodes with others takes longer.  Here it counts for as long as it is expected to stay, its *window*;
if it is gone before the end of that, what was counted too much is taken back; and it has had short batches,
which is worth as much.

Fix one affine piece, in ticks.  Let a' = alpha + d0 > 0, c = alpha + p0.  Batch j has length T_j, m_j
requests that decode, X_j the sum of their works w = beta + d1 (s-1), s the tokens cached after them, and P_j
the work of its prompts.  Let life_i be the latency of request i, from its arrival a_i, W_i its window, from
a_i for a time D_i, and n(t) the number of windows in which t is.

*Use of time.*  In a batch a request that is there has, of T_j, no part of it twice,

- if it decodes: a' + X_j, and P_j besides;
- if it has a chunk of its prompt, or of a refill: its work, c for a chunk of a prompt or once for a refill,
  and the P_j of others besides;
- else P_j.

P_j is spread evenly over its batch, and counts where its window is; in moments that are in nobody's window
the owners of the prompts count their own work.  So all P_j together count max(1, n(t)) times.  Where a window
goes on after its request has left, that is too much by less than the time that is left: max(0, D_i - life_i).

*Decodes.*  For any u >= 0 let y = min(sqrt(w), w / u), z_j the sum of y over the tokens that are decoded in
j.  Then m_j X_j >= z_j**2 (Cauchy) and X_j >= u z_j.  For any step function r(t) >= 0, h = r**2, and its
means over the batch, z_j**2 = 2 r_j z_j - r_j**2 + (r_j - z_j)**2, and r_j**2 <= h_j.  As in `interaction`
all h_j of batches that decode are together at most (the integral of h - sum of h_j (all work of j)) / a'.

*Who leaves early.*  Let D_i > life_i.  The batch of a decode is a' + X_j >= a' + u z_j long, and has the
share y / z_j of (r_j - z_j)**2.  Both together are

    a' + (u + y) z_j + y r_j**2 / z_j - 2 r_j y  >=  a' + 2 r_j g,  g = sqrt(y (u + y)) - y.

A refill takes c + R or more, R = (beta + p1) s.  So life_i and these shares are together at least the least
time of the first token, first_i, and a' + 2 r g for each later token that is decoded, c + R for each other.

*Prices.*  So, for all requests and any D_i, the sum of latencies is at least the sum over requests of

    Y = (alpha + p0) for each chunk of the prompt, its work times max(1, n) + h / a',
    a' + 2 r y + h w / a' for each later token,
    less 0, or what is missing of D_i: less D_i - first_i - sum of (a' + 2 r g), if that is above 0,

less the integral of h / a'.  What is missing is not more than D_i - life_i either.

*Refills.*  If w a' <= R0 (R - w), R0 = c + R - a' >= 0, then a refill pays no less: c + R + R h / a' is at
least the price of the decode at every r; and with the time c + R, besides, at least that and a' + 2 r g,
since y + g <= sqrt(y (u + y)), and y (u + y) <= 2 w.  Else the token counts the price and the time of the
cheaper of both at r = 0, and no y.

*Delays.*  For any 0 <= theta <= 1 the sum of latencies is theta times itself plus (1 - theta) times the sum
of lone_i + delay_i, as in `interaction`.  Alone each token takes a least time.  So the batches of a later
token begin after first_i and the least times of those before it, and end before those of the tokens after it,
which end at a_i + lone_i + delay_i; and so do those of the prompt.  Tokens in a row are one group, which pays
at the least r of the cells between.  All prices rise with r and n, so the least over the delay counts.  QED.

Certificate: theta; u; the number of groups; r on cells of time; D of each kind of requests.  Windows are
rounded down to whole cells, those of tokens up to them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import isqrt
from typing import NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._lingering_search import Setting, good_prices
from infermax_opt.infermax.bounds.interaction import ROOT_BITS, THETA_BITS, Kind, Prices, falls, in_chunks
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance

__all__ = ["GROUPS", "LingeringProof", "Row", "lingering_bound"]

#: Largest KV of a request for which the bound is tried, and most requests: both are work of a checker.
MAX_SIZE, MAX_CHECKED = 2**20, 10_000
#: Groups of the later tokens of a request, at most.
GROUPS = 8
#: The unit u as a part of the mean root of work of a later token.
PART = Fraction(3, 4)
#: A delay that is never reached.
NEVER = 1 << 200


def lingering_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best lingering bound found over pieces, theta, prices of time and windows.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.

    Returns
    -------
    LowerBound or None
        None where the bound is not tried.  Below zero it says nothing.
    """
    few = longest(instance) <= MAX_SIZE and len(instance.requests) <= MAX_CHECKED
    if instance.offline or not few:
        return None
    return best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    prices = Prices.of(instance, piece)
    if prices is None:
        return None
    proof = LingeringProof(instance, prices, _mean_root(instance, prices), GROUPS)
    found = good_prices(instance, piece, proof.setting(), stop)
    return proof.bound(found.theta, found.cells, found.stays)


def _mean_root(instance: Instance, prices: Prices) -> int:
    """A part of the mean root of work of a later token."""
    total = tokens = 0
    for kind in instance.types:
        i, last = kind.input_tokens, kind.input_tokens + kind.output_tokens - 1
        total += len(kind.members) * (prices.roots[last] - prices.roots[i])
        tokens += len(kind.members) * (last - i)
    return int(PART * total / max(1, tokens))


class Row(NamedTuple):
    """Later tokens in a row: least times alone of those before and after, sums of a', y, g and w.

    Times in ticks, y and g in units of 2**-ROOT_BITS.
    """

    before: int
    after: int
    fixed: int
    roots: int
    gains: int
    works: int


class _Table(NamedTuple):
    """Prices of cells and of all time after them, and for each the next one that is lower."""

    values: Sequence[int]
    falls: Sequence[int]


class _Prices(NamedTuple):
    """Of work, and r."""

    work: _Table
    root: _Table


class LingeringProof:
    """The bound for one unit u, and so many groups of tokens at most.

    Parameters
    ----------
    instance : Instance
    prices : Prices
    unit : int
        u in 2**-ROOT_BITS.
    groups : int
    """

    def __init__(self, instance: Instance, prices: Prices, unit: int, groups: int):
        self.instance, self.prices, self.unit, self.groups = instance, prices, unit, groups
        #: Prices are whole numbers of 1 / scale.
        self._scale = prices.step << 2 * ROOT_BITS
        self._chunk: int = instance.cost.ticks.alpha[prices.piece] + instance.cost.ticks.p0
        roots, gains = [0], [0]
        for (a, b), (low, high) in zip(pairwise(prices.works), pairwise(prices.roots), strict=True):
            y = high - low
            if unit:
                y = min(y, (b - a << 2 * ROOT_BITS) // unit)
            roots.append(y)
            gains.append(isqrt(y * (unit + y)) - y)
        self._sums = list(accumulate(roots)), list(accumulate(gains))
        #: Kinds of requests, in order of their first appearance, and their later tokens.
        self.kinds: dict[tuple[int, int, Fraction], Kind] = {}
        for kind in instance.types:
            key = kind.input_tokens, kind.output_tokens, kind.arrival
            made = Kind.of(kind, instance, prices)
            if key in self.kinds:
                made = replace(made, count=made.count + self.kinds[key].count)
            self.kinds[key] = made
        self.rows = [self._rows(i, o) for i, o, _ in self.kinds]

    def _rows(self, i: int, o: int) -> list[Row]:
        """The later tokens of a request, in groups as equal as can be."""
        alone, fixed, works = self.prices.alone, self.prices.fixed, self.prices.works
        roots, gains = self._sums
        groups, last = min(self.groups, o - 1), i + o - 1
        cuts = [i + (o - 1) * k // groups for k in range(groups + 1)] if groups else []
        return [
            Row(
                alone[a] - alone[i], alone[last] - alone[b], fixed[b] - fixed[a], roots[b] - roots[a],
                gains[b] - gains[a], works[b] - works[a],
            )
            for a, b in pairwise(cuts)
        ]  # fmt: skip

    def setting(self) -> Setting:
        """What the search for prices goes by."""
        return Setting(self.prices.step, self._chunk, list(self.kinds.values()), self.rows, self.groups)

    def bound(self, theta: int, cells: Sequence[tuple[int, int]], stays: Sequence[int]) -> LowerBound:
        """The bound, exactly.

        Parameters
        ----------
        theta : int
            In units of 2**-THETA_BITS.
        cells : sequence of (int, int)
            End of each cell in ticks, and r there in units of 2**-ROOT_BITS.
        stays : sequence of int
            D of each kind of requests, in ticks.
        """
        instance, ends = self.instance, [end for end, _ in cells]
        roots = [*(root for _, root in cells), 0]
        present = self._present(ends, stays)
        works = [max(1, n) * self._scale + r * r for n, r in zip(present, roots, strict=True)]
        prices = _Prices(_Table(works, falls(works)), _Table(roots, falls(roots)))
        spans = (b - a for a, b in pairwise([0, *ends]))
        total = -theta * sum(span * r * r for span, (_, r) in zip(spans, cells, strict=True))
        for kind, rows, stay in zip(self.kinds.values(), self.rows, stays, strict=True):
            total += kind.count * _Choice(self, kind, rows, stay, theta).least(ends, prices)
        evidence = {
            "kind": "lingering",
            "piece": self.prices.piece,
            "theta": theta,
            "unit": self.unit,
            "groups": self.groups,
            "cells": [list(cell) for cell in cells],
            "stays": list(stays),
        }
        ticks = Fraction(total, self._scale << THETA_BITS)
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "lingering", Proof.CERTIFICATE, evidence=evidence)

    def _present(self, ends: Sequence[int], stays: Sequence[int]) -> list[int]:
        """In how many windows each cell is, and the time after the last one."""
        changes, starts = [0] * (len(ends) + 1), [0, *ends]
        for kind, stay in zip(self.kinds.values(), stays, strict=True):
            first, last = bisect_left(starts, kind.until), bisect_right(ends, kind.begin + stay)
            if first < last:
                changes[first] += kind.count
                changes[last] -= kind.count
        return [*accumulate(changes[:-1]), 0]

    def prompt(self, kind: Kind, work: int) -> int:
        """What a prompt pays at this price of work, in ticks times the scale."""
        chunks = in_chunks(self._chunk, kind.chunks, kind.square, work, self._scale)
        return work * kind.linear + chunks * self._scale

    def tokens(self, row: Row, root: int) -> tuple[int, int]:
        """What tokens pay at this r, and their part of a stay, in ticks times the scale."""
        fixed = row.fixed * self._scale
        paid = fixed + root * (2 * row.roots * self.prices.step + root * row.works)
        return paid, fixed + 2 * root * row.gains * self.prices.step


class _Choice:
    """What a request pays at least, over its delays.

    Parameters
    ----------
    proof : LingeringProof
    kind : Kind
    rows : sequence of Row
    stay : int
        D in ticks.
    theta : int
    """

    def __init__(self, proof: LingeringProof, kind: Kind, rows: Sequence[Row], stay: int, theta: int):
        self._proof, self._kind, self._rows, self._stay, self._theta = proof, kind, rows, stay, theta
        self._scale = proof.prices.step << 2 * ROOT_BITS
        self._first = kind.lone - kind.later

    def least(self, ends: Sequence[int], prices: _Prices) -> int:
        """In ticks times the scale * 2**THETA_BITS; cells end at `ends`."""
        kind, first = self._kind, self._first
        begins = [kind.begin, *(kind.begin + first + row.before for row in self._rows)]
        since = [kind.until + first, *(kind.until + kind.lone - row.after for row in self._rows)]
        tables = [prices.work, *([prices.root] * len(self._rows))]
        at = [
            min(range(bisect_right(ends, a), bisect_right(ends, b) + 1), key=table.values.__getitem__)
            for a, b, table in zip(begins, since, tables, strict=True)
        ]
        free = self._sums([self._scale, *([0] * len(self._rows))])
        parts = [self._part(k, table.values[c]) for k, (table, c) in enumerate(zip(tables, at, strict=True))]
        paid, stays = sum(one for one, _ in parts), sum(one for _, one in parts)
        # When each comes to a cell that is cheaper than all before.
        when = [self._when(table.falls[c], ends, b) for table, c, b in zip(tables, at, since, strict=True)]
        best = self._worth(0, paid, stays)
        while True:
            delay = min(when)
            # Longer delays pay more than this, whatever the prices.
            if delay == NEVER or self._worth(delay, *free) >= best:
                return best
            for k, moment in enumerate(when):
                if moment == delay:
                    at[k] = tables[k].falls[at[k]]
                    when[k] = self._when(tables[k].falls[at[k]], ends, since[k])
                    before, parts[k] = parts[k], self._part(k, tables[k].values[at[k]])
                    paid, stays = paid + parts[k][0] - before[0], stays + parts[k][1] - before[1]
            best = min(best, self._worth(delay, paid, stays))

    def _when(self, cell: int, ends: Sequence[int], since: int) -> int:
        """By which delay a window comes to a cell."""
        return ends[cell - 1] - since if cell <= len(ends) else NEVER

    def _part(self, which: int, price: int) -> tuple[int, int]:
        """What the prompt or a group of tokens pays at a price, and its part of a stay."""
        if which:
            return self._proof.tokens(self._rows[which - 1], price)
        return self._proof.prompt(self._kind, price), self._first * self._scale

    def _sums(self, prices: Sequence[int]) -> tuple[int, int]:
        """What is paid at these prices, and how long the request stays."""
        parts = [self._part(k, price) for k, price in enumerate(prices)]
        return sum(paid for paid, _ in parts), sum(stay for _, stay in parts)

    def _worth(self, delay: int, paid: int, stays: int) -> int:
        """Theta times what is paid, less what is missing, and the rest of the latency.

        Parameters
        ----------
        delay : int
            In ticks.
        paid, stays : int
        """
        waiting = ((1 << THETA_BITS) - self._theta) * self._scale
        longest = max(stays, (self._kind.lone + delay) * self._scale)
        missing = max(0, self._stay * self._scale - longest)
        return waiting * (self._kind.lone + delay) + self._theta * (paid - missing)
