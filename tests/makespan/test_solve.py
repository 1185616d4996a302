"""Solving makespan instances, their results and what the verifier makes of these."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

import infermax_opt as imx
from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim, LowerBound, Proof, Result, Status
from infermax_opt.core.truth import FaultKind, Trust
from infermax_opt.engines.outcome import EngineOutcome
from infermax_opt.files.results import read_schedule_or_claim, result_to_json, write_result
from infermax_opt.makespan import solve as makespan_solve
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.bounds.exhaustive import least_makespan
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.methods.by_name import METHODS, run_method
from infermax_opt.makespan.replay.bins import replay_bins
from infermax_opt.makespan.replay.metrics import MakespanMetrics
from tests.support import ROOT

NOISY = gsm8k_like(requests=30, clients=6, error=0.4)
SMALL = gsm8k_like(requests=7, clients=2)


def equal(requests: int = 4) -> MakespanInstance:
    """Equal requests on as many clients: one bin is optimal, and the bound says so."""
    lengths, level = [(5, 3)] * requests, PrefillLevel(5 * requests, Fraction(1, 2))
    return MakespanInstance.of_requests("equal", lengths, requests, [level], ("0.1", "0.01"))


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand-ins for the engines: what the tests put here is what these do."""
    told: dict[str, Any] = {"exact_size": False, "plans": [], "calls": []}

    def anneal_plans(instance: MakespanInstance, **options: Any) -> Iterator[tuple[str, MakespanSchedule]]:
        told["calls"].append(("anneal", options))
        for plan in told["plans"]:
            if isinstance(plan, BaseException):
                raise plan
            yield "anneal", plan

    def solve_makespan_exactly(instance: MakespanInstance, **options: Any) -> Any:
        told["calls"].append(("exact", options))
        found = told["exact"]
        if isinstance(found, BaseException):
            raise found
        return found

    for name, stand_in in {
        "anneal_plans": anneal_plans,
        "exact_size": lambda instance: told["exact_size"],
        "require_size": lambda instance: None,
        "solve_makespan_exactly": solve_makespan_exactly,
    }.items():
        monkeypatch.setattr(makespan_solve, name, stand_in)
    return told


def outcome(schedule: MakespanSchedule | None, ticks: int, termination: str = "time_limit") -> Any:
    bound = LowerBound(Fraction(ticks, SMALL.ticks_per_second), "exact", Proof.SOLVER)
    return EngineOutcome(schedule, bound, termination, details={"nodes": 7})


def best_of(instance: MakespanInstance, names: Any = METHODS) -> Fraction:
    return min(replay_bins(instance, run_method(instance, name).schedule).makespan for name in names)


def better() -> tuple[MakespanSchedule, Fraction]:
    """A schedule of `SMALL` that beats that of fcfs, and its makespan."""
    schedule = run_method(SMALL, "offline").schedule
    value = replay_bins(SMALL, schedule).makespan
    assert value < best_of(SMALL, ["fcfs"])
    return schedule, value


# --- the pipeline -------------------------------------------------------------------------------


def test_a_bound_that_meets_a_method_needs_no_engine() -> None:
    result = api.solve(equal(), time_limit=5)
    assert isinstance(result, Result)
    assert (result.status, result.gap, result.objective) == (Status.OPTIMAL, 0, "makespan")
    assert isinstance(result.metrics, MakespanMetrics)
    assert (result.metrics.bins, result.metrics.rounds) == (1, 3)
    assert result.metrics.makespan == Fraction("0.92")
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == (None, "optimal")
    assert result.lower is not None
    assert result.lower.proof is Proof.CLOSED_FORM
    assert verify(equal(), result).ok


def test_methods_run_with_true_lengths_too(engines: dict[str, Any]) -> None:
    estimated = best_of(NOISY)
    result = api.solve(NOISY, time_limit=60)
    assert result.upper is not None
    assert result.upper.value < estimated
    assert result.upper.source.startswith("method:")
    assert result.upper.source.endswith(", true lengths")
    named = api.solve(NOISY, warm_start="hybrid", time_limit=60)
    assert named.upper is not None
    assert named.upper.source == "method:hybrid"
    assert named.upper.value == best_of(NOISY, ["hybrid"])
    report = named.solver
    assert report is not None
    assert (report.engine, report.reason) == ("anneal", "the instance is too large for the exact engine")
    assert (report.termination, report.time_limit, report.seed) == ("time_limit", 60, 0)
    assert (report.warm_start, "infermax-opt" in report.versions) == ("method:hybrid", True)
    options = engines["calls"][-1][1]
    assert options["upper"] == named.upper.value
    assert options["threads"] == report.threads


