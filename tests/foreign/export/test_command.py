"""The command `export`: what it writes, what it says, what it refuses; and the page about it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from infermax_opt.cli.main import cli
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")
PAGE = (ROOT / "docs" / "export.md").read_text()


@pytest.fixture(autouse=True)
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("instances").symlink_to(ROOT / "instances")


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_page_shows_what_the_command_prints() -> None:
    command, _, shown = blocks("console")[0].partition("\n")
    done = run(*shlex.split(command.removeprefix("$ infermax-opt ")))
    assert (done.exit_code, done.output) == (0, shown)


def test_the_other_commands_of_the_page_run() -> None:
    Path("trace.json").write_text(Path(TOY).read_text())
    for command in blocks("console")[1].splitlines():
        done = run(*shlex.split(command.removeprefix("$ infermax-opt ")))
        assert done.exit_code == 0, done.output
    assert len(Path("workload.jsonl").read_text().splitlines()) == 2


def test_the_code_of_the_page_runs() -> None:
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "MIP start solution is feasible" in done.stdout
    assert re.search(r"Status +Optimal", done.stdout)


def test_json_lists_the_files() -> None:
    done = run("export", TOY, "--objective", "mean_e2e", "--formulation", "csp", "-o", "m.lp", "--json")
    found = json.loads(done.stdout)
    assert sorted(found["files"].values()) == ["m.columns.json", "m.lp", "m.mst", "m.sol"]
    assert found["scope"] == "exact"
    assert all(Path(name).is_file() for name in found["files"].values())


def test_requests_go_to_standard_output() -> None:
    run("schedule", TOY, "--scheduler", "vllm", "-o", "s.json")
    done = run("export", TOY, "s.json", "--as", "llmservingsim", "-o", "-")
    assert [json.loads(line)["input_toks"] for line in done.stdout.splitlines()] == [4, 4]
    assert "2 requests in the order of the plan" in done.stderr


def test_a_wrong_schedule_is_exit_code_1() -> None:
    run("schedule", TOY, "--scheduler", "vllm", "-o", "s.json")
    value = json.loads(Path("s.json").read_text())
    value["batches"].pop()
    Path("s.json").write_text(json.dumps(value))
    done = run("export", TOY, "s.json", "--as", "vllm-requests", "-o", "r.jsonl")
    assert done.exit_code == 1
    assert "not exported, it is wrong" in done.stderr
    assert not Path("r.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--formulation", "flow", "-o", "m.txt"], "ends in .mps, .lp, .nl"),
        (["--formulation", "nix", "-o", "m.mps"], "'nix' is no installed formulation"),
        (["--formulation", "flow", "--objective", "mean_e2e", "-o", "m.mps"], "minimises the makespan only"),
        (["--formulation", "flow", "-o", "gone/m.mps"], "cannot be written"),
        (["--formulation", "flow", "--warm-start", "nix", "-o", "m.mps"], "no scheduler 'nix'"),
        (["-o", "m.mps"], "either a formulation"),
        (["--formulation", "flow", "--as", "llmservingsim", "-o", "m.mps"], "either a formulation"),
        (["--as", "llmservingsim", "-o", "r.jsonl"], "a schedule or result is needed"),
        ([TOY, "--formulation", "flow", "-o", "m.mps"], "starts no model by itself"),
        ([TOY, "--as", "llmservingsim", "-o", "r.jsonl"], "toy.json"),
    ],
)
def test_bad_input_is_one_line(words: list[str], problem: str) -> None:
    done = run("export", TOY, *words)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in Path().iterdir()] == ["instances"]


def test_no_input_is_overwritten() -> None:
    Path("m.columns.json").write_text(Path(TOY).read_text())
    done = run("export", "m.columns.json", "--formulation", "flow", "-o", "m.mps")
    assert done.exit_code == 2
    assert "is an input of this command" in done.stderr
    assert [path.name for path in Path().glob("m.*")] == ["m.columns.json"]


def test_no_start_of_an_earlier_model_stays() -> None:
    assert run("export", TOY, "--formulation", "flow", "-o", "model.mps").exit_code == 0
    assert Path("model.sol").exists()
    done = run("export", TOY, "--formulation", "flow", "-o", "model.mps", "--warm-start", "none")
    assert done.exit_code == 0, done.output
    assert not Path("model.sol").exists()
    assert not Path("model.mst").exists()


def test_options_of_models_are_refused_for_requests() -> None:
    assert run("schedule", TOY, "--scheduler", "vllm", "-o", "v.json").exit_code == 0
    done = run("export", TOY, "v.json", "--as", "vllm-requests", "--seed", "4", "-o", "r.jsonl")
    assert done.exit_code == 2
    assert "--seed goes with --formulation only" in done.output
