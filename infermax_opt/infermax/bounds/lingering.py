r"""The lingering bound on the mean end-to-end latency with arrivals: who leaves early has had short batches.

`interaction` counts a request as there while it surely is: for as long as it takes alone.  But a request
that decodes with others takes longer.  Here it counts for as long as it is expected to stay, its *window*;
if it is gone before the end of that, what was counted too much is taken back; and it has had short batches,
which is worth as much.

Fix one affine piece, in ticks.  Let a' = alpha + d0 > 0, c = alpha + p0.  Batch j has length T_j, X_j is the
sum of the works w = beta + d1 (s-1) of the tokens that are decoded in it, s cached after them, and P_j the
work of its prompts and refills.  Let life_i be the latency of request i, from its arrival a_i.  A share
theta_i of it, m <= theta_i <= theta <= 1, counts by its uses; *Delays* has the rest.  In its window, which is
cells of time after a_i, it has a weight of 1, or less in the last one; n(t) is the sum of theta_i times these
weights.

*Use of time.*  In a batch a request that is there has, of T_j, no part of it twice,

- if it decodes: a' + X_j, and P_j besides;
- if it has a chunk of its prompt, or of a refill: its work, c for a chunk of a prompt or once for a refill,
  and the P_j of others besides;
- else P_j.

Each counts theta_i times.  P_j is spread evenly over its batch, and counts where its window is, by its
weight; work of i itself counts besides as far as i, which is there, is not in its window: in all
max(theta_i, n(t)) times or more.  Where a window goes on after its request has left, that is too much by
theta_i times missing_i or less, the integral of the weight after its life.

*Decodes.*  For any u >= 0 let y = min(sqrt(w), w / u), y_i = sqrt(theta_i) y, z_j the sum of y_i over the
tokens that are decoded in j.  They count X_j sum of theta_i >= z_j**2 times (Cauchy), and
X_j >= u z_j / sqrt(theta).  For any step function r(t) >= 0 let h = theta r**2, r_j and h_j be means over the
batch, x_j = sqrt(theta) r_j.  Then z_j**2 = 2 x_j z_j - x_j**2 + (x_j - z_j)**2, and x_j**2 <= h_j.  As in
`interaction` all h_j of batches that decode are together at most (the integral of h - sum of h_j (all work
of j)) / a'.

*Who leaves early.*  The batch of a decode counts theta_i (a' + X_j), and has the share y_i / z_j of
(x_j - z_j)**2.  With k = sqrt(theta_i / theta) both together are

    theta_i a' + (theta_i u / sqrt(theta) + y_i) z_j + y_i x_j**2 / z_j - 2 x_j y_i
    >=  theta_i a' + 2 x_j sqrt(theta_i) (sqrt(y (k u + y)) - y)  >=  theta_i (a' + 2 r_j g),

g = sqrt(y (u + y)) - y: the bracket is concave in k, and 0 if k is.  A refill takes c + R or more,
R = (beta + p1) s.  So these shares of i are together at least theta_i times max(0, stay_i - life_i), stay_i
being the least time of the first token, first_i, and a' + 2 r g for each later token that is decoded, c + R
for each other.

*Prices.*  So these parts of all latencies are at least the sum over requests of theta_i times

    Y = c for each chunk of the prompt, its work times max(m, n) / theta_i + r_i**2 / a',
    a' + 2 r_i y + r_i**2 w / a' for each later token,  r_i = r sqrt(theta / theta_i) >= r,
    max(0, stay_i - life_i) - missing_i,

less the integral of h / a'.

*Refills.*  If w a' <= R0 (R - w), R0 = c + R - a' >= 0, then a refill pays no less: c + R + R r_i**2 / a' is
at least the price of the decode at every r; and with the time c + R, besides, at least that and a' + 2 r g,
since y + g <= sqrt(y (u + y)), and y (u + y) <= 2 w.  So it may count as a decode: what it lacks in stay_i it
pays.  Else the token counts the price and the time of the cheaper of both at r = 0, and no y.

*Delays.*  The rest of a latency is 1 - theta_i times life_i = lone_i + delay_i.  Alone each token takes a
least time.  So the batches of a later token begin after first_i and the least times of those before it, and
end before those of the tokens after it, which end at a_i + life_i; and so do those of the prompt.  Tokens in
a row are one group, which pays at the least r of the cells between.  All prices and stay_i rise with r and n,
so the least over the delay counts.  While no price falls, what i counts is concave in its life up to stay_i,
and rises after it: so the lives at which one falls, and stay_i, are enough.  QED.

Certificate: theta and theta_i; u; the number of groups; r on cells of time; how long the window of each kind
of requests is, rounded down to whole cells but for the weight of the last one.  Windows of tokens are rounded
up to cells.  Without theta_i all are theta, and no weight is less than 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, pairwise
from math import isqrt
from typing import NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._lingering_search import Setting, good_prices
from infermax_opt.infermax.bounds._lingering_windows import Window, present_in
from infermax_opt.infermax.bounds.interaction import (
    ROOT_BITS,
    THETA_BITS,
    Kind,
    Prices,
    falls,
    in_chunks,
    in_groups,
)
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


def lingering_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> LowerBound | None:
    """Best lingering bound found over pieces, theta, prices of time and windows.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.
    pieces : sequence of int, optional
        Which pieces of the batch time, in this order; without it all of them.

    Returns
    -------
    LowerBound or None
        None where the bound is not tried.  Below zero it says nothing.
    """
    few = longest(instance) <= MAX_SIZE and len(instance.requests) <= MAX_CHECKED
    if instance.offline or not few:
        return None
    return best_piece(instance, _piece_bound, stop, pieces)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    prices = Prices.of(instance, piece)
    if prices is None:
        return None
    proof = LingeringProof(instance, prices, _mean_root(instance, prices), GROUPS)
    found = good_prices(instance, piece, proof.setting(), stop)
    return proof.bound(found.theta, found.cells, found.stays, found.shares)


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
    """Theta, prices of work in parts of it, and r."""

    theta: int
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
        last = i + o - 1
        return [
            Row(
                alone[a] - alone[i], alone[last] - alone[b], fixed[b] - fixed[a], roots[b] - roots[a],
                gains[b] - gains[a], works[b] - works[a],
            )
            for a, b in in_groups(i, o, self.groups)
        ]  # fmt: skip

    def setting(self) -> Setting:
        """What the search for prices goes by."""
        return Setting(self.prices.step, self._chunk, list(self.kinds.values()), self.rows, self.groups)

    def bound(
        self,
        theta: int,
        cells: Sequence[tuple[int, int]],
        stays: Sequence[int],
        shares: Sequence[int] | None = None,
    ) -> LowerBound:
        """The bound, exactly.

        Parameters
        ----------
        theta : int
            In units of 2**-THETA_BITS.
        cells : sequence of (int, int)
            End of each cell in ticks, and r there in units of 2**-ROOT_BITS.
        stays : sequence of int
            How long the window of each kind of requests is, in ticks.
        shares : sequence of int, optional
            theta_i of each kind, from 1 to theta; theta for all unless given.
        """
        instance, ends = self.instance, [end for end, _ in cells]
        own, starts = [theta] * len(stays) if shares is None else shares, [0, *ends]
        windows = [
            Window.of(starts, kind, stay, shares is not None)
            for kind, stay in zip(self.kinds.values(), stays, strict=True)
        ]
        roots, least = [*(root for _, root in cells), 0], min(own)
        weights = [
            (kind.count * share, window)
            for kind, share, window in zip(self.kinds.values(), own, windows, strict=True)
        ]
        present = present_in(len(ends), weights)
        works = [max(least, n) * self._scale + theta * r * r for n, r in zip(present, roots, strict=True)]
        prices = _Prices(theta, _Table(works, falls(works)), _Table(roots, falls(roots)))
        spans = (b - a for a, b in pairwise(starts))
        total = -theta * sum(span * r * r for span, (_, r) in zip(spans, cells, strict=True))
        for kind, rows, window, share in zip(self.kinds.values(), self.rows, windows, own, strict=True):
            total += kind.count * _Choice(self, kind, rows, window, share).least(ends, prices)
        evidence = {
            "kind": "lingering",
            "piece": self.prices.piece,
            "theta": theta,
            "unit": self.unit,
            "groups": self.groups,
            "cells": [list(cell) for cell in cells],
            "stays": list(stays),
        }
        if shares is not None:
            evidence["shares"] = list(shares)
        ticks = Fraction(total, self._scale << THETA_BITS)
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "lingering", Proof.CERTIFICATE, evidence=evidence)

    def prompt(self, kind: Kind, work: int) -> int:
        """What a prompt pays at this price of work, in ticks times the scale."""
        chunks = in_chunks(self._chunk, kind.chunks, kind.square, work, self._scale)
        return work * kind.linear + chunks * self._scale

    def tokens(self, row: Row, root: int, own: int) -> tuple[int, int]:
        """What tokens pay, and their part of a stay, in ticks times the scale.

        Parameters
        ----------
        row : Row
        root, own : int
            r and r_i.
        """
        fixed = row.fixed * self._scale
        paid = fixed + own * (2 * row.roots * self.prices.step + own * row.works)
        return paid, fixed + 2 * root * row.gains * self.prices.step


class _Choice:
    """What a request counts at least, over its delays.

    Parameters
    ----------
    proof : LingeringProof
    kind : Kind
    rows : sequence of Row
    window : Window
    share : int
        theta_i.
    """

    def __init__(self, proof: LingeringProof, kind: Kind, rows: Sequence[Row], window: Window, share: int):
        self._proof, self._kind, self._rows, self._window, self._share = proof, kind, rows, window, share
        self._scale, self._theta = proof.prices.step << 2 * ROOT_BITS, 0
        self._first = kind.lone - kind.later

    def least(self, ends: Sequence[int], prices: _Prices) -> int:
        """In ticks times the scale * 2**THETA_BITS; cells end at `ends`."""
        kind, first, self._theta = self._kind, self._first, prices.theta
        if not self._share:
            return kind.lone * self._scale << THETA_BITS
        since = [kind.until + first, *(kind.until + kind.lone - row.after for row in self._rows)]
        tables = [prices.work, *([prices.root] * len(self._rows))]
        at = self._first_cells(ends, since, tables)
        free, _ = self._sums([prices.work.values[-1], *([0] * len(self._rows))])
        parts = [self._part(k, table.values[c]) for k, (table, c) in enumerate(zip(tables, at, strict=True))]
        paid, stays = sum(one for one, _ in parts), sum(one for _, one in parts)
        # When each comes to a cell that is cheaper than all before.
        when = [self._when(table.falls[c], ends, b) for table, c, b in zip(tables, at, since, strict=True)]
        best, delay = self._worth(kind.lone * self._scale, paid, stays), 0
        while True:
            before, delay = (kind.lone + delay) * self._scale, min(when)
            life = (kind.lone + delay) * self._scale
            if before < stays < life:
                best = min(best, self._worth(stays, paid, stays))
            # Longer delays pay more than this, whatever the prices.
            if delay == NEVER or self._worth(life, free, 0) >= best:
                return best
            for k, moment in enumerate(when):
                if moment == delay:
                    at[k] = tables[k].falls[at[k]]
                    when[k] = self._when(tables[k].falls[at[k]], ends, since[k])
                    old, parts[k] = parts[k], self._part(k, tables[k].values[at[k]])
                    paid, stays = paid + parts[k][0] - old[0], stays + parts[k][1] - old[1]
            best = min(best, self._worth(life, paid, stays))

    def _first_cells(self, ends: Sequence[int], since: Sequence[int], tables: Sequence[_Table]) -> list[int]:
        """The cheapest cell of each window without delay, of which the windows end `since` then."""
        early = self._kind.begin + self._first
        begins = [self._kind.begin, *(early + row.before for row in self._rows)]
        return [
            min(range(bisect_right(ends, a), bisect_right(ends, b) + 1), key=table.values.__getitem__)
            for a, b, table in zip(begins, since, tables, strict=True)
        ]

    def _when(self, cell: int, ends: Sequence[int], since: int) -> int:
        """By which delay a window comes to a cell."""
        return ends[cell - 1] - since if cell <= len(ends) else NEVER

    def _part(self, which: int, price: int) -> tuple[int, int]:
        """What the prompt or a group of tokens pays at a price, and its part of a stay."""
        if which:
            own = isqrt(self._theta * price * price // self._share)
            return self._proof.tokens(self._rows[which - 1], price, own)
        return self._proof.prompt(self._kind, price // self._share), self._first * self._scale

    def _sums(self, prices: Sequence[int]) -> tuple[int, int]:
        """What is paid at these prices, and how long the request stays."""
        parts = [self._part(k, price) for k, price in enumerate(prices)]
        return sum(paid for paid, _ in parts), sum(stay for _, stay in parts)

    def _worth(self, life: int, paid: int, stays: int) -> int:
        """What a request counts in all.

        Parameters
        ----------
        life, paid, stays : int
            In ticks times the scale.
        """
        _, _, part, span, whole, until = self._window
        full, rest = max(0, whole * self._scale - life), max(0, until * self._scale - life)
        missing = full - (-part * min(rest, span * self._scale) // span)
        longer = max(0, stays - life)
        return ((1 << THETA_BITS) - self._share) * life + self._share * (paid + longer - missing)
