"""Plans for percentiles of end-to-end latencies: valid, their clock right, and never below the optimum."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.api import verify
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, System
from infermax_opt.infermax.planners.admission.planner import AdmissionPlanner
from infermax_opt.infermax.planners.admission.ranks import RanksPlanner, has_limit
from infermax_opt.infermax.planners.latencies import latency_plans
from tests.campaign import campaign, size
from tests.infermax.served import droppable, served
from tests.infermax.test_admission import crowded
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.support import PAPER

OBJECTIVES = ("p50_e2e", "p90_e2e", "p99_e2e", "max_e2e")


@pytest.mark.parametrize("make", [tiny, crowded])
def test_plans_are_valid_and_get_better_by_a_clock_that_is_right(make: object) -> None:
    found = 0
    for seed in campaign(4, 1_000):
        instance = replace(make(seed), objective=Objective.of(OBJECTIVES[seed % 4]))  # type: ignore[operator]
        planner, last = RanksPlanner(instance, seed=seed), None
        for _, plan in planner.plans():
            check = verify(instance, plan)
            assert check.ok, (seed, check.violations[:2])
            assert check.objective is not None
            assert last is None or check.objective < last
            last = check.objective
        if last is not None:
            found += 1
            assert float(last) == pytest.approx(planner.value, rel=1e-6), seed
    assert found > size(3, 6)


def test_a_weight_or_a_limit_changes_no_plan() -> None:
    instance = crowded(3)
    instance = replace(instance, groups=instance.groups[:12], objective=Objective.of("p99_e2e"))
    *_, best = latency_plans(instance)
    for weights in ({"p99_e2e": 2}, {"at_most": {"p99_e2e": "0.5"}}):
        other = replace(instance, objective=Objective.of(weights))
        assert not has_limit(other)
        assert list(latency_plans(other))[-1] == best


def test_none_is_below_the_optimum_and_some_meet_it() -> None:
    met = compared = 0
    for seed in campaign(6, 1_500):
        instance = served(seed, OBJECTIVES[seed % 4], arrivals=seed % 3 > 0)
        if not has_limit(instance):
            continue
        plans = [plan for _, plan in RanksPlanner(instance, seed=seed).plans()]
        if not plans:
            continue
        with contextlib.suppress(TooMany):
            best = vector_optimum(instance, 3_000)
            value = verify(instance, plans[-1]).objective
            assert value is not None
            assert value >= best, seed
            compared += 1
            met += value == best
    assert compared > size(2, 4)
    assert met > 0


def long_and_short(objective: str = "p90_e2e", count: int = 150) -> Instance:
    """Many short requests, one in five of them long, ten a second."""
    rng = random.Random(3)
    groups = tuple(
        RequestGroup(
            f"q{k}",
            rng.randint(50, 400),
            rng.choice([20, 40, 60, 80, 300 + rng.randint(0, 200)]),
            Fraction(k, 10),
        )
        for k in range(count)
    )
    return Instance("mixed", groups, System(60_000, 2048, 2048), PAPER, objective=Objective.of(objective))


@pytest.mark.parametrize("objective", ["p90_e2e", "p99_e2e", "max_e2e"])
def test_limits_pay_where_few_requests_decide(objective: str) -> None:
    instance = long_and_short(objective)
    ranks, admission = RanksPlanner(instance), AdmissionPlanner(instance)
    list(ranks.plans())
    list(admission.plans())
    assert ranks.value < 1.01 * admission.value
    names = {name.split(":")[0] for name, _ in latency_plans(instance)}
    assert "ranks" in names


def test_the_same_seed_gives_the_same_last_plan() -> None:
    """What is told before the last one depends on the clock."""
    plans = [list(RanksPlanner(long_and_short(count=60), seed=4).plans())[-1] for _ in range(2)]
    assert plans[0] == plans[1]


def test_whom_it_is_for() -> None:
    plain = long_and_short()
    for objective, right in (
        ("max_e2e", True),
        ("p99_ttft", False),
        ("mean_e2e", False),
        ("p90_tpot", False),
    ):
        assert has_limit(replace(plain, objective=Objective.of(objective))) is right
    assert not has_limit(replace(plain, horizon=Fraction(50)))
    assert not has_limit(replace(plain, objective=Objective.of({"p90_e2e": 1, "makespan": 1})))
    seen = [has_limit(droppable(seed, "p90_e2e", arrivals=True)) for seed in range(20)]
    assert not all(seen)
