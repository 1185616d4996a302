"""Online methods for the makespan problem: valid schedules, and what each switch does."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.data.instance import (
    ClientRequestGroup,
    MakespanInstance,
    PrefillLevel,
    linear_levels,
)
from infermax_opt.makespan.data.schedule import Bin
from infermax_opt.makespan.methods.online import OnlineOptions, run_online
from infermax_opt.makespan.replay.bins import BinReplay, replay_bins
from tests.makespan.oracle import optimum, tiny_makespan

LEVELS = (PrefillLevel(10, Fraction(2)), PrefillLevel(30, Fraction(3)))


def make(
    *requests: tuple[int, int], clients: int = 2, decode: tuple[object, object] = (0, "0.5")
) -> MakespanInstance:
    return MakespanInstance.of_requests("m", requests, clients, LEVELS, decode)  # type: ignore[arg-type]


def bins(instance: MakespanInstance, **options: object) -> tuple[Bin, ...]:
    schedule = run_online(instance, OnlineOptions(**options)).schedule  # type: ignore[arg-type]
    assert replay_bins(instance, schedule).valid
    return schedule.bins


def every_method(instance: MakespanInstance, rng: random.Random) -> list[BinReplay]:
    clients = [rng.randint(1, instance.clients) for _ in instance.requests]
    options = [OnlineOptions(), OnlineOptions(lagrangian=True)]
    options += [OnlineOptions(clients, p, g) for p in (False, True) for g in (False, True)]
    return [replay_bins(instance, run_online(instance, some).schedule) for some in options]


@pytest.mark.parametrize("seed", range(20))
def test_every_method_is_valid_and_no_better_than_the_optimum(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(15):
        instance = tiny_makespan(rng)
        best = optimum(instance)
        for found in every_method(instance, rng):
            assert found.valid
            assert found.makespan >= best


def test_every_method_at_the_paper_s_size() -> None:
    rng = random.Random(1)
    sizes = [(rng.randint(20, 150), rng.randint(1, 512)) for _ in range(1319)]
    levels = linear_levels("0.025", "0.00013", range(64, 8193, 64))
    instance = MakespanInstance.of_requests("m", sizes, 200, levels, ("0.029", "0.00021"))
    bound = closed_form_makespan_bounds(instance)[0].value
    for found in every_method(instance, rng):
        assert found.valid
        assert found.makespan >= bound


def test_prefill_first_serves_whoever_is_free_in_order() -> None:
    instance = make((5, 2), (6, 5), (7, 3), (8, 1))
    assert bins(instance) == (Bin({"r1": 1, "r2": 2}, 2), Bin({"r3": 1}, 3), Bin({"r4": 1}, 1))


def test_clients_with_queues_of_their_own_start_the_longest_first() -> None:
    instance = make((5, 2), (6, 5), (7, 3), (8, 1))
    found = bins(instance, assignment=[1, 1, 1, 2])
    assert [dict(some.prefill) for some in found] == [{"r2": 1, "r4": 2}, {"r3": 1}, {"r1": 1}]
    helped = bins(instance, assignment=[1, 1, 1, 2], preempt=True)
    assert [dict(some.prefill) for some in helped] == [{"r2": 1, "r4": 2}, {"r3": 2}, {"r1": 2}]


def test_longest_means_estimated() -> None:
    groups = [ClientRequestGroup("a", 5, 9, 1), ClientRequestGroup("b", 5, 1, 9)]
    instance = MakespanInstance("m", tuple(groups), 1, LEVELS, Fraction(1), Fraction(0))
    assert [dict(some.prefill) for some in bins(instance, assignment=[1, 1])] == [{"b": 1}, {"a": 1}]


def test_the_machine_waits_until_waiting_costs_more_than_a_prefill() -> None:
    # A token is worth half a round of a second, the stage takes 2: after five rounds of one free client.
    instance = make((5, 1), (6, 20), (7, 3))
    assert bins(instance, lagrangian=True) == (Bin({"r1": 1, "r2": 2}, 6), Bin({"r3": 1}, 14))
    # It does not wait where nobody decodes.
    lone = make((5, 2), (6, 2), clients=1)
    assert bins(lone, lagrangian=True) == (Bin({"r1": 1}, 2), Bin({"r2": 1}, 2))


def test_a_prompt_that_does_not_fit_waits_for_the_next_stage() -> None:
    instance = make((20, 4), (20, 4), (9, 4), clients=3)
    found = bins(instance)
    assert [dict(some.prefill) for some in found] == [{"r1": 1, "r3": 3}, {"r2": 2}]


def test_every_decision_is_timed() -> None:
    run = run_online(make((5, 2), (6, 5), (7, 3)), OnlineOptions())
    assert len(run.decision_seconds) >= 5
    assert max(run.decision_seconds) < 1


@pytest.mark.parametrize("assignment", [[1], [1, 3], [0, 1]])
def test_an_assignment_names_clients(assignment: list[int]) -> None:
    with pytest.raises(InputError, match="does not name a client from 1 to 2"):
        run_online(make((5, 2), (6, 5)), OnlineOptions(assignment))
