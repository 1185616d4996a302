"""Requests that may be left unfinished, and horizons: all against every schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import Status
from infermax_opt.files.certificates import certificate_to_json
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.checker import instance as checker_instance
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import instance_from_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.planners.optional import in_vain, optional_ones, without
from infermax_opt.infermax.replay.fast import replay
from tests.campaign import campaign, in_blocks
from tests.infermax.served import droppable
from tests.infermax.test_service_bounds import checked
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum

#: Objectives in turn.
OBJECTIVES: tuple[object, ...] = (
    "unserved",
    "unserved_tokens",
    "missed",
    "mean_e2e",
    "makespan",
    "max_ttft",
    {"unserved": "1", "makespan": "0.3"},
    {"unserved_tokens": "1", "unserved": "1"},
    {"unserved": "1", "missed": "2", "mean_ttft": "1"},
    {"at_most": {"unserved": "1", "mean_e2e": "4"}},
)


@in_blocks(campaign(15, 5_000), 50)
def test_everything_against_every_schedule(seeds: range) -> None:
    found = [
        checked(droppable(seed, OBJECTIVES[seed % len(OBJECTIVES)], arrivals=seed % 3 > 0)) for seed in seeds
    ]
    assert sum(met is not None for met in found) > len(seeds) / 3


def spelled(value: Any) -> Any:
    """As a file would hold it."""
    return json.loads(json.dumps(value, default=lambda number: decimal_text(Fraction(number))))


@pytest.mark.parametrize("seed", campaign(6, 1_000))
def test_searched_bounds_are_about_what_must_be_served(seed: int) -> None:
    instance = droppable(seed, ("mean_e2e", "makespan", {"makespan": "1", "mean_e2e": "1"})[seed % 3])
    try:
        best = vector_optimum(instance, 1_500)
    except TooMany:
        return
    for bound in searched_bounds(instance):
        assert bound.value <= best
        certificate = certificate_to_json(instance, bound, CERTIFICATION)
        assert CERTIFICATION.check(instance, certificate) == bound.value


@pytest.mark.parametrize("seed", range(20))
def test_files_and_hashes_hold_what_is_optional(seed: int) -> None:
    instance = droppable(seed, "makespan")
    again = instance_from_json(spelled(instance_to_json(instance)))
    assert again.sha256 == instance.sha256
    assert again.required == again or [r.id for r in again.requests] == [r.id for r in instance.requests]
    if instance.required is not None:
        raw = spelled({**instance_to_json(instance), "cost": CERTIFICATION.cost(instance)})
        assert checker_instance.Instance(raw, None).sha256 == instance.sha256
    for other in (replace(instance, horizon=Fraction(77, 10)), replace(tiny(seed), horizon=1)):
        assert other.sha256 != instance.sha256


def two() -> Instance:
    """One request that must be served, and one that may be."""
    groups = (RequestGroup("a", 4, 2), RequestGroup("b", 4, 2, optional=True, weight=3))
    cost = CostModel([("1", "0.1")], ("0.1", "0.1"), ("0.1", "0.1"))
    return Instance("two", groups, System(64, 64, 64), cost, objective=Objective.of("unserved"))


def test_what_may_be_left_out_is_no_violation_and_what_must_not_is() -> None:
    instance = two()
    only = {name: Schedule(instance.name, (Batch({name: 4}), Batch({name: 1}))) for name in "ab"}
    check = api.verify(instance, only["a"])
    assert check.ok
    assert (check.metrics.unserved, check.metrics.missed) == (3, None)
    assert check.metrics.tokens_per_second == 2 / check.metrics.makespan
    assert [v.rule.value for v in api.verify(instance, only["b"]).violations] == ["completion"]


def test_a_horizon_ends_what_counts() -> None:
    instance = two()
    both = Schedule(instance.name, (Batch({"a": 4, "b": 4}), Batch({"a": 1, "b": 1})))
    end = api.verify(instance, both).metrics.makespan
    for horizon, unserved in ((end, 0), (end - Fraction(1, 1000), 3)):
        assert api.verify(replace(instance, horizon=horizon), both).objective == unserved


def test_nothing_need_be_served() -> None:
    instance = two()
    optional = tuple(replace(group, optional=True) for group in instance.groups)
    for objective in ("unserved", "makespan", "mean_e2e"):
        free = replace(instance, groups=optional, objective=Objective.of(objective))
        result = api.solve(free, time_limit=10)
        assert result.upper is not None
        assert result.upper.value == 0
        assert result.status is Status.OPTIMAL


@pytest.mark.parametrize("seed", campaign(18, 60))
def test_dropping_requests_leaves_a_valid_schedule(seed: int) -> None:
    instance = droppable(seed, "unserved")
    whole = api.schedule(instance, "vllm")
    before = api.verify(instance, whole)
    for names in (optional_ones(instance), in_vain(instance, whole, before.metrics.latencies)):
        after = api.verify(instance, without(instance, whole, names))
        assert after.ok, after.violations
        assert after.metrics.makespan <= before.metrics.makespan
    assert replay(instance, whole).valid


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": -1}, "horizon: -1 is negative"),
        ({"horizon": None}, "horizon: null is no value"),
        ({"horizon": "soon"}, "horizon: 'soon' is not a decimal number"),
        (
            {"requests": [{"id": "a", "input_tokens": 1, "output_tokens": 1, "optional": 1}]},
            "1 is not true or false",
        ),
        ({"classes": {"a": {"optional": "no"}}}, "classes.a.optional: 'no' is not true or false"),
    ],
)
def test_wrong_fields_are_named(change: dict[str, Any], words: str) -> None:
    value = json.loads(Path("instances/toy.json").read_text())
    with pytest.raises(InputError) as caught:
        instance_from_json({**value, **change})
    assert words in str(caught.value)