def test_no_warm_start(engines: dict[str, Any]) -> None:
    result = api.solve(NOISY, warm_start="none", time_limit=5)
    assert (result.status, result.upper, result.gap) == (Status.BOUND_ONLY, None, None)
    assert engines["calls"][-1][1]["upper"] is None
    assert verify(NOISY, result).ok


def test_a_schedule_of_ones_own(engines: dict[str, Any]) -> None:
    mine = run_method(NOISY, "fcfs").schedule
    result = api.solve(NOISY, warm_start=mine, time_limit=5)
    assert result.upper is not None
    assert result.upper.source == "warm start"
    assert result.schedule == mine
    with pytest.raises(
        InputError, match="warm_start: is not a valid schedule: instance: the schedule is for"
    ):
        api.solve(NOISY, warm_start=MakespanSchedule("x", mine.bins))
    with pytest.raises(InputError, match=r"warm_start: is not a valid schedule: .*never prefilled"):
        api.solve(NOISY, warm_start=MakespanSchedule(NOISY.name, []))
    with pytest.raises(InputError, match="warm_start: is a Schedule, not a MakespanSchedule"):
        api.solve(NOISY, warm_start=imx.Schedule(NOISY.name, ()))
    with pytest.raises(InputError, match="warm_start: is a MakespanSchedule, not a Schedule"):
        api.solve(imx.read_instance(ROOT / "instances" / "toy.json"), warm_start=mine)


def test_annealing_stops_at_the_bound(engines: dict[str, Any]) -> None:
    """A schedule that meets the bound ends it; better ones before are kept, wrong ones reported."""
    instance = equal(3)
    good = run_method(instance, "fcfs").schedule
    slow = MakespanSchedule("equal", [*good.bins, Bin({}, 9)])
    engines["plans"] = [MakespanSchedule("equal", []), slow, good, AssertionError("asked in vain")]
    lines: list[str] = []
    result = api.solve(
        instance,
        solver="anneal",
        warm_start="none",
        time_limit=30,
        threads=1,
        progress=lambda event: lines.append(str(event)),
    )
    assert result.status is Status.OPTIMAL
    assert result.upper is not None
    assert result.upper.source == "anneal"
    assert result.solver is not None
    assert result.solver.termination == "optimal"
    assert "never prefilled" in result.solver.details["rejected"]
    assert [line.split()[0] for line in lines] == ["lower", "engine", "schedule", "schedule"]


def test_exact_proof(engines: dict[str, Any]) -> None:
    schedule, value = better()
    ticks = int(value * SMALL.ticks_per_second)
    engines.update(exact_size=True, exact=outcome(schedule, ticks, "optimal"))
    result = api.solve(SMALL, warm_start="fcfs", time_limit=20, threads=3, seed=4)
    assert result.status is Status.OPTIMAL
    assert result.lower == LowerBound(value, "exact", Proof.SOLVER)
    assert result.certified == closed_form_makespan_bounds(SMALL)[0]
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == ("exact", "optimal")
    assert result.solver.details == {"nodes": 7}
    ((name, options),) = engines["calls"]
    assert (name, options["threads"], options["seed"]) == ("exact", 3, 4)
    assert 5 < options["time_limit"] < 10
    # The engine is a stand-in that is wrong: the verifier decides seven requests by itself.
    check = verify(SMALL, result)
    assert [fault.kind for fault in check.faults] == [FaultKind.LOWER_BOUND]
    assert check.bound is Trust.REFUTED
    optimum = least_makespan(SMALL)
    assert optimum is not None
    assert optimum < value
    honest = replace(result, lower=LowerBound(optimum, "exact", Proof.SOLVER))
    assert (verify(SMALL, honest).ok, verify(SMALL, honest).bound) == (True, Trust.ENUMERATED)


