"""Early starts: requests that use the KV while it is still empty, and are evicted and refilled.

At the start all requests are young, so the KV fills up slowly: without evictions a third to two
thirds of the longest output goes by until it is full.  Where batches are dear and KV is scarce it
pays to start requests of every age of the steady state in the first batch, to evict those of
s tokens in batch s, when others need their KV, and to refill them later.  Such a request has left
``sum(I + k for k < s)`` of KV area behind, at the price of processing I + s - 1 tokens again.

How many, and of which ages, is chosen in one of two ways: as in the steady state, or so that they fill what a
plan without them leaves free.

Backwards, an evicted request is one with a prompt of I + s tokens and s output tokens less, and
what it held before is taken from the KV of the first batches.  So their number must be known: the
smallest that is enough is searched for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance, Request, RequestType
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._profile import Profiles
from infermax_opt.infermax.schedulers._state import held

__all__ = ["Early", "attention", "early_tokens", "longest_pays", "occupy", "tokens_beside"]

#: Share of an order from which early starts are taken: the last ones, which start first anyway, are none.
LATER = 0.8
#: Requests that may start early, at most; those of them that are tried for each number of tokens.
CANDIDATES, TRIED = 600, 8


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
    system = instance.system
    chosen: list[tuple[int, int]] = []
    areas = [area(kind.input_tokens, kind.output_tokens) * len(kind.members) for kind in instance.types]
    for kind in instance.types:
        rate = share * system.kv_capacity * len(kind.members) / sum(areas)
        ages = [s for s in range(2, kind.output_tokens) if _pays(instance, kind, s, young)]
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


def _pays(instance: Instance, request: Request | RequestType, made: int, young: float) -> bool:
    """Whether the KV area of an early start of so many tokens is worth `young` times its refill."""
    cost, system, inputs = instance.cost.floats, instance.system, request.input_tokens
    worth = (cost.alpha[0] + cost.d0) / system.kv_capacity
    # A refill is not cut, as its last chunk might look like a decode.
    whole = made < request.output_tokens and inputs + made <= system.prefill_budget
    return whole and worth * area(inputs, made) >= young * cost.beta[0] * (inputs + made - 1)


def longest_pays(instance: Instance, kind: RequestType) -> bool:
    """Whether an early start of all tokens but one is worth its refill: if it is not, no shorter one is."""
    made = min(kind.output_tokens - 1, instance.system.prefill_budget - kind.input_tokens)
    return made > 1 and _pays(instance, kind, made, 1.0)


def tokens_beside(
    instance: Instance, taken: Sequence[int], order: Sequence[int], share: float, young: float
) -> list[int]:
    """Tokens that each request generates in an early start, where these fill what others leave free.

    The longest early starts come first: each one is worth the square of its tokens, and costs a refill that
    grows with them.

    Parameters
    ----------
    taken : sequence of int
        KV that a plan without early starts holds in each of its first batches.
    order : sequence of int
        The requests as they are placed backwards.
    share : float
        Of the free KV that early starts take at most; above 1 others have to make room, but M is the limit.
    young : float
        A request starts early if the KV area is worth so many times the refill.
    """
    import numpy as np

    system, requests, tokens = instance.system, instance.requests, [0] * len(instance.requests)
    free = np.minimum(system.kv_capacity, share * (system.kv_capacity - np.asarray(taken, np.float64)))
    prompts, places = system.prefill_budget, (system.max_running or len(tokens)) // 2
    waiting = _spread(order[: int(LATER * len(order))])[:CANDIDATES]

    def needs(i: int, made: int) -> Any:
        return held(requests[i].input_tokens + np.arange(made), system.block_size)

    def fits(i: int, made: int) -> bool:
        short = requests[i].input_tokens <= prompts and _pays(instance, requests[i], made, young)
        return short and not (needs(i, made) > free[:made]).any()

    for made in range(len(free), 1, -1):
        while places:
            longer = islice((i for i in waiting if requests[i].output_tokens > made), TRIED)
            i = next((i for i in longer if fits(i, made)), None)
            if i is None:
                break
            free[:made] -= needs(i, made)
            prompts, places, tokens[i] = prompts - requests[i].input_tokens, places - 1, made
            waiting.remove(i)
    return tokens


def _spread(order: Sequence[int]) -> list[int]:
    """The same with those far from each other next to each other."""
    step = max(1, round(len(order) ** 0.5))
    return [i for k in range(step) for i in order[k::step]]


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
    for request, tokens in zip(instance.requests, early.tokens, strict=True):
        for batch in range(tokens):
            u = early.batches - 1 - batch
            profiles.kv[u] += instance.system.held(request.input_tokens + batch)
            profiles.running[u] += 1
            profiles.tokens[u] += 1 if batch else request.input_tokens
            profiles.prefill[u] += 0 if batch else request.input_tokens
