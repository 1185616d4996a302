"""The age bound: its number against the greedy it stands for, its value against exact optima."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.age import MAX_SIZE, aged_batches
from infermax_opt.infermax.bounds.counts import count_batches
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.support import case, check_evidence


def by_tokens(sizes: list[tuple[int, int, int]], capacity: int, horizon: int | None) -> int:
    """The docstring's sum, token by token."""
    tokens = sorted(i + n for i, o, count in sizes for n in range(o) for _ in range(count))
    room = capacity * sum(count for *_, count in sizes)
    volume = waste = 0
    for size in tokens:
        volume += size
        position = -(-volume // room) - 1
        waste += position if horizon is None else min(position, horizon)
    return -(-(volume + waste) // capacity) if horizon is None else (volume + waste) // capacity


@in_blocks(campaign(100, 5_000), 100)
def test_the_number_is_that_of_the_greedy(seeds: range) -> None:
    for seed in seeds:
        check_the_number(seed)


def check_the_number(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [(rng.randint(1, 30), rng.randint(1, 60), rng.randint(1, 5)) for _ in range(rng.randint(1, 6))]
    capacity = max(i + o for i, o, _ in sizes) + rng.randint(0, 100)
    horizon = rng.choice([None, 0, 1, 3, 10])
    assert aged_batches(sizes, capacity, horizon) == by_tokens(sizes, capacity, horizon)
    assert aged_batches(sizes, capacity, 0) <= aged_batches(sizes, capacity, horizon)


def costs(rng: random.Random) -> CostModel:
    """Refills cost much beside a batch, so that evictions hardly ever pay; or nearly pay."""
    beta = rng.choice([1, 2, 3, 5, 20])
    d0, p0 = rng.choice([0, 0, 1, 3]), rng.choice([0, 0, 1, 3])
    d1 = rng.choice([0, 0, Fraction(1, 2), 1])
    return CostModel([(rng.choice([1, 5, 10, 20]), beta)], (d0, d1), (p0, rng.choice([0, Fraction(1, 10)])))


def tight(seed: int) -> Instance:
    """Two or three requests whose outputs fill most of the KV."""
    rng = random.Random(seed)
    count = rng.choice([2, 2, 3])
    groups = []
    for k in range(count):
        i, o = rng.randint(1, 2), rng.randint(3, 5 if count == 2 else 4)
        if groups and rng.random() < 0.6:
            i, o = groups[-1].input_tokens, groups[-1].output_tokens
        groups.append(RequestGroup(f"q{k}", i, o))
    peak = max(g.input_tokens + g.output_tokens - 1 for g in groups)
    system = System(peak + rng.randint(0, 4), 50, 50, rng.choice([None, None, 2]))
    policy = Policy(rng.random() < 0.7, rng.random() < 0.4, rng.random() < 0.6)
    return Instance(f"tight-{seed}", tuple(groups), system, costs(rng), policy)


@in_blocks(campaign(60, 5_000), 30)
def test_no_age_bound_exceeds_the_optimum(seeds: range) -> None:
    stronger = 0
    for seed in seeds:
        instance = tight(seed)
        found = {bound.source: bound for bound in closed_form_bounds(instance)}
        age = found["KV age"]
        assert age.value <= optimum(instance), seed
        assert check_evidence(instance, age) == age.value
        stronger += age.value > found["KV area"].value
    assert stronger >= 1


def test_without_evictions_it_counts_batches() -> None:
    # Two equal requests of 1 + 8 tokens, room for one peak and a little: area 72 of 10 a batch.
    instance = case(2, 1, 8, 10, preemption=False)
    sizes = [(1, 8, 2)]
    assert count_batches(instance, instance.types).total["KV area"] == 8
    # 8 of 16 tokens come after the first 20 of KV, 5 after 40, 2 after 60.
    assert aged_batches(sizes, 10, None) == -(-(72 + 8 + 5 + 2) // 10)
    found = {bound.source: bound.value for bound in closed_form_bounds(instance)}
    assert found["KV age"] > found["KV area"]


def test_evictions_that_cost_nothing_undo_it() -> None:
    instance = replace(case(8, 3, 9, 20), cost=CostModel([("1", "0.001")], ("0", "0.001"), ("0", "0")))
    found = {bound.source: bound.value for bound in closed_form_bounds(instance)}
    assert found["KV age"] <= found["KV area"]


def test_huge_sizes_are_left_out() -> None:
    assert aged_batches([(MAX_SIZE, 5, 1)], 2 * MAX_SIZE, None) == 0


def test_a_horizon_of_any_size_is_one() -> None:
    for sizes in ([(8, 4, 2)], [(3, 9, 8), (5, 2, 4)]):
        unlimited = aged_batches(sizes, 20, None)
        assert unlimited - 1 <= aged_batches(sizes, 20, 10**80) == aged_batches(sizes, 20, 10**9) <= unlimited