def test_annealing_gets_the_rest(engines: dict[str, Any]) -> None:
    schedule, value = better()
    bound = int(closed_form_makespan_bounds(SMALL)[0].value * SMALL.ticks_per_second) + 1
    engines.update(exact_size=True, exact=outcome(None, bound), plans=[schedule])
    result = api.solve(SMALL, warm_start="fcfs", time_limit=20)
    assert [name for name, _ in engines["calls"]] == ["exact", "anneal"]
    assert result.upper is not None
    assert result.upper.value <= value
    assert result.lower is not None
    assert result.lower.source == "exact"
    engines["calls"].clear()
    api.solve(SMALL, solver="exact", warm_start="fcfs", time_limit=20)
    assert [name for name, _ in engines["calls"]] == ["exact"]
    assert engines["calls"][0][1]["time_limit"] > 15


def test_a_bound_that_a_schedule_refutes_is_discarded(engines: dict[str, Any]) -> None:
    engines.update(exact_size=True, exact=outcome(None, 10**12))
    result = api.solve(SMALL, solver="exact", time_limit=5)
    assert result.lower == closed_form_makespan_bounds(SMALL)[0]
    assert result.solver is not None
    assert result.solver.termination == "failed"
    assert "exact claims the bound" in result.solver.details["failure"]
    assert verify(SMALL, result).ok


@pytest.mark.parametrize("engine", ["exact", "anneal"])
def test_ctrl_c_keeps_the_best(engine: str, engines: dict[str, Any]) -> None:
    engines.update(exact=KeyboardInterrupt(), plans=[KeyboardInterrupt()])
    result = api.solve(NOISY, solver=engine, time_limit=5)
    assert result.status is Status.FEASIBLE
    assert result.solver is not None
    assert (result.solver.engine, result.solver.termination) == (engine, "interrupted")
    assert verify(NOISY, result).ok
    engines.update(exact_size=True, exact=outcome(None, 0, "interrupted"))
    engines["calls"].clear()
    api.solve(NOISY, time_limit=5)
    assert [name for name, _ in engines["calls"]] == ["exact"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "search"}, "solver: 'search' is none of auto, exact, anneal, highs, cpsat"),
        ({"formulation": "flow"}, "formulation: 'flow' is no installed formulation; there is arcs, mip"),
        ({"formulation": "arcs", "solver": "anneal"}, "formulation: anneal takes no formulation"),
        ({"memory_limit": 10**9}, "memory_limit: the engines of makespan instances take none"),
        ({"time_limit": 0}, "time_limit: 0 is not a positive number of seconds"),
        ({"threads": 0}, "threads: 0 is less than 1"),
        ({"warm_start": "vllm"}, "'vllm' is none of fcfs, offline, online, hybrid"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        api.solve(SMALL, **options)
    assert message in str(caught.value)


def test_the_other_functions() -> None:
    assert api.bound(NOISY) == tuple(closed_form_makespan_bounds(NOISY))
    made = api.schedule(NOISY, "hybrid")
    check = api.verify(NOISY, made)
    assert check.ok
    assert check.metrics is not None
    assert check.objective == check.metrics.makespan
    toy = imx.read_instance(ROOT / "instances" / "toy.json")
    for instance, subject in ((toy, made), (NOISY, api.schedule(toy, "vllm")), (NOISY, "x"), ("x", made)):
        with pytest.raises(InputError, match="verify takes an instance and a schedule"):
            verify(instance, subject)  # type: ignore[call-overload]


# --- results ------------------------------------------------------------------------------------


@pytest.fixture
def solved(engines: dict[str, Any]) -> Result:
    return api.solve(NOISY, time_limit=60)


def test_a_result_is_written_and_read(solved: Result, tmp_path: Path) -> None:
    write_result(solved, tmp_path / "r.json.gz")
    claim = read_schedule_or_claim(tmp_path / "r.json.gz")
    assert isinstance(claim, Claim)
    assert claim.schedule == solved.schedule
    assert claim.objective == "makespan"
    check = verify(NOISY, claim)
    assert check.ok
    assert check.bound is Trust.RECOMPUTED
    assert check.metrics == solved.metrics
    value = result_to_json(solved)
    assert value["schema"] == "infermax-opt/result/1"
    assert list(value["schedule"]) == ["schema", "instance", "bins"]
    assert list(value["metrics"]) == [
        "makespan", "bins", "rounds", "utilisation", "tokens_per_second", "mean_idle", "most_idle",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"instance": "x"}, FaultKind.INSTANCE),
        ({"instance_sha256": "0"}, FaultKind.INSTANCE),
        ({"objective": "mean_ttft"}, FaultKind.OBJECTIVE),
        ({"status": Status.OPTIMAL}, FaultKind.STATUS),
        ({"upper_bound": Fraction(1)}, FaultKind.UPPER_BOUND),
        ({"upper_bound": None}, FaultKind.UPPER_BOUND),
        ({"schedule": None}, FaultKind.UPPER_BOUND),
        ({"schedule": MakespanSchedule(NOISY.name, [])}, FaultKind.UPPER_BOUND),
        ({"gap": Fraction(0)}, FaultKind.GAP),
        ({"gap": None}, FaultKind.GAP),
        ({"metrics": {"bins": 1}}, FaultKind.METRICS),
        ({"metrics": {"utilisation": None}}, FaultKind.METRICS),
        ({"proof": None}, FaultKind.LOWER_BOUND),
        ({"proof": Proof.CERTIFICATE, "evidence": None}, FaultKind.LOWER_BOUND),
        ({"lower_bound": Fraction(10**6)}, FaultKind.LOWER_BOUND),
        ({"lower_bound": Fraction(-1)}, FaultKind.LOWER_BOUND),
    ],
)
def test_every_wrong_claim_is_a_fault(change: dict[str, Any], kind: FaultKind, solved: Result) -> None:
    check = verify(NOISY, replace(solved.claim(), **change))
    assert not check.ok
    assert kind in {fault.kind for fault in check.faults}


