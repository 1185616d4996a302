"""Beam over counts: valid schedules whose makespan the search knew, better ones than others find."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from infermax_opt.infermax.planners.beam.beam import beam_search
from infermax_opt.infermax.planners.counts import _kernel, planner
from infermax_opt.infermax.planners.counts.planner import (
    CountOptions,
    count_plans,
    count_search,
    counts_help,
)
from infermax_opt.infermax.replay.fast import valid_replay
from tests.campaign import examples
from tests.infermax.test_beam import cell
from tests.support import value

SOME = examples(20, 300)
OPTIONS = st.builds(
    CountOptions,
    width=st.sampled_from([1, 5, 40]),
    coarse=st.sampled_from([1, 2, 3]),
    pool=st.sampled_from([0, 3, 100]),
)


@st.composite
def crowded(draw: st.DrawFn) -> Instance:
    """Requests of one kind, a dozen or more of which fit, with all limits of a batch."""
    inputs, outputs = draw(st.integers(1, 4)), draw(st.integers(3, 8))
    slots = draw(st.integers(8, 20))
    running = draw(st.sampled_from([None, slots, 2 * slots]))
    longest = inputs + outputs
    system = System(
        slots * (inputs + outputs // 2),
        draw(st.integers(longest, 6 * longest)),
        draw(st.integers(longest, 6 * longest)),
        running,
    )
    d0, p0 = (draw(st.sampled_from(["0", "0.0003", "0.004"])) for _ in range(2))
    # The guide knows of a refill what each token of it costs, not its attention.
    cost = CostModel([("0.007", draw(st.sampled_from(["0.00001", "0.0003"])))], (d0, "2.6e-7"), (p0, "0"))
    group = RequestGroup("r", inputs, outputs, count=draw(st.integers(1, 40)))
    return Instance("crowded", (group,), system, cost)


@SOME
@given(instance=crowded(), options=OPTIONS, seed=st.integers(0, 2))
def test_the_search_knows_the_makespan_of_its_schedule(
    instance: Instance, options: CountOptions, seed: int
) -> None:
    assume(counts_help(instance))
    work = planner._Work.of(instance, None)
    assert work is not None
    seconds, schedule = work.search(options, None, seed)
    if schedule is None:  # narrow beams end where too many have to be evicted
        assert options.width < 40
        return
    replayed = valid_replay(instance, schedule)
    makespan = float(replayed.ends[-1]) / replayed.ticks_per_second
    alone = sum(features.decodes == 0 for features in replayed.features)
    assert seconds == pytest.approx(makespan + alone * instance.cost.floats.d0, rel=1e-6)
    # The guide is a bound but for its rounding.
    assert makespan >= work.base * (1 - 1e-6)


def test_every_batch_costs_what_the_potential_grows_by_or_more() -> None:
    work = planner._Work.of(cell(100, 2, 12, 100), None)
    assert work is not None
    beam, before = planner._Beam(work, CountOptions(width=50), 0), 0.0
    while beam.grow(math.inf):
        assert len(beam.nodes.value) <= 50
        least = float(beam.nodes.value[0])
        assert least >= before - 1e-9
        before = least
        if not beam.nodes.fresh[0] and not beam.nodes.held[0].any() and not beam.nodes.evicted[0].any():
            break
    assert len(beam.log) > 50


def test_better_than_the_beam_over_requests() -> None:
    instance = cell(150, 2, 12, 100)
    others = [value(instance, run_scheduler(instance, name)) for name in scheduler_names()]
    beam = beam_search(instance)
    assert beam is not None
    found = count_search(instance, CountOptions(width=400, coarse=2))
    assert found is not None
    assert value(instance, found) < min(*others, value(instance, beam))


def test_plans_get_better_and_start_below_what_is_known() -> None:
    instance = cell(60, 2, 12, 100)
    values = [value(instance, schedule) for _, schedule in count_plans(instance)]
    assert values == sorted(values, reverse=True)
    assert len(values) > 1
    again = [value(instance, schedule) for _, schedule in count_plans(instance)]
    assert again == values
    below = count_plans(instance, upper=float(values[-1]))
    assert all(value(instance, schedule) < values[-1] for _, schedule in below)


def test_moves_that_lead_nowhere_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, options = cell(60, 1, 8, 60), CountOptions(width=40)
    whole = count_search(instance, options)
    monkeypatch.setattr(planner, "PRUNED", 3)
    assert count_search(instance, options) == whole


def test_compiled_as_in_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    instance, options = cell(30, 1, 8, 60), CountOptions(width=10)
    compiled = count_search(instance, options)
    monkeypatch.setattr(planner, "_compiled", lambda: _kernel.expand)
    assert compiled is not None
    assert count_search(instance, options) == compiled


def test_it_ends_in_time() -> None:
    instance = cell(1000, 1, 8, 100)
    began = time.monotonic()
    list(count_plans(instance, deadline=began + 0.5))
    assert time.monotonic() - began < 20


def changed(instance: Instance, **system: Any) -> Instance:
    return replace(instance, system=replace(instance.system, **system))


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
        lambda i: replace(i, groups=(RequestGroup("r", 2, 40, count=100),)),
        lambda i: replace(i, cost=replace(i.cost, batch=(*i.cost.batch, (0, 1)))),
        lambda i: replace(i, cost=CostModel([("0", "0")], ("0", "0"), ("1", "0"))),
    ],
)
def test_what_it_leaves_to_others(other: Any) -> None:
    instance = cell(100, 2, 12, 100)
    assert counts_help(instance)
    assert not counts_help(other(instance))
    assert not list(count_plans(other(instance)))
