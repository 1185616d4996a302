"""The release bound: its number token by token, and no price that proves too much."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.releases import MAX_SIZE, SCALE, released_batches
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_age import tight
from tests.infermax.test_many_bounds import shown, submitted
from tests.support import case, check_evidence

NAME = "KV releases"
HAIR = Fraction(1, 10**40)


def released(instance: Instance) -> LowerBound:
    (bound,) = (bound for bound in closed_form_bounds(instance) if bound.source == NAME)
    return bound


def by_tokens(
    sizes: list[tuple[int, int, int]], capacity: int, horizon: int | None, price: Fraction
) -> Fraction:
    """The docstring's sum, in batches: w of each token is the least over many runs."""
    total = Fraction(0)
    for i, o, count in sizes:
        part = -price * capacity
        for size in range(i, i + o):
            done, least = 0, price * size
            for run in range(1, 200):
                done += run - 1 if horizon is None else min(run - 1, horizon)
                least = min(least, (done + price * size) / run)
            part += size + (least if horizon is None else min(least, horizon))
        total += max(Fraction(0), part) * count
    return total / capacity


@in_blocks(campaign(16, 2_000), 40)
def test_the_number_is_that_of_the_docstring(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        kinds = range(rng.randint(1, 4))
        sizes = [(rng.randint(1, 30), rng.randint(1, 40), rng.randint(1, 5)) for _ in kinds]
        capacity = max(i + o for i, o, _ in sizes) + rng.randint(0, 100)
        worth = rng.choice([None, 0, SCALE // 2, 3 * SCALE, 10 * SCALE + 7])
        batches, price = released_batches(sizes, capacity, worth)
        horizon = None if worth is None else (worth - price) // SCALE
        number = by_tokens(sizes, capacity, horizon, Fraction(price, SCALE))
        assert batches - 1 <= number <= batches if worth is None else 0 <= number - batches < 1 + HAIR
        if worth is None:  # a price that is not tried may be a little better
            area = Fraction(sum(count * sum(range(i, i + o)) for i, o, count in sizes), capacity)
            others = max(by_tokens(sizes, capacity, None, Fraction(1, 2**k)) for k in range(8))
            assert others - area <= (batches - area) * Fraction(11, 10) + 1


def several(seed: int) -> Instance:
    """Tiny instances of `tight`, some with arrivals, blocks or another kind of request."""
    rng, instance = random.Random(seed), tight(seed)
    groups, system = instance.groups, instance.system
    if rng.random() < 0.3:
        groups = tuple(replace(g, arrival=Fraction(rng.randint(0, 30))) for g in groups)
    if rng.random() < 0.3:
        groups = (*groups[:2], RequestGroup("small", 1, rng.randint(1, 2)))
    if rng.random() < 0.3:
        system = System(system.kv_capacity + system.kv_capacity % 2, 50, 50, system.max_running, 2)
    return replace(instance, groups=groups, system=system)


@in_blocks(campaign(40, 5_000), 100)
def test_never_above_the_optimum(seeds: range) -> None:
    """Nor is what other prices prove."""
    stronger = refused = 0
    for seed in seeds:
        instance, rng = several(seed), random.Random(seed)
        best, bound = optimum(instance), released(instance)
        assert bound.value <= best, seed
        assert check_evidence(instance, bound) == bound.value, seed
        others = {other.source: other.value for other in closed_form_bounds(instance)}
        stronger += bound.value > max(others["KV area"], others["KV age"])
        assert bound.evidence is not None
        for _ in range(8):
            price = rng.choice([rng.randint(0, 2 * SCALE), rng.randint(0, 12 * SCALE)])
            evidence = {**bound.evidence, "cut": price}
            refused += refusal(instance, replace(bound, value=best + HAIR, evidence=evidence)) == "cut"
    assert stronger
    assert refused


def refusal(instance: Instance, bound: LowerBound) -> str:
    with pytest.raises(Rejected, match=r"claims|cut") as refused:
        submitted(shown(instance), instance, bound)
    return "claims" if "claims" in str(refused.value) else "cut"


def test_two_requests_share_what_a_release_frees() -> None:
    # 1 + 8 tokens each, room for 10. At a price of 1/2, w of the sizes 1 ... 8 is 1/2, 1, 5/4, 3/2, 7/4,
    # 2, 13/6, 7/3: a run of g is best from lambda s = g (g - 1) / 2 on.
    waste = Fraction(1, 2) + 1 + Fraction(5, 4) + Fraction(3, 2) + Fraction(7, 4) + 2 + Fraction(13, 6)
    waste += Fraction(7, 3)
    assert by_tokens([(1, 8, 2)], 10, None, Fraction(1, 2)) == (2 * (36 + waste) - 10) / 10
    # At a price of 1 it is 1, 3/2, 2, 7/3, 8/3, 3, 13/4, 7/2, and a tenth batch is needed; fourteen are.
    assert by_tokens([(1, 8, 2)], 10, None, Fraction(1)) == (2 * (36 + Fraction(77, 4)) - 20) / 10
    assert released_batches([(1, 8, 2)], 10)[0] == 10


def test_requests_with_few_tokens_are_left_out() -> None:
    """Many releases of little memory would say that memory hardly fills up in between."""
    few, many = [(20, 200, 40)], [(20, 1, 400)]
    alone, _ = released_batches(few, 300)
    assert released_batches([*few, *many], 300)[0] >= alone
    assert alone > -(-40 * sum(range(20, 220)) // 300)


def test_evictions_that_cost_nothing_undo_it() -> None:
    assert released_batches([(3, 9, 8)], 20, 0) == (8 * sum(range(3, 12)) // 20, 0)


def test_a_worth_of_any_size_is_one() -> None:
    sizes = [(3, 9, 8), (5, 2, 4)]
    unlimited, _ = released_batches(sizes, 20)
    assert unlimited - 1 <= released_batches(sizes, 20, 10**80)[0] <= unlimited


def test_huge_sizes_are_left_out_and_large_ones_stay_exact() -> None:
    assert released_batches([(MAX_SIZE, 5, 1)], 2 * MAX_SIZE) == (0, 0)
    large = [(MAX_SIZE - 20, 20, 3)]
    batches, price = released_batches(large, MAX_SIZE)
    assert batches - 1 <= by_tokens(large, MAX_SIZE, None, Fraction(price, SCALE)) <= batches
    # M is beyond what 64 bits hold in parts of a price.
    assert released_batches([(3, 9, 8)], 10**30)[0] == 1


def test_no_more_may_be_saved_than_evictions_cost() -> None:
    instance = case(9, 3, 4, 12)
    bound = released(instance)
    assert bound.evidence is not None
    for cut, words in ((10**9, "cut"), (-1, "cut"), ("dear", "cut"), (None, "cut")):
        evidence: dict[str, Any] = {**bound.evidence, "cut": cut}
        with pytest.raises(Rejected, match=words):
            submitted(shown(instance), instance, replace(bound, evidence=evidence))
