"""Every engine answer against the exhaustive optimum of thousands of tiny instances."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.core.result import Status
from infermax_opt.engines.outcome import EngineLimits, Termination
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact import staged
from infermax_opt.infermax.exact.moves import Chunks
from infermax_opt.infermax.exact.search import search
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.tiny import cost_model, tiny

OBJECTIVES = (
    "mean_ttft",
    "mean_tpot",
    "mean_e2e",
    {"makespan": "1", "mean_ttft": "0.5", "mean_tpot": "2"},
)


def check_all(instance: Instance) -> None:
    """Search, schedule and bounds agree with the oracle, exactly."""
    best = optimum(instance)
    outcome = staged_search(instance)
    assert outcome.termination == Termination.OPTIMAL
    assert outcome.upper == best
    assert outcome.lower is not None
    assert outcome.lower.value == best
    assert outcome.schedule is not None
    check = verify(instance, outcome.schedule)
    assert check.ok, check.violations
    assert check.objective == best
    for bound in closed_form_bounds(instance):
        assert bound.value <= best, bound.source


@in_blocks(campaign(100, 2_000), 50)
def test_makespan(seeds: range) -> None:
    for seed in seeds:
        check_all(tiny(seed))


@in_blocks(campaign(60, 400), 50)
def test_makespan_with_arrivals(seeds: range) -> None:
    for seed in seeds:
        check_all(tiny(seed, arrivals=True))


@in_blocks(campaign(60, 400), 50)
def test_latency_objectives(seeds: range) -> None:
    for seed in seeds:
        check_all(tiny(seed, objective=OBJECTIVES[seed % len(OBJECTIVES)]))


@in_blocks(campaign(30, 100), 25)
def test_latency_objectives_with_arrivals(seeds: range) -> None:
    objectives = ("mean_ttft", "mean_e2e", {"makespan": "1", "mean_ttft": "0.5", "mean_e2e": "2"})
    for seed in seeds:
        instance = tiny(seed, arrivals=True, objective=objectives[seed % 3])
        if len(instance.requests) < 3:  # the oracle tells states apart by their time here
            check_all(instance)


@in_blocks(campaign(24, 200, first=10_000), 20)
def test_solve_end_to_end(seeds: range) -> None:
    for seed in seeds:
        instance = tiny(seed)
        result = api.solve(instance)
        assert result.status is Status.OPTIMAL
        assert result.upper is not None
        assert result.upper.value == optimum(instance)
        assert verify(instance, result).ok


def chunky(seed: int) -> Instance:
    """Prompts long enough for grids to matter."""
    rng = random.Random(seed)
    requests = rng.choice([1, 2, 2, 3])
    top = 9 if requests < 3 else 6
    groups = [RequestGroup(f"q{i}", rng.randint(1, top), rng.randint(1, 3)) for i in range(requests)]
    block = rng.choice([1, 1, 2, 3])
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    system = System(
        peak + rng.choice([0, 1, 2, peak // 2, peak]),
        rng.choice([50, rng.randint(1, 8)]),
        rng.choice([50, rng.randint(1, 8)]),
        rng.choice([None, None, 1, 2]),
        block,
    )
    policy = Policy(rng.random() < 0.6, True, rng.random() < 0.75)
    return Instance(f"chunky-{seed}", tuple(groups), system, cost_model(rng), policy)


@in_blocks(campaign(6, 100), 25)
def test_coarse_spaces_enclose_the_optimum(seeds: range) -> None:
    for seed in seeds:
        instance = chunky(seed)
        exact = search(instance)
        assert exact.upper is not None
        for levels in (1, 2, 3, 4):
            above = search(instance, chunks=Chunks.RESTRICTED, levels=levels)
            assert above.lower is None
            assert above.upper is not None
            assert above.upper >= exact.upper
            assert above.schedule is not None
            assert verify(instance, above.schedule).objective == above.upper
            for upper in (None, exact.upper):
                below = search(instance, chunks=Chunks.RELAXED, levels=levels, upper=upper)
                assert below.schedule is None
                assert below.lower is not None
                assert below.lower.value <= exact.upper


@in_blocks(campaign(60, 300), 50)
def test_stages_through_grids(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every chunk counting as many, tiny instances take the way of long prompts."""
    monkeypatch.setattr(staged, "FEW_CHUNKS", 0)
    for seed in seeds:
        objective = "makespan" if seed // 4 % 2 else OBJECTIVES[seed % len(OBJECTIVES)]
        arrivals = objective == "makespan" and seed % 3 > 0
        instance = tiny(20_000 + seed, arrivals=arrivals, objective=objective)
        if instance.policy.chunked_prefill:
            check_all(instance)


@pytest.mark.parametrize("objective", ["mean_ttft", "mean_e2e"])
def test_relaxed_spaces_bound_latencies(objective: str) -> None:
    for seed in campaign(24, 100):
        instance = replace(chunky(seed), objective=Objective.of(objective))
        exact = search(instance)
        assert exact.upper is not None
        for levels in (1, 2, 3):
            below = search(instance, chunks=Chunks.RELAXED, levels=levels)
            assert below.lower is not None
            assert below.lower.value <= exact.upper


def test_limits_leave_a_valid_bound() -> None:
    """However early it stops, the bound is at most the optimum and the warm start is kept."""
    instance = Instance(
        "stopped",
        (RequestGroup("r", 6, 4, count=6),),
        System(20, 50, 50),
        cost_model(random.Random(5)),
        Policy(chunked_prefill=False),
    )
    best = search(instance)
    assert best.upper is not None
    for seconds in (1e-6, 0.002, 0.01, 0.05):
        outcome = search(instance, limits=EngineLimits(seconds=seconds), upper=best.upper + 1)
        assert outcome.lower is not None
        assert outcome.lower.value <= best.upper
    starved = search(instance, limits=EngineLimits(memory=10_000))
    assert starved.termination in (Termination.MEMORY_LIMIT, Termination.OPTIMAL)
    assert starved.lower is not None
    assert starved.lower.value <= best.upper
