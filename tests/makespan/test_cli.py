"""The commands on makespan instances."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from infermax_opt.cli.main import cli
from infermax_opt.files.instances import read_instance
from infermax_opt.makespan.data.formats import read_bins, write_bins, write_makespan_instance
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.methods.by_name import METHODS, offline_assignment, run_method
from infermax_opt.makespan.replay.bins import replay_bins
from tests.support import ROOT


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("makespan") / "small.json"
    write_makespan_instance(gsm8k_like(requests=40, clients=8, error=0.3), path)
    return path


@pytest.mark.parametrize("method", METHODS)
def test_schedules_are_made_verified_and_drawn(method: str, instance: Path, tmp_path: Path) -> None:
    done = run("schedule", instance, "--scheduler", method, "-o", tmp_path / "s.json")
    assert done.exit_code == 0, done.output
    assert "verified: nothing is wrong" in done.stdout
    assert "utilisation" in done.stdout
    checked = run("verify", instance, tmp_path / "s.json", "--json")
    assert checked.exit_code == 0
    value = json.loads(checked.stdout)
    problem = read_instance(instance)
    assert isinstance(problem, MakespanInstance)
    replayed = replay_bins(problem, read_bins(tmp_path / "s.json"))
    assert value["metrics"]["makespan"] == float(replayed.makespan)
    assert value["ok"] is True
    drawn = run("plot", instance, tmp_path / "s.json", "-o", tmp_path / "s.png")
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "s.png").stat().st_size > 10_000


def test_bounds_are_below_every_method(instance: Path) -> None:
    done = run("bound", instance, "--json")
    assert done.exit_code == 0
    bounds = [float(some["value"]) for some in json.loads(done.stdout)["lower_bounds"]]
    assert bounds == sorted(bounds, reverse=True)
    problem = read_instance(instance)
    assert isinstance(problem, MakespanInstance)
    best = min(replay_bins(problem, run_method(problem, name).schedule).makespan for name in METHODS)
    assert 0.7 * float(best) < bounds[0] <= float(best)
    assert "arc lengths" in run("bound", instance).stdout


def test_the_offline_assignment_is_even() -> None:
    problem = gsm8k_like(requests=60, clients=6)
    loads = [0] * 7
    for request, client in zip(problem.requests, offline_assignment(problem), strict=True):
        loads[client] += request.output_tokens
    assert loads[0] == 0
    assert max(loads) == -(-sum(loads) // 6)


def test_a_wrong_schedule_is_named(instance: Path, tmp_path: Path) -> None:
    problem = read_instance(instance)
    write_bins(MakespanSchedule(problem.name, [Bin({"r1": 9}, 5)]), tmp_path / "bad.json")
    done = run("verify", instance, tmp_path / "bad.json")
    assert done.exit_code == 1
    assert "NOT verified" in done.stdout
    assert "unknown_client: client 9 is not between 1 and 8" in done.stdout
    drawn = run("plot", instance, tmp_path / "bad.json", "-o", tmp_path / "bad.png")
    assert drawn.exit_code == 1
    assert "not drawn" in drawn.stderr
    assert not (tmp_path / "bad.png").exists()
    write_bins(MakespanSchedule("other", []), tmp_path / "other.json")
    assert "the schedule is for 'other'" in run("verify", instance, tmp_path / "other.json").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["schedule", "--scheduler", "sarathi"], "'sarathi' is none of fcfs, offline, online, hybrid"),
        (["solve", "--solver", "search"], "'search' is none of auto, exact, anneal, highs, cpsat"),
        (["solve", "--formulation", "flow"], "'flow' is no installed formulation; there is arcs, mip"),
        (["solve", "--formulation", "mip", "--solver", "exact"], "formulation: exact takes no formulation"),
        (["solve", "--memory-limit", "9"], "memory_limit: the engines of makespan instances take none"),
        (["solve", "--warm-start", "sarathi"], "'sarathi' is none of fcfs, offline, online, hybrid"),
    ],
)
def test_what_it_cannot_do_is_one_line(args: list[str], message: str, instance: Path) -> None:
    done = run(args[0], instance, *args[1:])
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_infermax_schedule_is_no_makespan_schedule(instance: Path, tmp_path: Path) -> None:
    run("schedule", ROOT / "instances/toy.json", "--scheduler", "vllm", "-o", tmp_path / "toy.json")
    done = run("verify", instance, tmp_path / "toy.json")
    assert done.exit_code == 2
    assert "toy.json: batches: schedules of the instance" in done.stderr
