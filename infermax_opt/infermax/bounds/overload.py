r"""The overload bound on the mean end-to-end latency: a price of machine time, unfinished requests in full.

For arrivals that come faster than they can be served. Fix one affine piece, in ticks.

*Tokens.* As in `progress`, a token has a presence a', a work w and a size k. Let u = w + a' k, U the sum of
u over its request, P that of the tokens before it, and q = (P + u/2) / U.

- A first token: a' = alpha + p0, w = beta I + p1 W, with W = I if chunks save attention work, else I**2.
- A later one, with s = I + n tokens cached after it: without preemption a' = alpha + d0, w = beta + d1
  (s-1); with it a' = alpha + min(d0, p0), w = beta + min(d1, beta) (s-1), but the former where a refill is
  dearer: where R - w >= max(0, d0 - p0) for that w, R = beta s + p1 s**2, or R = (beta + p1) s where prompts
  are split. There beta + p1 >= d1, too, so that it is so for all larger s.
- k = s / M, or held(s) / M where prompts are not split.

*Chunks.* A token that is made in several batches has a part f of it in each: its share of the tokens that
are cached for it where chunks save attention work, else of the work.  The work of the chunk is at least f w.
The KV that the request holds after it is at least f s: by tokens this is plain, and by work the work of the
first m tokens is convex in m.  Its batch prefills.

*Latency.* A request is done in shares u / U, within a batch evenly. Its latency is the integral of what is
left plus that of what is done. What is left gives (f u / U) (t_j - a_i) for each part, t_j being the middle
of its batch. What is done counts only in batches that make its tokens: on average P / U, earlier parts of
the token and f u / (2 U), together r, for a time T_j. Then r >= f q, and the sum of f r over the parts is
q.

*Batches.* T_j >= a' + X_j, X_j = sum of f w. So the sum of r T_j over the parts in a batch is at least the
sum of a' f r, which all parts together make a' q for each token, plus X_j (sum of r) >= Y_j**2, Y_j = sum
of sqrt(f w r), by Cauchy.  And sqrt(f w r) >= f y, y = sqrt(w q).

*Time.* Let l(t) >= 0 be any price, l_j its mean over batch j, a0 the least a', and g_j = 1 - sum of f k >=
0. As T_j >= sum of f u + a0 g_j, the integral of l is at least the sum of l_j (sum of f u + a0 g_j). For
x(t)**2 <= a0 l(t) and its mean x_j: Y_j**2 + l_j a0 g_j >= 2 x_j Y_j - (mean of x**2) (sum of f k). So the
sum of all latencies is at least the sum of a' q, plus the sum over tokens of the least over t >= a_i of

    (u/U) (t - a_i) + l(t) u + 2 x(t) y - x(t)**2 k,

less the integral of l. Every token picks its moment alone, so order, evictions and chunks play no role.

*Refills.* One that makes such a token works f (R - w) more in each batch than the f w that counts. So r T_j
has r f (R - w) more, q (R - w) over all parts: at least the q (d0 - p0) by which a' q may be more than what
alpha + p0 makes. Where nothing decodes, T_j >= sum of f u + a0 g_j all the same, as a0 <= alpha + p0 and f k
(d0 - p0) <= f (R - w). Where anything decodes, T_j has alpha + d0, and p0 besides if anything prefills.

*Prompts in parts.* Let chunks save attention work, and a part have c of the I tokens of a prompt: f = c / I.
It works f w and p1 c (c-1) more.  So T_j is that much longer: l_j T_j is l_j p1 c (c-1) more, and the sum of
r T_j is r p1 c (c-1) more.  Its own presence costs a' r, not a' f r.  So in place of a' q and 2 x y for the
first token the part pays (l + r) p1 c (c-1) + 2 x sqrt(f w r) + a' r.  Let s be the share of the request that
is done when half of a token of the prompt is.  Then r is the mean of s over the tokens of the part, and a
root is concave.  So in place of a' q and 2 x y each token of the prompt pays at least

    (l + s) p1 (c-1) + 2 x sqrt(w s / (I c)) + a' s / c

at the c from 1 to min(I, P) that makes this the least.  Both ways bound the same payments of the same parts,
so the larger counts for each request.  QED.

Certificate: l and x on cells of time. Waiting counts from the beginning of a cell; after the last cell both
are 0. Later tokens are taken in groups, each at the least u and y and the largest k in it, which are those
of its first and last token, as all rise with s. So are tokens of a prompt, each at the least s of its group.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import floor, isqrt
from typing import NamedTuple

from infermax_opt.core.extras import absent
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._fluid import busy_prices
from infermax_opt.infermax.bounds._overload_prompts import LONGEST_PART, SHARES, PartPrices
from infermax_opt.infermax.bounds._overload_tables import PRICE_BITS, WAIT_BITS, Cell, Moments, TokenTables
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["Kind", "OverloadProof", "TokenTables", "overload_bound"]

#: Largest KV of a request for which the bound is tried: tokens are tabulated by it.
MAX_SIZE = 2**20
#: Requests beyond which it is not tried: checking takes a millisecond for each.
MAX_CHECKED = 50_000
#: Cells of time, at first; levels of x; groups of the tokens of a prompt, and of the later ones: at most.
CELLS, LEVELS, PARTS, GROUPS = 6400, 60, 12, 64
#: Levels that there are at least, where there are several groups: with parts of prompts, and without.
FEW_LEVELS = 24, 8
#: Levels of x from one to its half.
HALVING = 9
#: Cells of all requests, and levels of all groups of tokens, at most: the checker looks at each.
ALL_CELLS, ALL_LEVELS = 2_000_000, 2_000_000
#: Bits after the point of the largest x.
LEVEL_BITS = 32
#: Values of the largest x that are tried, as shares of what the highest price allows.
TOPS = (1.0, 0.85, 0.7, 0.5, 0.25)
#: What parts cost prices more, as shares of what they cost a request that is alone, where there are parts.
EXTRAS = (0.3, 0.15, 0.45, 0.6, 0.0)


def overload_bound(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> LowerBound | None:
    """Best overload bound found over pieces, prices and levels of x.

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
    if instance.offline or longest(instance) > MAX_SIZE or len(instance.requests) > MAX_CHECKED:
        return None
    return best_piece(instance, _piece_bound, stop, pieces)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    if piece and stop():
        return None
    proof = OverloadProof(instance, TokenTables.of(instance, piece))
    return proof.bound(proof.chosen(stop))


