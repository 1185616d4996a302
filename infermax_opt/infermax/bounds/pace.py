r"""The pace bound on the mean end-to-end latency with arrivals: who wants short batches pays for their start.

Fix one affine piece, in ticks.  Let c = alpha + p0, a' = alpha + d0, both above 0.  A request is there from
its arrival to its last token, and the sum of latencies counts all of that time.  Besides, let time have a
price mu(t) = r(t)**2 >= 0, and let each batch of length T, which decodes work X and has prompts or refills
of work P, sell its price, the integral of mu over it: for work w of a decode w / (T - a') of it, for work p
of a chunk p / (T - c) of it.  As X + P <= T - max(a', c) where there are both, X <= T - a' where nothing is
prefilled, and P <= T - c where nothing decodes, a batch sells no more than there is.  Batches do not overlap.
So, if each request takes the way through its tokens that is cheapest for itself,

    sum of latencies >= sum over requests of the least (latency + what it pays) - integral of mu.

*What a token costs.*  Let e be a' or c, x = sqrt(w / e), and k, q >= 0 any numbers.  Then in each moment of
its batch  mu w / (T - e) + psi(t) >= e (k + q x)**2 / T,  psi = (k + (q - r) x)**2, or 0 if k + q x < r x:
with u = T / e, y = r x, b = k + q x this is y**2 / (u - 1) + (b - y)**2 >= b**2 / u (Cauchy).  So a token
costs at least its reward e (k + q x)**2 less the integral of psi over its batch.

*Prompts.*  Let p = beta I + p1 W, W the least attention work (`least_work`), and e = c.  The chunks of a
prompt work p or more in all.  One that works p' has the share min(1, p' / p) of the reward, so together they
have all of it; if p = 0 the last one has it.  It pays that share, or more, of what p would in a batch as
long, and psi >= 0.  So psi is enough.

*Refills.*  A token with s cached after it works w = beta + d1 (s - 1) if decoded.  If it ends a refill, the
chunks, of R = (beta + p1) s in all, have the share p / R of its reward each, and T >= c + p.  Let R >= w +
max(0, d0 - p0), e = a'.  If T >= c + R, then R / (T - c) >= w / (T - a'), so a chunk pays p / R of what the
decode would at T, or more.  If T < c + R, the worst is p = T - c, and the case T = c + R is worse yet.  So
psi is enough.  Else take e = min(a', c) and the least of w and R: neither way pays less.

*Ways.*  Between its arrival and its end a request is in its prompt, then in its later tokens: stages, in each
of which psi is at most the one of the largest or the least x.  Waiting costs 1 and psi >= 0.  So latency and
pay are at least the rewards and, over all times of the end and of the changes of stage, the least of the
integral of 1 - psi.  On a cell with constant r that is linear in the times within it, so ends of cells are
enough.  All of (k, q) hold for each end, and so does k = q = 0: the time itself.
After the last cell r = 0, and who is there still pays no less later if no psi is above 1.  QED.

Certificate: r on cells of time, q of each kind of requests, and pairs of k and a multiple of q; rounded so
that rewards are less and psi is more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor, isqrt
from typing import NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._pace_search import Setting, good_prices
from infermax_opt.infermax.bounds.least_work import prompt_pairs
from infermax_opt.infermax.bounds.pieces import best_piece, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["ROOT_BITS", "PaceProof", "Stage", "Traveller", "pace_bound"]

#: Largest KV of a request for which the bound is tried, and most requests: both are work of a checker.
MAX_SIZE, MAX_CHECKED = 2**20, 3_000
#: Bits after the point of r, k, q and x.
ROOT_BITS = 12
ONE = 1 << ROOT_BITS
#: Members, which are tried for each request: k, and q as a multiple of its own, in units of 2**-ROOT_BITS.
MEMBERS = (
    *((round(k * ONE), ONE) for k in (1.3, 1.15, 1.05, 1, 0.95, 0.9, 0.8, 0.7, 0.55, 0.4, 0.2)),
    (ONE, 0),
)


def pace_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best pace bound found over pieces and prices of time.

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
    proof = PaceProof.of(instance, piece)
    if proof is None:
        return None
    setting = Setting(
        [some.begin for some in proof.travellers],
        list(proof.counts.values()),
        [[stage[:] for stage in some.stages] for some in proof.travellers],
        [(k / ONE, q / ONE) for k, q in MEMBERS],
    )
    ends, roots, own = good_prices(instance, piece, setting, stop)
    whole = [round(root * ONE) for root in roots], [round(root * ONE) for root in own]
    return proof.bound(list(zip(ends, whole[0], strict=True)), whole[1], MEMBERS)


class Stage(NamedTuple):
    """Tokens, or a prompt: sums of e, sqrt(e w) and w in ticks, least and largest x in 2**-ROOT_BITS."""

    fixed: int
    roots: int
    works: int
    low: int
    high: int


class Traveller(NamedTuple):
    """A kind of requests: arrival in ticks, rounded down and up, and its stages."""

    begin: int
    until: int
    stages: tuple[Stage, ...]


class PaceProof:
    """The bound for some prices of time.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time; c and a' are above 0.
    """

    def __init__(self, instance: Instance, piece: int):
        self.instance, self.piece = instance, piece
        self._sums: dict[bool, list[tuple[int, int, int]]] = {}
        #: How many requests there are of each length and arrival.
        self.counts: dict[tuple[int, int, Fraction], int] = {}
        self.travellers: list[Traveller] = []
        for kind in instance.types:
            key = kind.input_tokens, kind.output_tokens, kind.arrival
            if key not in self.counts:
                self.travellers.append(self._read(kind))
            self.counts[key] = self.counts.get(key, 0) + len(kind.members)

    @classmethod
    def of(cls, instance: Instance, piece: int) -> PaceProof | None:
        """The proof for an affine piece; None where a batch may take no time."""
        ticks = instance.cost.ticks
        positive = ticks.alpha[piece] + min(ticks.d0, ticks.p0) > 0
        return cls(instance, piece) if positive else None

    def _read(self, kind: RequestType) -> Traveller:
        ticks, i = self.instance.cost.ticks, kind.input_tokens
        arrival = kind.arrival * self.instance.cost.ticks_per_second
        prompt = ticks.beta[self.piece] * i + ticks.p1 * prompt_pairs(self.instance, kind)
        chunk = ticks.alpha[self.piece] + ticks.p0
        root = _root(prompt, chunk)
        stages = [Stage(chunk, isqrt(chunk * prompt), prompt, root, root + 1)]
        first, last = i + 1, i + kind.output_tokens - 1
        cut = self._cut(first, last)
        stages += [self._tokens(a, b, dear) for a, b, dear in cut if a <= b]
        return Traveller(floor(arrival), ceil(arrival), tuple(stages))

    def _spare(self, s: int) -> int:
        """R - w - max(0, d0 - p0) of the token with s cached after it: not below 0 where refills are dear."""
        ticks = self.instance.cost.ticks
        beta = ticks.beta[self.piece]
        more = max(0, ticks.d0 - ticks.p0)
        return int((beta + ticks.p1) * s - beta - ticks.d1 * (s - 1) - more)

    def _cut(self, first: int, last: int) -> list[tuple[int, int, bool]]:
        """Stages of later tokens: from and to which s, and whether refills are dear."""
        if not self.instance.policy.preemption:
            return [(first, last, True)]
        slope = self._spare(1) - self._spare(0)
        if slope <= 0:
            return [(first, last, self._spare(last) >= 0)]
        least = max(first, -(self._spare(0) // slope))  # the first s at which they are
        return [(first, min(last, least - 1), False), (least, last, True)]

    def _tokens(self, first: int, last: int, dear: bool) -> Stage:
        """The stage of the later tokens with s = first, ..., last cached after them."""
        rest, (low, high) = self._fixed(dear), (self._work(s, dear) for s in (first, last))
        sums = self._table(dear, last)
        fixed, roots, works = (b - a for a, b in zip(sums[first - 1], sums[last], strict=True))
        return Stage(fixed, roots, works, _root(low, rest), _root(high, rest) + 1)

    def _fixed(self, dear: bool) -> int:
        """E of later tokens."""
        ticks = self.instance.cost.ticks
        more = ticks.d0 if dear else min(ticks.d0, ticks.p0)
        return int(ticks.alpha[self.piece] + more)

    def _work(self, s: int, dear: bool) -> int:
        """The work of a later token."""
        ticks = self.instance.cost.ticks
        beta = ticks.beta[self.piece]
        decode = int(beta + ticks.d1 * (s - 1))
        return decode if dear else min(decode, int((beta + ticks.p1) * s))

    def _table(self, dear: bool, last: int) -> list[tuple[int, int, int]]:
        """Sums of e, sqrt(e w) and w over s = 1, 2, ..., up to `last` at least."""
        sums, fixed = self._sums.setdefault(dear, [(0, 0, 0)]), self._fixed(dear)
        while len(sums) <= last:
            work = self._work(len(sums), dear)
            before = sums[-1]
            sums.append((before[0] + fixed, before[1] + isqrt(fixed * work), before[2] + work))
        return sums

    def bound(
        self, cells: Sequence[tuple[int, int]], own: Sequence[int], members: Sequence[tuple[int, int]]
    ) -> LowerBound:
        """The bound, exactly.

        Parameters
        ----------
        cells : sequence of (int, int)
            End of each cell in ticks, and r there; as all other numbers in units of 2**-ROOT_BITS.
        own : sequence of int
            What q is a multiple of, for each kind of requests.
        members : sequence of (int, int)
            Pairs of k and the multiple.
        """
        instance, ends = self.instance, [end for end, _ in cells]
        spans = (b - a for a, b in pairwise([0, *ends]))
        total = -sum(span * r * r for span, (_, r) in zip(spans, cells, strict=True))
        for count, some, q in zip(self.counts.values(), self.travellers, own, strict=True):
            pairs = [(k, q * more >> ROOT_BITS) for k, more in members]
            total += count * self._least(some, pairs, cells, ends)
        ticks = Fraction(total, ONE * ONE)
        evidence = {
            "kind": "pace",
            "piece": self.piece,
            "cells": [list(cell) for cell in cells],
            "members": [list(pair) for pair in members],
            "own": list(own),
        }
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "pace", Proof.CERTIFICATE, evidence=evidence)

    def _least(
        self,
        some: Traveller,
        members: Sequence[tuple[int, int]],
        cells: Sequence[tuple[int, int]],
        ends: Sequence[int],
    ) -> int:
        """Least latency and pay of a request, in units of 2**-(2 ROOT_BITS) ticks.

        Parameters
        ----------
        some : Traveller
        members : sequence of (int, int)
            Pairs of k and q.
        cells : sequence of (int, int)
        ends : sequence of int
            Those of the cells.
        """
        ways = [_Way(some.stages, k, q) for k, q in members]
        best, at = None, some.begin
        for end, r in cells[bisect_right(ends, some.begin) :]:
            value = at - some.begin << 2 * ROOT_BITS
            if best is not None and value >= best:
                break
            more = {q: _largest(some.stages, q, r) for q in {q for _, q in members}}
            for way in ways:
                before = way.least()
                way.go_on(end - at, more[way.q])
                value = max(value, min(before, way.least()))
            best, at = value if best is None else min(best, value), end
        value = at - some.begin << 2 * ROOT_BITS
        late = [way for way in ways if way.k + max(_largest(some.stages, way.q, 0)) <= ONE]
        value = max([value, *(way.least() for way in late)])
        best = value if best is None else min(best, value)
        return best - (some.until - some.begin << 2 * ROOT_BITS)


class _Way:
    """Least costs of the ways that are in each stage, the rewards of all stages included.

    Parameters
    ----------
    stages : sequence of Stage
    k, q : int
    """

    def __init__(self, stages: Sequence[Stage], k: int, q: int):
        self.k, self.q = k, q
        fixed, roots, works = (sum(column) for column in zip(*(stage[:3] for stage in stages), strict=True))
        #: By stage; None where no way has come so far.
        self.costs: list[int | None] = [None] * len(stages)
        self.costs[0] = k * k * fixed + 2 * k * q * roots + q * q * works

    def least(self) -> int:
        """The least of all."""
        return min(cost for cost in self.costs if cost is not None)

    def go_on(self, span: int, more: Sequence[int]) -> None:
        """Let so many ticks go by, each way in its stage or in a later one.

        Parameters
        ----------
        span : int
        more : sequence of int
            The largest (q - r) x of each stage.
        """
        least: int | None = None
        for s, offset in enumerate(more):
            cost = self.costs[s]
            if least is None or (cost is not None and cost < least):
                least = cost
            assert least is not None
            self.costs[s] = least + span * (ONE * ONE - max(0, self.k + offset) ** 2)


def _root(work: int, fixed: int) -> int:
    """sqrt(work / fixed) in units of 2**-ROOT_BITS, rounded down."""
    return isqrt((work << 2 * ROOT_BITS) // fixed)


def _largest(stages: Sequence[Stage], q: int, r: int) -> list[int]:
    """The largest (q - r) x of each stage, rounded up."""
    return [-((r - q) * (stage.high if q > r else stage.low) >> ROOT_BITS) for stage in stages]