def test_lower_bounds_are_recomputed(solved: Result) -> None:
    best = closed_form_makespan_bounds(NOISY)[0].value
    above = replace(solved.claim(), lower_bound=best + Fraction(1, 1000))
    assert verify(NOISY, above).bound is Trust.REFUTED
    word = verify(NOISY, replace(above, proof=Proof.SOLVER))
    assert word.bound is Trust.UNCHECKED
    assert {fault.kind for fault in word.faults} == {FaultKind.GAP}
    below = verify(NOISY, replace(solved.claim(), lower_bound=best, proof=Proof.SOLVER))
    assert below.bound is Trust.RECOMPUTED
    refuted = replace(solved.claim(), lower_bound=Fraction(10**6), proof=Proof.SOLVER)
    assert verify(NOISY, refuted).bound is Trust.REFUTED


# --- the commands -------------------------------------------------------------------------------


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    imx.write_instance(NOISY, tmp_path / "noisy.json")
    return tmp_path / "noisy.json"


def test_solve_verify_plot(path: Path, tmp_path: Path, engines: dict[str, Any]) -> None:
    out = tmp_path / "r.json"
    done = run("solve", path, "--time-limit", "60", "-o", out)
    assert done.exit_code == 0, done.output
    for text in (
        "feasible: a schedule, not proved optimal", "found by method:", "closed-form: a formula",
        "makespan: end of the last decode stage, s; minimised", "engine        anneal", f"wrote {out}",
    ):  # fmt: skip
        assert text in done.stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["noisy.json", "r.json"]
    checked = run("verify", path, out)
    assert checked.exit_code == 0, checked.output
    assert "verified: nothing is wrong" in checked.stdout
    assert "recomputed" in checked.stdout
    value = json.loads(run("verify", path, out, "--json").stdout)
    assert value["metrics"] == json.loads(out.read_text())["metrics"]
    assert (value["ok"], value["objective"], value["bound"]) == (True, "makespan", "recomputed")
    drawn = run("plot", path, out, "-o", tmp_path / "r.svg")
    assert drawn.exit_code == 0, drawn.output
    again = json.loads(run("solve", path, "--warm-start", out, "--json").stdout)
    assert again["upper"] == {"source": "warm start"}
    assert again["upper_bound"] == value["objective_value"]
    value = json.loads(out.read_text())
    value["upper_bound"] = 1
    out.write_text(json.dumps(value))
    wrong = run("verify", path, out)
    assert wrong.exit_code == 1
    assert "wrong claims" in wrong.stdout
    assert run("plot", path, out, "-o", tmp_path / "x.png").exit_code == 1


