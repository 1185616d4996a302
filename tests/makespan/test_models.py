"""Formulations of the makespan problem: schedules set into them satisfy every row, and come back."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest
from infermax_opt.models.makespan import MakespanModel
from infermax_opt.models.makespan_arcs import MakespanArcs, colour
from infermax_opt.models.makespan_assignment import AssignmentModel

from infermax_opt.engines.highs import solve as highs
from infermax_opt.engines.lowering import assign, lower
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.methods.online import OnlineOptions, run_online
from infermax_opt.makespan.replay.bins import replay_bins
from tests.makespan.oracle import optimum, tiny_makespan

MODELS = (MakespanModel(), MakespanArcs())


def random_bins(rng: random.Random, instance: MakespanInstance) -> MakespanSchedule:
    """A valid schedule of an online method; at times with a bin cut in two, or a decode put off."""
    clients = [rng.randint(1, instance.clients) for _ in instance.requests]
    options = rng.choice([OnlineOptions(), OnlineOptions(lagrangian=True), OnlineOptions(clients, True)])
    schedule = run_online(instance, options).schedule
    bins: list[Bin] = []
    for some in schedule.bins:
        cut = rng.randint(0, some.rounds) if rng.random() < 0.3 else some.rounds
        bins.append(Bin(some.prefill, cut))
        if cut < some.rounds:
            bins.append(Bin({}, some.rounds - cut))
    if rng.random() < 0.3:
        last = list(bins[-1].prefill)
        # It generates nothing where it is prefilled, and everything in a bin of its own.
        k = instance.index[last[0]] if last else 0
        if last:
            bins[-1] = Bin(bins[-1].prefill, bins[-1].rounds, {last[0]: 0})
            bins.append(Bin({}, instance.requests[k].output_tokens))
    found = MakespanSchedule(instance.name, bins)
    assert replay_bins(instance, found).valid
    return found


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("formulation", MODELS, ids=lambda some: some.name)
def test_binding(formulation: Any, seed: int) -> None:
    rng = random.Random(seed)
    instance = tiny_makespan(rng)
    schedule = random_bins(rng, instance)
    model = formulation.build(instance, len(schedule.bins) + 1)
    formulation.warm_start(model, schedule)
    lowered, _ = lower(model, warm=True)
    assert lowered.start is not None
    assert lowered.broken(lowered.start) == []
    replayed = replay_bins(instance, schedule)
    value = Fraction(lowered.objective(lowered.start), model.ticks_per_second)
    assert value == replayed.makespan
    back = formulation.extract(model)
    again = replay_bins(instance, back)
    assert again.valid
    assert again.makespan <= replayed.makespan
    if all(some.prefill and not some.decode for some in schedule.bins):
        assert [set(some.prefill) for some in back.bins] == [set(some.prefill) for some in schedule.bins]
        assert [some.rounds for some in back.bins] == [some.rounds for some in schedule.bins]
        if formulation.name == "mip":
            assert back == schedule


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("formulation", MODELS, ids=lambda some: some.name)
def test_optima_are_those_of_the_oracle(formulation: Any, seed: int) -> None:
    rng = random.Random(100 + seed)
    instance = tiny_makespan(rng)
    while len(instance.requests) > 3 or instance.clients > 2:
        instance = tiny_makespan(rng)
    model = formulation.build(instance, len(instance.requests))
    lowered, columns = lower(model)
    values: list[list[int]] = []

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "incumbent":
            values.append(event["values"])

    highs(lowered, seconds=30, threads=1, seed=0, emit=emit)
    assign(columns, values[-1])
    found = replay_bins(instance, formulation.extract(model))
    assert found.valid
    assert found.makespan == optimum(instance)


@pytest.mark.parametrize("formulation", MODELS, ids=lambda some: some.name)
def test_what_does_not_fit_is_refused(formulation: Any) -> None:
    levels = [PrefillLevel(10, Fraction(1))]
    instance = MakespanInstance.of_requests("m", [(5, 2), (6, 3)], 1, levels, (1, 0))
    good = MakespanSchedule("m", [Bin({"r1": 1}, 2), Bin({"r2": 1}, 3)])
    with pytest.raises(ValueError, match="2 bins; the model has 1"):
        formulation.warm_start(formulation.build(instance, 1), good)
    bad = MakespanSchedule("m", [Bin({"r1": 1}, 1), Bin({"r2": 1}, 3)])
    with pytest.raises(ValueError, match="not valid"):
        formulation.warm_start(formulation.build(instance, 2), bad)


def test_clients_are_given_out_along_the_bins() -> None:
    arcs = [(1, 3, 0), (1, 2, 1), (2, 4, 2), (3, 4, 3)]
    found = colour(arcs, 2)
    for (a, b, i), (c, d, k) in itertools.combinations(arcs, 2):
        assert found[i] != found[k] or b <= c or d <= a
    with pytest.raises(ValueError, match="more than 1 requests are under way in bin 1"):
        colour(arcs, 1)


@pytest.mark.parametrize("seed", range(20))
def test_binding_of_assignments(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 20) for _ in range(rng.randint(1, 8))]
    clients = rng.randint(1, 4)
    assignment = [rng.randint(1, clients) for _ in lengths]
    formulation = AssignmentModel()
    model = formulation.build(lengths, clients)
    formulation.warm_start(model, assignment, lengths)
    lowered, _ = lower(model, warm=True)
    assert lowered.start is not None
    assert lowered.broken(lowered.start) == []
    loads = [
        sum(n for n, j in zip(lengths, assignment, strict=True) if j == k) for k in range(1, clients + 1)
    ]
    assert lowered.objective(lowered.start) == max(loads)
    assert formulation.extract(model) == assignment
