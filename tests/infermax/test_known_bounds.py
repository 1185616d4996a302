"""Bounds that are known already, and the same bound from `bound` and from `solve`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from inspect import signature
from pathlib import Path

import pytest

from infermax_opt import api
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import AnyResult, LowerBound, Proof
from infermax_opt.files.instances import read_instance, write_instance
from infermax_opt.files.results import read_bound, write_result
from infermax_opt.infermax.bound_process import BoundProcess
from infermax_opt.table.suites import get_suite
from tests.cli.test_cli import run
from tests.support import ROOT, case, check_evidence

TOY = ROOT / "instances" / "toy.json"


@pytest.fixture(scope="module")
def cell() -> object:
    """A cell of the grid whose best bound takes a search, which ends by itself."""
    (found,) = (some for some in get_suite("paper-b32").cases if some.name == "b32-i1-o32-m1000-p4096")
    return found.build()


@pytest.fixture(scope="module")
def alone(cell) -> LowerBound:  # type: ignore[no-untyped-def]
    """What `bound` finds for it."""
    return api.bound(cell, time_limit=60)[0]


def test_the_search_beside_solve_finds_what_bound_finds(cell, alone: LowerBound) -> None:  # type: ignore[no-untyped-def]
    """It has a process of its own and the same time, so `solve` reports no weaker bound."""
    search = BoundProcess(cell, None)
    best = max(search.found(None), key=lambda bound: bound.value)
    search.end()
    assert (best.value, best.source, search.failure) == (alone.value, alone.source, None)
    assert check_evidence(cell, best) == best.value


def test_a_bound_found_before_counts(cell, alone: LowerBound, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    known = alone
    result = api.solve(cell, bounds=[known], warm_start="vllm", solver="search", time_limit=0.2)
    assert result.lower is not None
    assert result.lower.value >= known.value
    check = api.verify(cell, result)
    assert check.ok
    write_instance(cell, tmp_path / "cell.json")
    api.write_certificate(cell, known, tmp_path / "known.json.gz")
    read = read_bound(tmp_path / "known.json.gz")
    assert (read.value, read.source, read.proof) == (known.value, known.source, Proof.CERTIFICATE)
    done = run(
        "solve", tmp_path / "cell.json", "--bound", tmp_path / "known.json.gz", "--time-limit", "0.2",
        "--solver", "search", "-o", tmp_path / "result.json",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    # The result names the certificate, and can be fed in itself.
    assert read_bound(tmp_path / "result.json").value == known.value
    assert run("verify", tmp_path / "cell.json", tmp_path / "result.json", "--strict").exit_code == 0


def test_wrong_bounds_are_refused(tmp_path: Path) -> None:
    instance = case(4, 8, 4, 24)
    best = api.bound(instance, time_limit=5)[0]
    for wrong in (
        replace(best, value=best.value * 2),
        LowerBound(Fraction(10**6), "mine", Proof.CLOSED_FORM),
        LowerBound(Fraction(10**6), "mine", Proof.SOLVER),
        LowerBound(Fraction(10**6), "mine", Proof.CERTIFICATE),
    ):
        with pytest.raises(InputError, match="is not proved"):
            api.solve(instance, bounds=[wrong], time_limit=1)
    write_instance(instance, tmp_path / "i.json")
    api.write_certificate(instance, best, tmp_path / "c.json")
    value = json.loads((tmp_path / "c.json").read_text())
    for hurt in ({**value, "lower_bound": "x"}, {**value, "lower_bound": "1/0"}, {**value, "evidence": 3}):
        (tmp_path / "hurt.json").write_text(json.dumps(hurt))
        done = run("solve", tmp_path / "i.json", "--bound", tmp_path / "hurt.json")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    value["lower_bound"] = "1000000"
    (tmp_path / "false.json").write_text(json.dumps(value))
    done = run("solve", tmp_path / "i.json", "--bound", tmp_path / "false.json")
    assert done.exit_code == 2
    assert f"{tmp_path / 'false.json'}: bounds[0]: the bound 1e+06 is not proved" in done.stderr


def test_bounds_of_another_instance_are_refused_by_name(tmp_path: Path) -> None:
    """A certificate, a result whose bound is true here, too, and one of another objective."""
    instance = case(4, 8, 4, 24)
    api.write_certificate(instance, api.bound(instance, time_limit=5)[0], tmp_path / "c.json")
    low = LowerBound(Fraction(0), api.bound(read_instance(TOY), time_limit=0)[0].source, Proof.CLOSED_FORM)
    write_result(AnyResult("toy", instance.sha256, "makespan", lower=low), tmp_path / "r.json")
    write_result(AnyResult("toy", read_instance(TOY).sha256, "makespan", lower=low), tmp_path / "own.json")
    text = "bounds[1]: is of another instance, machine or objective: its instance_sha256 begins"
    for foreign in ("c.json", "r.json"):
        path = tmp_path / foreign
        done = run("solve", TOY, "--bound", tmp_path / "own.json", "--bound", path, "--time-limit", "5")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert f"{path}: {text} '{instance.sha256[:16]}', not" in done.stderr
    assert run("solve", TOY, "--bound", tmp_path / "own.json", "--time-limit", "5").exit_code == 0
    aimed = ["--objective", "mean_e2e", "--time-limit", "5"]
    assert run("solve", TOY, "--bound", tmp_path / "own.json", *aimed).exit_code == 2
    schedule = tmp_path / "s.json"
    assert run("schedule", TOY, "--scheduler", "vllm", "-o", schedule).exit_code == 0
    scored = ("gap", TOY, schedule, "--metric", "makespan", "--time-limit", "1")
    assert run(*scored, "--bound", tmp_path / "own.json").exit_code == 0
    done = run(*scored, "--bound", tmp_path / "own.json", "--bound", tmp_path / "c.json")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"{tmp_path / 'c.json'}: {text}" in done.stderr


def test_bound_has_the_same_time_limit_everywhere() -> None:
    assert signature(api.bound).parameters["time_limit"].default == 60.0
    assert "[default: 60.0]" in run("bound", "--help").stdout


def test_an_interrupted_bound_keeps_the_closed_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = read_instance(TOY)
    closed = api.bound(instance, time_limit=0)

    def interrupted(*_: object, **__: object) -> Iterator[LowerBound]:
        raise KeyboardInterrupt
        yield closed[0]

    monkeypatch.setattr("infermax_opt.infermax.bounds.searched.searched_bounds", interrupted)
    assert api.bound(instance) == closed