def test_a_bound_file(path: Path, tmp_path: Path) -> None:
    done = run("bound", path, "-o", tmp_path / "b.json")
    assert done.exit_code == 0, done.output
    assert "closed-form: a formula, recomputed by `infermax-opt verify`" in done.stdout
    checked = run("verify", path, tmp_path / "b.json")
    assert checked.exit_code == 0
    assert "recomputed" in checked.stdout
    drawn = run("plot", path, tmp_path / "b.json", "-o", tmp_path / "b.png")
    assert drawn.exit_code == 2
    assert "b.json: schedule: holds no schedule to draw" in drawn.stderr
    value = json.loads((tmp_path / "b.json").read_text())
    value["lower_bound"] = 10**6
    (tmp_path / "b.json").write_text(json.dumps(value))
    refuted = run("verify", path, tmp_path / "b.json")
    assert refuted.exit_code == 1
    assert "lower_bound: is 1000000.0, the closed form 'arc lengths' gives" in refuted.stdout


def test_schedules_of_the_other_problem_are_one_line(path: Path, tmp_path: Path) -> None:
    toy = ROOT / "instances" / "toy.json"
    run("schedule", path, "--scheduler", "fcfs", "-o", tmp_path / "bins.json")
    for args in (
        ["verify", toy, tmp_path / "bins.json"],
        ["solve", toy, "--warm-start", tmp_path / "bins.json"],
    ):
        done = run(*args)
        assert done.exit_code == 2
        assert done.stderr == (
            f"infermax-opt: {tmp_path / 'bins.json'}: bins: schedules of the instance 'toy' have batches\n"
        )
    assert "methods of makespan instances\nfcfs, offline, online, hybrid" in run("schedulers").stdout


def test_metrics_of_the_other_problem_are_named(solved: Result, tmp_path: Path) -> None:
    value = json.loads(json.dumps(result_to_json(solved), default=float))
    value["metrics"]["evictions"] = 3
    (tmp_path / "r.json").write_text(json.dumps(value))
    with pytest.raises(InputError, match=r"r\.json: metrics\.evictions: is not a known key"):
        read_schedule_or_claim(tmp_path / "r.json")


def test_the_package_stays_light() -> None:
    code = (
        "import sys, infermax_opt as imx\n"
        "i = imx.read_instance(sys.argv[1])\n"
        "assert i.clients == 20\n"
        "print([m for m in ('pyomo', 'ortools', 'highspy', 'numba', 'matplotlib') if m in sys.modules])\n"
    )
    command = [sys.executable, "-c", code, str(ROOT / "instances" / "makespan-100x20.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- with the engine itself ---------------------------------------------------------------------


def test_annealing_beats_the_methods() -> None:
    result = api.solve(NOISY, solver="anneal", time_limit=1, threads=1)
    assert result.upper is not None
    assert result.upper.value <= best_of(NOISY)
    assert result.gap is not None
    assert result.gap < Fraction(1, 10)
    assert result.solver is not None
    assert result.solver.engine == "anneal"
    assert result.solver.seconds is not None
    # Time to load compiled code comes on top, once.
    assert result.solver.seconds < 15
    assert verify(NOISY, result).ok


def test_times_of_many_digits_are_solved_without_the_exact_engine() -> None:
    requests = [(100, 300), (100, 377), (100, 154), (100, 431), (100, 208)]
    levels = [PrefillLevel(512, Fraction("0.09"))]
    instance = MakespanInstance.of_requests("digits", requests, 2, levels, (0.03333333333333333, "0.00021"))
    result = api.solve(instance, time_limit=0.5)
    assert result.upper is not None
    assert result.lower is not None
    assert result.lower.value <= result.upper.value
    with pytest.raises(InputError, match=r"decode: a schedule may take .* less than 2\*\*53"):
        api.solve(instance, solver="exact", time_limit=2)
