"""The rules of a schedule: Lemma 1 in one sweep, in pairs, and cell by cell; instances and their files."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest
from infermax_opt.pipelining.data.queues import TRACES, queue
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.data.suites import SUITES
from infermax_opt.pipelining.problem import PipeliningProblem
from infermax_opt.pipelining.replay.check import PipeliningRule, broken_rules
from infermax_opt.pipelining.replay.metrics import measure
from tests.campaign import campaign
from tests.pipelining.oracle import apart, collide, reserved, worth

PROBLEM = PipeliningProblem()


def of(sizes: list[int], capacity: int, **more: Any) -> PipeliningInstance:
    requests = tuple(PipeliningRequest(f"r{k}", g) for k, g in enumerate(sizes))
    return PipeliningInstance("some", requests, capacity, **more)


def rules(instance: PipeliningInstance, offsets: dict[str, int]) -> list[PipeliningRule]:
    return [broken.rule for broken in broken_rules(instance, Pipelining("some", offsets))]  # type: ignore[misc]


def test_the_sweep_is_the_pairs_is_the_cells() -> None:
    """On random schedules, half of them about valid: the three say the same of each."""
    valid = 0
    for seed in campaign(1_800, 30_000):
        rng = random.Random(seed)
        capacity = rng.randint(4, 30)
        sizes = [rng.choice([1, 2, 3, rng.randint(1, capacity)]) for _ in range(rng.randint(1, 5))]
        instance = of(sizes, capacity)
        placed = [(rng.randint(0, capacity - 1), g) for g in sizes]
        fits = all(s + g <= capacity for s, g in placed)
        pairs = fits and all(apart(a, b) for a, b in combinations(placed, 2))
        assert pairs == (not collide(placed, capacity)), seed
        found = rules(instance, {f"r{k}": s for k, (s, _) in enumerate(placed)})
        assert pairs == (not found), seed
        assert (PipeliningRule.CAPACITY in found) == (not fits), seed
        valid += pairs
    assert valid > 100


def test_one_request_moved_breaks_a_rule_by_name() -> None:
    instance = of([8, 4, 2], 8)
    good = {"r0": 0, "r1": 4, "r2": 2}
    assert rules(instance, good) == []
    assert rules(instance, {**good, "r2": 3}) == [PipeliningRule.OVERWRITTEN]
    assert rules(instance, {**good, "r0": 1}) == [PipeliningRule.CAPACITY, *[PipeliningRule.OVERWRITTEN] * 2]
    assert rules(instance, {**good, "x": 1}) == [PipeliningRule.UNKNOWN_REQUEST]
    assert rules(instance, {}) == []


def test_exact_halves_are_allowed_and_one_less_is_not() -> None:
    """The paper's example: a host of 32 has a guest of 16."""
    assert rules(of([32, 16], 32), {"r0": 0, "r1": 16}) == []
    assert rules(of([32, 17], 33), {"r0": 0, "r1": 16}) == [PipeliningRule.OVERWRITTEN]


def test_thousands_are_checked_at_once() -> None:
    instance = of([1] * 20_000, 20_000)
    offsets = {f"r{k}": k for k in range(20_000)}
    assert broken_rules(instance, Pipelining("some", offsets)) == ()
    wrong = broken_rules(instance, Pipelining("some", {**offsets, "r5": 6}))
    assert [str(some.rule.value) for some in wrong] == ["overwritten"]


def test_lengths_have_their_buffer_and_whole_blocks() -> None:
    instance = of([1, 32, 33, 100], 10_000, block_size=32, buffer=Fraction("0.15"))
    assert list(instance.sizes) == [32, 64, 64, 128] == reserved(instance)
    assert instance.room == 9984
    metrics = measure(instance, Pipelining("some", {"r1": 0, "r3": 64}))
    assert (metrics.tokens, metrics.count, metrics.area) == (192, 2, 64 * 65 // 2 + 128 * 129 // 2)
    assert metrics.capacity_per_token == Fraction(10_000, 192)
    assert measure(instance, Pipelining("some", {})).capacity_per_token is None


@pytest.mark.parametrize("aim", ["tokens", "area", "count", "value"])
def test_values_of_objectives(aim: str) -> None:
    requests = tuple(PipeliningRequest(f"r{k}", k + 1, Fraction(k, 4)) for k in range(5))
    instance = PipeliningInstance("v", requests, 9, aim)
    assert list(instance.values) == worth(instance)


GOOD: dict[str, Any] = {
    "schema": "infermax-opt/instance/1",
    "problem": "pipelining",
    "name": "n",
    "capacity": 8,
    "requests": [{"id": "a", "length": 4}, {"id": "b", "length": 2, "value": "1.5"}],
}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"capacity": 0}, "capacity"),
        ({"capacity": "many"}, "capacity"),
        ({"block_size": 0}, "block_size"),
        ({"buffer": -1}, "buffer"),
        ({"buffer": 11}, "buffer"),
        ({"objective": "speed"}, "objective"),
        ({"objective": "value"}, "requests[0].value"),
        ({"requests": []}, "requests"),
        ({"requests": [{"id": "a", "length": 0}]}, "requests[0].length"),
        ({"requests": [{"id": "a", "length": 1.5}]}, "requests[0].length"),
        ({"requests": [{"id": "a", "length": 10**10}]}, "requests[0].length"),
        ({"requests": [{"id": "a", "length": 1, "value": -1}]}, "requests[0].value"),
        ({"requests": [{"id": "a", "length": 1}] * 2}, "requests[1].id"),
        ({"requests": [{"id": "a", "length": 1, "colour": 1}]}, "requests[0].colour"),
        ({"extra": 1}, "extra"),
    ],
)
def test_wrong_instances_name_the_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        PROBLEM.instance_from_json({**GOOD, **change})
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_files_give_back_what_was_written() -> None:
    instance = PROBLEM.instance_from_json(GOOD)
    again = PROBLEM.instance_from_json(json.loads(json.dumps(PROBLEM.instance_to_json(instance))))
    assert again == instance
    assert again.sha256 == instance.sha256
    schedule = Pipelining("n", {"a": 0, "b": 4})
    assert PROBLEM.schedule_from_json(PROBLEM.schedule_to_json(schedule), "") == schedule


@pytest.mark.parametrize("offsets", [[1], {"a": -1}, {"a": 0.5}, {"a": None}, {"a": 10**10}])
def test_wrong_schedules_name_the_field(offsets: object) -> None:
    value = {"schema": "infermax-opt/schedule/1", "instance": "n", "offsets": offsets}
    with pytest.raises(InputError, match="offsets"):
        PROBLEM.schedule_from_json(value, "schedule")


def test_queues_have_the_papers_moments() -> None:
    for name, trace in TRACES.items():
        lengths = [r.length for r in queue(name, 4_000, 1).requests]
        mean = trace.mean * float(1 + trace.padding)
        assert abs(sum(lengths) / len(lengths) - mean) < 0.05 * mean
        assert min(lengths) >= trace.least
        assert max(lengths) <= trace.most * (1 + trace.padding) + 1
    cases = SUITES["pipelining"](None)
    assert len({case.name for case in cases}) == len(cases) == 12
    assert cases[0].build().name == cases[0].name
    assert cases[0].build() == cases[0].build()
    with pytest.raises(InputError, match="none of"):
        queue("novels", 3, 0)
