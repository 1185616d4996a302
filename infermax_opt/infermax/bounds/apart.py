r"""The bound of batches apart: prompts and decodes do not share what a batch costs, or pay for it.

Other bounds count batches by the KV of those who make a token, at alpha each, and let prompts ride along in
them.  Without hybrid batching there are other batches for prompts; and where a batch takes longer for what
its decodes read if it has prompts, too (e0, e1), it may be cheaper to have both apart.

*Pieces.*  Let (alpha', beta') be a piece of the batch time for batches with prompts or refills, and (alpha,
beta) one for all others.  They may be the same.  Let sigma be any share, 1 without hybrid batching.

*Payments.*  Let M be the KV in whole blocks, and P the most tokens of prompts in a batch, M at most.

- A token of a prompt pays beta' + sigma alpha' / P, a chunk its attention, and p2 for each token cached
  before it; a batch with prompts pays p0 besides.
- A decode that leaves h tokens of KV pays d1 (h-1) + d0 h / M, and the least of what it can bear apart, beta
  + alpha h / M, and together, beta' + (1-sigma) alpha' h / M + e0 h / M + e1 (h-1).  Without hybrid batching
  the second one does not count.

*Proof.*  All decodes of a batch leave M tokens at most.  In a batch without prompts or refills they pay
alpha, beta for each, d0 and d1 at most.  In one with both, decodes pay (1-sigma) alpha', beta' for each, d0,
e0, d1 and e1 at most, and prompts sigma alpha', as they have P tokens or fewer: a batch holds what it
processes.

A token that is not made by a decode ends a refill of h >= 2 tokens, which pay nothing so far.  They cost
beta' each.  That is no less than what a decode pays apart, if with preemption

    beta' h  >=  beta + alpha h / M + d1 (h-1) + d0 h / M;

this is linear in h, so it is enough for the least and the largest h.  Otherwise there is no such bound.

The pass of a prompt that makes the first token processes all of it.  What its tokens pay for attention and
for those before them is that of `token_payments`, where a chunk waits for p2 only.  QED.

Arrivals and limits change none of this.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.counts import count_batches_of
from infermax_opt.infermax.bounds.decode_prices import DecodePrice, least_of_decodes
from infermax_opt.infermax.bounds.least_work import Totals
from infermax_opt.infermax.bounds.pieces import few_pieces
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.bounds.token_payments import chunk_payments, prompt_lengths
from infermax_opt.infermax.data.instance import Instance

__all__ = ["apart_bound"]

#: Most pieces of which all pairs are tried.
PIECES = 6
#: Units of sigma in one, and by how many it changes, in turn.
WHOLE = 1000
STEPS = (250, 50, 10, 2)


def apart_bound(instance: Instance) -> LowerBound | None:
    """Best bound of batches apart on the makespan; None where it proves nothing by any two pieces."""
    if instance.policy.hybrid_batching and not instance.pays_extra:
        return None
    served, best = _Served(instance), None
    for alone, piece in product(few_pieces(instance, PIECES), repeat=2):
        if served.may(piece, alone):
            found = max((served.paid(piece, alone, share), share) for share in served.shares(piece, alone))
            if best is None or found[0] > best[0]:
                best = *found, piece, alone
    if best is None:
        return None
    value, share, piece, alone = best
    evidence: dict[str, Any] = {"kind": "apart", "piece": piece, "alone": alone, "share": share}
    return LowerBound(value / instance.cost.ticks_per_second, "apart", Proof.CERTIFICATE, evidence=evidence)


class _Served:
    """Requests, and what they pay by two pieces, in ticks."""

    def __init__(self, instance: Instance):
        self.instance, system = instance, instance.system
        self.sizes = Sizes.of(instance.types)
        self.totals = Totals.of(instance, instance.types)
        self.full = system.kv_capacity // system.block_size * system.block_size
        self.most = min(system.prefill_budget, self.full)
        self.prompts = self._prompts()

    def _prompts(self) -> Fraction:
        """What prompts pay besides their tokens: p0, attention, and for what is cached before chunks."""
        instance, ticks = self.instance, self.instance.cost.ticks
        prefix = instance.cost.extra_ticks.p2
        paid = Fraction(ticks.p1 * self.totals.pairs)
        paid += Fraction(ticks.p0 * count_batches_of(instance, self.sizes).prefill)
        return paid + chunk_payments(instance, prompt_lengths(instance), Fraction(prefix))

    def may(self, piece: int, alone: int) -> bool:
        """Whether refills cost no less than decodes apart."""
        ticks, (inputs, outputs, _) = self.instance.cost.ticks, self.sizes
        several = outputs > 1
        if not self.instance.policy.preemption or not several.any():
            return True
        held = Fraction(ticks.alpha[alone] + ticks.d0, self.full)
        ends = int(inputs[several].min()) + 1, int((inputs + outputs)[several].max()) - 1
        return all(ticks.beta[piece] * h >= ticks.beta[alone] + held * h + ticks.d1 * (h - 1) for h in ends)

    def shares(self, piece: int, alone: int) -> Iterator[int]:
        """Shares that are tried: what is paid is concave in them."""
        share = WHOLE
        yield share
        if not self.instance.policy.hybrid_batching:
            return
        for step in STEPS:
            while True:
                near = [s for s in (share - step, share + step) if 0 <= s <= WHOLE]
                yield from near
                better = max(near, key=lambda s: self.paid(piece, alone, s))
                if self.paid(piece, alone, better) <= self.paid(piece, alone, share):
                    break
                share = better

    def paid(self, piece: int, alone: int, share: int) -> Fraction:
        """What all tokens pay.

        Parameters
        ----------
        piece, alone : int
            Of batches with prompts, and of others.
        share : int
            sigma, in its units.
        """
        ticks, extra, totals = self.instance.cost.ticks, self.instance.cost.extra_ticks, self.totals
        alpha, beta, sigma = Fraction(ticks.alpha[piece]), Fraction(ticks.beta[piece]), Fraction(share, WHOLE)
        apart = together = DecodePrice(Fraction(ticks.alpha[alone], self.full), Fraction(ticks.beta[alone]))
        if self.instance.policy.hybrid_batching:
            slope = ((1 - sigma) * alpha + extra.e0) / self.full + extra.e1
            together = DecodePrice(slope, Fraction(beta - extra.e1))
        paid = self.prompts + (beta + sigma * alpha / self.most) * totals.prompts
        paid += least_of_decodes(self.sizes, totals, apart, together)
        held = totals.reads + totals.later
        return paid + Fraction(ticks.d1 * totals.reads) + Fraction(ticks.d0 * held, self.full)
