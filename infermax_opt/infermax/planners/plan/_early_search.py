"""The fewest batches in which a plan has room for given early starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.moments import passed
from infermax_opt.infermax.planners.plan._early_evictions import Early
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._profile import Rules
from infermax_opt.infermax.planners.plan._run import Plan, run_kernel

__all__ = ["refilled_whole", "whole_refills", "with_early_starts"]

#: How finely the number of batches is searched, relative to what early starts could save.
FINENESS = 64


def with_early_starts(
    instance: Instance,
    rules: Rules,
    order: Sequence[int],
    width: Sequence[int],
    tokens: Sequence[int],
    found: Plan,
    deadline: float | None,
) -> Plan:
    """A plan with early starts in as few batches as they are enough for; `found` if none is better.

    Parameters
    ----------
    instance : Instance
    rules : Rules
    order : sequence of int
        The requests by priority.
    width : sequence of int
        Most tokens of a chunk, per request.
    tokens : sequence of int
        That each request generates in an early start; 0 for none.
    found : Plan
        Without early starts.
    deadline : float or None
        Moment of `time.monotonic` after which nothing better is looked for.
    """
    width, gain = whole_refills(width, tokens), _saved_at_most(instance, tokens)
    low, high = max(max(tokens) + 1, found.batches - gain), found.batches
    fine = max(1, gain // FINENESS)
    best = found
    while high - low >= fine and not passed(deadline):
        middle = (low + high) // 2
        plan = run_kernel(instance, rules, order, width, Early(tokens, middle))
        if plan.batches > middle or not refilled_whole(plan):
            low = middle + 1
            continue
        high = middle
        if plan.seconds < best.seconds:
            best = plan
    return best


def whole_refills(width: Sequence[int], tokens: Sequence[int]) -> list[int]:
    """Most tokens of a chunk, per request; no refill is cut, as its last chunk might look like a decode."""
    return [MAX_TOKENS if some else most for some, most in zip(tokens, width, strict=True)]


def _saved_at_most(instance: Instance, tokens: Sequence[int]) -> int:
    """Batches that early starts save, roughly at most."""
    gained = sum(area(r.input_tokens, made) for r, made in zip(instance.requests, tokens, strict=True))
    # They may save some more, as others hold the KV for longer when they are gone.
    return int(3 * gained // (2 * instance.system.kv_capacity)) + 2


def refilled_whole(plan: Plan) -> bool:
    """Whether every early start is refilled in one batch, after that of its eviction."""
    last = plan.batches - 1
    chunks = Counter(i for _, i, _ in plan.chunks)
    refills = Counter(i for u, i, _ in plan.chunks if last - u > plan.made[i])
    return all(chunks[i] == 2 and refills[i] == 1 for i, made in enumerate(plan.made) if made)
