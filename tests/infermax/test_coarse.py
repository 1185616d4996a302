"""Planning at a coarse scale: whatever fits there fits here."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.suites import paper_cost
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from infermax_opt.infermax.planners.scaled_instance import coarse_instance, coarse_plans, refined


def make(seed: int) -> Instance:
    rng = random.Random(seed)
    groups = tuple(
        RequestGroup(f"g{k}", rng.randint(1, 40), rng.randint(1, 70), count=rng.randint(1, 4))
        for k in range(rng.randint(1, 3))
    )
    peak = max(g.input_tokens + g.output_tokens for g in groups)
    system = System(
        peak + rng.randint(10, 3 * peak),
        rng.choice([4096, 300]),
        rng.choice([4096, 300]),
        rng.choice([None, None, 2]),
    )
    policy = Policy(rng.random() < 0.7, rng.random() < 0.5, rng.random() < 0.7)
    return Instance(f"coarse-{seed}", groups, system, paper_cost(), policy)


@pytest.mark.parametrize("seed", range(40))
def test_refined_schedules_are_valid(seed: int) -> None:
    """Whichever scheduler made the coarse one; evictions, refills, uneven ends and all."""
    instance = make(seed)
    scale = 2 + seed % 7
    try:
        coarse = coarse_instance(instance, scale, None if seed % 2 else 1 + seed % 5)
    except InputError:
        return
    for name in ("vllm", "sarathi_nocp", "rank_output", scheduler_names()[seed % len(scheduler_names())]):
        try:
            rough = run_scheduler(coarse, name)
        except InputError:
            continue
        if not verify(coarse, rough).ok:
            continue
        check = verify(instance, refined(instance, scale, rough))
        assert check.ok, (name, check.violations, check.faults)


def test_refining_is_tried_often_enough() -> None:
    able = 0
    for seed in range(40):
        try:
            coarse_instance(make(seed), 2 + seed % 7)
            able += 1
        except InputError:
            pass
    assert able > 20


def test_costs_at_the_coarse_scale() -> None:
    """A coarse batch costs about what its batches cost."""
    instance = Instance("r", (RequestGroup("r", 1, 64, count=6),), System(300, 4096, 4096), paper_cost())
    coarse = coarse_instance(instance, 8)
    rough = run_scheduler(coarse, "vllm_ef")
    fine = refined(instance, 8, rough)
    one, other = (verify(of, schedule).objective for of, schedule in ((coarse, rough), (instance, fine)))
    assert one is not None
    assert other is not None
    assert abs(one / other - 1) < Fraction(3, 100)


def test_plans_for_few_slots_and_long_outputs() -> None:
    instance = Instance("r", (RequestGroup("r", 1, 128, count=12),), System(250, 4096, 4096), paper_cost())
    plans = list(coarse_plans(instance))
    assert plans
    best = min(verify(instance, schedule).objective for _, schedule in plans)  # type: ignore[type-var]
    schedulers = [verify(instance, run_scheduler(instance, name)).objective for name in scheduler_names()]
    assert best < min(schedulers)  # type: ignore[type-var,operator]


def test_no_plans_for_arrivals_blocks_or_short_outputs() -> None:
    late = (RequestGroup("r", 1, 128, arrival=1, count=4),)
    for groups, block in ((late, 1), ((RequestGroup("r", 1, 128, count=4),), 4)):
        instance = Instance("r", groups, System(256, 4096, 4096, block_size=block), paper_cost())
        assert list(coarse_plans(instance)) == []
    short = Instance("r", (RequestGroup("r", 1, 60, count=4),), System(256, 4096, 4096), paper_cost())
    assert list(coarse_plans(short)) == []
