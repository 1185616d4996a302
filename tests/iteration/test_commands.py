"""The commands on iteration instances."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

import infermax_opt as imx
from infermax_opt.cli.main import cli
from infermax_opt.core.values import amount
from infermax_opt.iteration.data.formats import write_iteration_instance
from infermax_opt.iteration.data.generate import generate_snapshot
from infermax_opt.iteration.heuristics.by_name import HEURISTICS
from tests.support import ROOT

TOY = ROOT / "instances/iteration-toy.json"


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def altered(path: Path, target: Path, change: Any) -> Path:
    value = json.loads(path.read_text())
    change(value)
    target.write_text(json.dumps(value))
    return target


def test_the_shipped_instance() -> None:
    made = generate_snapshot(8, 16, seed=3, swap=0.4, late=0.1)
    made = replace(made, machine=replace(made.machine, batch=12, blocks=60, t_avg=Fraction("0.11")))
    assert imx.read_instance(TOY) == made
    assert imx.read_instance(TOY).sha256 == made.sha256


def test_solve_verify_check_plot(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = run("solve", TOY, "-o", out)
    assert done.exit_code == 0, done.output
    for text in (
        "seconds_per_be_token: 1 / (1), best-effort tokens per second; minimised",
        "0.00244094 s per BE token",
        "optimal: the schedule meets the lower bound", "from branching", "certificate: a file that anyone",
        "real-time requests that no batch could keep, for which (6) does not ask: 1",
        "be_tokens_per_second  409.678",
    ):  # fmt: skip
        assert text in done.stdout
    checked = run("verify", TOY, out, "--strict")
    assert checked.exit_code == 0, checked.output
    assert "its certificate was checked" in checked.stdout
    assert "certified: no schedule of" in run("check", TOY, tmp_path / "r.certificate.json.gz").stdout
    for ending in ("png", "svg"):
        assert run("plot", TOY, out, "-o", tmp_path / f"r.{ending}").exit_code == 0
        assert (tmp_path / f"r.{ending}").stat().st_size > 10_000
    wrong = run("verify", TOY, altered(out, tmp_path / "x.json", lambda v: v.update(upper_bound=0.001)))
    assert wrong.exit_code == 1
    lower = altered(out, tmp_path / "y.json", lambda v: v.update(lower_bound=0.00244095))
    assert "exceeds 0.00244" in run("verify", TOY, lower).stdout


@pytest.mark.parametrize("name", ["dinkelbach", "charnes-cooper"])
def test_formulations_are_solved_and_exported(name: str, tmp_path: Path) -> None:
    done = run("solve", TOY, "--formulation", name, "--json")
    value = json.loads(done.stdout)
    assert value["metrics"]["be_tokens_per_second"] == pytest.approx(409.6776, rel=1e-5)
    assert value["solver"]["formulation"] == name
    assert 0 <= value["gap"] < 1e-4
    assert value["solver"]["warm_start_accepted"] is True
    exported = run("export", TOY, "--formulation", name, "-o", tmp_path / "m.mps")
    assert exported.exit_code == 0, exported.output
    assert "exact, 24 requests" in exported.stdout
    columns = json.loads((tmp_path / "m.columns.json").read_text())
    assert "rt1 is selected" in json.dumps(columns)


def test_heuristics(tmp_path: Path) -> None:
    listed = run("schedulers").stdout
    for name in HEURISTICS:
        assert f"  {name} " in listed
        done = run("schedule", TOY, "--scheduler", name, "-o", tmp_path / f"{name}.json")
        assert done.exit_code == 0, done.output
        assert "selected in" in done.stdout
        assert run("verify", TOY, tmp_path / f"{name}.json").exit_code == 0
    # A late request keeps everybody out, by the letter.
    assert json.loads((tmp_path / "literal.json").read_text())["select"] == []
    assert (
        "batch size of the next iteration: 128, as the time test stopped"
        in run("schedule", TOY, "--scheduler", "literal").stdout
    )


def test_bounds(tmp_path: Path) -> None:
    done = run("bound", TOY, "--certificate", tmp_path / "c.json", "-o", tmp_path / "b.json")
    assert done.exit_code == 0, done.output
    assert run("check", TOY, tmp_path / "c.json").exit_code == 0
    assert run("verify", TOY, tmp_path / "b.json", "--strict").exit_code == 0
    found = json.loads(run("bound", TOY, "--json").stdout)["lower_bounds"]
    assert [some["source"] for some in found] == ["relaxation", "cheapest"]
    again = run("solve", TOY, "--bound", tmp_path / "c.json", "--time-limit", "20", "--json")
    assert json.loads(again.stdout)["status"] == "optimal"


def test_a_table_of_a_suite(tmp_path: Path) -> None:
    done = run("table", "iteration", "--only", "rt20-be128-s0", "--time-limit", "20", "-o", tmp_path / "t")
    assert done.exit_code == 0, done.output
    text = next((tmp_path / "t").glob("*.md")).read_text() if (tmp_path / "t").is_dir() else done.stdout
    assert "A1 / rate" in text
    assert "RT served, late" in text


def test_a_rate_that_is_asked_for() -> None:
    yes = run("solve", TOY, "--at-most", "seconds_per_be_token=0.00245")
    assert "yes" in yes.stdout
    no = run("solve", TOY, "--at-most", "seconds_per_be_token=0.0024")
    assert no.exit_code == 1
    instance = imx.read_instance(TOY)
    assert amount(instance, imx.solve(instance).upper.value) == "0.00244094 s per BE token"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("machine"), "machine: is missing"),
        (lambda v: v.pop("objective"), "objective: is missing"),
        (
            lambda v: v.update(objective="makespan"),
            "objective: 'makespan' is neither 'seconds_per_be_token' nor",
        ),
        (lambda v: v["machine"].pop("t_avg"), "machine.t_avg: is missing"),
        (lambda v: v["machine"].update(batch=0), "machine.batch: 0 is not between 1 and"),
        (lambda v: v["machine"].update(swap=[1]), "machine.swap: [1] is not a pair of numbers"),
        (
            lambda v: v["machine"]["cost"].update(batch=[[0, 1]]),
            "machine.cost.batch: no piece has an overhead",
        ),
        (lambda v: v["machine"]["cost"].update(prefix="1"), "machine.cost.prefix: is not known to this"),
        (lambda v: v["machine"]["cost"].update(attention="dense"), "cost.attention: 'dense' is none of"),
        (
            lambda v: v["requests"][0].update({"class": "vip"}),
            "requests[0].class: 'vip' is neither 'rt' nor 'be'",
        ),
        (
            lambda v: v["requests"][0].update(phase="both"),
            "requests[0].phase: 'both' is neither 'prefill' nor",
        ),
        (
            lambda v: v["requests"][0].update(value=3),
            "requests[0].value: requests of the class 'rt' have a weight",
        ),
        (lambda v: v["requests"][0].update(waited=-1), "requests[0].waited: -1 is negative; the least is 0"),
        (lambda v: v["requests"][0].update(input=10**6), "requests[0].input: 1000000 is"),
        (lambda v: v["requests"][-1].update(waited=1), "requests[23].waited: is of real-time requests only"),
        (lambda v: v["requests"][-1].update(id="rt1"), "requests[23].id: id 'rt1' is used twice"),
        (
            lambda v: v["machine"].update(group=2) or v["requests"][0].update(group=3),
            "3 tokens are left of a group",
        ),
        (lambda v: v["machine"]["cost"].update(attention="dense"), "'exact', 'product'"),
        (lambda v: v["requests"][0].update({"class": 0.5}), "class: 0.5 is neither 'rt' nor 'be'"),
        (lambda v: v["requests"][0].update({"class": "x" * 999}), "xxx... is neither"),
        (
            lambda v: v["requests"][0].update(count=10**5),
            "100023 requests in all; the most is 20000",
        ),
        (lambda v: v.update(deadline=3), "deadline: is not a known key"),
    ],
)
def test_wrong_instance_files_are_one_line(change: Any, message: str, tmp_path: Path) -> None:
    path = altered(TOY, tmp_path / "i.json", change)
    for command in (["solve"], ["bound"], ["schedule", "--scheduler", "literal"]):
        done = run(command[0], path, *command[1:])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert message in done.stderr
        assert "i.json" in done.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["schedule", "--scheduler", "bros"], "'bros' is none of skip-greedy, guarded, literal"),
        (["solve", "--solver", "pack"], "solver: 'pack' is none of auto, prefix, branch, highs"),
        (["solve", "--solver", "prefix"], "solver: the table needs one piece, no swap"),
        (["solve", "--solver", "highs"], "formulation: highs needs a formulation"),
        (
            ["solve", "--formulation", "mip"],
            "'mip' is no installed formulation; there is charnes-cooper, dinkel",
        ),
        (["solve", "--memory-limit", "9"], "memory_limit: searches take none"),
    ],
)
def test_what_it_cannot_do_is_one_line(args: list[str], message: str) -> None:
    done = run(args[0], TOY, *args[1:])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert message in done.stderr


def test_wrong_selections_are_named(tmp_path: Path) -> None:
    path = altered(TOY, tmp_path / "i.json", lambda v: v["machine"].update(blocks=0))
    instance = imx.read_instance(path)
    names = [r.id for r in instance.requests]
    for select, rule in (
        (["nobody"], "unknown_request"),
        (names, "batch_size"),
        (names, "blocks"),
        ([name for name in names if name.startswith("be")][:10], "deadline"),
    ):
        (tmp_path / "s.json").write_text(
            json.dumps({"schema": "infermax-opt/schedule/1", "instance": instance.name, "select": select})
        )
        done = run("verify", path, tmp_path / "s.json", "--json")
        assert done.exit_code == 1
        assert rule in json.loads(done.stdout)["rules"]
    for select, message in (
        (3, "3 is not a list"),
        ([1], "1 is not a text"),
        (["rt1", "rt1"], "is selected twice"),
    ):
        (tmp_path / "s.json").write_text(
            json.dumps({"schema": "infermax-opt/schedule/1", "instance": instance.name, "select": select})
        )
        done = run("verify", path, tmp_path / "s.json")
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert message in done.stderr


def test_an_instance_goes_through_its_file(tmp_path: Path) -> None:
    for made in (generate_snapshot(5, 6, seed=1, values=True), generate_snapshot(3, 4, swap=1.0)):
        write_iteration_instance(made, tmp_path / "i.json.gz")
        assert imx.read_instance(tmp_path / "i.json.gz") == made


@pytest.mark.parametrize(("rate", "answer"), [("409", "yes"), ("410", "no"), ("0", None)])
def test_a_least_rate_is_a_limit_of_its_reciprocal(rate: str, answer: str | None) -> None:
    done = run("solve", TOY, "--at-least", f"be_tokens_per_second={rate}")
    if answer is None:
        assert (done.exit_code, len(done.output.splitlines())) == (2, 1), done.output
    else:
        assert f"{answer}:" in done.stdout, done.output
    other = run("solve", TOY, "--at-least", "value_per_second=1")
    assert (other.exit_code, len(other.output.splitlines())) == (2, 1), other.output
