"""Solving, formulations, and every command, without a word of this problem in the command line."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Proof, Status
from infermax_opt.engines.lowering import lower
from infermax_opt.files.instances import write_instance
from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.exact.solve_formulation import build_formulation
from infermax_opt.pipelining.heuristics.place import make_schedule
from tests.pipelining.oracle import AIMS, best_value, tiny


@pytest.mark.parametrize("engine", ["cpsat", "highs"])
def test_engines_find_the_optimum(engine: str) -> None:
    for seed, aim in enumerate(("tokens", "value") if engine == "cpsat" else AIMS):
        instance = tiny(100 + seed, aim)
        if instance.useful:
            result = infermax_opt.solve(instance, solver=engine, warm_start="none", time_limit=20)
            assert result.status is Status.OPTIMAL
            assert result.upper is not None
            assert result.upper.value * best_value(instance) == instance.capacity
            assert infermax_opt.verify(instance, result).ok


@pytest.mark.parametrize("name", ["order", "hats"])
def test_schedules_satisfy_the_formulations(name: str) -> None:
    """A schedule set into a model breaks no row, and its objective is what the schedule leaves out."""
    for seed in range(40):
        instance = tiny(seed, AIMS[seed % 4])
        schedule = make_schedule(instance, "splitting")
        if not instance.useful:
            with pytest.raises(InputError, match="fits"):
                build_formulation(instance, name, warm=None)
            continue
        built = build_formulation(instance, name, warm=schedule)
        built.formulation.warm_start(built.model, schedule)
        lowered, _ = lower(built.model, warm=True)
        assert lowered.start is not None
        assert lowered.broken(lowered.start) == []
        chosen = {instance.index[some] for some in schedule.offsets}
        left = sum((instance.values[k] for k in instance.useful if k not in chosen), Fraction(0))
        assert lowered.objective(lowered.start) == left * built.parts_per_unit
        if name == "order":
            again = built.formulation.extract(built.model)
            assert (
                infermax_opt.verify(instance, again).objective
                == infermax_opt.verify(instance, schedule).objective
            )


def test_the_gap_is_relative_to_the_bound_on_what_is_packed() -> None:
    """(UB - LB) / UB of the reciprocals is (bound - value) / bound."""
    requests = tuple(PipeliningRequest(f"r{k}", g) for k, g in enumerate((9, 7, 5, 5, 4, 3, 2, 1, 1)))
    instance = PipeliningInstance("g", requests, 20)
    result = infermax_opt.solve(instance, warm_start="apart", formulation="hats", time_limit=10)
    assert result.upper is not None
    assert result.lower is not None
    assert result.gap is not None
    value, bound = instance.capacity / result.upper.value, instance.capacity / result.lower.value
    assert result.gap == (bound - value) / bound


def test_nothing_that_fits_is_infeasible() -> None:
    instance = PipeliningInstance("none", (PipeliningRequest("a", 9),), 5)
    result = infermax_opt.solve(instance)
    assert result.status is Status.INFEASIBLE
    assert infermax_opt.verify(instance, result).ok
    assert list(infermax_opt.bound(instance)) == []
    assert infermax_opt.schedule(instance, "annealing").offsets == {}


def test_a_false_bound_is_refuted() -> None:
    instance = tiny(3, "tokens")
    result = infermax_opt.solve(instance, time_limit=10)
    assert result.lower is not None
    claim = result.claim()
    for proof, source in ((Proof.SOLVER, "cpsat:order"), (Proof.CLOSED_FORM, "counts")):
        changes = {"lower_bound": result.lower.value * 2, "upper_bound": None, "schedule": None, "gap": None}
        changes |= {"status": Status.BOUND_ONLY, "metrics": {}, "proof": proof, "lower_source": source}
        wrong = type(claim)(**{**vars(claim), **changes, "evidence": None, "certificate": None})
        assert not infermax_opt.verify(instance, wrong).ok


def run(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(some) for some in arguments], standalone_mode=True)
    assert done.exit_code == code, done.output
    return done.output


def test_every_command(tmp_path: Path) -> None:
    requests = tuple(
        PipeliningRequest(f"r{k}", g) for k, g in enumerate((448, 300, 210, 150, 100, 64, 40, 20))
    )
    instance = PipeliningInstance("all", requests, 640, block_size=32, buffer=Fraction("0.15"))
    path, result, proof = tmp_path / "i.json", tmp_path / "r.json", tmp_path / "c.json"
    write_instance(instance, path)
    assert "prices" in run("bound", path, "--certificate", proof)
    assert "all" in run("check", path, proof)
    run("solve", path, "--time-limit", "20", "-o", result)
    assert "nothing is wrong" in run("verify", "--strict", path, result)
    run("schedule", path, "--scheduler", "dyadic", "-o", tmp_path / "s.json")
    run("verify", path, tmp_path / "s.json")
    run("plot", path, result, "-o", tmp_path / "p.svg")
    run("plot", path, tmp_path / "s.json", "-o", tmp_path / "p.png")
    run("export", path, "--formulation", "order", "-o", tmp_path / "m.mps")
    assert "yes" in run("solve", path, "--at-least", "tokens=640", "--time-limit", "5")
    assert "count" in run("solve", path, "--objective", "count", "--time-limit", "5")
    value = json.loads((tmp_path / "s.json").read_text())
    value["offsets"]["r1"] = value["offsets"]["r0"]
    (tmp_path / "w.json").write_text(json.dumps(value))
    assert "overwritten" in run("verify", path, tmp_path / "w.json", code=1)
    trace = tmp_path / "t.csv"
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,5,50\n1,5,500\n")
    line = ["import", trace, "--format", "vidur", "--problem", "pipelining", "-o", tmp_path / "x.json"]
    run(*line, "--reservation", "320", "--skip-unfit")
    assert [r["id"] for r in json.loads((tmp_path / "x.json").read_text())["requests"]] == ["r1"]
    assert "--reservation" in run(*line, code=2)


def test_an_empty_schedule_is_valid_and_worth_nothing() -> None:
    instance = tiny(3, "tokens")
    check = infermax_opt.verify(instance, Pipelining(instance.name, {}))
    assert check.ok
    assert check.objective is None
