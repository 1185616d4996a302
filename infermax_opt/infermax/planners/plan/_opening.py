"""Settings of plans that are tried first, by what is scarce: KV, tokens of a batch, or few places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.plan._options import (
    PlannerOptions,
    balanced_width,
    crowding,
    expected_batches,
    knee_share,
    typical_slots,
)

__all__ = ["groups_help", "opening"]

#: Prompts of a group of requests with alike outputs, in shares of M, and the KV that has to be free before
#: prompts are processed, in shares of such a group.
ALIKE, ALIKE_FREE = (0.35, 0.15, 0.05), 0.4
#: Slack at which no start waits.
UNPACED = 100.0
#: What is tried where batches are full before the KV is: forwards, chunks take what later tokens leave of a
#: batch.
FULL: tuple[dict[str, Any], ...] = (
    {"chunk": 0.35, "by_output": 0.2, "noise": 1.0, "last": 0.1},
    {"chunk": 0.35, "by_output": 0.5, "noise": 0.3, "last": 0.2},
    {"chunk": 0.5, "by_output": 0.2, "noise": 1.0, "last": 0.05},
)
#: The same where requests decode in every few batches only; and how few, in parts of `crowding`.
APART: tuple[dict[str, Any], ...] = (
    {"chunk": 0.5, "by_output": 0.5, "noise": 0.3, "last": 0.2},
    {"chunk": 0.5, "by_output": 0.2, "noise": 1.0, "last": 0.1},
)
STRIDE = 0.6
#: Most batches that all tries of the pilot method together may look at.
PILOT_WORK = 1_800_000
#: Most requests that fill the KV where the pilot method is worth a try.
PILOT_SLOTS = 12
#: Types of requests beyond which no pilot is tried: each decision tries all of them.
PILOT_TYPES = 16


def opening(instance: Instance) -> list[PlannerOptions]:
    """Settings that a search for plans tries first.

    Long on purpose: one list, most of it under a condition of its own.
    """
    base = PlannerOptions(fill=knee_share(instance))
    settings = [
        base,
        replace(base, by_output=1.0, by_input=-0.5, noise=0.0, slack=1.0, window=1),
        replace(base, by_output=0.9, by_input=0.3, noise=0.0, slack=1.0, window=1),
        replace(base, by_output=0.9, noise=0.0, slack=1.0, choice=2),
        replace(base, by_output=0.4, by_input=-1.0, noise=0.9, window=1, walk=64, choice=3),
        replace(base, by_output=0.8, noise=0.4),
        replace(base, backwards=False, slack=UNPACED, by_output=0.5, noise=0.5),
    ]
    if len(instance.types) > 1:
        settings.insert(1, replace(base, by_output=0.0, noise=1.0, slack=UNPACED, window=1, last=0.25))
    if base.fill < 1:
        settings.insert(2, replace(base, fill=1.0))
    if balanced_width(instance) is not None and instance.policy.hybrid_batching:
        settings[1:1] = [replace(base, chunk=chunk) for chunk in (0.5, 0.25, 0.17, 2.0)]
    if groups_help(instance):
        # A group is worth a try where it holds a prompt or more.
        most = expected_batches(instance, instance.system.max_batch_tokens) / len(instance.requests)
        settings[1:1] = [replace(base, group=group) for group in (2, 4, 8) if group >= most]
        settings.append(replace(base, spare=0.001))
    if not instance.policy.hybrid_batching:
        settings[1:1] = _gatherings(instance, base)
        settings += [replace(base, every=every) for every in (4, 16, 64)]
    if _pilot_helps(instance):
        near = replace(base, noise=0.0, by_output=0.0, window=1, slack=UNPACED, pilot=0.4)
        settings += [replace(near, by_input=bias) for bias in (0.15, 0.3, 0.0)]
    settings[1:1] = [replace(base, backwards=False, slack=UNPACED, **some) for some in _full(instance)]
    return settings


def _full(instance: Instance) -> list[dict[str, Any]]:
    """Settings where batches are full before the KV is."""
    crowded = crowding(instance)
    stride = round(STRIDE * crowded)
    if crowded <= 1:
        return []
    if stride <= 1 or instance.cost.floats.d0 <= 0:
        return list(FULL)
    return [*({**some, "stride": stride} for some in APART), *FULL]


def _gatherings(instance: Instance, base: PlannerOptions) -> list[PlannerOptions]:
    """Settings in which prompts gather, for an instance without hybrid batching.

    Many prompts at once are in many chunks each, which saves attention work.  They find room where requests
    end together.
    """
    one = replace(base, backwards=False, slack=UNPACED, gather=1.0)
    found = [one, replace(one, by_output=0.5, noise=0.5)]
    if balanced_width(instance) is not None:
        batches = instance.system.kv_capacity / instance.system.prefill_budget
        several = (
            replace(one, alike=share * batches, gather=ALIKE_FREE * share * batches) for share in ALIKE
        )
        found += (replace(some, by_output=0.1, noise=1.0, walk=2048) for some in several)
    return found


def _pilot_helps(instance: Instance) -> bool:
    """Whether types and places in the KV are few, and the tries affordable."""
    requests = instance.requests
    most_output = max(r.output_tokens for r in requests)
    tries = len(requests) * len(instance.types) * most_output * 0.4
    few = typical_slots(instance) <= PILOT_SLOTS and len(instance.types) <= PILOT_TYPES
    return few and len(requests) >= 64 and tries <= PILOT_WORK


def groups_help(instance: Instance) -> bool:
    """Whether batches with prefill cost more, and nothing speaks against requests that idle.

    Parameters
    ----------
    instance : Instance
    """
    hybrid = instance.policy.hybrid_batching
    return instance.objective.is_makespan and hybrid and instance.cost.floats.p0 > 0
