"""Parts of a schedule's time add up exactly, and each is what its name says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.infermax import attribution
from infermax_opt.infermax.attribution import explain
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from tests.infermax.strategies import instances

#: A second for a batch, a tenth for a token, a hundredth for one that is read, a thousandth for a pair.
COST = CostModel([("1", "0.1")], ("0", "0.01"), ("0", "0.001"))


def by_name(instance: Instance, *batches: Batch) -> dict[str, Fraction]:
    makespan, latency = explain(instance, Schedule(instance.name, batches))
    return {part.name: part.value for part in (*makespan.parts, *latency.parts)}


def machine(*groups: RequestGroup, **limits: int) -> Instance:
    system = replace(System(100, 10, 10), **limits)
    return Instance("case", groups, system, COST, Policy())


@given(instances(), st.sampled_from(["vllm", "sarathi", "mc-sf", "fastgen"]))
@settings(max_examples=100, deadline=None)
def test_parts_add_up(instance: Instance, scheduler: str) -> None:
    try:
        schedule = api.schedule(instance, scheduler)
    except InputError:  # no schedule of this instance
        return
    check = api.verify(instance, schedule)
    assert check.ok
    makespan, latency = explain(instance, schedule)
    assert makespan.value == check.metrics.makespan
    assert latency.value == check.metrics.mean_e2e
    for part in makespan.parts:
        assert sum(part.stages, Fraction(0)) == part.value
    assert all(part.value >= 0 for part in (*makespan.parts, *latency.parts))
    again = next(part for part in makespan.parts if part.name == attribution.AGAIN)
    assert check.metrics.evictions or not again.value
    idle = sum(part.value for part in makespan.parts if part.name in (attribution.IDLE, attribution.EMPTY))
    standing = latency.parts[-1]
    assert standing.name == attribution.STANDING
    assert idle or not standing.value
    for shares in zip(*makespan.over_time.values(), strict=True):
        assert sum(shares) == pytest.approx(1) or sum(shares) == 0


def test_a_batch_by_hand() -> None:
    found = by_name(machine(RequestGroup("a", 4, 2)), Batch({"a": 4}), Batch({"a": 1}))
    assert found[attribution.TOKENS] == Fraction("0.5")
    assert found[attribution.READS] == Fraction("0.04")
    assert found[attribution.PREFILLS] == Fraction("0.016")
    assert found[attribution.ALONE] == 2


def test_what_is_done_twice_is_a_refill() -> None:
    instance = machine(RequestGroup("a", 4, 3))
    found = by_name(instance, Batch({"a": 4}), Batch({"a": 1}), Batch({}, ("a",)), Batch({"a": 6}))
    # Of the last chunk of six tokens, five were there before: work of 36 instead of 1.
    assert found[attribution.AGAIN] == Fraction("0.5") + Fraction("0.035")
    assert found[attribution.TOKENS] == Fraction("0.6")


@pytest.mark.parametrize(
    ("limits", "first", "reason"),
    [
        ({"max_batch_tokens": 4}, {"a": 4}, attribution.BUDGET),
        ({"max_running": 1}, {"a": 4}, attribution.SEATS),
        ({"kv_capacity": 7}, {"a": 4}, attribution.MEMORY),
        ({}, {"a": 4}, attribution.ROOM),
        ({}, {"a": 4, "b": 4}, attribution.ALONE),
        ({}, {"a": 4, "b": 2}, attribution.ALONE),
    ],
)
def test_why_a_batch_did_not_hold_more(limits: dict[str, int], first: dict[str, int], reason: str) -> None:
    instance = machine(RequestGroup("a", 4, 1), RequestGroup("b", 4, 1), **limits)
    rest = {name: 4 - first.get(name, 0) for name in "ab" if first.get(name, 0) < 4}
    batches = [Batch(first), *([Batch(rest)] if rest else [])]
    found = by_name(instance, *batches)
    assert found[reason] >= 1
    assert found[attribution.ALONE] >= len(batches) - 1


def test_decodes_beside_prefills() -> None:
    dear = replace(COST, mixed=("0.2", "0.02"))
    instance = replace(machine(RequestGroup("a", 4, 2), RequestGroup("b", 4, 1)), cost=dear)
    found = by_name(instance, Batch({"a": 4}), Batch({"a": 1, "b": 4}))
    assert found[attribution.BOTH] == Fraction("0.2") + 4 * Fraction("0.02")


def test_chunks_behind_others_are_prefill() -> None:
    groups = RequestGroup("a", 4, 1), RequestGroup("b", 4, 1)
    plain, dear = (replace(machine(*groups), cost=replace(COST, prefix=p)) for p in (0, "0.05"))
    batches = Batch({"a": 3}), Batch({"a": 1, "b": 4})
    less, more = by_name(plain, *batches), by_name(dear, *batches)
    assert more[attribution.PREFILLS] - less[attribution.PREFILLS] == 3 * Fraction("0.05")
    assert more[attribution.BOTH] == 0


def test_some_held_back() -> None:
    instance = machine(RequestGroup("a", 4, 2), RequestGroup("b", 4, 1))
    found = by_name(instance, Batch({"a": 4}), Batch({"b": 4}), Batch({"a": 1}))
    assert found[attribution.APART] == 1
    assert found["held back, with KV"] > 0


def test_idle_with_and_without_requests() -> None:
    instance = machine(RequestGroup("a", 4, 1), RequestGroup("b", 4, 1, Fraction(10)))
    found = by_name(instance, Batch({"a": 4}), Batch({"b": 4}, start=Fraction(12)))
    took = 1 + Fraction("0.4") + Fraction("0.016")
    assert found[attribution.EMPTY] == 10 - took
    assert found[attribution.IDLE] == 2
    assert found["waiting for the first batch"] == 1
