"""Latencies by weight, rank and class, and missed service levels: all against every schedule."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt import api
from infermax_opt.core.result import Status
from infermax_opt.core.truth import Trust
from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.infermax.bounds import closed_form_bounds, exhaustive
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import BY_COUNT, LINEAR, QUANTILES, rank
from infermax_opt.infermax.exact.promises import MAX_PROMISED
from infermax_opt.infermax.exact.staged import FEW_CHUNKS, MAX_TOLD_APART, staged_search, unsupported
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.served import served
from tests.infermax.test_waiting import check_search
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum

#: Points of an instance in the tests; more only with fresh seeds, before a merge.
POINTS = 1_500
#: Objectives by family, each alone or in a sum.
FAMILIES: dict[str, tuple[object, ...]] = {
    "by weight": ("weighted_mean_ttft", "weighted_mean_tpot", "weighted_mean_e2e"),
    "normalised": ("mean_normalised_latency", "max_normalised_latency"),
    "first tokens by rank": ("p50_ttft", "p90_ttft", "p99_ttft", "max_ttft"),
    "times between tokens by rank": (
        "p50_tpot",
        "p90_tpot",
        "p99_tpot",
        "max_tpot",
        {"p50_tpot": "2", "makespan": "0.3"},
        {"p99_tpot": "1", "max_ttft": "0.25", "mean_e2e": "0.1"},
        {"at_most": {"max_tpot": "0.8", "makespan": "6"}},
    ),
    "last tokens by rank": ("p50_e2e", "p90_e2e", "p99_e2e", "max_e2e"),
    "missed": ("missed", "missed", {"missed": "1", "makespan": "0.1"}),
    "class spread": ("class_spread", {"class_spread": "1", "mean_e2e": "1"}),
    "limits": (
        {"at_most": {"p50_ttft": "2", "makespan": "7"}},
        {"at_most": {"mean_e2e": "3", "max_ttft": "1.5"}},
        {"at_most": {"missed": "0", "mean_e2e": "4", "p90_e2e": "5"}},
        {"at_most": {"mean_ttft": "1", "mean_tpot": "0.5"}},
        {"at_most": {"makespan": "3", "weighted_mean_e2e": "0"}},
    ),
    "sums": (
        {"weighted_mean_e2e": "1", "p50_ttft": "0.5"},
        {"max_ttft": "1", "max_e2e": "0.25", "missed": "2"},
        {"makespan": "1", "mean_normalised_latency": "3", "weighted_mean_ttft": "0.1"},
        {"makespan": "1", "mean_tpot": "4"},
        {"makespan": "0.3", "mean_ttft": "2", "mean_tpot": "2"},
    ),
}
HAIR = Fraction(1, 10**9)


def checked(instance: Instance, points: int = POINTS) -> bool | None:
    """Whether a bound meets the optimum, which none exceeds; None where the instance is too large."""
    try:
        best = vector_optimum(instance, points)
    except TooMany:
        return None
    for bound in closed_form_bounds(instance):
        assert bound.value <= best, (instance.name, bound.source)
    if exhaustive.why_not(instance) is None:
        assert unsupported(instance) is None
        assert exhaustive.least(instance, best + HAIR) == best, instance.name
    if unsupported(instance) is None:
        check_search(instance, best)
        assert staged_search(instance, upper=best).schedule is None
        assert staged_search(instance, upper=best + HAIR).upper == best
    return max(bound.value for bound in closed_form_bounds(instance)) == best


#: Of each family nearly two thirds are small enough; a spread of classes waits at every tick.
@in_blocks(campaign(19, 5_000), 32)
@pytest.mark.parametrize("family", FAMILIES)
def test_everything_against_every_schedule(family: str, seeds: range) -> None:
    objectives = FAMILIES[family]
    found = [
        checked(served(seed, objectives[seed % len(objectives)], arrivals=seed % 2 == 0)) for seed in seeds
    ]
    assert sum(met is not None for met in found) > len(seeds) / 3
    assert sum(met is True for met in found) > len(seeds) / 20


def test_the_two_oracles_agree() -> None:
    """On sums over time, the older one goes another way."""
    agreed, seeds = 0, campaign(36, 120)
    for seed in seeds:
        objective = ("makespan", "mean_ttft", "mean_tpot", "mean_e2e", {"mean_e2e": "1", "mean_tpot": "3"})
        instance = served(seed, objective[seed % 5])
        try:
            best = vector_optimum(instance, POINTS)
        except TooMany:
            continue
        assert best == optimum(instance), seed
        agreed += 1
    assert agreed > len(seeds) / 2


def test_equal_weights_are_no_weights() -> None:
    for seed in campaign(18, 60):
        instance = tiny(seed)
        for plain in (Metric.MEAN_TTFT, Metric.MEAN_TPOT, Metric.MEAN_E2E):
            named = (plain.value, f"weighted_{plain.value}")
            one, other = (
                closed_form_bounds(replace(instance, objective=Objective.of(name))) for name in named
            )
            assert [(b.source, b.value) for b in one] == [(b.source, b.value) for b in other]


def test_lone_ranks_count_requests_and_not_types() -> None:
    groups = (RequestGroup("short", 1, 1, count=9), RequestGroup("long", 50, 40))
    case = Instance("ranks", groups, System(999, 999, 999), tiny(3).cost)

    def alone(metric: str) -> Fraction:
        found = closed_form_bounds(replace(case, objective=Objective.of(metric)))
        return next(bound.value for bound in found if bound.source == "alone")

    assert alone("p50_e2e") == alone("p90_e2e") < alone("p99_e2e") == alone("max_e2e")
    assert [rank(q, 10) for q in (50, 90, 99, 100)] == [5, 9, 10, 10]


def test_every_metric_is_of_one_kind() -> None:
    rest = {Metric.MAKESPAN, Metric.MAX_NORMALISED_LATENCY, Metric.CLASS_SPREAD, *BY_COUNT}
    assert not LINEAR.keys() & QUANTILES.keys()
    assert {*LINEAR, *QUANTILES} | rest == set(Metric)


@pytest.mark.parametrize("metric", [metric.value for metric in Metric])
def test_solve_and_verify_take_every_objective(metric: str) -> None:
    for seed in (4, 9):
        instance = served(seed, metric)
        result = api.solve(instance, time_limit=2)
        assert result.upper is not None
        assert result.lower is not None
        check = api.verify(instance, result)
        assert check.ok, check.faults
        assert check.objective == result.upper.value


def test_small_instances_are_solved_and_decided() -> None:
    for seed, objective in ((2, "missed"), (8, "p50_ttft"), (11, "max_e2e"), (3, "max_normalised_latency")):
        instance = served(seed, objective)
        if objective == "missed":  # a limit of the TPOT may gain by waiting
            groups = tuple(replace(group, slo={"e2e": 2, "ttft": 1}) for group in instance.groups)
            instance = replace(instance, groups=groups, classes=())
        result = api.solve(instance)
        assert result.status is Status.OPTIMAL
        check = api.verify(instance, result)
        assert check.ok
        assert not check.unchecked
        assert check.bound in (Trust.ENUMERATED, Trust.RECOMPUTED)


def test_what_cannot_be_searched_says_why() -> None:
    """And nobody is told that more was checked than was."""
    base = tiny(1)

    def why(objective: object, *groups: RequestGroup) -> tuple[str | None, str | None]:
        chosen = replace(base, groups=groups or base.groups, system=System(999, 999, 999))
        case = replace(chosen, objective=Objective.of(objective))  # type: ignore[arg-type]
        return unsupported(case), exhaustive.why_not(case)

    assert why("missed", RequestGroup("a", 2, 2, slo={"ttft": 1})) == (None, None)
    assert why("missed", RequestGroup("a", 2, 1, slo={"tpot": 1})) == (None, None)
    # Where all is there from the start, no TPOT gains by waiting.
    assert why("missed", RequestGroup("a", 2, 2, slo={"tpot": 1})) == (None, None)
    assert why("p99_tpot", RequestGroup("a", 2, 2)) == (None, None)
    assert why("p99_tpot", RequestGroup("a", 2, 1, 1)) == (None, None)
    mixed = {"mean_tpot": "1", "p50_e2e": "1"}
    limits = {"at_most": {"p90_tpot": "1", "makespan": "1"}}
    for objective, name in (
        ("class_spread", "class_spread"),
        ("missed", "missed"),
        (mixed, "mean_tpot"),
        ("p99_tpot", "p99_tpot"),
        (limits, "p90_tpot"),
    ):
        searched, enumerated = why(objective, RequestGroup("a", 2, 2, 1, slo={"tpot": 1}))
        assert str(enumerated).startswith(f"{name} may gain by waiting")
        if objective == "p99_tpot":  # as if all were there from the start
            assert searched is None
            continue
        if objective == "missed":  # the search over promises waits
            assert searched is None
            searched, _ = why(objective, RequestGroup("a", 2, 2, 1, slo={"tpot": 1}, count=MAX_PROMISED + 1))
        assert str(searched).startswith(f"{name} may gain by waiting")
    (many, _) = why("p99_e2e", RequestGroup("a", 1, 1, count=MAX_TOLD_APART + 1))
    assert (
        many == f"{MAX_TOLD_APART + 1} requests have too many joint states; the search takes {MAX_TOLD_APART}"
    )
    long = RequestGroup("a", FEW_CHUNKS + 1, 1)
    chunked = replace(base, policy=Policy(), groups=(long,), system=System(99, 99, 99))
    chunked = replace(chunked, objective=Objective.of("p99_e2e"))
    assert "too many chunks" in str(unsupported(chunked))
    assert unsupported(replace(chunked, policy=Policy(chunked_prefill=False))) is None


def test_limits_leave_a_bound_that_holds() -> None:
    group = RequestGroup("r", 4, 4, count=4)
    case = Instance("stopped", (group,), System(14, 8, 8), tiny(3).cost, objective=Objective.of("p50_e2e"))
    best = staged_search(replace(case, policy=Policy(chunked_prefill=False))).upper
    assert best is not None
    for seconds in (1e-6, 0.01, 0.1):
        found = staged_search(
            replace(case, policy=Policy(chunked_prefill=False)), limits=EngineLimits(seconds)
        )
        assert found.lower is not None
        assert found.lower.value <= best
