"""Plans for first tokens, and the scheduler: valid under every flag, near the optimum, never below."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.api import schedule, solve, verify
from infermax_opt.infermax.data.first_tokens import counts_first_tokens, only_first_tokens
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, System
from infermax_opt.infermax.data.objective import rank
from infermax_opt.infermax.heuristics import names_for
from infermax_opt.infermax.planners.admission.planner import AdmissionPlanner
from infermax_opt.infermax.planners.first_tokens.given_up import given_up, least_limit
from infermax_opt.infermax.planners.first_tokens.planner import FirstTokensPlanner
from infermax_opt.infermax.replay.metrics import objective_value
from tests.campaign import campaign
from tests.infermax.oracle import optimum
from tests.infermax.served import droppable, served
from tests.infermax.test_admission import crowded
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.infermax.waiting import waiting
from tests.support import PAPER

#: First tokens alone, and beside other metrics.
OBJECTIVES = (
    "mean_ttft", "weighted_mean_ttft", "p50_ttft", "p90_ttft", "max_ttft", "missed",
    {"mean_ttft": "1", "mean_e2e": "0.1"}, {"mean_ttft": "1", "missed": "2"},
    {"at_most": {"p90_ttft": "2", "mean_ttft": "1"}},
)  # fmt: skip


def first_only(instance: Instance) -> Instance:
    """The same with no service levels but those of first tokens."""

    def kept(holder: object) -> object:
        slo = holder.slo  # type: ignore[attr-defined]
        return replace(holder, slo={"ttft": slo.ttft} if slo and slo.ttft is not None else None)  # type: ignore[type-var]

    groups, classes = (tuple(map(kept, some)) for some in (instance.groups, instance.classes))
    return replace(instance, groups=groups, classes=classes)  # type: ignore[arg-type]


def promised(seed: int) -> Instance:
    """A crowd, some of whom have service levels, weights, or need not be served."""
    rng = random.Random(seed)
    base = crowded(seed)
    groups = tuple(
        replace(
            group,
            slo=rng.choice([None, {"ttft": Fraction(rng.randint(1, 90), 10)}]),
            weight=rng.choice([None, 3, "0.5"]),
            optional=rng.choice([None, None, True]),
        )
        for group in base.groups
    )
    return replace(base, groups=groups)


@pytest.mark.parametrize("make", [tiny, waiting, crowded, promised])
def test_schedules_are_valid_and_the_clock_is_right(make: object) -> None:
    for seed in campaign(27, 3_000):
        instance = replace(make(seed), objective=Objective.of(OBJECTIVES[seed % len(OBJECTIVES)]))  # type: ignore[operator]
        planner = FirstTokensPlanner(instance, seed=seed)
        for choice in itertools.islice(planner._choices(), 0, 60, 9):
            planner._try(choice)
            finished, first, last, _ = planner._run(choice, whole=True)
            assert finished
            # What comes after the first tokens makes no difference to them.
            assert planner._run(choice, whole=False)[1] == pytest.approx(first, rel=1e-9)
            check = verify(instance, planner.schedule(choice))
            assert check.ok, (seed, choice, check.violations[:2])
            assert check.metrics is not None
            told = planner._estimate.value(first, last)
            assert told == pytest.approx(float(objective_value(instance.objective, check.metrics)), rel=1e-6)


def test_they_are_near_the_optimum_and_never_below() -> None:
    met = []
    for seed in campaign(40, 3_000):
        base = waiting(seed) if seed % 3 > 0 else tiny(seed)
        instance = replace(base, objective=Objective.of("mean_ttft"))
        met.append(is_met(instance, seed, optimum(instance)))
    assert sum(met) >= 0.9 * len(met)


@pytest.mark.parametrize("objective", OBJECTIVES[1:6])
def test_ranks_weights_and_levels_are_near_the_optimum_and_never_below(objective: str) -> None:
    met = []
    for seed in campaign(18, 1_500):
        make = droppable if seed % 4 == 0 else served
        instance = first_only(make(seed, objective, arrivals=seed % 3 > 0))
        if only_first_tokens(instance):  # no horizon
            with contextlib.suppress(TooMany):
                met.append(is_met(instance, seed, vector_optimum(instance, 6_000)))
    assert len(met) > 8
    assert sum(met) >= 0.9 * len(met)


def is_met(instance: Instance, seed: int, best: Fraction) -> bool:
    """Whether the last plan is as good as the optimum, which none may be better than."""
    *_, (_, plan) = FirstTokensPlanner(instance, seed=seed).plans()
    check = verify(instance, plan)
    assert check.ok, (seed, check.violations[:2])
    assert check.objective is not None
    assert check.objective >= best, (seed, check.objective, best)
    return check.objective == best


def test_the_same_seed_gives_the_same_plans() -> None:
    instance = replace(crowded(3), objective=Objective.of("p90_ttft"))
    plans = [list(FirstTokensPlanner(instance, seed=5).plans()) for _ in range(2)]
    assert plans[0] == plans[1]


def scarce(objective: object, **terms: object) -> Instance:
    """Short prompts with long outputs, ten a second, on a memory for twenty of them."""
    rng = random.Random(1)
    groups = tuple(
        RequestGroup(f"q{k}", rng.randint(50, 400), rng.randint(200, 600), Fraction(k, 10), **terms)  # type: ignore[arg-type]
        for k in range(120)
    )
    return Instance("scarce", groups, System(12_000, 2048, 2048), PAPER, objective=Objective.of(objective))  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", ["mean_ttft", "p99_ttft", "max_ttft", "weighted_mean_ttft"])
def test_where_memory_is_scarce_first_tokens_wait_for_nobodys_end(objective: str) -> None:
    instance = scarce(objective)
    others = [run_to_end(planner) for planner in (AdmissionPlanner(instance), FirstTokensPlanner(instance))]
    assert others[1] < others[0] / 10
    result = solve(instance, time_limit=4)
    assert result.upper is not None
    assert result.upper.source.startswith("first tokens:")
    assert result.gap is not None
    assert result.gap < 0.3


def run_to_end(planner: AdmissionPlanner | FirstTokensPlanner) -> float:
    """The best value that a planner finds, by its clock."""
    list(planner.plans())
    return planner.value


def test_levels_of_first_tokens_are_kept_where_memory_is_scarce() -> None:
    instance = scarce("missed", slo={"ttft": "0.15"})
    result = solve(instance, time_limit=4)
    assert result.upper is not None
    assert result.upper.value == 0


def test_what_counts_first_tokens() -> None:
    plain, promises = scarce("mean_ttft"), scarce("missed", slo={"ttft": "0.15"})
    both = scarce("missed", slo={"ttft": "0.15", "e2e": 9})
    told = {
        instance.objective_name: (counts_first_tokens(instance), only_first_tokens(instance))
        for instance in (
            plain,
            promises,
            replace(plain, objective=Objective.of("p99_ttft")),
            replace(plain, objective=Objective.of({"mean_ttft": 1, "makespan": 1})),
            replace(plain, objective=Objective.of({"at_most": {"max_ttft": 1, "p50_ttft": 1}})),
            replace(plain, objective=Objective.of("mean_e2e")),
        )
    }
    assert list(told.values()) == [(True, True)] * 3 + [(True, False), (True, True), (False, False)]
    for other in (both, replace(promises, horizon=Fraction(50))):
        assert (counts_first_tokens(other), only_first_tokens(other)) == (False, False)


# --- who is given up -----------------------------------------------------------------------------


def kept(arrival: list[float], work: list[float], due: list[float], members: tuple[int, ...]) -> bool:
    """Whether these requests end in time, served one after the other as they are due."""
    now = 0.0
    for i in sorted(members, key=lambda k: (due[k], arrival[k])):
        now = max(now, arrival[i]) + work[i]
        if now > due[i]:
            return False
    return True


def test_as_few_as_possible_are_given_up_where_all_are_there() -> None:
    for seed in campaign(100, 5_000):
        rng = random.Random(seed)
        n = rng.randint(1, 7)
        arrival, work = [0.0] * n, [float(rng.randint(1, 9)) for _ in range(n)]
        due = [float(rng.randint(1, 25)) for _ in range(n)]
        out = given_up(np.array(arrival), np.array(work), np.array(due), np.ones(n))
        stay = tuple(k for k in range(n) if k not in out)
        assert kept(arrival, work, due, stay)
        larger = itertools.combinations(range(n), len(stay) + 1)
        assert not any(kept(arrival, work, due, members) for members in larger)


def test_who_weighs_more_stays() -> None:
    work, due = np.array([2.0, 2.0]), np.array([2.0, 2.0])
    assert given_up(np.zeros(2), work, due, np.array([1.0, 3.0])) == {0}
    assert given_up(np.zeros(2), work, due, np.array([3.0, 1.0])) == {1}


def test_a_percentile_gives_up_no_more_than_it_may() -> None:
    for seed in campaign(50, 2_000):
        rng = random.Random(seed)
        n = rng.randint(1, 40)
        arrival = np.sort([rng.random() * 20 for _ in range(n)])
        work = np.array([rng.choice([0.1, 0.3, 4.0]) for _ in range(n)])
        for percent in (50, 90, 99, 100):
            out = least_limit(arrival, work, percent)
            assert len(out) <= n * (100 - percent) // 100
            if percent == 100:
                assert not out
    long = least_limit(np.zeros(10), np.array([1.0] * 9 + [50.0]), 90)
    assert long == {9}


def test_the_least_limit_is_that_of_all_sets() -> None:
    for seed in campaign(60, 2_000):
        rng = np.random.default_rng(seed)
        arrival, work = np.sort(rng.integers(0, 12, 7)).astype(float), rng.integers(1, 9, 7).astype(float)
        for percent in (50, 80):
            spare = 7 - rank(percent, 7)
            out = least_limit(arrival, work, percent)
            assert len(out) <= spare
            found = needed(arrival, work, out)
            best = min(needed(arrival, work, set(some)) for some in itertools.combinations(range(7), spare))
            assert found <= best * 1.001, seed


def needed(arrival: np.ndarray, work: np.ndarray, out: Collection[int]) -> float:
    """The longest that anybody else takes, served as they arrive."""
    now, longest = 0.0, 0.0
    for i in range(len(work)):
        if i not in out:
            now = max(now, arrival[i]) + work[i]
            longest = max(longest, now - arrival[i])
    return longest


# --- the scheduler -------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [None, 12])
def test_the_scheduler_serves_first_tokens_before_all_else(most: int | None) -> None:
    base = scarce("mean_ttft")
    instance = replace(base, system=replace(base.system, max_running=most))
    names = ("first-tokens", "vllm", "vllm_v1")
    first, *others = [verify(instance, schedule(instance, name)).objective for name in names]
    assert first is not None
    assert all(other is not None and first * 10 < other for other in others)


def test_the_scheduler_takes_the_shortest_prompt_first_and_makes_room() -> None:
    groups = (
        RequestGroup("old", 60, 9),
        RequestGroup("long", 50, 2, Fraction("0.009")),
        RequestGroup("short", 5, 2, Fraction("0.009")),
    )
    instance = Instance("three", groups, System(100, 50, 50), PAPER, objective=Objective.of("mean_ttft"))
    batches = schedule(instance, "first-tokens").batches
    firsts = list(dict.fromkeys(name for batch in batches for name in batch.tokens))
    assert firsts == ["old", "short", "long"]
    assert any("old" in batch.evict for batch in batches)


def test_the_scheduler_is_tried_where_first_tokens_count() -> None:
    assert "first-tokens" in names_for(replace(tiny(1), objective=Objective.of("p90_ttft")))
    assert "first-tokens" not in names_for(replace(tiny(1), objective=Objective.of("mean_e2e")))
