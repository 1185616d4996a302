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

*KV.*  Let KV have a price, too: v(t) >= 0 for all of it.  Who makes a later token in a batch holds at least
the share f = s / M of it then, and pays the integral of v f over the batch: all together no more than there
is, so the integral of v is subtracted as well.  Then a decode costs at least its reward less the integral of
psi - v f, and who makes no token in a batch pays nothing and needs nothing: max(0, psi - v f) is enough.

*Prompts.*  Let p = beta I + p1 W, W the least attention work (`least_work`), and e = c.  The chunks of a
prompt work p or more in all.  One that works p' has the share min(1, p' / p) of the reward, so together they
have all of it; if p = 0 the last one has it.  It pays that share, or more, of what p would in a batch as
long, and psi >= 0.  So psi is enough; their KV is not counted.

*Prompts at the price of their moment.*  Or a prompt has no reward, and psi = 0 while it is there.  A chunk of
work p' still pays p' / (T - c) of the integral of mu over its batch, T times the mean of mu there.  As
T >= c + p', this is p' times that mean or more, where p' > 0; where p' = 0 it pays and owes nothing.  Chunks
that a later eviction makes vain pay as well.  So in all a prompt pays at least p times the least mu between
the arrival and the end of its last batch, with which it leaves its stage.  Nothing else changes: it pays out
of the share of the batch that was its own before.  Where requests wait long for their prompts this is more,
as no reward has to make up for a psi in all that time.

