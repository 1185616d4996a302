"""Lone latencies against sums token by token, and against the optimum of one request."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds.latency import latency_bounds
from infermax_opt.infermax.bounds.lone import LoneLatency, _Quadratic
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Metric, Policy, RequestGroup, System
from tests.infermax.oracle import optimum
from tests.infermax.tiny import cost_model


def one(seed: int, longest: int = 5) -> Instance:
    """One request, with every flag and cost shape."""
    rng = random.Random(seed)
    i, o = rng.randint(1, longest), rng.randint(1, longest)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.7)
    room = rng.randint(1, 4) if policy.chunked_prefill else i + rng.randint(0, o)
    system = System(i + o + rng.randint(0, 3), 150, rng.choice([room, 150]))
    cost = cost_model(rng)
    if rng.random() < 0.4:  # steps that cost more than refills
        cost = CostModel(cost.batch, (rng.randint(0, 9), rng.randint(0, 4)), cost.prefill, cost.attention)
    return Instance("one", (RequestGroup("a", i, o),), system, cost, policy)


def slow(instance: Instance) -> tuple[Fraction, int]:
    """First and later ticks, each by trying every number of chunks and every token."""
    (request,) = instance.requests
    ticks, policy, budget = instance.cost.ticks, instance.policy, instance.system.prefill_budget
    i, o = request.input_tokens, request.output_tokens
    pieces = list(zip(ticks.alpha, ticks.beta, strict=True))
    fewer = policy.chunked_prefill and not instance.cost.exact_attention
    firsts = []
    for chunks in range(-(-i // budget), i + 1 if policy.chunked_prefill else 2):
        work = Fraction(i * i, chunks) if fewer else i * i
        firsts.append(max(chunks * a + b * i for a, b in pieces) + chunks * ticks.p0 + ticks.p1 * work)
    sums = [0] * len(pieces)
    for s in range(i + 1, i + o):
        step = max(a + b for a, b in pieces) + ticks.d0 + ticks.d1 * (s - 1)
        for k, (a, b) in enumerate(pieces):
            refill = a + ticks.p0 + b * s + ticks.p1 * (s if fewer else s * s)
            able = policy.preemption and (policy.chunked_prefill or s <= budget)
            sums[k] += min(step, refill) if able else step
    return Fraction(min(firsts)), max(sums)


def test_sums_are_those_of_the_tokens() -> None:
    refilled = 0
    for seed in range(3000):
        instance = one(seed, longest=5 if seed % 2 else 60)
        found = LoneLatency(instance).of(instance.requests[0])
        assert (found.first, found.later) == slow(instance), seed
        stuck = replace(instance, policy=replace(instance.policy, preemption=False))
        refilled += found.later < LoneLatency(stuck).of(instance.requests[0]).later
    assert refilled > 100, "refills hardly ever count: something is left out"


@pytest.mark.parametrize("metric", [Metric.MEAN_TTFT, Metric.MEAN_TPOT, Metric.MEAN_E2E])
def test_never_above_the_optimum_of_one_request(metric: Metric) -> None:
    met = 0
    for seed in range(300):
        instance = replace(one(seed, longest=4), objective=metric.value)
        best = optimum(instance)
        (value,) = [value for name, value in latency_bounds(instance, metric) if name == "alone"]
        assert value <= best, seed
        met += value == best
    assert met > 100


def test_where_a_polynomial_is_negative() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        shape = _Quadratic(rng.randint(-50, 50), rng.randint(-20, 20), rng.choice([0, 1, 2, 5]))
        low, last = shape.negative(30)
        assert [s for s in range(31) if shape.at(s) < 0] == list(range(low, last + 1)), shape
        assert shape.total(low, last) == sum(map(shape.at, range(low, last + 1)))
