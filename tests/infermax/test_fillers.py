"""Plans that fill holes: valid, shorter where few different requests fit, the same for a seed."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.fillers import planner
from infermax_opt.infermax.planners.fillers.planner import fillers_help, fillers_plans
from infermax_opt.infermax.planners.orders.planner import orders_plans
from infermax_opt.infermax.planners.plan.planner import Planner
from infermax_opt.infermax.replay.fast import valid_replay
from tests.support import PAPER


def different(seed: int, count: int = 16, memory: int = 330) -> Instance:
    """Requests of up to 120 and 120 tokens, of which two or three fit."""
    rng = random.Random(seed)
    groups = tuple(RequestGroup(f"r{k}", rng.randint(1, 120), rng.randint(20, 120)) for k in range(count))
    return Instance("different", groups, System(memory, 512, 512), PAPER)


def in_order(instance: Instance) -> Schedule:
    """The best plan of the search for orders."""
    own = Planner(instance, seed=0)
    found = [schedule for _, schedule in own.improve(time.monotonic() + 0.5)]
    found += [schedule for _, schedule in orders_plans(instance, own, known=found[-1])]
    return found[-1]


def ends(instance: Instance, schedule: Schedule) -> float:
    return float(valid_replay(instance, schedule).ends[-1])


def test_evictions_shorten_plans_of_few_different_requests() -> None:
    gains = []
    for seed in range(4):
        instance = different(seed)
        known = in_order(instance)
        found = [schedule for name, schedule in fillers_plans(instance, known, seed=1) if name == "fillers"]
        times = [ends(instance, schedule) for schedule in (known, *found)]
        assert times == sorted(times, reverse=True)
        assert len(set(times)) == len(times)
        if found:
            assert any(batch.evict for batch in found[-1].batches)
        gains.append(1 - times[-1] / times[0])
    assert sum(gains) / len(gains) > 0.02


def test_a_seed_gives_the_same() -> None:
    instance = different(7, 10)
    known = in_order(instance)
    first, second = (list(fillers_plans(instance, known, seed=3)) for _ in range(2))
    assert first == second


def test_with_a_deadline_they_end_soon() -> None:
    instance = different(3, 40)
    known = in_order(instance)
    list(fillers_plans(instance, known, deadline=time.monotonic() + 0.2))  # compiles
    began = time.monotonic()
    list(fillers_plans(instance, known, deadline=began + 1.0))
    assert time.monotonic() - began < 4.0


@pytest.mark.parametrize(
    "change",
    [
        lambda some: replace(some, policy=Policy(preemption=False)),
        lambda some: replace(some, policy=Policy(hybrid_batching=False)),
        lambda some: replace(some, groups=(*some.groups, RequestGroup("late", 5, 5, arrival="1"))),
        lambda some: replace(some, groups=(RequestGroup("r", 50, 50, count=16),)),
        lambda some: replace(some, system=System(3000, 512, 512)),
        lambda some: replace(some, system=System(330, 200, 200)),
    ],
    ids=["no evictions", "no hybrid batching", "arrivals", "one kind", "many fit", "refills in chunks"],
)  # fmt: skip
def test_what_they_are_not_for(change: object) -> None:
    assert callable(change)
    instance = different(1)
    assert fillers_help(instance)
    other = change(instance)
    assert not fillers_help(other)
    assert list(fillers_plans(other, None)) == []


def test_nothing_without_a_schedule_or_time(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = different(1)
    assert list(fillers_plans(instance, None)) == []
    known = in_order(instance)
    assert list(fillers_plans(instance, known, deadline=time.monotonic() - 1)) == []
    monkeypatch.setattr(planner, "MAX_CELLS", 10)
    assert list(fillers_plans(instance, known)) == []
