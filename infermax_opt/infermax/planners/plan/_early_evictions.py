"""Early starts: requests that use the KV while it is still empty, and are evicted and refilled.

At the start all requests are young, so the KV fills up slowly: without evictions a third to two
thirds of the longest output goes by until it is full.  Where batches are dear and KV is scarce it
pays to start requests of every age of the steady state in the first batch, to evict those of
s tokens in batch s, when others need their KV, and to refill them later.  Such a request has left
``sum(I + k for k < s)`` of KV area behind, at the price of processing I + s - 1 tokens again.

Backwards, an evicted request is one with a prompt of I + s tokens and s output tokens less, and
what it held before is taken from the KV of the first batches.  So their number must be known: the
smallest that is enough is searched for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._profile import Profiles

__all__ = ["Early", "attention", "early_tokens", "occupy"]


@dataclass(frozen=True)
class Early:
    """Requests that start in the first of so many batches.

    Parameters
    ----------
    tokens : sequence of int
        Tokens that each request generates before it is evicted; 0: it starts later and stays.
    batches : int
    """

    tokens: Sequence[int]
    batches: int


def early_tokens(instance: Instance, share: float, young: float) -> list[int]:
    """Tokens that each request generates in an early start.

    Parameters
    ----------
    share : float
        Early starts, relative to the requests of each type and age in the steady state.
    young : float
        A request starts early if the KV area is worth so many times the refill.

    Returns
    -------
    list of int
        All 0 where early starts do not apply.
    """
    system, cost = instance.system, instance.cost.floats
    chosen: list[tuple[int, int]] = []
    areas = [area(kind.input_tokens, kind.output_tokens) * len(kind.members) for kind in instance.types]
    worth = (cost.alpha[0] + cost.d0) / system.kv_capacity
    for kind in instance.types:
        inputs, outputs = kind.input_tokens, kind.output_tokens
        rate = share * system.kv_capacity * len(kind.members) / sum(areas)
        # A refill is not cut, as its last chunk might look like a decode.
        ages = [
            s
            for s in range(2, min(outputs, system.prefill_budget - inputs + 1))
            if worth * area(inputs, s) >= young * cost.beta[0] * (inputs + s - 1)
        ]
        members = iter(kind.members)
        for k, s in enumerate(reversed(ages)):
            chosen += [
                (s, i) for _, i in zip(range(int(rate * (k + 1)) - int(rate * k)), members, strict=False)
            ]
    # As many of the oldest as fit, but not all: others have to hold the KV when these are evicted.
    tokens = [0] * len(instance.requests)
    running = min(len(tokens) // 2, system.max_running or len(tokens))
    together: Counter[int] = Counter()
    for s, i in sorted(chosen, reverse=True):
        together[instance.requests[i].input_tokens] += 1
        if (
            together.total() > running
            or sum(n * inputs for inputs, n in together.items()) > system.prefill_budget
            or sum(n * system.held(inputs + s - 1) for inputs, n in together.items()) > system.kv_capacity
        ):
            break
        tokens[i] = s
    return tokens


def attention(instance: Instance, early: Early) -> float:
    """Seconds of attention that the early starts need up to their evictions."""
    cost = instance.cost.floats
    seconds = 0.0
    for request, tokens in zip(instance.requests, early.tokens, strict=True):
        if tokens:
            inputs = request.input_tokens
            seconds += cost.p1 * prefill_work(instance.cost.exact_attention, inputs, 0)
            seconds += cost.d1 * ((tokens - 1) * inputs + (tokens - 1) * (tokens - 2) // 2)
    return seconds


def occupy(instance: Instance, early: Early, profiles: Profiles) -> None:
    """Write the early starts into the profiles of a backwards plan."""
    held = instance.system.held
    for request, tokens in zip(instance.requests, early.tokens, strict=True):
        for batch in range(tokens):
            u = early.batches - 1 - batch
            profiles.kv[u] += held(request.input_tokens + batch)
            profiles.running[u] += 1
            profiles.tokens[u] += 1 if batch else request.input_tokens
            profiles.prefill[u] += 0 if batch else request.input_tokens
