"""Beam backwards: valid schedules whose makespan the search knew, better ones than others find."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.planners import anytime
from infermax_opt.infermax.planners.backward import _kernel, planner, search
from infermax_opt.infermax.planners.backward._write import written
from infermax_opt.infermax.planners.backward.planner import BackwardPlanner
from infermax_opt.infermax.planners.backward.search import (
    BackwardOptions,
    BackwardSearch,
    backward_helps,
    backward_search,
)
from infermax_opt.infermax.planners.counts.planner import CountOptions, count_search
from infermax_opt.infermax.planners.plan.planner import Planner
from infermax_opt.infermax.replay.fast import valid_replay
from tests.campaign import examples
from tests.infermax.test_beam import cell
from tests.infermax.test_counts import changed, crowded
from tests.support import value

SOME = examples(20, 300)
OPTIONS = st.builds(
    BackwardOptions,
    width=st.sampled_from([1, 5, 40]),
    coarse=st.sampled_from([1, 2, 3]),
    pool=st.sampled_from([0, 3, 100]),
    early=st.sampled_from([0.0, 1.0, 1.5]),
    worth=st.sampled_from([0.5, 1.0]),
    price=st.sampled_from([0.9, 1.0, 1.1]),
    seed=st.integers(0, 3),
)


def upper_of(instance: Instance) -> float:
    return float(value(instance, run_scheduler(instance, "sarathi")))


def makespan(instance: Instance, schedule: Any) -> float:
    replayed = valid_replay(instance, schedule)
    return replayed.ends[-1] / replayed.ticks_per_second


@SOME
@given(instance=crowded(), options=OPTIONS)
def test_the_search_knows_the_makespan_of_its_schedule(instance: Instance, options: BackwardOptions) -> None:
    assume(backward_helps(instance))
    work = BackwardSearch(instance)
    beam = search._Beam(work, options, upper_of(instance))
    found = beam.run()
    if found is None:
        return
    schedule = written(instance, found)
    replayed = valid_replay(instance, schedule)
    assert work.search(options, upper_of(instance))[1] == schedule
    alone = sum(features.decodes == 0 for features in replayed.features)
    known = work.least + len(found) * beam.steps.fixed + beam.extra(found)
    seconds = replayed.ends[-1] / replayed.ticks_per_second
    assert seconds == pytest.approx(known - alone * instance.cost.floats.d0, rel=1e-9)


@pytest.mark.parametrize(
    ("inputs", "outputs", "capacity", "share"), [(4, 20, 300, 1.0), (1, 8, 100, 0.998), (6, 6, 200, 0.998)]
)
def test_better_than_other_planners(inputs: int, outputs: int, capacity: int, share: float) -> None:
    """By little where early starts fill what the list planner leaves free at first."""
    instance = cell(300, inputs, outputs, capacity)
    lists = Planner(instance)
    list(lists.improve())
    plans = list(BackwardPlanner(instance).improve(lists.best))
    assert makespan(instance, plans[-1][1]) < share * lists.best
    counts = count_search(instance, CountOptions(width=100))
    if counts is not None:
        assert value(instance, plans[-1][1]) < value(instance, counts)


def test_evictions_and_prompts_that_wait_pay() -> None:
    instance = cell(300, 4, 20, 300)
    options, upper = BackwardOptions(), upper_of(instance)
    found = backward_search(instance, options, upper)
    whole = backward_search(instance, replace(options, pool=0, early=0.0), upper)
    assert found is not None
    assert whole is not None
    assert valid_replay(instance, whole).evictions == 0
    assert valid_replay(instance, found).evictions > 0
    assert value(instance, found) < value(instance, whole)
    prompts = [features.prefills for features in valid_replay(instance, whole).features]
    assert sum(some > 0 for some in prompts) < 0.7 * len(prompts)


def test_plans_get_better_and_are_the_same_for_a_seed() -> None:
    instance = cell(60, 2, 12, 100)
    upper = upper_of(instance)
    values = [makespan(instance, schedule) for _, schedule in BackwardPlanner(instance).improve(upper)]
    assert values == sorted(values, reverse=True)
    assert len(values) > 1
    again = BackwardPlanner(instance)
    assert [makespan(instance, schedule) for _, schedule in again.improve(upper)] == values
    assert again.best == pytest.approx(values[-1], rel=1e-9)
    more = [makespan(instance, schedule) for _, schedule in again.improve(again.best)]
    assert again.number == 2 * planner.SEARCHES
    assert all(seconds < values[-1] for seconds in more)
    other = BackwardPlanner(instance, seed=1)
    list(other.improve(upper))
    assert [options for *_, options in other.ranking] != [options for *_, options in again.ranking]


def test_no_settings_are_tried_twice_and_beams_become_wider() -> None:
    tried = BackwardPlanner(cell(60, 2, 6, 80))
    list(tried.improve(upper_of(cell(60, 2, 6, 80)), time.monotonic() + 1.0))
    options = [options for *_, options in tried.ranking]
    assert len(set(options)) == len(options) > len(planner.OPENING)
    assert max(some.width for some in options) > search.WIDTH


def test_it_is_given_up_where_it_is_not_near() -> None:
    instance = cell(60, 2, 12, 100)
    plans = BackwardPlanner(instance)
    assert not list(plans.improve(0.9 * list_best(instance), try_out=True))
    assert plans.number == len(planner.OPENING)
    list(plans.improve(0.9 * list_best(instance)))
    assert plans.number > len(planner.OPENING)


def list_best(instance: Instance) -> float:
    lists = Planner(instance)
    list(lists.improve())
    return lists.best


def test_compiled_as_in_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, options = cell(30, 1, 8, 60), BackwardOptions(width=10)
    compiled = backward_search(instance, options, upper_of(instance))
    monkeypatch.setattr(search, "_compiled", lambda: _kernel.expand)
    assert compiled is not None
    assert backward_search(instance, options, upper_of(instance)) == compiled


def test_it_ends_in_time() -> None:
    instance = cell(1000, 4, 20, 300)
    upper = upper_of(instance)
    backward_search(cell(30, 1, 8, 60), BackwardOptions(width=2), 1.0)  # compiles
    began = time.monotonic()
    list(BackwardPlanner(instance).improve(upper, began + 1.5))
    assert 1.0 < time.monotonic() - began < 4


def test_it_ends_at_once_where_nothing_better_is_wanted() -> None:
    instance = cell(300, 6, 6, 200)
    upper, asked = upper_of(instance), iter([False] * 20)
    plans = BackwardPlanner(instance)
    began = time.monotonic()
    assert not list(plans.improve(upper, began + 60, done=lambda: next(asked, True)))
    assert plans.number == 0
    assert plans.opening[0] == planner.OPENING[0]
    names = [name for name, _ in anytime.anytime_plans(instance, done=lambda: True, deadline=began + 60)]
    assert names == ["planner:1"]
    assert time.monotonic() - began < 30


def test_all_planners_together_use_the_time_and_find_its_plans() -> None:
    instance = cell(300, 2, 12, 100)
    began = time.monotonic()
    names = [name.split(":")[0] for name, _ in anytime.anytime_plans(instance, deadline=began + 6)]
    assert "backward" in names
    assert 5 < time.monotonic() - began < 10


@pytest.mark.parametrize(
    "other",
    [
        lambda i: replace(i, policy=Policy(preemption=False)),
        lambda i: replace(i, policy=Policy(hybrid_batching=False)),
        lambda i: replace(i, groups=(*i.groups, RequestGroup("s", 3, 12))),
        lambda i: replace(i, groups=(*i.groups, RequestGroup("s", 2, 12, 1))),
        lambda i: changed(i, block_size=2),
        lambda i: changed(i, kv_capacity=30),
        lambda i: changed(i, max_prefill_tokens=13),
        lambda i: replace(i, groups=(RequestGroup("r", 2, 70, count=100),)),
        lambda i: replace(i, cost=replace(i.cost, batch=(*i.cost.batch, (0, 1)))),
    ],
)
def test_what_it_leaves_to_others(other: Any) -> None:
    instance = cell(100, 2, 12, 100)
    assert backward_helps(instance)
    assert not backward_helps(other(instance))
    assert backward_search(other(instance), BackwardOptions(), 1.0) is None
    assert not list(BackwardPlanner(other(instance)).improve(1.0))


def test_a_machine_that_costs_nothing_is_no_trouble() -> None:
    instance = replace(cell(40, 2, 12, 100), cost=CostModel([("0", "0")], ("0", "0"), ("1", "0")))
    list(BackwardPlanner(instance).improve(upper_of(instance)))
