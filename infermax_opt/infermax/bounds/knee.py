r"""The knee bound: batches without prompts are short of tokens, and memory fills no faster than to the knee.

Where memory is scarce the area argument counts the batches, J.  It lets memory be full in each of them, and
most of them do without prompts, at no p0.  Where the batch time has two pieces neither is free: a batch of
decodes alone has so few tokens that it lies below the knee, and what refills memory at once lies beyond it.

*Pieces.*  Let (alpha', beta') be a flat piece and (alpha'', beta'') a steep one, alpha' > alpha'' and beta' <
beta''; they meet at x* = (alpha' - alpha'') / (beta'' - beta') tokens.  For any share theta of the flat one
let alpha and beta be the mean of both.  A batch of x tokens costs alpha + beta x, its attention, its d0
and p0, and (1-theta) (beta'' - beta') (x* - x) at least below the knee, theta (beta'' - beta') (x - x*) at
least beyond it.

*Below the knee.*  Let M be the KV in whole blocks, in tokens.  Choose w >= 0 and let kappa be the least of
p0 and (1-theta) (alpha' - alpha'') / (1+w).  Each of the J batches costs kappa, less kappa times the sum of
max(0, (1+w) / x* - w h / M) over the decodes in it, h being the tokens of KV that a decode leaves.

*Proof.*  A batch with prompts or refills costs p0.  In any other one all x tokens are decodes, and what
they leave is M at most.  So the sum is (1+w) x / x* - w at least, and kappa times 1 minus that is at most
kappa (1+w) (1 - x / x*).  Below the knee the batch costs as much; beyond it, this is not above 0.

*Batches.*  Let A be the KV tokens that those hold who make a token, summed over batches: I + n - 1 for the
n-th token.  Let a = alpha + kappa, and lambda, mu >= 0 with lambda + mu <= 1 shares of what tokens beyond
the knee cost.  Let L be x*, rounded up.  Then a J is at least the sum of

- a A / M;
- *refills*: for each request the I + O - 1 least ones of a / M r, for r = 0, 1, ..., L of each, and of d =
  lambda theta (beta'' - beta') as often as need be, less in all M times the largest one of these;
- *prompts in chunks*, as in `ramp`, with that L and d = mu theta (beta'' - beta');
- the terms of `ramp` with R = M and for g what is left, (1-lambda-mu) theta (beta'' - beta') (x - x*);

less what tokens beyond the knee cost.

*Proof.*  Let S_t be the tokens processed up to batch t, again or for the first time, F_t those that were
released before by requests that had ended or were evicted, and p_t those that prompts hold which are not
done.  Those who make a token hold S_t - F_t - p_t at most.  So a J is a A / M, and a / M for each token
of p_t and for each of M - S_t + F_t, or more.  The tokens of p_t are those of `ramp`.

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

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.closed_form import decode_presence
from infermax_opt.infermax.bounds.counts import blocks_of, count_batches
from infermax_opt.infermax.bounds.least_work import Totals, spreads
from infermax_opt.infermax.bounds.ramp import MAX_BATCHES, filling_terms
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.bounds.token_payments import least_payments
from infermax_opt.infermax.data.instance import Instance

__all__ = ["knee_bound"]

#: Units of theta in one.
WHOLE = 1000
#: Units of w in one.
WEIGHT = 100
#: What is tried first for theta, for w, and in percent for lambda and mu; and by what these change then.
SHARES = (0, 10, 50, 200, 500, 1000)
WEIGHTS = (0, 50, 100, 200, 400, 800, 1600, 3200)
SPLITS = ((0, 0), (50, 50), (95, 0), (45, 45))
STEPS = (20, 5)
#: Changes of each size, at most.
MOVES = 20
#: Largest w, in its units.
MOST_WEIGHT = 10_000


def knee_bound(instance: Instance) -> LowerBound | None:
    """Best knee bound on the makespan over pairs of pieces; None where no two have a knee."""
    best = None
    for flat, steep in _pairs(instance):
        found = _Pair(instance, flat, steep).bound()
        if best is None or found.value > best.value:
            best = found
    return best


def _pairs(instance: Instance) -> Iterator[tuple[int, int]]:
    """Neighbours among the pieces that have a knee, the flat one first."""
    ticks = instance.cost.ticks
    order = sorted(range(len(ticks.alpha)), key=lambda piece: (ticks.beta[piece], -ticks.alpha[piece]))
    for flat, steep in pairwise(order):
        if ticks.alpha[flat] > ticks.alpha[steep] and ticks.beta[flat] < ticks.beta[steep]:
            yield flat, steep


class _Setting(NamedTuple):
    """theta and w in their units, and lambda and mu in percent."""

    share: int
    weight: int
    refills: int
    prompts: int


def _near(setting: _Setting, step: int) -> Iterator[_Setting]:
    """Settings a step away."""
    share, weight, refills, prompts = setting
    for sign in (1, -1):
        yield setting._replace(share=min(max(share + sign * step, 0), WHOLE))
        changed = weight + sign * step * (WEIGHT + weight) // WEIGHT
        yield setting._replace(weight=min(max(changed, 0), MOST_WEIGHT))
        more, other = refills + sign * step, prompts + sign * step
        if 0 <= more <= 100 - prompts:
            yield setting._replace(refills=more)
        if 0 <= other <= 100 - refills:
            yield setting._replace(prompts=other)
        if more >= 0 and prompts - sign * step >= 0 and more <= 100:
            yield setting._replace(refills=more, prompts=prompts - sign * step)


class _Pair:
    """What a pair of pieces proves, in ticks."""

    def __init__(self, instance: Instance, flat: int, steep: int):
        ticks, system, kinds = instance.cost.ticks, instance.system, instance.types
        self.instance, self.flat, self.steep = instance, flat, steep
        self.fixed: int = ticks.alpha[flat] - ticks.alpha[steep]
        self.slope: int = ticks.beta[steep] - ticks.beta[flat]
        self.knee = Fraction(self.fixed, self.slope)
        self.width = max(1, math.ceil(self.knee))
        self.full = system.kv_capacity // system.block_size * system.block_size
        self.sizes, self.counts = Sizes.of(kinds), count_batches(instance, kinds)
        self.totals = Totals.of(instance, kinds)
        self.held = blocks_of(self.sizes, 1)
        self.inputs, self.cached = Counter[int](), Counter[int]()
        for kind in kinds:
            self.inputs[kind.input_tokens] += len(kind.members)
            self.cached[kind.input_tokens + kind.output_tokens - 1] += len(kind.members)

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
            max((_Setting(share, weight, 0, 0) for weight in WEIGHTS), key=self._without_tokens)
            for share in SHARES
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
        for step in STEPS:
            for _ in range(MOVES):
                found, other = max((paid(near), near) for near in _near(best, step))
                if found <= value:
                    break
                value, best = found, other
        return best

    def _without_tokens(self, setting: _Setting) -> Fraction:
        """What is paid but for what tokens pay that wait, or lie beyond the knee."""
        instance, ticks = self.instance, self.instance.cost.ticks
        theta, kappa = Fraction(setting.share, WHOLE), self._kappa(setting)
        work = theta * self.totals.least_work(instance, self.flat)
        work += (1 - theta) * self.totals.least_work(instance, self.steep)
        presence = max(
            paid for paid, _ in decode_presence(instance, self.totals, self.counts, ticks.beta[self.flat])
        )
        work += presence + (ticks.p0 - kappa) * self.counts.prefill
        batches = self._batch(setting) * Fraction(self.held, self.full)
        return work + batches - kappa * self._decodes(Fraction(setting.weight, WEIGHT))

    def _kappa(self, setting: _Setting) -> Fraction:
        """What each batch costs for prompts, or for being below the knee."""
        below = Fraction((WHOLE - setting.share) * WEIGHT, WHOLE * (WEIGHT + setting.weight)) * self.fixed
        return min(Fraction(self.instance.cost.ticks.p0), below)

    def _batch(self, setting: _Setting) -> Fraction:
        """What each batch costs besides its work: a."""
        steep = Fraction(self.instance.cost.ticks.alpha[self.steep])
        return steep + Fraction(setting.share, WHOLE) * self.fixed + self._kappa(setting)

    def _decodes(self, weight: Fraction) -> Fraction:
        """The sum of max(0, (1+w) / x* - w h / M) over the decodes."""
        import numpy as np

        each, less = (1 + weight) / self.knee, weight / self.full
        if less == 0:
            return each * self.totals.later
        inputs, outputs, counts = self.sizes
        largest = math.ceil(min(each / less, Fraction(max(self.cached) + 1))) - 1
        number = np.minimum(np.maximum(largest - inputs, 0), outputs - 1)
        held = counts * (number * inputs + number * (number + 1) // 2)
        return each * int((counts * number).sum()) - less * int(held.sum())

    def _paid(self, setting: _Setting) -> tuple[Fraction, int]:
        """What is paid in all, and the terms of the ramp."""
        batch = self._batch(setting)
        paid = self._without_tokens(setting)
        wait, beyond = batch / self.full, Fraction(setting.share * self.slope, WHOLE)
        if wait > 0:
            paid += self._refills(wait, beyond * setting.refills / 100)
            paid += self._prompts(wait, beyond * setting.prompts / 100)
        beyond *= Fraction(100 - setting.refills - setting.prompts, 100)
        most = self.instance.system.max_batch_tokens
        corners = [min(self.knee, Fraction(most)), Fraction(most)]
        lines = [(wait * x, beyond * max(Fraction(0), x - self.knee)) for x in corners]
        terms, length = filling_terms(batch, lines, min(-(-self.held // self.full), MAX_BATCHES))
        return paid + terms, length

    def _refills(self, wait: Fraction, dear: Fraction) -> Fraction:
        """What tokens pay that are processed to the places of those who have ended."""
        if dear == 0:
            return Fraction(0)
        largest = min(dear, wait * ((max(self.cached) - 1) // self.width))
        paid = least_payments(self.cached, wait, Fraction(0), self.width, dear)
        return max(Fraction(0), paid - self.full * largest)

    def _prompts(self, wait: Fraction, dear: Fraction) -> Fraction:
        """What prompts pay while they are in chunks."""
        square = Fraction(2 * self.instance.cost.ticks.p1 if spreads(self.instance) else 0)
        width = self.instance.system.prefill_budget
        if dear == 0:
            return least_payments(self.inputs, wait, square, width, None)
        return least_payments(self.inputs, wait, square, min(width, self.width), dear)
