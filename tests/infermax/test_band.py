"""Machines of a band: no one is below the bound of the fastest, nor above the worst case of a schedule."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infermax_opt import api
from infermax_opt.core.band import Band
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.band import banded, scaled, worst_case
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import instance_from_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.plain import replay_plain
from tests.infermax.oracle import optimum
from tests.infermax.strategies import instances
from tests.infermax.tiny import tiny

#: Ticks a second of the machines of these tests, in which all their times are whole.
UNIT = 10**8
BAND = Band(Fraction("0.8"), Fraction("1.3"))


def on_machine(instance: Instance, schedule: Schedule, factors: list[Fraction]) -> Latencies:
    """Latencies where each batch takes its own factor of the model's time, and waits for its members."""
    replayed = replay_plain(instance, schedule)
    assert replayed.valid
    arrival = {request.id: request.arrival for request in instance.requests}
    named = [batch if k == 0 else None for batch in schedule.batches for k in range(batch.repeat)]
    ends, now = [], Fraction(0)
    for j, batch in enumerate(named):
        took = replayed.seconds(replayed.ends[j] - replayed.starts[j])
        if batch is not None:
            now = max([now, batch.start or Fraction(0), *(arrival[name] for name in batch.tokens)])
        now += took * factors[j % len(factors)]
        ends.append(now)
    assert all(end * UNIT == int(end * UNIT) for end in ends)
    firsts, lasts = ([int(ends[j] * UNIT) for j in of] for of in (replayed.first_batch, replayed.last_batch))
    return Latencies(instance, UNIT, firsts, lasts)


FACTORS = st.lists(st.integers(80, 130).map(lambda k: Fraction(k, 100)), min_size=1, max_size=6)


@given(instances(), FACTORS, st.sampled_from(["vllm", "sarathi"]))
@settings(max_examples=80, deadline=None)
def test_no_machine_is_above_the_worst_case(
    instance: Instance, factors: list[Fraction], scheduler: str
) -> None:
    try:
        schedule = api.schedule(instance, scheduler)
    except InputError:  # no schedule of this instance
        return
    worst = worst_case(instance, schedule, BAND).metrics
    found = on_machine(instance, schedule, factors)
    for metric in Metric:
        limit, value = worst[metric.value], found.metric(metric)
        if limit is not None and value is not None:
            assert value <= limit, metric


@given(
    instances(max_requests=2, max_tokens=3), FACTORS, st.sampled_from(["makespan", "mean_e2e", "mean_ttft"])
)
@settings(max_examples=40, deadline=None)
def test_no_machine_is_below_the_fastest(instance: Instance, factors: list[Fraction], name: str) -> None:
    aimed = replace(instance, objective=name)
    try:
        schedule = api.schedule(aimed, "vllm")
    except InputError:  # no schedule of this instance
        return
    value = on_machine(aimed, schedule, factors).metric(Metric(name))
    assert value is None or value >= optimum(scaled(aimed, BAND.low))


def test_all_costs_are_scaled() -> None:
    instance = tiny(3, arrivals=True)
    dear = replace(instance, cost=replace(instance.cost, mixed=("0.5", "0.25"), prefix="0.1"))
    made = scaled(dear, Fraction("1.2")).cost
    assert made.mixed == (Fraction("0.6"), Fraction("0.3"))
    assert made.prefix == Fraction("0.12")
    assert [a for a, _ in made.batch] == [Fraction(a) * Fraction("1.2") for a, _ in dear.cost.batch]


def test_batches_wait_for_those_they_name_whoever_replays_them() -> None:
    """A schedule of the machine as given, whose second batch would come too soon on a faster one."""
    instance = Instance(
        "early", (RequestGroup("a", 4, 2), RequestGroup("b", 4, 2, "0.007")), System(20, 16, 16),
        CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9")), Policy(), "makespan",
    )  # fmt: skip
    band, schedule = Band(Fraction("0.9"), Fraction("1.1")), api.schedule(instance, "vllm")
    machines = banded(instance, band)
    assert not replay_plain(machines, schedule).valid
    checked = api.verify(machines, schedule)
    assert checked.ok
    worst = worst_case(instance, schedule, band).metrics["makespan"]
    assert checked.objective == worst
    result = api.solve(machines, warm_start=schedule, time_limit=1)
    assert result.upper is not None
    assert worst is not None
    assert result.upper.value <= worst
    stranger = Schedule("early", (Batch({"c": 1}),))
    assert not api.verify(machines, stranger).ok


def test_a_band_of_one_is_the_machine_itself() -> None:
    instance = tiny(3, arrivals=True)
    schedule = api.schedule(instance, "vllm")
    found = worst_case(instance, schedule, Band(Fraction(1), Fraction(1))).metrics
    metrics = api.verify(instance, schedule).metrics
    for name, value in metrics.items():
        assert found[name] == value or name == "class_spread"


def test_a_band_whose_machines_no_file_can_hold() -> None:
    """Written with fewer digits, they would be others: certificates of the bounds were rejected."""
    instance, forty = tiny(5, arrivals=True), "0." + "1234567891" * 4
    long = replace(instance, cost=CostModel([(forty, "0.1")], ("0.1", "0"), ("0", "0")))
    with pytest.raises(InputError, match=r"band: 0\.9:1 times the cost\.batch\[0\]\[0\] .* 40 digits"):
        banded(long, Band.parsed("0.9:1"))
    with pytest.raises(InputError, match="40 digits"):
        banded(replace(long, cost=replace(long.cost, decode=(40, 0))), Band(Fraction(1), Fraction(10**39)))
    held = banded(long, Band.parsed("1:9"))
    written = instance_from_json(instance_to_json(held))
    assert written == held


@pytest.mark.parametrize("text", ["1", "a:b", "1.2:1.1", "0:1", "-1:1", "1:", ""])
def test_what_is_no_band(text: str) -> None:
    with pytest.raises(InputError, match="band"):
        Band.parsed(text)
