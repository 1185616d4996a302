"""Makespan instances solved through formulations, by both engines."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

from infermax_opt import api
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Proof, Scope, Status
from infermax_opt.engines.formulations import formulation_names
from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.makespan.data.formats import write_makespan_instance
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.exact import solve_formulation as formulated
from infermax_opt.makespan.exact.solve import solve_makespan_exactly
from infermax_opt.makespan.exact.solve_formulation import solve_formulation
from infermax_opt.makespan.methods.by_name import run_method
from infermax_opt.makespan.replay.bins import replay_bins
from tests.campaign import size
from tests.makespan.oracle import tiny_makespan

NAMES, ENGINES = ("arcs", "mip"), ("highs", "cpsat")
SMALL = gsm8k_like(requests=4, clients=2)
LIMITS = EngineLimits(seconds=60.0)


def test_the_formulations_are_installed() -> None:
    assert formulation_names(formulated.GROUP) == ["arcs", "mip"]
    for name in NAMES:
        assert formulated.get_makespan_formulation(name).name == name


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", NAMES)
def test_optima_equal_those_of_the_exact_engine(name: str, engine: str) -> None:
    rng = random.Random(31)
    solved = started = 0
    while solved < size(2, 4):
        instance = tiny_makespan(rng)
        if not 3 <= len(instance.requests) <= 4 or instance.clients > 2:
            continue
        solved += 1
        best = solve_makespan_exactly(instance)
        assert best.lower is not None
        for warm in (None, run_method(instance, "fcfs").schedule):
            found = solve_formulation(instance, name, engine, warm=warm, limits=LIMITS)
            assert found.termination == "optimal"
            assert found.details["scope"] == "exact"
            assert found.schedule is not None
            replay = replay_bins(instance, found.schedule)
            assert replay.valid
            assert replay.makespan == best.lower.value == found.upper, instance
            assert found.lower is not None
            assert found.lower.proof is Proof.SOLVER
            assert found.lower.value == best.lower.value
            assert found.warm_start_accepted is not False
            started += warm is not None and found.warm_start_accepted is True
    assert started, "no warm start was confirmed"


def test_a_known_schedule_limits_the_bins() -> None:
    """What is not better is not modelled; the known schedule itself always is."""
    for seed in range(60):
        instance = tiny_makespan(random.Random(seed))
        known = run_method(instance, "fcfs").schedule
        best = solve_makespan_exactly(instance)
        assert best.schedule is not None
        enough = formulated._enough_bins(instance, known)
        assert len(known.bins) <= enough <= len(instance.requests)
        improved = replay_bins(instance, best.schedule).makespan < replay_bins(instance, known).makespan
        if improved:
            assert len(best.schedule.bins) <= enough
    slow = replace(SMALL, levels=(PrefillLevel(10**6, Fraction(100)),))
    two = [run_method(slow, "offline").schedule]
    assert formulated._enough_bins(slow, None) == 4
    assert formulated._enough_bins(slow, two[0]) == len(two[0].bins) < 4


def test_too_few_bins_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one bin too few the optimum is out of reach: a schedule is found, and no bound is claimed."""
    levels = [PrefillLevel(10, Fraction(1, 10))]
    instance = MakespanInstance.of_requests("m", [(5, 2), (5, 6), (5, 2), (5, 2)], 2, levels, (1, 0))
    full = solve_formulation(instance, "arcs", "cpsat", warm=None, limits=LIMITS)
    assert full.upper == Fraction("6.3")
    model = formulated.get_makespan_formulation("arcs")
    monkeypatch.setattr(formulated, "MOST_ENTRIES", model.entries(instance, 2))
    known = MakespanSchedule("m", [Bin({"r1": 1, "r2": 2}, 6), Bin({"r3": 1, "r4": 2}, 2)])
    found = solve_formulation(instance, "arcs", "cpsat", warm=known, limits=LIMITS)
    assert (found.details["scope"], found.details["bins"], found.lower) == ("restriction", 2, None)
    assert found.schedule is not None
    assert replay_bins(instance, found.schedule).valid
    monkeypatch.setattr(formulated, "MOST_ENTRIES", model.entries(instance, 1))
    with pytest.raises(InputError, match=r"about 80 entries for 2 bins; the most is 24"):
        solve_formulation(instance, "arcs", "cpsat", warm=known, limits=LIMITS)
    with pytest.raises(InputError, match="entries for 4 bins"):
        solve_formulation(instance, "arcs", "cpsat", warm=None, limits=LIMITS)


def test_bins_that_prefill_nothing_are_joined_before_the_start() -> None:
    levels = [PrefillLevel(10, Fraction(1))]
    instance = MakespanInstance.of_requests("m", [(5, 4), (5, 3)], 1, levels, (1, 0))
    cut = MakespanSchedule("m", [Bin({"r1": 1}, 2), Bin({}, 2), Bin({"r2": 1}, 1), Bin({}, 2)])
    assert replay_bins(instance, cut).valid
    found = solve_formulation(instance, "mip", "highs", warm=cut, limits=LIMITS)
    assert found.upper == 9
    assert found.details["bins"] == 2
    with pytest.raises(ValueError, match="not valid"):
        solve_formulation(instance, "mip", "highs", warm=MakespanSchedule("m", []), limits=LIMITS)


@pytest.mark.parametrize("options", [{"formulation": "mip"}, {"solver": "highs"}, {"solver": "cpsat"}])
def test_through_the_api(options: dict[str, str]) -> None:
    best = solve_makespan_exactly(SMALL)
    assert best.lower is not None
    # With a bad start there is something left for the engine.
    result = api.solve(SMALL, warm_start="fcfs", time_limit=60, memory_limit=8 << 30, **options)
    assert result.upper is not None
    assert result.upper.value == best.lower.value
    assert result.solver is not None
    assert result.solver.termination == "optimal"
    # The bounds of HiGHS are lowered by its tolerance: of a million ticks, that is one or two.
    assert result.gap is not None
    assert result.gap < Fraction(1, 10**5)
    assert result.status is Status.OPTIMAL or result.solver.engine == "highs"
    assert result.solver.scope is Scope.EXACT
    assert result.solver.formulation == options.get("formulation", "arcs")
    assert result.solver.engine == options.get("solver", "cpsat")
    assert result.lower is not None
    assert result.lower.source == f"{result.solver.engine}:{result.solver.formulation}"
    assert api.verify(SMALL, result).ok


def test_a_model_that_is_too_large_is_refused_in_one_line(tmp_path: Path) -> None:
    write_makespan_instance(gsm8k_like(requests=200, clients=20), tmp_path / "large.json")
    done = CliRunner().invoke(cli, ["solve", str(tmp_path / "large.json"), "--formulation", "mip"])
    assert done.exit_code == 2
    assert "formulation: about " in done.stderr
    assert done.stderr.count("\n") == 1
