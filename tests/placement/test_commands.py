"""The commands on placement instances."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

import infermax_opt as imx
from infermax_opt.cli.main import cli
from infermax_opt.placement.data.formats import read_placement, write_placement, write_placement_instance
from infermax_opt.placement.data.generate import generate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics.place import HEURISTICS, place
from infermax_opt.placement.replay.check import check_placement
from tests.stopped import stopped
from tests.support import ROOT

SHIPPED = {
    "placement-toy": generate("long-prompts", requests=12, seed=0, ongoing=0.34),
    "placement-open-12": generate("long-prompts", requests=12, seed=1, ongoing=0.34),
    "placement-long-prompts-50": generate("long-prompts", requests=50, seed=0),
}
TOY, OPEN = ROOT / "instances/placement-toy.json", ROOT / "instances/placement-open-12.json"


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def altered(path: Path, target: Path, change: Any) -> Path:
    value = json.loads(path.read_text())
    change(value)
    target.write_text(json.dumps(value))
    return target


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_instances(name: str) -> None:
    assert imx.read_instance(ROOT / "instances" / f"{name}.json") == SHIPPED[name]


@pytest.mark.parametrize("name", HEURISTICS)
def test_placements_are_made_verified_and_drawn(name: str, tmp_path: Path) -> None:
    done = run("schedule", TOY, "--scheduler", name, "-o", tmp_path / "p.json")
    assert done.exit_code == 0, done.output
    assert "verified: nothing is wrong" in done.stdout
    assert "ms a new request" in done.stdout
    instance = imx.read_instance(TOY)
    assert isinstance(instance, PlacementInstance)
    workers = check_placement(instance, read_placement(tmp_path / "p.json")).workers
    assert f"replayed     {workers} workers\n" in done.stdout
    value = json.loads(run("verify", TOY, tmp_path / "p.json", "--json").stdout)
    assert (value["ok"], value["objective"], value["objective_value"]) == (True, "workers", workers)
    assert value["metrics"]["gpus"] == 2 * workers
    # One of them in both forms.
    for ending in ("png", "svg") if name == "best-fit" else ("png",):
        drawn = run("plot", TOY, tmp_path / "p.json", "-o", tmp_path / f"p.{ending}")
        assert drawn.exit_code == 0, drawn.output
        assert (tmp_path / f"p.{ending}").stat().st_size > 10_000


def test_solve_verify_plot(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    done = run("solve", OPEN, "--time-limit", "60", "-o", out)
    assert done.exit_code == 0, done.output
    for text in (
        "workers: workers in use: those with new or ongoing requests, or busy; minimised",
        "schedule     4 workers  found by heuristic:best-fit", "lower bound  4 workers  from configurations",
        "because      prices of the 8 new requests: no worker can take", "gpus                8",
        "why fewer are not enough\n  0       workers in use whatever is done: 1\n  1 to 2  prefill: ",
        f"wrote {out}",
    ):  # fmt: skip
        assert text in done.stdout
    assert " s  found by" not in done.stdout
    written = json.loads(out.read_text())
    assert (written["upper_bound"], written["lower_bound"], written["gap"]) == (4, 4, 0)
    assert list(written["solver"]["details"]["excluded"]) == ["0", "1 to 2", "3"]
    checked = run("verify", OPEN, out)
    assert checked.exit_code == 0, checked.output
    assert "lower bound  4 workers  confirmed by enumerating every schedule" in checked.stdout
    assert run("plot", OPEN, out, "-o", tmp_path / "r.png").exit_code == 0
    again = json.loads(run("solve", OPEN, "--warm-start", out, "--solver", "highs", "--json").stdout)
    assert (again["upper"], again["lower"]["source"]) == ({"source": "warm start"}, "highs")
    wrong = run("verify", OPEN, altered(out, tmp_path / "x.json", lambda v: v.update(upper_bound=3)))
    assert wrong.exit_code == 1
    assert "upper_bound: is 3.0, replay gives 4.0" in wrong.stdout
    assert run("plot", OPEN, tmp_path / "x.json", "-o", tmp_path / "x.png").exit_code == 1


def test_bounds(tmp_path: Path) -> None:
    done = run("bound", TOY, "-o", tmp_path / "b.json")
    assert done.exit_code == 0, done.output
    assert "  3 workers  continuous  closed-form  prefill: the new requests need 3.45384 s" in done.stdout
    assert "  1 worker   in use      closed-form  workers in use whatever is done: 1\n" in done.stdout
    items = json.loads(run("bound", TOY, "--json").stdout)["lower_bounds"]
    assert [item["value"] for item in items] == sorted((item["value"] for item in items), reverse=True)
    assert all(item["reason"] and item["proof"] == "closed-form" for item in items)
    checked = run("verify", TOY, tmp_path / "b.json")
    assert checked.exit_code == 0
    assert "3 workers  recomputed" in checked.stdout
    drawn = run("plot", TOY, tmp_path / "b.json", "-o", tmp_path / "b.png")
    assert (drawn.exit_code, drawn.stderr.count("\n")) == (2, 1)
    assert "b.json: schedule: holds no schedule to draw" in drawn.stderr
    raised = run(
        "verify", TOY, altered(tmp_path / "b.json", tmp_path / "x.json", lambda v: v.update(lower_bound=4))
    )
    assert raised.exit_code == 1
    assert "is 4.0, the closed form 'continuous' gives 3.0" in raised.stdout


def test_there_are_no_certificates(tmp_path: Path) -> None:
    message = "certificate: closed-form bounds of placement instances have no certificate file"
    message += "; `verify` recomputes them"
    done = run("bound", TOY, "--certificate", tmp_path / "c.json")
    assert (done.exit_code, done.stderr) == (2, f"infermax-opt: {message}\n")
    assert not (tmp_path / "c.json").exists()
    (tmp_path / "c.json").write_text("{}")
    assert run("check", TOY, tmp_path / "c.json").stderr == f"infermax-opt: {message}\n"


def test_a_wrong_placement_is_named(tmp_path: Path) -> None:
    instance = SHIPPED["placement-toy"]
    write_placement(Placement(instance.name, {f"r{k}": 1 for k in range(5, 13)}), tmp_path / "bad.json")
    done = run("verify", TOY, tmp_path / "bad.json")
    assert done.exit_code == 1
    assert "worker 1: prefill: limit c: 3.453835 s where 1.578 s are allowed" in done.stdout
    value = json.loads(run("verify", TOY, tmp_path / "bad.json", "--json").stdout)
    first = value["violations"][0]
    assert list(first) == ["rule", "worker", "request", "message"]
    assert (first["rule"], first["worker"], first["request"]) == ("prefill", 1, None)
    drawn = run("plot", TOY, tmp_path / "bad.json", "-o", tmp_path / "bad.png")
    assert drawn.exit_code == 1
    assert "not drawn" in drawn.stderr
    write_placement(Placement("other", place(instance, "best-fit").workers), tmp_path / "other.json")
    assert "the schedule is for 'other'" in run("verify", TOY, tmp_path / "other.json").stdout


def test_requests_that_fit_nowhere(tmp_path: Path) -> None:
    toy = SHIPPED["placement-toy"]
    wide = replace(toy, groups=(*toy.groups, PlacementGroup("wide", 19_000, 5)))
    write_placement_instance(wide, tmp_path / "i.json")
    done = run("solve", tmp_path / "i.json", "-o", tmp_path / "r.json")
    assert done.exit_code == 1
    assert (
        "why there is none\n"
        "  request 'wide' fits on no worker: limit c, prefill: 7.315 s where 1.578 s are allowed\n"
        "  request 'wide' fits on no worker: limit e, KV: 19005 where 18000 are allowed\n"
    ) in done.stdout
    assert run("verify", tmp_path / "i.json", tmp_path / "r.json").exit_code == 0
    other = altered(tmp_path / "r.json", tmp_path / "x.json", lambda v: v.update(instance_sha256=toy.sha256))
    wrong = run("verify", TOY, other)
    assert wrong.exit_code == 1
    assert "status: is 'infeasible', but there is a schedule" in wrong.stdout
    refused = run("schedule", tmp_path / "i.json", "--scheduler", "jsq")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    assert "request 'wide' fits on no worker: limit c, prefill" in refused.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["schedule", "--scheduler", "sarathi"], "'sarathi' is none of best-fit, first-fit"),
        (["solve", "--solver", "anneal"], "solver: 'anneal' is none of auto, pack, cpsat, highs"),
        (["solve", "--formulation", "flow"], "'flow' is no installed formulation; there is aladdin"),
        (["solve", "--memory-limit", "9"], "memory_limit: the engines of placements take none"),
        (["solve", "--warm-start", "fcfs"], "'fcfs' is none of best-fit, first-fit"),
    ],
)
def test_what_it_cannot_do_is_one_line(args: list[str], message: str) -> None:
    done = run(args[0], OPEN, *args[1:])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.pop("slo"), "i.json: slo: is missing"),
        (lambda v: v["worker"].pop("kv"), "i.json: worker.kv: is missing"),
        (lambda v: v["requests"][0].pop("input_tokens"), "i.json: requests[0].input_tokens: is missing"),
        (lambda v: v.update(problem="place"), "i.json: problem: 'place' is"),
        (lambda v: v.update(clients=3), "i.json: clients: is not a known key"),
    ],
)
def test_wrong_instance_files_are_one_line(change: Any, message: str, tmp_path: Path) -> None:
    path = altered(TOY, tmp_path / "i.json", change)
    for command in (["solve"], ["bound"], ["schedule", "--scheduler", "best-fit"]):
        done = run(command[0], path, *command[1:])
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert message in done.stderr


def test_schedules_of_other_problems_are_one_line(tmp_path: Path) -> None:
    toy = ROOT / "instances/toy.json"
    makespan = ROOT / "instances/makespan-100x20.json"
    files = {}
    for path, name, key in ((toy, "vllm", "batches"), (makespan, "fcfs", "bins"), (TOY, "jsq", "workers")):
        files[path] = tmp_path / f"{key}.json", key
        assert run("schedule", path, "--scheduler", name, "-o", files[path][0]).exit_code == 0
    for path, (_, needs) in files.items():
        for other, (file, has) in files.items():
            done = run("verify", path, file)
            assert done.exit_code == (0 if path == other else 2)
            if path != other:
                name = imx.read_instance(path).name
                line = f"infermax-opt: {file}: {has}: schedules of the instance {name!r} have {needs}\n"
                assert done.stderr == line
                assert run("solve", path, "--warm-start", file).stderr == line


def test_heuristics_are_listed() -> None:
    text = run("schedulers").stdout
    assert all(f"  {name} " in text for name in HEURISTICS)
    names = json.loads(run("schedulers", "--json").stdout)["heuristics"]
    first = names.index(next(iter(HEURISTICS)))  # among those of other problems
    assert names[first : first + len(HEURISTICS)] == list(HEURISTICS)


def test_the_package_stays_light() -> None:
    code = (
        "import sys, infermax_opt as imx\n"
        "i = imx.read_instance(sys.argv[1])\n"
        "assert imx.bound(i)[0].value == 3\n"
        "assert imx.verify(i, imx.schedule(i, 'best-fit')).ok\n"
        "print([m for m in ('pyomo', 'ortools', 'highspy', 'numba', 'matplotlib') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(TOY)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_ctrl_c_reports_the_best(tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    solve = ("solve", OPEN, "--solver", "pack", "--time-limit", "120", "-o", out)
    done = stopped(*solve, after="engine pack: ", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    text = done.stdout
    assert re.search(r"ended by +interrupted", text)
    assert "schedule     4 workers" in text
    assert run("verify", OPEN, out).exit_code == 0
