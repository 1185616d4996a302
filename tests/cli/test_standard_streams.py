"""The name - is standard input where a file is read, and standard output where one is written."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from infermax_opt.cli.main import cli
from tests.support import ROOT

TOY = ROOT / "instances" / "toy.json"
STREAM = ROOT / "instances" / "stream-poisson-8.json"
TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,512,64\n0.1,2048,32\n0.15,300,80\n"


def run(*args: str | Path, given: bytes | str | None = None) -> Done:
    done = CliRunner().invoke(cli, [str(arg) for arg in args], input=given)
    assert "Traceback" not in done.output
    return done


@pytest.mark.parametrize("packed", [False, True])
def test_solve_pipes_into_verify(packed: bool) -> None:
    given = TOY.read_bytes()
    done = run("solve", "-", "-o", "-", given=gzip.compress(given) if packed else given)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["schema"] == "infermax-opt/result/1"
    assert "optimal: the schedule meets the lower bound" in done.stderr
    assert "wrote" not in done.stderr
    checked = run("verify", TOY, "-", given=done.stdout)
    assert (checked.exit_code, checked.stderr) == (0, "")
    checked = run("solve", TOY, "--warm-start", "-", given=done.stdout)
    assert "warm start    warm start" in checked.stdout


def test_json_on_standard_output_comes_once() -> None:
    done = run("solve", TOY, "-o", "-", "--json")
    assert json.loads(done.stdout)["status"] == "optimal"
    assert done.stderr == ""


def test_every_command_reads_and_writes_it(tmp_path: Path) -> None:
    made = run("import", "-", "--format", "vidur", "-o", "-", given=TRACE)
    assert json.loads(made.stdout)["name"] == "stdin"
    assert made.stderr.startswith("stdin: 3 requests")
    planned = run("schedule", "-", "--scheduler", "vllm", "-o", "-", given=made.stdout)
    assert json.loads(planned.stdout)["schema"] == "infermax-opt/schedule/1"
    bound = run("bound", "-", "-o", "-", given=made.stdout)
    assert json.loads(bound.stdout)["status"] == "bound-only"
    certificate = run("bound", TOY, "--certificate", "-")
    assert certificate.stdout.startswith("{\n")
    assert "lower bounds, best first" in certificate.stderr
    assert "certified" in run("check", TOY, "-", given=certificate.stdout).stdout
    schedule = run("schedule", TOY, "--scheduler", "vllm", "-o", "-").stdout
    picture = run("plot", TOY, "-", "-o", "-", given=schedule)
    assert picture.stdout_bytes.startswith(b"\x89PNG")
    assert picture.stderr == ""
    worker = run("calibrate", "--profile", "llama-3.1-8b_h100", "-o", "-")
    assert json.loads(worker.stdout)["gpus"] == 1
    limits = ("--ttft", "1", "--atgt", "0.05")
    trace = tmp_path / "t.csv"
    trace.write_text(TRACE)
    series = run(
        "workers", trace, "--format", "vidur", "--worker", "-", *limits, "-o", "-", given=worker.stdout
    )
    assert json.loads(series.stdout)["schema"] == "infermax-opt/workers/1"
    assert "fewest workers at a heartbeat" in series.stderr
    placed = run("workers", "-", "--placement", "-", given=STREAM.read_bytes())
    assert "fewest workers at a heartbeat" in placed.stderr
    assert run("verify", STREAM, "-", given=placed.stdout).exit_code == 0
    # A stream is read as an instance first.
    (tmp_path / "p.json").write_text(placed.stdout)
    assert run("verify", "-", tmp_path / "p.json", given=STREAM.read_bytes()).exit_code == 0
    seen = run("simulate", "-", "-o", "-", given=STREAM.read_bytes())
    assert json.loads(seen.stdout)["schema"] == "infermax-opt/simulation/1"
    assert "policy aladdin" in seen.stderr


@pytest.mark.parametrize(
    ("args", "given", "expected"),
    [
        (("verify", "-", "-"), "{}", "standard input: is to be read twice"),
        (("check", "-", "-"), "{}", "standard input: is to be read twice"),
        (("solve", "-", "--warm-start", "-"), "{}", "standard input: is to be read twice"),
        (("bound", "-"), "{", "-: is not JSON"),
        (("bound", "-"), b"\x1f\x8b\x08", "-: is not a complete gzip file"),
        (("bound", "-"), b"\xff", "-: is not UTF-8 text"),
        (("bound", TOY, "-o", "-", "--certificate", "-"), "", "-: is to be written twice"),
        (
            ("front", TOY, "--x", "makespan", "--y", "mean_e2e", "--parts", "-"),
            "",
            "-: is standard output, no",
        ),
        (("gap", TOY, TOY, "--certificate", "-"), "", "-: is standard output, no folder"),
        (
            (
                "plan",
                TOY,
                "--format",
                "vidur",
                "--machines",
                "llama-3.1-8b_h100",
                "--ttft",
                "1",
                "--certificates",
                "-",
            ),
            "",
            "-: is standard output, no folder",
        ),
        (("table", "paper-csp", "-o", "-"), "", "output: is standard output; a table is a folder of files"),
        (("workers", STREAM, "-o", "-", "--placement", "-"), "", "-: is to be written twice"),
        (("simulate", STREAM, "-o", "-", "--placement", "-"), "", "-: is to be written twice"),
    ],
)
def test_wrong_use_is_one_line(args: tuple[str, ...], given: bytes | str, expected: str) -> None:
    done = run(*args, given=given)
    assert done.exit_code == 2
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_real_pipe() -> None:
    program = f"{sys.executable} -m infermax_opt"
    command = f"{program} solve - -o - < {TOY} 2> /dev/null | gzip | {program} verify {TOY} -"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.startswith("toy: verified")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(closed: str, tmp_path: Path) -> None:
    target = tmp_path / "s.json"
    command = f"{sys.executable} -m infermax_opt schedule {TOY} --scheduler vllm -o {target} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(target.read_text())["schema"] == "infermax-opt/schedule/1"


def test_a_closed_standard_input_is_empty() -> None:
    command = f"{sys.executable} -m infermax_opt bound - <&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "-: is not JSON" in done.stderr


def test_what_a_shell_hands_over_is_read_as_often_as_need_be() -> None:
    """Which format a run has is guessed before it is read."""
    program = f"{sys.executable} -m infermax_opt"
    handed = f"<({program} schedule {TOY} --scheduler vllm --json)"
    command = f"{program} gap <(cat {TOY}) {handed} --metric makespan --time-limit 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, "makespan" in done.stdout) == (0, True), done.stderr