class Prompt(NamedTuple):
    """A prompt in parts: u of a token, its size, the most in a part, what it pays whole; groups of tokens.

    What it pays whole is a' q; a group is its tokens, and the least s.
    """

    mass: int
    longest: int
    presence: int
    groups: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Kind:
    """Equal requests: their number, arrival in ticks rounded down, U, sum of a' q, and groups of tokens.

    A group is its tokens, the least u and y of one, and the largest k; y in units.  The first is the prompt.
    """

    count: int
    begin: int
    mass: int
    constant: Fraction
    groups: Sequence[tuple[int, int, int, int]]
    prompt: Prompt | None


class OverloadProof:
    """The bound for one affine piece.

    Parameters
    ----------
    instance : Instance
    tables : TokenTables
    """

    def __init__(self, instance: Instance, tables: TokenTables):
        self.instance, self.tables = instance, tables
        ticks = instance.cost.ticks
        self._first = ticks.alpha[tables.piece] + ticks.p0
        self._word = ticks.beta[tables.piece] + ticks.p1
        #: Groups of the tokens of a prompt, or 0 if parts are not told from whole prompts.
        told = spreads(instance) and ticks.p1
        self.parts = min(PARTS, ALL_LEVELS // len(instance.types) // 50) if told else 0
        outputs = [kind.output_tokens for kind in instance.types]
        few = FEW_LEVELS[self.parts == 0]
        looked, self.groups = max(
            (looked, groups)
            for groups in (1, *range(2, GROUPS + 1, 2))
            if (looked := sum(min(groups + 1, o) for o in outputs)) * few <= ALL_LEVELS or groups == 1
        )
        self.levels = max(1, min(LEVELS, ALL_LEVELS // looked - 1))
        sizes = {(kind.input_tokens, kind.output_tokens) for kind in instance.types}
        later = [tables.presence[i + 1] for i, o in sizes if o > 1]
        self.least = min([self._first, *later])
        self.exponent = max(0, LEVEL_BITS - self.least.bit_length() // 2)
        self._prices = PartPrices(self._word, ticks.p1, self._first, self.exponent)
        self._kinds = [self._read(kind) for kind in instance.types]

    def _read(self, kind: RequestType) -> Kind:
        instance, tables = self.instance, self.tables
        ticks, system = instance.cost.ticks, instance.system
        i, o = kind.input_tokens, kind.output_tokens
        last = i + o - 1
        pairs = i if spreads(instance) else i * i
        work = ticks.beta[tables.piece] * i + ticks.p1 * pairs
        size = i if instance.policy.chunked_prefill else system.held(i)
        prompt = system.kv_capacity * work + self._first * size
        mass = prompt + tables.masses[last] - tables.masses[i]
        # Twice the sum of a' (P + u/2), where P of a later token is prompt + masses[s-1] - masses[i].
        doubled = self._first * prompt + 2 * (tables.early[last] - tables.early[i])
        doubled += tables.shares[last] - tables.shares[i]
        doubled += 2 * (prompt - tables.masses[i]) * (tables.presences[last] - tables.presences[i])
        constant = Fraction(doubled << WAIT_BITS, 2 * mass) if mass else Fraction(0)
        groups = [self._group(1, prompt, work, size, 0, prompt, mass)] if mass else []
        if mass:
            groups += self._later(i, last, prompt - tables.masses[i], mass)
        begin = floor(kind.arrival * instance.cost.ticks_per_second)
        told = self.parts and mass and min(i, system.prefill_budget) <= LONGEST_PART
        parted = self._in_parts(i, prompt, mass) if told else None
        constant = Fraction(floor(constant), 2**WAIT_BITS)
        return Kind(len(kind.members), begin, mass, constant, groups, parted)

    def _in_parts(self, i: int, prompt: int, whole: int) -> Prompt:
        """A prompt of i tokens, its u and U of the request."""
        cuts = [i * k // self.parts for k in range(self.parts + 1)]
        groups = [
            (end - start, SHARES * prompt * start // (i * whole))
            for start, end in pairwise(cuts)
            if end > start
        ]
        presence = -(-(self._first * prompt << PRICE_BITS) // (2 * whole))
        return Prompt(prompt // i, min(i, self.instance.system.prefill_budget), presence, groups)

    def _later(self, i: int, last: int, shift: int, whole: int) -> Iterator[tuple[int, int, int, int]]:
        """Groups of the later tokens of a request."""
        tables = self.tables
        width = -(-(last - i) // self.groups) or 1
        for s in range(i + 1, last + 1, width):
            end = min(last, s + width - 1)
            before = shift + tables.masses[s - 1]
            yield self._group(
                end - s + 1, tables.mass[s], tables.work[s], tables.size[end], before, tables.mass[s], whole
            )

    def _group(
        self, tokens: int, mass: int, work: int, size: int, before: int, own: int, whole: int
    ) -> tuple[int, int, int, int]:
        """Tokens, least u, least y in units, largest k."""
        y = isqrt((work * (2 * before + own) << 2 * self.exponent) // (2 * whole))
        return tokens, mass, y, size

    # --- prices -------------------------------------------------------------------------------------

    def chosen(self, stop: Callable[[], bool]) -> list[Cell]:
        """Cells with the best prices and levels of x in the time, judged in floats."""
        from infermax_opt.infermax.bounds._overload_search import Setting, judged

        capacity, attention = self.instance.system.kv_capacity, self.instance.cost.ticks.p1
        rates, unit = (self._word, attention, self._first), 2**self.exponent
        setting = Setting.of(self._kinds, capacity, unit, rates)
        tried: list[tuple[float, float, list[Cell]]] = []
        tops: Sequence[float] = TOPS
        for extra in EXTRAS if self.parts else EXTRAS[:1]:
            prices = self._busy_prices(extra)
            root = max((price for _, price in prices), default=0.0) ** 0.5
            for top in tops:
                cells = self.cells(prices, top * root)
                if absent("numba") or not len(setting.kinds):
                    return cells  # to judge others would take minutes in plain Python
                tried.append((judged(setting, cells, unit), top, cells))
            tops = (max(tried)[1],)  # the best of them hardly depends on the prices
            if stop():
                break
        return max(tried)[2]

    def _busy_prices(self, extra: float) -> list[tuple[int, float]]:
        """Ends of cells and prices, as many cells as can be looked at for each request while it may wait."""
        alone = 2 * (self._first * self.instance.cost.ticks.p1) ** 0.5
        capacity = self.instance.system.kv_capacity
        works = []
        for kind in self._kinds:
            if kind.mass:
                tokens = sum(number for number, _ in kind.prompt.groups) if kind.prompt else 0
                works.append((kind.begin, kind.mass / capacity + extra * alone * tokens, kind.count))
        prices, cells = [], min(CELLS, 4 * len(works))
        while works:
            prices = busy_prices(works, max(8, cells))
            idle = [*(k for k, (_, price) in enumerate(prices) if price <= 0), len(prices)]
            ends = [end for end, _ in prices]
            here = (bisect_right(ends, begin) for begin, _, _ in works)
            looked = sum(idle[bisect_left(idle, k)] - k + 1 for k in here)
            if cells <= 8 or looked <= ALL_CELLS:
                break
            cells = max(8, cells // 2)
        return prices

    def cells(self, prices: Sequence[tuple[int, float]], top: float) -> list[Cell]:
        """Cells with x = the smaller of `top` (in roots of a0) and what the price allows, in few levels."""
        highest = floor(top * isqrt(self.least << 2 * self.exponent))
        levels = [0, *(floor(highest * share) for share in self._level_shares())]
        found = []
        for end, price in prices:
            units = floor(max(0.0, price) * 2**PRICE_BITS)
            allowed = isqrt((self.least * units << 2 * self.exponent) >> PRICE_BITS)
            found.append((end, units, levels[bisect_right(levels, allowed) - 1]))
        return found

    def _level_shares(self) -> list[float]:
        """Levels of x as shares of the highest, rising: evenly if they are too few to halve it twice."""
        if self.levels < 2 * HALVING:
            return [(k + 1) / self.levels for k in range(self.levels)]
        return [0.5 ** (k / HALVING) for k in range(self.levels - 1, -1, -1)]

    # --- the value ----------------------------------------------------------------------------------

    def bound(self, cells: Sequence[Cell]) -> LowerBound:
        """The bound with these prices, exactly, rounded down."""
        instance = self.instance
        value = self._total(cells) / instance.cost.ticks_per_second / len(instance.requests)
        evidence = {
            "kind": "overload",
            "piece": self.tables.piece,
            "exponent": self.exponent,
            "groups": self.groups,
            "parts": self.parts,
            "cells": [list(cell) for cell in cells],
        }
        return LowerBound(value, "overload", Proof.CERTIFICATE, evidence=evidence)

    def _total(self, cells: Sequence[Cell]) -> Fraction:
        """Sum of latencies in ticks, at least."""
        moments = Moments(cells, self.instance.system.kv_capacity)
        paid = sum((kind.count * self._least(kind, moments) for kind in self._kinds), Fraction(0))
        starts = [0, *moments.ends]
        spent = sum((end - start) * price for start, (end, price, _) in zip(starts, cells, strict=False))
        return paid - Fraction(spent, 2**PRICE_BITS)

    def _least(self, kind: Kind, moments: Moments) -> Fraction:
        """What a request of a kind adds: its constant, and the least that its tokens pay."""
        if not kind.mass:
            return Fraction(0)
        rates = moments.rates(kind.begin, kind.mass)
        cheapest: dict[int, int] = {}
        for (_, level), rate in rates.items():
            cheapest[level] = min(rate, cheapest.get(level, rate))
        whole, *later = (
            tokens
            * min(
                self._paid(mass, size, level, rate) + self._crossed(level, y)
                for level, rate in cheapest.items()
            )
            for tokens, mass, y, size in kind.groups
        )
        if kind.prompt is not None:
            whole = max(whole, self._least_in_parts(kind.prompt, rates) - kind.prompt.presence)
        return kind.constant + Fraction(whole + sum(later), 2**PRICE_BITS)

    def _paid(self, mass: int, size: int, level: int, rate: int) -> int:
        """What a token pays for waiting, time and memory."""
        below: int = self.instance.system.kv_capacity << 2 * self.exponent
        held = -(-(level * level * size << PRICE_BITS) // below)
        return (mass * rate >> WAIT_BITS - PRICE_BITS) - held

    def _crossed(self, level: int, y: int) -> int:
        """2 x y."""
        found: int = (2 * level * y << PRICE_BITS) >> 2 * self.exponent
        return found

    def _least_in_parts(self, prompt: Prompt, rates: Mapping[tuple[int, int], int]) -> int:
        """Least that the tokens of a prompt pay, in whatever parts."""
        paid = [
            (self._paid(prompt.mass, 1, level, rate), price, level) for (price, level), rate in rates.items()
        ]
        paid.sort()
        total = 0
        for tokens, share in prompt.groups:
            base, price, level = paid[0]
            least = base + self._prices.least(price, level, share, prompt.longest)
            for base, price, level in paid[1:]:
                if base >= least:
                    break  # parts pay 0 or more
                least = min(least, base + self._prices.least(price, level, share, prompt.longest))
            total += tokens * least
        return total
