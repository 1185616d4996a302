"""Plans in which prompts queue: valid, as long as they say, shorter where batches should be near a knee."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners import anytime
from infermax_opt.infermax.planners.backlog import planner
from infermax_opt.infermax.planners.backlog._kernel import backlog_loop
from infermax_opt.infermax.planners.backlog.planner import (
    BacklogOptions,
    BacklogPlanner,
    backlog_helps,
    backlog_plan,
)
from infermax_opt.infermax.planners.plan._write import batches_of
from infermax_opt.infermax.planners.plan.planner import Planner, PlannerOptions, plan
from tests.campaign import examples
from tests.infermax.strategies import instances
from tests.support import case, value

#: A knee at 20 tokens.
KNEE = CostModel([("0.02", "0.00001"), ("0.01", "0.00051")], ("0.0004", "1e-7"), ("0.0003", "1e-9"))


def crowded(seed: int, count: int = 200) -> Instance:
    """Requests of many lengths, of which about ten fit at once, and whose prompts are most of the tokens."""
    rng = random.Random(seed)
    sizes = [(rng.randint(5, 90), rng.randint(4, 30)) for _ in range(count)]
    return Instance.of_requests("crowded", sizes, System(600, 256, 256), KNEE)


options = st.builds(
    BacklogOptions,
    level=st.floats(0.2, 3), store=st.floats(0, 0.5), share=st.floats(0, 1), rate=st.floats(0.3, 3),
    window=st.integers(1, 8), patience=st.floats(0, 1), balance=st.floats(0, 1),
    by_output=st.floats(-1, 1), by_input=st.floats(-1, 1),
)  # fmt: skip


@examples(120, 6000)
@given(
    instance=instances(arrivals=False, max_requests=8, max_tokens=20),
    options=options,
    extra=st.sampled_from([(0, 0, 0), ("0.01", "0.0002", "0.00003")]),
)
def test_valid_and_as_long_as_it_says(
    instance: Instance, options: BacklogOptions, extra: tuple[Any, Any, Any]
) -> None:
    """Blocks, pieces, limits of tokens, of prefill tokens and of requests; both kinds of attention."""
    if not (instance.policy.hybrid_batching and instance.policy.chunked_prefill):
        return
    instance = replace(instance, cost=replace(instance.cost, mixed=extra[:2], prefix=extra[2]))
    found = planner._Work(instance).run(options, 3, backlog_loop)
    schedule = batches_of(instance, found.plan())
    in_makespan = replace(instance, objective=Objective.of("makespan"))
    assert value(in_makespan, schedule) == pytest.approx(found.seconds, rel=1e-9)
    assert found.batches == sum(batch.repeat for batch in schedule.batches)


def test_compiled_code_finds_the_same() -> None:
    work = planner._Work(crowded(1, 80))
    for chosen in (BacklogOptions(), BacklogOptions(store=0.0, share=1.0)):
        plain, fast = (work.run(chosen, 5, loop) for loop in (backlog_loop, None))
        assert plain.seconds == fast.seconds
        assert plain.plan() == fast.plan()


def test_columns_that_are_too_short_grow() -> None:
    work = planner._Work(crowded(2, 80))
    enough, work.horizon = work.run(BacklogOptions(), 0), 7
    short = work.run(BacklogOptions(), 0)
    assert (short.batches, short.seconds) == (enough.batches, enough.seconds)
    assert work.horizon > 7


def test_too_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MAX_BATCHES", 10)
    with pytest.raises(InputError, match="more than 10 batches"):
        backlog_plan(crowded(0))
    assert not backlog_helps(crowded(0))
    work = planner._Work(crowded(0))
    assert work.run(BacklogOptions(), 0).seconds == math.inf


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shorter_where_batches_should_be_near_the_knee(seed: int) -> None:
    instance = crowded(seed)
    known = min(value(instance, plan(instance, PlannerOptions(fill=fill))) for fill in (1.0, 0.15, 0.1))
    plans = list(BacklogPlanner(instance, seed=seed).improve())
    values = [value(instance, schedule) for _, schedule in plans]
    assert values == sorted(values, reverse=True)
    assert values[-1] < 0.99 * known
    assert plans == list(BacklogPlanner(instance, seed=seed).improve())


def test_queue_keeps_batches_at_the_knee() -> None:
    """With a queue fewer batches are below the knee than without."""

    def below(schedule: Schedule) -> int:
        return sum(batch.repeat for batch in schedule.batches if sum(batch.tokens.values()) < 10)

    instance = crowded(7, 400)
    assert below(backlog_plan(instance)) < below(backlog_plan(instance, BacklogOptions(store=0, share=1)))


def test_gives_way_where_others_are_better() -> None:
    instance = crowded(3)
    search = BacklogPlanner(instance)
    assert not list(search.improve(0.5 * search.work.run(BacklogOptions(), 0).seconds))
    assert search.number == len(planner.OPENING)


def test_ends_in_time_and_is_one_of_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = crowded(1)
    began = time.monotonic()
    list(BacklogPlanner(instance).improve(deadline=began + 0.3))
    assert time.monotonic() - began < 20
    monkeypatch.setattr(Planner, "improve", lambda *_, **__: iter(()))
    assert any(name.startswith("backlog:") for name, _ in anytime.anytime_plans(instance))


def test_who_is_helped() -> None:
    instance = crowded(0)
    assert backlog_helps(instance)
    assert not backlog_helps(crowded(0, planner.FEW - 1))
    assert not backlog_helps(replace(instance, cost=CostModel([("1", "1")], ("0", "0"), ("0", "0"))))
    assert not backlog_helps(replace(instance, objective=Objective.of("mean_ttft")))
    assert not backlog_helps(replace(instance, policy=Policy(hybrid_batching=False)))
    assert not backlog_helps(replace(instance, policy=Policy(chunked_prefill=False)))
    assert not backlog_helps(replace(case(80, 4, 8, 60), cost=KNEE))
    late = RequestGroup("late", 3, 3, 1)
    assert not backlog_helps(replace(instance, groups=(*instance.groups, late)))
    assert list(BacklogPlanner(case(8, 4, 8, 60)).improve()) == []
