"""Random instances, always valid, for property tests."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System

__all__ = ["aimed", "cost_models", "instances"]


@st.composite
def cost_models(draw: st.DrawFn) -> CostModel:
    """Small decimal coefficients: one or two pieces, either attention."""

    def decimals(most: int) -> Fraction:
        return Fraction(draw(st.integers(0, most)), 100)

    pieces = draw(st.integers(1, 2))
    return CostModel(
        batch=[(decimals(300), decimals(100)) for _ in range(pieces)],
        decode=(decimals(100), decimals(10)),
        prefill=(decimals(100), decimals(10)),
        attention=draw(st.sampled_from(Attention)),
    )


@st.composite
def instances(
    draw: st.DrawFn, *, max_requests: int = 5, max_tokens: int = 6, arrivals: bool | None = None
) -> Instance:
    """A tiny instance under any policy, with tight limits.

    Parameters
    ----------
    max_requests : int
        Most groups; a group stands for one to three requests, all of them for twice as many at most.
    max_tokens : int
        Most input and output tokens of a request.
    arrivals : bool, optional
        Whether requests arrive over time; None draws it.
    """
    tokens = st.integers(1, max_tokens)
    online = draw(st.booleans()) if arrivals is None else arrivals
    instant = st.integers(0, 2000).map(lambda k: Fraction(k, 100)) if online else st.just(Fraction(0))
    groups = []
    total = 0
    for k in range(draw(st.integers(1, max_requests))):
        count = draw(st.sampled_from([None, None, 2, 3]))
        if total + (count or 1) > 2 * max_requests:
            break
        total += count or 1
        groups.append(RequestGroup(f"r{k}", draw(tokens), draw(tokens), draw(instant), count))
    policy = Policy(draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))
    block = draw(st.integers(1, 3))
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    system = System(
        kv_capacity=peak + draw(st.integers(0, 3 * peak)),
        max_batch_tokens=prompt + draw(st.integers(0, 2 * max_tokens)),
        max_prefill_tokens=prompt + draw(st.integers(0, 2 * max_tokens)),
        max_running=draw(st.sampled_from([None, None, 1, 2, 3])),
        block_size=block,
    )
    return Instance("random", tuple(groups), system, draw(cost_models()), policy)


@st.composite
def aimed(draw: st.DrawFn, **options: Any) -> Instance:
    """The same, with a predicted output for every request and service levels for most; `options` as there."""
    instance: Instance = draw(instances(**options))
    limit = st.integers(0, 2000).map(lambda k: Fraction(k, 100))
    slo = st.dictionaries(st.sampled_from(["ttft", "tpot", "e2e"]), limit)
    groups = [
        replace(group, slo=draw(slo), predicted_output_tokens=draw(st.integers(1, 12)))
        for group in instance.groups
    ]
    if not any(group.slo for group in groups):
        groups[0] = replace(groups[0], slo={"ttft": draw(limit)})
    return replace(instance, groups=tuple(groups))
