"""All methods against trying every batch of tiny snapshots."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import infermax_opt as imx
from infermax_opt.engines import highs
from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.engines.process import EngineRun
from infermax_opt.iteration.bounds.closed_form import CHEAPEST, PREFIX, closed_form_bounds
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.bounds.prefix import applies, best_prefix
from infermax_opt.iteration.bounds.relaxation import relaxation_bound
from infermax_opt.iteration.data.generate import generate_snapshot
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.exact.branch import branch
from infermax_opt.iteration.exact.solve_formulation import solve_formulation
from infermax_opt.iteration.replay.check import check_selection
from tests.campaign import campaign, in_blocks
from tests.iteration.oracle import Found, allowed, batch_seconds, best_batch, tiny
from tests.support import check_evidence

#: Every method that proves; and, as each takes a solver, the formulations on fewer of them.
ALL, FORMULATED = campaign(120, 3_000), campaign(12, 3_000)


def optimum(instance: IterationInstance, found: Found) -> Fraction:
    """The objective of the best batch."""
    return 1 / found.rate if found.rate else Ticks.of(instance).worst


@in_blocks(ALL, 100)
def test_bounds_and_branching_against_every_batch(seeds: range) -> None:
    tabled = 0
    for seed in seeds:
        instance = tiny(seed)
        ticks, found = Ticks.of(instance), best_batch(instance)
        kept, best = most_kept(ticks), optimum(instance, found)
        assert (kept.least, kept.most) == (found.kept, found.kept), seed
        assert len(ticks.kept(kept.batch)) == found.kept, seed
        bounds = {bound.source: bound.value for bound in closed_form_bounds(instance)}
        assert bounds[CHEAPEST] <= best, seed
        relaxed = relaxation_bound(instance)
        assert relaxed is not None, seed
        assert relaxed.value == check_evidence(instance, relaxed) <= best, seed
        if PREFIX in bounds:
            tabled += 1
            assert bounds[PREFIX] == best == ticks.objective(best_prefix(instance).batch), seed
        branched = branch(ticks, kept.batch, lambda: False)
        assert branched.lower is not None, seed
        assert branched.lower.value == check_evidence(instance, branched.lower) == best, seed
        assert ticks.objective(branched.batch) == best, seed
        assert (len(ticks.kept(branched.batch)), ticks.fits(branched.batch)) == (found.kept, True), seed
    assert tabled >= len(seeds) // 10


@pytest.mark.parametrize(
    ("real_time", "best_effort", "seed", "swap"), [(144, 256, 2, 0.4), (200, 200, 1, 0.2), (72, 328, 2, 0.8)]
)
def test_400_requests_with_swap_are_proved(real_time: int, best_effort: int, seed: int, swap: float) -> None:
    instance = generate_snapshot(real_time, best_effort, seed=seed, swap=swap)
    ticks, asked = Ticks.of(instance), itertools.count()
    branched = branch(ticks, most_kept(ticks).batch, lambda: next(asked) > 4_000)
    assert branched.lower is not None
    proved = check_evidence(instance, branched.lower)
    assert proved == branched.lower.value == ticks.objective(branched.batch)


@in_blocks(ALL, 200)
def test_times_and_limits_are_those_of_the_definitions(seeds: range) -> None:
    for seed in seeds:
        instance = tiny(seed)
        ticks, machine = Ticks.of(instance), instance.machine
        for step in (1, 2, 3):
            batch = list(range(0, len(instance.requests), step))
            seconds = batch_seconds(machine, [instance.requests[k] for k in batch])
            assert Fraction(ticks.time(batch), ticks.scale) == seconds, seed
        for k, request in enumerate(instance.requests):
            for selected in (True, False) if request.real_time else ():
                assert Fraction(ticks.limit(k, selected), ticks.scale) == allowed(machine, request, selected)


def solve_here(
    engine: str, model: LoweredModel, limits: EngineLimits, listen: Callable[[str, int], None] | None = None
) -> EngineRun:
    """HiGHS without a process of its own, as thousands of them would take minutes to start."""
    run = EngineRun()

    def emit(event: dict[str, Any]) -> None:
        if event["event"] == "incumbent":
            objective = model.objective(event["values"])
            if run.objective is None or objective < run.objective:
                run.values, run.objective = event["values"], objective
        elif event["event"] == "bound":
            run.bound = event["value"] if run.bound is None else max(run.bound, event["value"])
        elif event["event"] == "start":
            run.start_accepted = event["accepted"]

    run.termination = highs.solve(model, seconds=20, threads=1, seed=0, emit=emit)
    return run


@in_blocks(FORMULATED, 20)
@pytest.mark.parametrize("name", ["dinkelbach", "charnes-cooper"])
def test_formulations_against_every_batch(name: str, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infermax_opt.engines.process.run_engine", solve_here)
    for seed in seeds:
        instance = tiny(seed)
        if instance.machine.product and name == "charnes-cooper":
            continue
        best = optimum(instance, best_batch(instance))
        outcome = solve_formulation(instance, name, warm=None, limits=EngineLimits(20))
        assert outcome.schedule is not None, seed
        checked = check_selection(instance, outcome.schedule)
        assert checked.valid, seed
        assert Ticks.of(instance).objective(checked.batch) == best, seed
        assert outcome.lower is None or outcome.lower.value <= best, seed
        if outcome.lower is not None and outcome.schedule.select:
            assert float(outcome.lower.value) >= (1 - 1e-5) * float(best), seed


@pytest.mark.parametrize("seed", range(6))
def test_solve_is_proved_and_verified(seed: int) -> None:
    instance = tiny(seed)
    result = imx.solve(instance)
    best = optimum(instance, best_batch(instance))
    assert result.upper is not None
    assert result.lower is not None
    assert result.upper.value == result.lower.value == best
    check = imx.verify(instance, result)
    assert (check.ok, check.unchecked) == (True, ())


def test_the_table_says_where_it_applies() -> None:
    found = {applies(tiny(seed)) for seed in range(40)}
    assert found == {True, False}
