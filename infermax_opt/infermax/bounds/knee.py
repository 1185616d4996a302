r"""The knee bound: batches without prompts are short of tokens, and memory fills no faster than to the knee.

Where memory is scarce the area argument counts the batches, J.  It lets memory be full in each of them, and
most of them do without prompts, at no p0.  Where the batch time has two pieces neither is free: a batch of
decodes alone has so few tokens that it lies below the knee, and what refills memory at once lies beyond it.

*Pieces.*  Let (alpha', beta') be a flat piece and (alpha'', beta'') a steep one, alpha' > alpha'' and beta' <
beta''; they meet at x* = (alpha' - alpha'') / (beta'' - beta') tokens.  For any share theta of the flat one
let alpha and beta be the mean of both.  A batch of x tokens costs alpha + beta x, its attention, its d0
and p0, and (1-theta) (beta'' - beta') (x* - x) at least below the knee, theta (beta'' - beta') (x - x*) at
least beyond it.

*Below the knee.*  Let M be the KV in whole blocks, in tokens, and f = (1-theta) (alpha' - alpha'').  Choose a
share omega of f, and let kappa be the least of p0 and (1-omega) f, v = omega f / M and u = (kappa + omega f)
/ x*.  Each of the J batches costs kappa and, for each decode in it that leaves h tokens of KV, the least of
e1 (h-1) + e0 h / M and v h - u.

*Proof.*  A batch with prompts or refills costs p0, and e0 and e1 (h-1) for each decode if there are any; all
decodes leave M at most.  In any other batch all x tokens are decodes.  Kappa, v M and -u x make (kappa +
omega f) (1 - x / x*).  Below the knee the batch costs f (1 - x / x*), no less; beyond it that is below 0.

A token that is not made by a decode ends a refill.  That one costs beta h, where the work counts beta and
d1 (h-1): (beta' - d1) (h-1) more.  This is no less than all that a decode costs beside its work, h / M of d0
and what is above, if preemption is off or (beta' - d1 - e1) M >= 2 (d0 + e0); else let e0 and e1 be 0.

*Batches.*  Let A be the KV tokens that those hold who make a token, summed over batches: I + n - 1 for the
n-th token.  Let a = alpha + kappa, and lambda, mu >= 0 with lambda + mu <= 1 shares of what tokens beyond
the knee cost.  Let L be x*, rounded up.  Then a J is at least the sum of

- a A / M;
- *refills*: for each request the I + O - 1 least ones of a / M r, for r = 0, 1, ..., L of each, and of d =
  lambda theta (beta'' - beta') as often as need be, less in all M times the largest one of these;
- *prompts in chunks*, as in `ramp`, with that L, a / M + p2 for alpha / M, mu theta (beta'' - beta') for d;
- the terms of `ramp` with R = M and for g what is left, (1-lambda-mu) theta (beta'' - beta') (x - x*);

less what tokens beyond the knee cost.

*Proof.*  Let S_t be the tokens processed up to batch t, again or for the first time, F_t those that were
released before by requests that had ended or were evicted, and p_t those that prompts hold which are not
done.  Those who make a token hold S_t - F_t - p_t at most.  So a J is a A / M, and a / M for each token
of p_t and for each of M - S_t + F_t, or more.  The tokens of p_t are those of `ramp`; each pays p2 besides,
for each chunk that comes behind it.

Think of M + F_t *places*, in the order in which they came free, the first M at the start; those that one
request releases stand together.  The k-th token processed takes the k-th place.  It is free by then, as
S_t <= M + F_t; and M - S_t + F_t are those that are free after t.  So a place costs a / M for each batch
after which it is free.  For the first M places these are M - S_t, while that is above 0: the terms of `ramp`.
A request that ended leaves I + O - 1 places, which are taken r = 0, 1, ... batches after the next one could
have taken them.  In each batch all tokens but L may pay d each, out of what the batch costs beyond the knee.
So the places pay what *refills* says, but for those that are never taken.  What is processed is released in
the end: these are M places, or fewer.

Work and d0 are those of `closed_form`; work is concave in beta, so that the mean of both pieces is no more.
Batches with prompts or refills cost p0 - kappa besides.  Arrivals, evictions and limits change none of this.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations
from typing import Any, NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.closed_form import decode_presence
from infermax_opt.infermax.bounds.counts import BatchCounts, blocks_of, count_batches_of
from infermax_opt.infermax.bounds.decode_prices import DecodePrice, least_of_decodes
from infermax_opt.infermax.bounds.least_work import Totals
from infermax_opt.infermax.bounds.pieces import few_pieces
from infermax_opt.infermax.bounds.ramp import MAX_BATCHES, filling_terms
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.bounds.token_payments import chunk_payments, least_payments, prompt_lengths
from infermax_opt.infermax.data.instance import Instance

__all__ = ["knee_bound"]

#: Most pieces of which all pairs are tried.
PIECES = 4
#: Units of theta and omega in one.
WHOLE = 1000
#: What is tried first for theta, for omega, and in percent for lambda and mu.
SHARES = (0, 10, 50, 200, 500, 1000)
KV_SHARES = (0, 50, 100, 200, 400, 700, 1000)
SPLITS = ((0, 0), (50, 50), (100, 0), (45, 45))
#: By what these change then, the two shares and the percents, and how often at most.
STEPS = ((100, 25), (20, 10), (5, 2))
MOVES = 20


def knee_bound(instance: Instance) -> LowerBound | None:
    """Best knee bound on the makespan over pairs of pieces; None where no two have a knee."""
    best = None
    served = _Served(instance)
    for flat, steep in _pairs(instance):
        found = _Pair(served, flat, steep).bound()
        if best is None or found.value > best.value:
            best = found
    return best


def _pairs(instance: Instance) -> Iterator[tuple[int, int]]:
    """Pieces that have a knee, the flat one first."""
    ticks = instance.cost.ticks
    for flat, steep in permutations(few_pieces(instance, PIECES), 2):
        if ticks.alpha[flat] > ticks.alpha[steep] and ticks.beta[flat] < ticks.beta[steep]:
            yield flat, steep


class _Setting(NamedTuple):
    """theta and omega in their units, and lambda and mu in percent."""

    share: int
    kv: int
    refills: int
    prompts: int


def _near(setting: _Setting, step: int, percent: int) -> Iterator[_Setting]:
    """Settings a step away."""
    for sign in (1, -1):
        for name in ("share", "kv"):
            yield setting._replace(**{name: min(max(getattr(setting, name) + sign * step, 0), WHOLE)})
        for more, less in ((sign, 0), (0, sign), (sign, -sign)):
            refills, prompts = setting.refills + more * percent, setting.prompts + less * percent
            if refills >= 0 and prompts >= 0 and refills + prompts <= 100:
                yield setting._replace(refills=refills, prompts=prompts)


class _Served:
    """What all pairs have in common: sums over the requests, found when they are asked for."""

    def __init__(self, instance: Instance):
        self.instance = instance

    @functools.cached_property
    def sizes(self) -> Sizes:
        """Lengths of the requests."""
        return Sizes.of(self.instance.types)

    @functools.cached_property
    def counts(self) -> BatchCounts:
        """Batches that are needed."""
        return count_batches_of(self.instance, self.sizes)

    @functools.cached_property
    def totals(self) -> Totals:
        """Work of all requests."""
        return Totals.of(self.instance, self.instance.types)

    @functools.cached_property
    def held(self) -> int:
        """KV tokens that those hold who make a token, summed over batches: A."""
        return int(blocks_of(self.sizes, 1))

    @functools.cached_property
    def inputs(self) -> Counter[int]:
        """Requests by their prompt tokens."""
        return prompt_lengths(self.instance)

    @functools.cached_property
    def cached(self) -> Counter[int]:
        """Requests by the tokens that they hold at the end."""
        found = Counter[int]()
        for kind in self.instance.types:
            found[kind.input_tokens + kind.output_tokens - 1] += len(kind.members)
        return found

    @functools.cached_property
    def largest(self) -> int:
        """Most tokens that a request holds."""
        return max(self.cached)


class _Pair:
    """What a pair of pieces proves, in ticks."""

    def __init__(self, served: _Served, flat: int, steep: int):
        instance = served.instance
        ticks, system = instance.cost.ticks, instance.system
        self.served, self.instance, self.flat, self.steep = served, instance, flat, steep
        self.fixed: int = ticks.alpha[flat] - ticks.alpha[steep]
        self.slope: int = ticks.beta[steep] - ticks.beta[flat]
        self.knee = Fraction(self.fixed, self.slope)
        self.width = max(1, math.ceil(self.knee))
        self.full = system.kv_capacity // system.block_size * system.block_size

    def bound(self) -> LowerBound:
        """The best that was found."""
        setting = self._best()
        paid, batches = self._paid(setting)
        evidence: dict[str, Any] = {"kind": "knee", "piece": self.steep, "flat": self.flat}
        evidence |= {**setting._asdict(), "batches": batches}
        value = paid / self.instance.cost.ticks_per_second
        return LowerBound(value, "knee", Proof.CERTIFICATE, evidence=evidence)

    def _best(self) -> _Setting:
        """A good choice: from a coarse grid, then by steps."""

        def paid(setting: _Setting) -> Fraction:
            return self._paid(setting)[0]

        firsts = [
            max((_Setting(share, kv, 0, 0) for kv in KV_SHARES), key=self._without_tokens) for share in SHARES
        ]
        best = max(
            (
                some._replace(refills=refills, prompts=prompts)
                for some in firsts
                for refills, prompts in SPLITS
            ),
            key=paid,
        )
        value = paid(best)
        for step, percent in STEPS:
            for _ in range(MOVES):
                found, other = max((paid(near), near) for near in _near(best, step, percent))
                if found <= value:
                    break
                value, best = found, other
        return best

    def _without_tokens(self, setting: _Setting) -> Fraction:
        """What is paid but for what tokens pay that wait, or lie beyond the knee."""
        instance, served, ticks = self.instance, self.served, self.instance.cost.ticks
        theta, kappa = Fraction(setting.share, WHOLE), self._kappa(setting)
        work = theta * served.totals.least_work(instance, self.flat)
        work += (1 - theta) * served.totals.least_work(instance, self.steep)
        decodes = decode_presence(instance, served.totals, served.counts, ticks.beta[self.flat])
        work += max(paid for paid, _ in decodes) + (Fraction(ticks.p0) - kappa) * served.counts.prefill
        batches = self._batch(setting) * Fraction(served.held, self.full)
        return work + batches + self._decodes(setting)

    def _below(self, setting: _Setting) -> Fraction:
        """What a batch of no tokens costs more than it would beyond the knee: f."""
        return self.fixed * Fraction(WHOLE - setting.share, WHOLE)

    def _kappa(self, setting: _Setting) -> Fraction:
        """What each batch costs for prompts, or for being below the knee."""
        below = self._below(setting) * Fraction(WHOLE - setting.kv, WHOLE)
        return min(Fraction(self.instance.cost.ticks.p0), below)

    def _batch(self, setting: _Setting) -> Fraction:
        """What each batch costs besides its work: a."""
        flat = Fraction(self.instance.cost.ticks.alpha[self.flat])
        return flat - self._below(setting) + self._kappa(setting)

    def _decodes(self, setting: _Setting) -> Fraction:
        """What the decodes pay, each the least of two numbers; may be below 0."""
        kv = Fraction(setting.kv, WHOLE) * self._below(setting)
        alone = DecodePrice(kv / self.full, -(self._kappa(setting) + kv) / self.knee)
        return least_of_decodes(self.served.sizes, self.served.totals, alone, self.beside)

    @functools.cached_property
    def beside(self) -> DecodePrice:
        """What a decode beside prompts pays."""
        ticks, extra = self.instance.cost.ticks, self.instance.cost.extra_ticks
        kept = (ticks.beta[self.flat] - ticks.d1 - extra.e1) * self.full >= 2 * (ticks.d0 + extra.e0)
        if self.instance.policy.preemption and not kept:
            return DecodePrice(Fraction(0), Fraction(0))
        return DecodePrice(extra.e1 + Fraction(extra.e0, self.full), Fraction(-extra.e1))

    def _paid(self, setting: _Setting) -> tuple[Fraction, int]:
        """What is paid in all, and the terms of the ramp."""
        batch = self._batch(setting)
        paid = self._without_tokens(setting)
        wait, beyond = batch / self.full, Fraction(setting.share * self.slope, WHOLE)
        if wait > 0:
            paid += self._refills(wait, beyond * setting.refills / 100)
            prefix = self.instance.cost.extra_ticks.p2
            paid += self._prompts(wait + prefix, beyond * setting.prompts / 100)
        beyond *= Fraction(100 - setting.refills - setting.prompts, 100)
        most = self.instance.system.max_batch_tokens
        corners = [min(self.knee, Fraction(most)), Fraction(most)]
        lines = [(wait * x, beyond * max(Fraction(0), x - self.knee)) for x in corners]
        terms, length = filling_terms(batch, lines, min(-(-self.served.held // self.full), MAX_BATCHES))
        return paid + terms, length

    def _refills(self, wait: Fraction, dear: Fraction) -> Fraction:
        """What tokens pay that are processed to the places of those who have ended."""
        if dear == 0:
            return Fraction(0)
        largest = min(dear, wait * ((self.served.largest - 1) // self.width))
        paid = least_payments(self.served.cached, wait, Fraction(0), self.width, dear)
        return max(Fraction(0), paid - self.full * largest)

    def _prompts(self, wait: Fraction, dear: Fraction) -> Fraction:
        """What prompts pay while they are in chunks."""
        if dear == 0:
            return chunk_payments(self.instance, self.served.inputs, wait)
        return chunk_payments(self.instance, self.served.inputs, wait, self.width, dear)