*Long batches.*  If chunks save attention work, let p' and the work of a chunk of a refill be beta + p1 for
each of its tokens: together p and R, and what a chunk works beside only makes T longer.  Let P' and P be the
sums over prompts and refills, and T' = alpha + p0 + X + P + P', and d0 more if anything decodes: T' <= T.  A
batch may sell p' / (T' - c) of its price to a prompt: X / (T - a') + P / (T - c) + P' / (T' - c) is at most
(X + P + P') / (T' - max(a', c)) or, if nothing decodes, (P + P') / (T' - c), which is 1 or less.  By the
limits of a batch T' <= S = alpha + p0 + d0 + beta C + d1 M + p1 min(C, P), with C tokens at most, P prefill
tokens and M of KV.  As T >= T', and t / (t - c) falls with t, p' pays S / (S - c) times as much as above.

*Refills.*  A token with s cached after it works w = beta + d1 (s - 1) if decoded.  If it ends a refill, the
chunks, of R = (beta + p1) s in all, have the share z = p / R of its reward each, T >= c + p, and each holds
z s at least, or all blocks of s where it is the only one.  Let R >= w + max(0, d0 - p0), e = a'.
If T >= c + R, then R / (T - c) >= w / (T - a'), so a chunk pays z of what the decode would at T, or more, and
z v f for its KV; L = max(0, psi - v f) is at least z of itself.  If T < c + R, let B = e (k + q x)**2.
Where (mu + L) R >= B, the chunk has mu p / (T - c) + L >= (mu + L) z R / (T - c) >= z B / T, as p <= T - c.
So L is enough there.  Elsewhere KV is not counted: without v the worst is p = T - c, and the case T = c + R
is worse yet; so psi is enough.  Where R is less, take e = min(a', c) and the least of w and R, and count no
KV: neither way pays less.

*Ways.*  Between its arrival and its end a request is in its prompt, then in parts of its later tokens:
stages, each with a k of its own.  In each psi is at most the one of the largest or the least x, and f at
least that of its first token; let L be what is enough then.  Waiting costs 1 and L >= 0.  So latency and pay
are at least the rewards and, over all times of the end and of the changes of stage, the least of the integral
of 1 - L.  On a cell with constant r and v that is linear in the times within it, so ends of cells are enough.
The least mu so far is constant there, too, once its own cell counts.
All of (k, q) hold for each end, and so does k = q = 0: the time itself.
After the last cell r = v = 0, and who is there still pays no less later if no psi is above 1.  QED.

Certificate: r and v on cells of time, q of each kind of requests and k of each of its stages, and pairs of
multiples of these k and of q, the members; rounded so that rewards are less and L is more.  It may name which
members count for each kind, and at the ends in how many of its cells: with fewer (k, q) for an end the
greatest of what they prove is no greater.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import ceil, floor
from typing import NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._pace_search import FIRST, Prices, Setting, first_prices, good_prices
from infermax_opt.infermax.bounds._pace_spot import spot_prices
from infermax_opt.infermax.bounds._pace_stages import ROOT_BITS, UNPAID, Stage, Stages, offset
from infermax_opt.infermax.bounds.pieces import better_pieces, longest
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["PaceProof", "Traveller", "pace_bound", "pace_bounds"]

#: Largest KV of a request for which the bound is tried, and most requests: both are work of a checker.
MAX_SIZE, MAX_CHECKED = 2**20, 3_000
#: Most requests where prompts pay the price of their moment.
MAX_SPOT = 6_000
#: Work as a part of the time in which requests come, from which on prompts may pay the price of their moment.
CROWDED = Fraction(9, 10)
#: Parts of later tokens: the first of these that is not too much work.
PARTS = 8, 4, 2, 1
#: Most passes of a cell by a member in a stage, which a checker does one by one; and how many are planned.
MAX_PASSES, PASSES = 6_000_000, 5_000_000
ONE = 1 << ROOT_BITS


def pace_bounds(
    instance: Instance, *, stop: Callable[[], bool] | None = None, pieces: Sequence[int] | None = None
) -> Iterator[LowerBound]:
    """Ever better pace bounds, piece by piece, as each takes long.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no more.
    pieces : sequence of int, optional
        Which pieces of the batch time, in this order; without it all of them.

    Yields
    ------
    LowerBound
        None at all where the bound is not tried.  Below zero it says nothing.
    """
    if instance.offline or longest(instance) > MAX_SIZE or len(instance.requests) > MAX_SPOT:
        return
    yield from better_pieces(instance, _piece_bound, stop, pieces)


def pace_bound(instance: Instance, *, stop: Callable[[], bool] | None = None) -> LowerBound | None:
    """Best pace bound found over pieces and prices of time; as `pace_bounds`.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
    """
    return max(pace_bounds(instance, stop=stop), key=_value, default=None)


def _piece_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    proof = PaceProof.of(instance, piece)
    if proof is None:
        return None
    best = _spot_bound(instance, piece, stop) if proof.is_crowded() else None
    if len(instance.requests) <= MAX_CHECKED and not (best is not None and stop()):
        other = _rewarded_bound(proof, stop)
        best = max((bound for bound in (best, other) if bound is not None), key=_value, default=None)
    return best


def _value(bound: LowerBound) -> Fraction:
    return bound.value


def _spot_bound(instance: Instance, piece: int, stop: Callable[[], bool]) -> LowerBound | None:
    """The one in which prompts pay the price of their moment."""
    proof = PaceProof(instance, piece, 1, spot=True)
    bound = proof.bound(spot_prices(proof.setting(), stop))
    return bound if proof.passes <= MAX_PASSES else None


def _rewarded_bound(proof: PaceProof, stop: Callable[[], bool]) -> LowerBound | None:
    """The one in which prompts have rewards as tokens have."""
    instance, piece = proof.instance, proof.piece
    first = first_prices(instance, piece, proof.setting(), stop)
    stages = PASSES / (first.passed * len(FIRST) + 1)
    for parts in (parts for parts in PARTS if 1 + parts <= stages or parts == 1):
        proof = PaceProof(instance, piece, parts)
        bound = proof.bound(good_prices(first, proof.setting(), stop))
        if proof.passes <= MAX_PASSES:
            return bound
    return None


class Traveller(NamedTuple):
    """A kind of requests: arrival in ticks, rounded down and up; work at the price of its moment; stages."""

    begin: int
    until: int
    prompt: int
    stages: tuple[Stage, ...]


class PaceProof:
    """The bound for some prices.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time; c and a' are above 0.
    parts : int
        Of later tokens.
    spot : bool, default False
        Whether prompts pay the price of their moment.
    """

    def __init__(self, instance: Instance, piece: int, parts: int, spot: bool = False):
        self.instance, self.piece, self.parts, self.spot = instance, piece, parts, spot
        stages, block = Stages(instance, piece, parts), instance.system.block_size
        #: Passes of a stage through a cell by a member in the last bound.
        self.passes = 0
        #: KV in whole blocks.
        self.room = instance.system.kv_capacity // block * block
        #: How many requests there are of each length and arrival.
        self.counts: dict[tuple[int, int, Fraction], int] = {}
        self.travellers: list[Traveller] = []
        for kind in instance.types:
            key = kind.input_tokens, kind.output_tokens, kind.arrival
            if key not in self.counts:
                self.travellers.append(self._read(kind, stages))
            self.counts[key] = self.counts.get(key, 0) + len(kind.members)

    @classmethod
    def of(cls, instance: Instance, piece: int, parts: int = 1, spot: bool = False) -> PaceProof | None:
        """The proof for an affine piece; None where a batch may take no time.

        Parameters
        ----------
        instance : Instance
        piece : int
        parts : int, default 1
            Of later tokens.
        spot : bool, default False
            Whether prompts pay the price of their moment.
        """
        ticks = instance.cost.ticks
        positive = ticks.alpha[piece] + min(ticks.d0, ticks.p0) > 0
        return cls(instance, piece, parts, spot) if positive else None

    def _read(self, kind: RequestType, stages: Stages) -> Traveller:
        arrival, own = kind.arrival * self.instance.cost.ticks_per_second, stages.of(kind)
        prompt, own = (stages.prompt_at_least(own[0].works), (UNPAID, *own[1:])) if self.spot else (0, own)
        return Traveller(floor(arrival), ceil(arrival), prompt, own)

    def is_crowded(self) -> bool:
        """Whether the work of all requests takes most of the time in which they come."""
        works = (
            count * sum(stage.works for stage in some.stages)
            for count, some in zip(self.counts.values(), self.travellers, strict=True)
        )
        return sum(works) > CROWDED * max(some.begin for some in self.travellers)

    def setting(self) -> Setting:
        """What the search has to know."""
        travellers = self.travellers
        return Setting(
            [some.begin for some in travellers],
            list(self.counts.values()),
            [some.prompt for some in travellers],
            [some.stages for some in travellers],
            self.room,
        )

    def bound(self, prices: Prices) -> LowerBound:
        """The bound, exactly."""
        instance, cells, ends = self.instance, prices.cells, [cell[0] for cell in prices.cells]
        self.passes = 0
        spans = (b - a for a, b in pairwise([0, *ends]))
        total = -sum(span * (r * r + v) for span, (_, r, v) in zip(spans, cells, strict=True))
        for count, some, ways in zip(self.counts.values(), self.travellers, self._ways(prices), strict=True):
            total += count * self._least(some, ways, cells, ends)
        ticks = Fraction(total, ONE * ONE)
        evidence = {
            "kind": "pace",
            "piece": self.piece,
            "parts": self.parts,
            "cells": [list(cell) for cell in cells],
            "members": [list(pair) for pair in prices.members],
            "own": list(prices.own),
            "bases": [list(bases) for bases in prices.bases],
        }
        if self.spot:
            evidence["spot"] = True
        if prices.followed is not None:
            evidence["followed"] = [[list(pair) for pair in own] for own in prices.followed]
        value = ticks / instance.cost.ticks_per_second / len(instance.requests)
        return LowerBound(value, "pace", Proof.CERTIFICATE, evidence=evidence)

    def _ways(self, prices: Prices) -> Iterator[list[_Way]]:
        """Of each kind of requests, one for each member that is followed."""
        whole = [(j, len(prices.cells) + 1) for j in range(len(prices.members))]
        followed = prices.followed or [whole] * len(self.counts)
        for some, q, bases, own in zip(self.travellers, prices.own, prices.bases, followed, strict=True):
            ways = []
            for j, until in own:
                more, times = prices.members[j]
                k = [base * more >> ROOT_BITS for base in bases]
                ways.append(_Way(some.stages, k, q * times >> ROOT_BITS, self.room, until))
            yield ways

    def _least(
        self,
        some: Traveller,
        ways: Sequence[_Way],
        cells: Sequence[tuple[int, int, int]],
        ends: Sequence[int],
    ) -> int:
        """Least latency and pay of a request, in units of 2**-(2 ROOT_BITS) ticks.

        Parameters
        ----------
        some : Traveller
        ways : sequence of _Way
            One for each member that is followed.
        cells : sequence of (int, int, int)
        ends : sequence of int
            Those of the cells.
        """
        best, at, passed, cheap = None, some.begin, 0, None
        for end, r, v in cells[bisect_right(ends, some.begin) :]:
            value = at - some.begin << 2 * ROOT_BITS
            if best is not None and value >= best:
                break
            ways = [way for way in ways if way.until > passed]
            cheap = r * r if cheap is None else min(cheap, r * r)
            toll = some.prompt * cheap
            self.passes += len(ways) * len(some.stages)
            for way in ways:
                before = way.least(toll)
                way.go_on(end - at, r, v, toll)
                value = max(value, min(before, way.least(toll)))
            best, at, passed = value if best is None else min(best, value), end, passed + 1
        value = at - some.begin << 2 * ROOT_BITS
        late = [way for way in ways if way.until > passed and way.may_be_late()]
        value = max([value, *(way.least(0) for way in late)])
        best = value if best is None else min(best, value)
        return best - (some.until - some.begin << 2 * ROOT_BITS)


class _Way:
    """Least costs of the ways that are in each stage, the rewards of all stages included.

    Parameters
    ----------
    stages : sequence of Stage
    k : sequence of int
        Of each stage.
    q : int
    room : int
        KV of the machine.
    until : int
        Through how many cells it is followed.
    """

    def __init__(self, stages: Sequence[Stage], k: Sequence[int], q: int, room: int, until: int):
        self.stages, self.k, self.q, self.room, self.until = stages, k, q, room, until
        #: By stage; None where no way has come so far.
        self.costs: list[int | None] = [None] * len(stages)
        self.costs[0] = sum(
            own * own * some.fixed + 2 * own * q * some.roots + q * q * some.works
            for own, some in zip(k, stages, strict=True)
        )

    def least(self, toll: int) -> int:
        """The least of all, where who is in the prompt has that to pay."""
        first, *others = (cost for cost in self.costs if cost is not None)
        return min(first + toll, *others) if others else first + toll

    def go_on(self, span: int, r: int, v: int, toll: int) -> None:
        """Let so many ticks go by at these prices, each way in its stage or in a later one.

        Parameters
        ----------
        span : int
        r, v : int
        toll : int
            What a way pays that leaves the prompt.
        """
        least: int | None = None
        for s, stage in enumerate(self.stages):
            cost = self.costs[s]
            if least is None or (cost is not None and cost < least):
                least = cost
            assert least is not None
            self.costs[s] = least + span * (ONE * ONE - self._enough(stage, self.k[s], r, v))
            least += 0 if s else toll

    def _enough(self, stage: Stage, k: int, r: int, v: int) -> int:
        """L of a stage, rounded up.

        Parameters
        ----------
        stage : Stage
        k, r, v : int
        """
        psi = max(0, k + offset(stage, self.q, r)) ** 2
        less = max(0, psi - v * stage.held // self.room)
        most = k - (-self.q * stage.high >> ROOT_BITS)
        if stage.again and (r * r + less) * stage.again < stage.each * most * most:
            return psi
        return less

    def may_be_late(self) -> bool:
        """Whether to end after the last cell is no cheaper."""
        return all(k + offset(some, self.q, 0) <= ONE for k, some in zip(self.k, self.stages, strict=True))
