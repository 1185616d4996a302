"""Polishing: never longer, always valid, and what it finds by hand."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from infermax_opt.infermax.planners.plan.planner import PlannerOptions, plan, plans
from infermax_opt.infermax.planners.polish.polish import polish
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.table.suites import get_suite
from tests.campaign import campaign, examples
from tests.infermax.strategies import instances
from tests.infermax.test_replay import DECODE, make, step
from tests.infermax.tiny import tiny
from tests.support import value

MANY = examples(72, 600)
SOME = examples(24, 150)
NAMES = st.sampled_from(scheduler_names())
MODULE = importlib.import_module("infermax_opt.infermax.planners.polish.polish")


def check(instance: Instance, schedule: Schedule) -> Schedule:
    """Polish a schedule; what comes out must be valid and as much shorter as promised."""
    before = value(instance, schedule)
    saved, found = polish(instance, schedule)
    after = value(instance, found)
    assert saved >= 0
    assert (saved > 0) == (found is not schedule)
    assert float(before - after) == pytest.approx(saved, rel=1e-6, abs=1e-9)
    assert polish(instance, schedule) == (saved, found)
    return found


def prefilling(instance: Instance, schedule: Schedule) -> int:
    """Batches that prefill."""
    return sum(features.prefills > 0 for features in replay(instance, schedule).features)


def by_hand(*batches: Batch) -> Schedule:
    return Schedule("tiny", batches)


# --- by hand ---


def test_a_prompt_joins_another_one_and_idles() -> None:
    instance = make((1, 5), (1, 3))
    given_ = by_hand(step(r1=1), DECODE, Batch({"r2": 1}, decode_all=True), Batch(decode_all=True, repeat=2))
    joined = (step(r1=1, r2=1), step(r1=1, repeat=2), Batch(decode_all=True, repeat=2))
    assert check(instance, given_).batches == joined


def test_a_prompt_stays_where_its_kv_would_not_fit() -> None:
    instance = make((1, 5), (4, 3), (7, 2), kv_capacity=11)
    given_ = by_hand(
        step(r1=1, r3=7), DECODE, Batch({"r2": 4}, decode_all=True), Batch(decode_all=True, repeat=2)
    )
    assert check(instance, given_) is given_
    roomy = make((1, 5), (4, 3), (7, 2), kv_capacity=14, max_batch_tokens=12, max_prefill_tokens=12)
    assert prefilling(roomy, check(roomy, given_)) == 1
    # Only the first batch prefills, and there are limits on what it may.
    for limits in ({"max_batch_tokens": 11}, {"max_prefill_tokens": 11}, {"max_running": 2}):
        tight = {"kv_capacity": 14, "max_batch_tokens": 12, "max_prefill_tokens": 12} | limits
        assert check(make((1, 5), (4, 3), (7, 2), **tight), given_) is given_


def test_a_refill_joins_a_prompt_after_its_eviction() -> None:
    instance = make((4, 3), (1, 4), (5, 2))
    before = (step(r1=4, r2=1), DECODE, step(evict=("r2",), r1=1))
    found = check(instance, by_hand(*before, step(r3=5), step(r2=3, r3=1), DECODE))
    assert found.batches[-3:] == (step(r3=5, r2=3), step(r3=1), DECODE)


def test_prompts_alone_share_a_batch() -> None:
    instance = make((1, 2), (1, 2), hybrid_batching=False)
    assert check(instance, by_hand(step(r1=1), step(r2=1), DECODE)).batches == (step(r1=1, r2=1), DECODE)


def test_only_the_last_chunk_moves() -> None:
    instance = make((1, 6), (4, 2), kv_capacity=20)
    given_ = by_hand(
        step(r1=1, r2=1), DECODE, Batch({"r2": 3}, decode_all=True), Batch(decode_all=True, repeat=3)
    )
    # It may come no earlier than behind the chunk before.
    assert check(instance, given_) is given_


def test_arrivals_are_left_alone() -> None:
    instance = make((1, 2), (1, 2, "10.1"))
    schedule = run_scheduler(instance, "vllm")
    assert polish(instance, schedule) == (0.0, schedule)


def test_what_would_take_too_many_names_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make((1, 5), (1, 3))
    given_ = by_hand(step(r1=1), DECODE, Batch({"r2": 1}, decode_all=True), Batch(decode_all=True, repeat=2))
    monkeypatch.setattr(MODULE, "MAX_NAMED", 2)
    assert polish(instance, given_)[0] > 0
    monkeypatch.setattr(MODULE, "MAX_NAMED", 1)
    assert polish(instance, given_) == (0.0, given_)


# --- properties ---


@MANY
@given(instance=instances(arrivals=False), name=NAMES)
def test_schedulers_are_polished(instance: Instance, name: str) -> None:
    check(instance, run_scheduler(instance, name))


@MANY
@given(instance=instances(arrivals=False, max_requests=12, max_tokens=30), name=NAMES)
def test_schedules_of_more_requests_are_polished(instance: Instance, name: str) -> None:
    found = check(instance, run_scheduler(instance, name))
    check(instance, found)


@SOME
@given(
    instance=instances(arrivals=False, max_requests=12, max_tokens=30),
    backwards=st.booleans(),
    early=st.sampled_from([0.0, 1.0]),
)
def test_plans_are_polished(instance: Instance, backwards: bool, early: float) -> None:
    check(instance, plan(instance, PlannerOptions(backwards=backwards, early=early, slack=50.0)))


@SOME
@given(instance=instances(arrivals=False), name=NAMES)
def test_compiled_code_finds_the_same(instance: Instance, name: str) -> None:
    schedule = run_scheduler(instance, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MODULE, "PLAIN_WORK", 10**9)
        patch.setattr(MODULE, "PLAIN_WORK_LOADED", 10**9)
        plain = polish(instance, schedule)
        patch.setattr(MODULE, "PLAIN_WORK", 0)
        patch.setattr(MODULE, "PLAIN_WORK_LOADED", 0)
        saved, found = polish(instance, schedule)
    assert found == plain[1]
    assert saved == pytest.approx(plain[0])


@pytest.mark.parametrize("seed", campaign(18, 100))
def test_tiny_instances(seed: int) -> None:
    instance = tiny(seed)
    for name in scheduler_names():
        check(instance, run_scheduler(instance, name))


# --- quality ---


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("b1024-i1-o32-m1000-p4096", 6.79),
        ("b1024-i8-o32-m1000-p4096", 9.13),
        ("b1024-i1-o128-m10000-p4096", 18.85),
        ("b1024-i1-o8-m100-p4096", 3.53),
    ],
)
def test_few_batches_of_a_plan_prefill(name: str, seconds: float) -> None:
    (case,) = get_suite("paper-b1024").select([name])
    instance = case.build()
    found = min(value(instance, schedule) for _, schedule in plans(instance))
    assert found <= seconds
