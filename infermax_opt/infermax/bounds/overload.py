r"""The overload bound on the mean end-to-end latency: a price of machine time, unfinished requests in full.

For arrivals that come faster than they can be served. Fix one affine piece, in ticks.

*Tokens.* As in `progress`, a token has a presence a', a work w and a size k. Let u = w + a' k, U the sum of
u over its request, P that of the tokens before it, and q = (P + u/2) / U.

- A first token: a' = alpha + p0, w = beta I + p1 W, with W = I if chunks save attention work, else I**2.
- A later one, with s = I + n tokens cached after it: without preemption a' = alpha + d0, w = beta + d1
  (s-1); with it a' = alpha + min(d0, p0), w = beta + min(d1, beta) (s-1), but the former where prompts are
  not split and a refill costs at least max(0, d0 - p0) more than that w.
- k = s / M, or held(s) / M where prompts are not split.

*Chunks.* A token that is made in several batches has a part c of it in each: its share of the work. The
work of the chunk is at least c w. The KV that the request holds after it is at least c s, as the work of
the first m tokens is convex in m. Its batch prefills.

*Latency.* A request is done in shares u / U, within a batch evenly. Its latency is the integral of what is
left plus that of what is done. What is left gives (c u / U) (t_j - a_i) for each part, t_j being the middle
of its batch. What is done counts only in batches that make its tokens: on average P / U, earlier parts of
the token and c u / (2 U), together r, for a time T_j. Then r >= c q, and the sum of c r over the parts is
q.

*Batches.* T_j >= a' + X_j, X_j = sum of c w. So the sum of r T_j over the parts in a batch is at least the
sum of a' c r, which all parts together make a' q for each token, plus X_j (sum of r) >= Y_j**2, Y_j = sum
of c y, y = sqrt(w q), by Cauchy and w c r >= (c y)**2.

*Time.* Let l(t) >= 0 be any price, l_j its mean over batch j, a0 the least a', and g_j = 1 - sum of c k >=
0. As T_j >= sum of c u + a0 g_j, the integral of l is at least the sum of l_j (sum of c u + a0 g_j). For
x(t)**2 <= a0 l(t) and its mean x_j: Y_j**2 + l_j a0 g_j >= 2 x_j Y_j - (mean of x**2) (sum of c k). So the
sum of all latencies is at least the sum of a' q, plus the sum over tokens of the least over t >= a_i of

    (u/U) (t - a_i) + l(t) u + 2 x(t) y - x(t)**2 k,

less the integral of l. Every token picks its moment alone, so order, evictions and chunks play no role.
QED.

Certificate: l and x on cells of time. Waiting counts from the beginning of a cell; after the last cell both
are 0. Later tokens are taken in groups, each at the least u and y and the largest k in it, which are those
of its first and last token, as all rise with s.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import ceil, floor, isqrt

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._fluid import busy_prices
from infermax_opt.infermax.bounds.least_work import spreads
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["OverloadProof", "TokenTables", "overload_bound"]

#: Largest KV of a request for which the bound is tried: tokens are tabulated by it.
MAX_SIZE = 2**20
#: Requests beyond which it is not tried: checking takes a millisecond for each.
MAX_CHECKED = 50_000
#: Cells of time; steps in which x falls to 0; groups of the later tokens of a request: at most.
CELLS, LEVELS, GROUPS = 400, 24, 64
#: Cells of all requests, and levels of all groups of tokens, at most: the checker looks at each.
ALL_CELLS, ALL_LEVELS = 1_200_000, 1_500_000
#: Bits after the point of l, of the largest x, and of waiting by work.
PRICE_BITS, LEVEL_BITS, WAIT_BITS = 12, 32, 96
#: Values of the largest x that are tried, as shares of what the highest price allows; requests that judge.
TOPS, SAMPLE = (0.0, 0.2, 0.4, 0.55, 0.7, 0.85, 1.0), 100


def overload_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best overload bound found over pieces and levels of x.

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
    if instance.offline or longest(instance) > MAX_SIZE or len(instance.requests) > MAX_CHECKED:
        return None
    return best_piece(instance, _piece_bound, stop)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    if piece and stop():
        return None
    proof = OverloadProof(instance, TokenTables.of(instance, piece))
    return proof.bound(proof.chosen())


@dataclass(frozen=True)
class TokenTables:
    """Later tokens by s, the tokens cached after them; for one affine piece.

    Attributes
    ----------
    piece : int
    presence, work, size, mass : sequence of int
        Of one such token: a', w, k in tokens, and u in ticks * M.
    masses, early, shares : sequence of int
        Sums up to s: of u; of a' times the sum of u before; and of a' u.
    presences : sequence of int
        Sums of a' up to s.
    """

    piece: int
    presence: Sequence[int]
    work: Sequence[int]
    size: Sequence[int]
    mass: Sequence[int]
    masses: Sequence[int]
    early: Sequence[int]
    shares: Sequence[int]
    presences: Sequence[int]

    @classmethod
    def of(cls, instance: Instance, piece: int) -> TokenTables:
        """Tabulate tokens.

        Parameters
        ----------
        instance : Instance
        piece : int
            Affine piece of the batch time.
        """
        ticks, policy, system = instance.cost.ticks, instance.policy, instance.system
        alpha, beta, spare = ticks.alpha[piece], ticks.beta[piece], max(0, ticks.d0 - ticks.p0)
        presence, work, size = [0], [0], [0]
        for s in range(1, longest(instance)):
            step = beta + ticks.d1 * (s - 1)
            dearer = not policy.chunked_prefill and beta * s + ticks.p1 * s * s - step >= spare
            if not policy.preemption or dearer:
                presence.append(alpha + ticks.d0)
                work.append(step)
            else:
                presence.append(alpha + min(ticks.d0, ticks.p0))
                work.append(beta + min(ticks.d1, beta) * (s - 1))
            size.append(s if policy.chunked_prefill else system.held(s))
        mass = [system.kv_capacity * w + a * k for a, w, k in zip(presence, work, size, strict=True)]
        masses = list(accumulate(mass))
        early = [0, *(a * before for a, before in zip(presence[1:], masses, strict=False))]
        shares = [a * u for a, u in zip(presence, mass, strict=True)]
        return cls(
            piece, presence, work, size, mass, masses,
            list(accumulate(early)), list(accumulate(shares)), list(accumulate(presence)),
        )  # fmt: skip


@dataclass(frozen=True)
class _Kind:
    """Equal requests: their number, arrival in ticks rounded down, U, sum of a' q, and groups of tokens.

    A group is its tokens, the least u and y of one, and the largest k; y in units.
    """

    count: int
    begin: int
    mass: int
    constant: Fraction
    groups: Sequence[tuple[int, int, int, int]]


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
        each = ALL_LEVELS // len(instance.types)
        self.groups = max(1, min(GROUPS, each // 8))
        self.levels = max(1, min(LEVELS, each // (self.groups + 1) - 1))
        sizes = {(kind.input_tokens, kind.output_tokens) for kind in instance.types}
        later = [tables.presence[i + 1] for i, o in sizes if o > 1]
        self.least = min([self._first, *later])
        self.exponent = max(0, LEVEL_BITS - self.least.bit_length() // 2)
        self._kinds = [self._read(kind) for kind in instance.types]

    def _read(self, kind: RequestType) -> _Kind:
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
        return _Kind(len(kind.members), begin, mass, Fraction(floor(constant), 2**WAIT_BITS), groups)

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

    def chosen(self) -> list[tuple[int, int, int]]:
        """Cells (end, l, x) with the best levels of x, judged by a part of the requests."""
        every = -(-len(self._kinds) // SAMPLE)
        seconds = [
            (k.begin, k.mass / self.instance.system.kv_capacity, k.count) for k in self._kinds if k.mass
        ]
        cells = max(8, min(CELLS, ALL_CELLS // len(self._kinds)))
        prices = busy_prices(seconds, cells) if seconds else []
        root = max((price for _, price in prices), default=0.0) ** 0.5
        tried = [self._cells(prices, share * root) for share in TOPS]
        return max(tried, key=lambda cells: self._total(cells, every))

    def _cells(self, prices: Sequence[tuple[int, float]], top: float) -> list[tuple[int, int, int]]:
        """Cells with x = the smaller of `top` (in roots of a0) and what the price allows, in few levels."""
        highest = floor(top * isqrt(self.least << 2 * self.exponent))
        found, steps = [], self.levels
        for end, price in prices:
            units = floor(max(0.0, price) * 2**PRICE_BITS)
            allowed = isqrt((self.least * units << 2 * self.exponent) >> PRICE_BITS)
            level = min(steps, allowed * steps // highest) * highest // steps if highest else 0
            found.append((end, units, level))
        return found

    # --- the value ----------------------------------------------------------------------------------

    def bound(self, cells: Sequence[tuple[int, int, int]]) -> LowerBound:
        """The bound with these prices, exactly, rounded down."""
        instance = self.instance
        value = self._total(cells, 1) / instance.cost.ticks_per_second / len(instance.requests)
        evidence = {
            "kind": "overload",
            "piece": self.tables.piece,
            "exponent": self.exponent,
            "groups": self.groups,
            "cells": [list(cell) for cell in cells],
        }
        return LowerBound(value, "overload", Proof.CERTIFICATE, evidence=evidence)

    def _total(self, cells: Sequence[tuple[int, int, int]], every: int) -> Fraction:
        """Sum of latencies in ticks, at least; from every so many requests alone, about that."""
        ends = [end for end, _, _ in cells]
        some = self._kinds[::every]
        paid = sum((kind.count * self._least(kind, cells, ends) for kind in some), Fraction(0))
        starts = [0, *ends]
        spent = sum((end - start) * price for start, (end, price, _) in zip(starts, cells, strict=False))
        return paid * Fraction(len(self._kinds), len(some)) - Fraction(spent, 2**PRICE_BITS)

    def _least(self, kind: _Kind, cells: Sequence[tuple[int, int, int]], ends: Sequence[int]) -> Fraction:
        """What a request of a kind adds: its constant, and the least that its tokens pay."""
        if not kind.mass:
            return Fraction(0)
        capacity, scale = self.instance.system.kv_capacity, 4**self.exponent
        rates: dict[int, int] = {}  # by level: the least of waiting / U + l / M over cells, in small units
        for k in range(bisect_right(ends, kind.begin), len(cells) + 1):
            wait = max(0, (ends[k - 1] if k else 0) - kind.begin)
            price, level = (cells[k][1], cells[k][2]) if k < len(cells) else (0, 0)
            rate = (wait << WAIT_BITS) // kind.mass + (price << WAIT_BITS - PRICE_BITS) // capacity
            rates[level] = min(rate, rates.get(level, rate))
        total = 0
        for tokens, mass, y, size in kind.groups:
            least = min(
                (mass * rate >> WAIT_BITS - PRICE_BITS)
                + ((2 * level * y << PRICE_BITS) // scale)
                - ceil(Fraction(level * level * size << PRICE_BITS, scale * capacity))
                for level, rate in rates.items()
            )
            total += tokens * least
        return kind.constant + Fraction(total, 2**PRICE_BITS)
