"""Instances whose batches all take the same time: rounds, as in the model of MC-SF (Jaillet et al., 2025)."""

from __future__ import annotations

from infermax_opt.infermax.data.instance import Instance, Metric

__all__ = ["in_rounds"]


def in_rounds(instance: Instance) -> bool:
    """Whether only KV limits batches, each takes alpha, and the mean end-to-end latency is minimised.

    Nobody is evicted, prompts are not split, and arrivals are whole numbers of alpha.  C and P never bind
    where they are at least M: a request holds no fewer tokens after a batch than it processes in it.
    """
    system, policy, cost = instance.system, instance.policy, instance.cost.seconds
    others = (*cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, *instance.cost.extra)
    return (
        instance.objective.name == Metric.MEAN_E2E.value
        and len(cost.alpha) == 1
        and cost.alpha[0] > 0
        and not any(others)
        and system.block_size == 1
        and system.prefill_budget >= system.kv_capacity
        and (system.max_running is None or system.max_running >= len(instance.requests))
        and policy.hybrid_batching
        and not policy.chunked_prefill
        and not policy.preemption
        and all((kind.arrival / cost.alpha[0]).denominator == 1 for kind in instance.types)
    )
