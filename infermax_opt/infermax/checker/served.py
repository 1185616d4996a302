"""Requests whose batches are counted by the closed forms, and what evictions may save of them."""

from __future__ import annotations

from typing import Any

from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance, Kinds
from infermax_opt.infermax.checker.pieces import FAR, Piece


class Served:
    """Requests whose batches are counted.

    `prefill`: batches that prefill, at least; `decode`: those that decode, at least; `slack`: what
    refills of a full memory cost more than the work counts, `spare`: of that, what decode presence leaves;
    `worth`: of a batch that evictions may save; `horizon`: H of the age bound.
    """

    def __init__(self, instance: Instance, kinds: Kinds, evidence: Field, piece: Piece):
        self.instance, self.kinds, self.evidence, self.piece = instance, kinds, evidence, piece
        alone = 0 if instance.chunked else sum(c for i, _, c in kinds if 2 * i > instance.budget)
        self.prefill = max(alone, -(-sum(i * c for i, _, c in kinds) // instance.budget))
        later, self.longest = sum((o - 1) * c for _, o, c in kinds), max(o for _, o, _ in kinds)
        fixed = not instance.preemption
        self.decode = max(self.longest - 1, -(-later // instance.batch_tokens)) if fixed else 0
        self.slack = max(0, piece.beta - instance.d1) * instance.capacity
        refills = 2 * instance.d0 if self.slack >= 2 * instance.d0 else 0  # of it, for decode presence
        self.least = min(instance.p0, instance.d0)
        self.spare, self.worth = self.slack - refills, max(1, piece.alpha + self.least)
        self.horizon: Any = FAR if fixed else self.spare // self.worth
