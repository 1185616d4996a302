"""The placement MIP and the exact engine, against every placement of tiny instances."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from infermax_opt.models.aladdin import AladdinModel

from infermax_opt.engines.highs import solve as highs
from infermax_opt.engines.lowering import assign, lower
from infermax_opt.placement.bounds.closed_form import placement_bounds
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.exact import solve as placement_exact
from infermax_opt.placement.exact._program import Program
from infermax_opt.placement.exact.solve import solve_placement_exactly
from infermax_opt.placement.replay.check import check_placement
from tests.campaign import campaign
from tests.placement.oracle import fewest_workers, tiny_placement

MODEL = AladdinModel()


def random_placement(rng: random.Random, instance: PlacementInstance) -> Placement | None:
    """A valid placement, each request on a random worker that takes it; None if one fits nowhere."""
    limits = Limits.of(instance)
    on: dict[int, list[int]] = defaultdict(list)
    for k in rng.sample(limits.new, len(limits.new)):
        numbers = [*limits.ongoing, *rng.sample(range(1, 20), 12)]
        number = next((n for n in numbers if not limits.excesses([*on[n], k], n)), None)
        if number is None:
            return None
        on[number].append(k)
    workers = {instance.requests[k].id: number for number, members in on.items() for k in members}
    placement = Placement(instance.name, workers)
    assert check_placement(instance, placement).valid
    return placement


def sets(instance: PlacementInstance, placement: Placement) -> set[tuple[int, frozenset[str]]]:
    """Requests together on a worker; its number only where it has ongoing ones."""
    on: dict[int, set[str]] = defaultdict(set)
    for name, number in placement.workers.items():
        on[number].add(name)
    used = Limits.of(instance).ongoing
    return {(number if number in used else 0, frozenset(names)) for number, names in on.items()}


def feasible_tiny(seed: int) -> tuple[PlacementInstance, int]:
    rng = random.Random(seed)
    while True:
        instance = tiny_placement(rng)
        least = fewest_workers(instance)
        if least is not None:
            return instance, least


@pytest.mark.parametrize("seed", campaign(9, 40))
def test_binding(seed: int) -> None:
    instance, _ = feasible_tiny(seed)
    placement = random_placement(random.Random(seed), instance)
    assert placement is not None
    used = check_placement(instance, placement).workers
    model = MODEL.build(instance, used + seed % 2)
    MODEL.warm_start(model, placement)
    lowered, _ = lower(model, warm=True)
    assert lowered.start is not None
    assert lowered.broken(lowered.start) == []
    assert lowered.objective(lowered.start) == used
    back = MODEL.extract(model)
    assert check_placement(instance, back).valid
    assert sets(instance, back) == sets(instance, placement)


@pytest.mark.parametrize("seed", campaign(9, 40))
def test_optimum_is_that_of_the_oracle(seed: int) -> None:
    instance, least = feasible_tiny(1000 + seed)
    limits = Limits.of(instance)
    model = MODEL.build(instance, len(limits.ongoing) + len(limits.new))
    lowered, columns = lower(model)
    values: list[list[int]] = []

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "incumbent":
            values.append(event["values"])

    highs(lowered, seconds=30, threads=1, seed=0, emit=emit)
    assign(columns, values[-1])
    checked = check_placement(instance, MODEL.extract(model))
    assert checked.valid
    assert checked.workers == least


def test_what_does_not_fit_is_refused() -> None:
    worker = Worker(*(Fraction(n) for n in (9, 1, 0, 0, 0, 0, 0, 0)))
    groups = (PlacementGroup("a", 4, 2), PlacementGroup("b", 4, 2), PlacementGroup("o", 1, 2, worker=3))
    instance = PlacementInstance("m", groups, worker, Slo(Fraction(1), Fraction(1)))
    good = Placement("m", {"a": 1, "b": 2})
    with pytest.raises(ValueError, match="1 workers have ongoing requests; the model has 0"):
        MODEL.build(instance, 0)
    with pytest.raises(ValueError, match="3 workers; the model has 2"):
        MODEL.warm_start(MODEL.build(instance, 2), good)
    with pytest.raises(ValueError, match="not valid: worker 1: kv"):
        MODEL.warm_start(MODEL.build(instance, 3), Placement("m", {"a": 1, "b": 1}))
    model = MODEL.build(instance, 3)
    MODEL.warm_start(model, good)
    assert MODEL.extract(model) == good


@pytest.mark.parametrize("seed", campaign(7, 14))
def test_the_engine_finds_and_proves_what_the_oracle_does(seed: int) -> None:
    instance, least = feasible_tiny(2000 + seed)
    engine = ("highs", "cpsat")[seed % 2]
    # From far below, so that counts are proved impossible; from the bound, if one may be left to prove.
    found = solve_placement_exactly(instance, lower=max(0, least - 1), engines=(engine,), time_limit=30)
    assert found.termination == "optimal"
    given = max(0, least - 1, len(Limits.of(instance).ongoing))
    assert (given if found.lower is None else found.lower.value) == least
    assert found.schedule is not None
    checked = check_placement(instance, found.schedule)
    assert checked.valid
    assert checked.workers == least
    again = solve_placement_exactly(instance, lower=least, warm=found.schedule)
    assert (again.schedule, again.lower, again.termination) == (None, None, "optimal")


def test_programs_have_a_solution_where_there_is_one() -> None:
    """Symmetry breaking and scaling cut no count off: decided by HiGHS in this process, lazily."""
    seen = set()
    for seed in range(60):
        instance, least = feasible_tiny(3000 + seed)
        limits = Limits.of(instance)
        used = len(limits.ongoing)
        for fresh in {least - used, max(0, least - used - 1)}:
            largest = random.Random(seed).choice([2**20, 37])
            possible = decide(Program(limits, fresh, largest), limits)
            seen.add((possible, largest))
            if used + fresh == least:
                assert possible
            elif largest > 37:
                assert not possible
    assert seen == {(True, 2**20), (False, 2**20), (True, 37), (False, 37)}


def test_a_program_without_rows_to_bind() -> None:
    worker = Worker(*(Fraction(n) for n in (100, 0, 1, 0, 1, 0, 0, 1)))
    instance = PlacementInstance("m", (PlacementGroup("a", 5, 5, count=3),), worker, Slo(*[Fraction(1)] * 2))
    limits = Limits.of(instance)
    assert (limits.most_context, limits.most_prompt) == (0, 0)
    assert decide(Program(limits, 2, 2**20), limits)
    assert placement_bounds(instance)[0].value == fewest_workers(instance) == 1


def decide(program: Program, limits: Limits) -> bool:
    """Whether the program has a solution, with KV rows added until none is broken."""
    while not program.impossible:
        values: list[list[int]] = []

        def emit(event: dict[str, Any], values: list[list[int]] = values) -> None:
            if event["event"] == "incumbent":
                values.append(event["values"])

        model = program.model()
        highs(model, seconds=30, threads=1, seed=0, emit=emit)
        if not values:
            return False
        assert model.broken(values[-1]) == []
        placed = program.sets(values[-1])
        assert sorted(k for members in placed for k in members) == sorted(limits.new)
        if not program.separate(placed):
            return True
    return False


def hard() -> PlacementInstance:
    """Nobody decides this in a second."""
    rng = random.Random(5)
    worker = Worker(*(Fraction(n) for n in (9000, 1, 0)), Fraction("0.00008"), *(Fraction(0),) * 4)
    groups = [PlacementGroup(f"r{k}", rng.randint(300, 2500), rng.randint(300, 2500)) for k in range(60)]
    return PlacementInstance("hard", tuple(groups), worker, Slo(Fraction("0.7"), Fraction(1)))


def test_time_limit_and_stop() -> None:
    instance = hard()
    bound = placement_bounds(instance)[0].value
    found = solve_placement_exactly(instance, lower=bound, time_limit=1.5)
    assert found.termination == "time_limit"
    assert found.lower is None
    assert found.schedule is not None
    assert check_placement(instance, found.schedule).valid
    stopped = solve_placement_exactly(instance, lower=bound, stop=lambda: True)
    assert stopped.termination == "interrupted"
    assert stopped.lower is None


def test_requests_that_fit_nowhere_and_bad_starts() -> None:
    instance = hard()
    wide = PlacementGroup("wide", 9001, 1)
    nowhere = replace(instance, groups=(*instance.groups, wide))
    assert solve_placement_exactly(nowhere, lower=1).termination == "infeasible"
    with pytest.raises(ValueError, match="not valid"):
        solve_placement_exactly(instance, lower=1, warm=Placement("hard", {"r1": 1}))


def test_a_placement_that_only_the_small_numbers_allow_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(*(Fraction(n) for n in (1001, 1, 0, 0, 0, 0, 0, 0)))
    groups = (PlacementGroup("a", 333, 1, count=2), PlacementGroup("b", 334, 1))
    instance = PlacementInstance("m", groups, worker, Slo(Fraction(1), Fraction(1)))
    assert fewest_workers(instance) == 2
    monkeypatch.setattr(placement_exact, "LARGEST", {"highs": 10, "cpsat": 10})
    found = solve_placement_exactly(instance, lower=1, engines=("cpsat",))
    assert found.termination == "unresolved"
    assert found.lower is None
    assert found.schedule is not None
    assert check_placement(instance, found.schedule).valid
