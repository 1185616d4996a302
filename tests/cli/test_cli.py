"""The commands, their outputs and their exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from infermax_opt import api
from infermax_opt.cli import console
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim, Result, SolverReport
from infermax_opt.files.report import result_text
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.infermax import bound_process
from infermax_opt.infermax.data.cost import Attention
from infermax_opt.infermax.data.formats import read_instance, schedule_from_json, write_instance
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.data.suites import paper_cost
from tests.stopped import stopped
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")
PROGRAM = [sys.executable, "-c", "from infermax_opt.cli.main import main; main()"]


WITH_FULL = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def ok(*args: str | Path) -> str:
    done = run(*args)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def solved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("solved") / "result.json"
    text = ok("solve", TOY, "--threads", "1", "--time-limit", "20", "-o", path)
    assert "optimal" in text
    assert f"wrote {path}" in text
    return path


# --- the commands -------------------------------------------------------------------------------


def test_help_teaches() -> None:
    text = ok("--help")
    assert ok() == text
    for name in ("solve", "bound", "schedule", "verify", "import", "plot", "versions"):
        assert f"\n  {name} " in text
        if name != "versions":
            assert "Examples:" in ok(name, "--help"), name


def test_help_loads_nothing_heavy() -> None:
    program = [sys.executable, "-X", "importtime", *PROGRAM[1:]]
    done = subprocess.run([*program, "--help"], check=True, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "click" in loaded
    assert not loaded & {"numpy", "numba", "pyomo", "highspy", "ortools", "matplotlib", "networkx"}


def test_version() -> None:
    assert re.fullmatch(r"cli 0\.1\.0\n|infermax-opt 0\.1\.0\n", ok("--version"))
    assert json.loads(ok("versions", "--json")).keys() >= {"infermax-opt", "pyomo", "highspy", "ortools"}
    assert "python" in ok("versions")


def test_solve_and_verify_agree(solved: Path) -> None:
    value = json.loads(solved.read_text())
    assert value["status"] == "optimal"
    assert value["gap"] == 0
    assert value["metrics"]["evictions"] == 1
    text = ok("verify", TOY, solved)
    assert text.startswith("toy: verified")
    assert "confirmed by enumerating every schedule" in text
    check = json.loads(ok("verify", TOY, solved, "--json"))
    assert check["ok"] is True
    assert check["metrics"] == value["metrics"]


def test_solve_prints_json_for_machines(solved: Path) -> None:
    value = json.loads(ok("solve", TOY, "--warm-start", solved, "--json"))
    assert value["schema"] == "infermax-opt/result/1"
    assert value["upper_bound"] == json.loads(solved.read_text())["upper_bound"]


def test_bound(tmp_path: Path) -> None:
    path = tmp_path / "bound.json.gz"
    text = ok("bound", TOY, "-o", path)
    assert "closed-form" in text
    claim = read_schedule_or_claim(path)
    assert isinstance(claim, Claim)
    assert claim.schedule is None
    assert claim.upper_bound is None
    assert claim.lower_bound == api.bound(read_instance(TOY))[0].value
    assert "verified" in ok("verify", TOY, path)
    bounds = json.loads(ok("bound", TOY, "--json"))["lower_bounds"]
    values = [Fraction(str(bound["value"])) for bound in bounds]
    assert values == sorted(values, reverse=True)


def test_schedule_is_verified_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    assert "verified: nothing is wrong" in ok("schedule", TOY, "--scheduler", "vllm", "-o", path)
    assert "verified" in ok("verify", TOY, path)
    printed = ok("schedule", TOY, "--scheduler", "vllm", "--json")
    assert schedule_from_json(json.loads(printed)) == read_schedule_or_claim(path)


def test_wrong_schedules_are_reported_in_full(tmp_path: Path, solved: Path) -> None:
    path = tmp_path / "wrong.json"
    wrong = {
        "schema": "infermax-opt/schedule/1",
        "instance": "toy",
        "batches": [{"tokens": {"a": 5, "z": 1}}],
    }
    path.write_text(json.dumps(wrong))
    done = run("verify", TOY, path)
    assert done.exit_code == 1
    assert "NOT verified" in done.stdout
    assert "batch 1, request 'z': unknown_request" in done.stdout
    assert "processes 5 tokens of 4 missing" in done.stdout
    assert done.stderr == ""
    check = json.loads(run("verify", TOY, path, "--json").stdout)
    assert check["ok"] is False
    assert {v["rule"] for v in check["violations"]} == {"unknown_request", "tokens", "completion"}
    claims = json.loads(solved.read_text())
    claims["upper_bound"] = 0.01
    path.write_text(json.dumps(claims))
    done = run("verify", TOY, path)
    assert done.exit_code == 1
    assert "upper_bound: is 0.01" in done.stdout
    done = run("plot", TOY, path, "-o", tmp_path / "picture.png")
    assert done.exit_code == 1
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "picture.png").exists()
    # A warm start is its schedule, which is replayed; what else the file claims plays no part.
    assert run("solve", TOY, "--warm-start", path).exit_code == 0


def test_many_violations_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    entry = {"tokens": {"z": 1}, "repeat": 500}
    path.write_text(json.dumps({"schema": "infermax-opt/schedule/1", "instance": "toy", "batches": [entry]}))
    text = run("verify", TOY, path).stdout
    assert "rules broken: 502" in text
    assert "... and 482 more" in text


def test_plot(tmp_path: Path, solved: Path) -> None:
    path = tmp_path / "toy.png"
    assert ok("plot", TOY, solved, "-o", path) == f"wrote {path}\n"
    assert path.stat().st_size > 10_000


def test_a_picture_names_what_made_the_schedule(tmp_path: Path) -> None:
    schedule, path = tmp_path / "schedule.json", tmp_path / "toy.svg"
    ok("schedule", TOY, "--scheduler", "sarathi", "-o", schedule)
    ok("plot", TOY, schedule, "--label", "sarathi", "-o", path)
    assert "The schedule is by sarathi." in path.read_text()


def test_listings() -> None:
    assert "sarathi" in ok("schedulers")
    assert "vllm" in json.loads(ok("schedulers", "--json"))["schedulers"]
    assert "llama-3.1-8b_h100_hinge" in ok("profiles")
    assert any(p["name"] == "paper-example" for p in json.loads(ok("profiles", "--json"))["profiles"])


def test_import(tmp_path: Path) -> None:
    trace, path = tmp_path / "my.trace.csv", tmp_path / "instance.json"
    trace.write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,10,2\n1.75,9000,2\n2.5,0,3\n3.5,7,1\n"
    )
    done = run(
        "import", trace, "--format", "vidur", "-o", path, "--kv-capacity", "5000", "--skip-unfit",
        "--max-running", "7", "--block-size", "16", "--no-chunked-prefill", "--objective", "mean_ttft",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "my.trace: 2 requests, 17 input tokens, 3 output tokens, last arrival at 2 s" in done.stdout
    assert done.stderr.splitlines() == [
        f"infermax-opt: {trace}: left out 1 request: no input tokens",
        f"infermax-opt: {trace}: left out 1 request: can never fit",
    ]
    instance = read_instance(path)
    assert instance.name == "my.trace"
    assert instance.system == System(5000, 4096, 4096, max_running=7, block_size=16)
    assert not instance.policy.chunked_prefill
    assert str(instance.objective) == "mean_ttft"
    assert [r.arrival for r in instance.requests] == [0, 2]
    assert instance.cost.profile == "llama-3.1-8b_h100"
    done = run("import", trace, "--format", "vidur", "-o", path, "--kv-capacity", "5000")
    assert done.exit_code == 2
    assert f"{trace}: line 3: the request can never fit" in done.stderr
    done = run("import", trace, "--format", "vidur", "-o", path, "--json", "--offline", "--name", "n")
    assert json.loads(done.stdout)["requests"] == 3


def test_unknown_numbers_are_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(instance: Instance, **options: Any) -> Result:
        return Result(instance.name, instance.sha256, str(instance.objective), solver=SolverReport())

    monkeypatch.setattr(api, "solve", nothing)
    text = ok("solve", TOY)
    assert "unknown: neither a schedule nor a bound" in text
    for label in ("schedule", "lower bound", "gap"):
        assert re.search(rf"^  {label} +-($| )", text, re.MULTILINE), text
    value = json.loads(ok("solve", TOY, "--json"))
    assert (value["upper_bound"], value["lower_bound"], value["gap"]) == (None, None, None)


def test_an_undefined_tpot_is_a_dash(tmp_path: Path) -> None:
    toy = read_instance(TOY)
    instance = Instance("one", (RequestGroup("a", 3, 1),), toy.system, toy.cost)
    write_instance(instance, tmp_path / "one.json")
    text = ok("schedule", tmp_path / "one.json", "--scheduler", "vllm")
    assert re.search(r"mean_tpot +-  ", text)


def test_infeasible_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def infeasible(instance: Instance, **options: Any) -> Result:
        return Result(instance.name, instance.sha256, str(instance.objective), infeasible=True)

    monkeypatch.setattr(api, "solve", infeasible)
    assert run("solve", TOY).exit_code == 1


def test_options_reach_the_solver(monkeypatch: pytest.MonkeyPatch, solved: Path) -> None:
    seen: dict[str, Any] = {}

    def record(instance: Instance, **options: Any) -> Result:
        seen.update(options)
        return Result(instance.name, instance.sha256, str(instance.objective))

    monkeypatch.setattr(api, "solve", record)
    ok("solve", TOY)
    assert seen == {
        "formulation": None, "solver": "auto", "warm_start": "best", "time_limit": 60.0, "memory_limit": None,
        "threads": None, "seed": 0, "progress": None, "bounds": [], "target": None, "band": None,
    }  # fmt: skip
    ok(
        "solve", TOY, "--formulation", "csp", "--solver", "highs", "--warm-start", "none", "--seed", "9",
        "--time-limit", "1.5", "--memory-limit", "64", "--threads", "3",
    )  # fmt: skip
    assert seen == {
        "formulation": "csp", "solver": "highs", "warm_start": "none", "time_limit": 1.5,
        "memory_limit": 64 * 2**20, "threads": 3, "seed": 9, "progress": None, "bounds": [], "target": None,
        "band": None,
    }  # fmt: skip
    ok("solve", TOY, "--warm-start", solved)
    assert isinstance(seen["warm_start"], Schedule)


def test_the_memory_limit_says_that_it_stopped_an_engine(tmp_path: Path) -> None:
    path, out = ROOT / "instances" / "paper-csp" / "i64-chunked.json", tmp_path / "r.json"
    text = ok("solve", path, "--solver", "cpsat", "--memory-limit", "20", "--time-limit", "30", "-o", out)
    assert "\n  ended by      memory_limit: the limit of 20 MiB stopped it\n" in text
    assert "\n  memory limit  20 MiB\n" in text
    solver = json.loads(out.read_text())["solver"]
    assert (solver["termination"], solver["memory_limit"]) == ("memory_limit", 20 * 2**20)


def test_a_memory_limit_is_not_shown_as_one_of_planners() -> None:
    result = api.solve(read_instance(TOY), memory_limit=2**20, time_limit=5)
    assert result.solver is not None
    for engine, words in (
        ("search", ""),
        ("planner", ", of exact engines alone: planners and bounds have none"),
    ):
        shown = replace(result, solver=replace(result.solver, engine=engine))
        assert f"\n  memory limit  1 MiB{words}\n" in result_text(read_instance(TOY), shown)


# --- failures -----------------------------------------------------------------------------------


def breaking(error: BaseException) -> Any:
    def fail(*args: Any, **options: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InputError("is wrong", field="f", source="s"), 2, "infermax-opt: s: f: is wrong\n"),
        (MemoryError(), 2, "infermax-opt: out of memory"),
        (OSError(28, "No space left on device", "x"), 2, "infermax-opt: x: No space left on device\n"),
        (KeyboardInterrupt(), 130, "infermax-opt: interrupted\n"),
        (ZeroDivisionError("a\nb"), 2, "internal error: ZeroDivisionError: a b; please report it"),
        (RecursionError("deep"), 2, "internal error: RecursionError: deep"),
    ],
)
def test_no_exception_reaches_the_user(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, expected: str
) -> None:
    monkeypatch.setattr(api, "solve", breaking(error))
    done = run("solve", TOY)
    assert done.exit_code == code
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.output


def test_the_traceback_is_there_for_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERMAX_OPT_DEBUG", "1")
    monkeypatch.setattr(api, "bound", breaking(ZeroDivisionError("x")))
    done = run("bound", TOY)
    assert done.exit_code == 2
    assert "Traceback" in done.stderr


def full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that takes no file; its name.  What is kept elsewhere goes to another one."""
    full, spare = tmp_path / "full", tmp_path / "spare"
    full.mkdir()
    spare.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))
    rename = os.replace

    def replace(source: str, target: Path) -> None:
        if target.parent == full:
            raise OSError(28, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    return full


def test_a_result_survives_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    full = full_disk(monkeypatch, tmp_path)
    done = run("solve", TOY, "-o", full / "r.json")
    assert done.exit_code == 2
    assert "optimal" in done.stdout
    assert "wrote" not in done.stdout
    kept = re.search(r"r.json: cannot be written: No space left on device; kept in (\S+)\n", done.stderr)
    assert kept is not None
    assert "verified" in ok("verify", TOY, kept[1])
    assert not list(full.iterdir())


def test_all_files_of_a_command_survive_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that cannot be written stops no other, and one line says where all of them are."""
    full = full_disk(monkeypatch, tmp_path)
    vllm = tmp_path / "vllm.json"
    ok("schedule", TOY, "--scheduler", "vllm", "-o", vllm)
    ok("solve", TOY, "-o", tmp_path / "result.json")
    quick = (TOY, vllm, "--metric", "makespan")
    commands: list[list[object]] = [
        ["bound", TOY, "-o", full / "b.json", "--certificate", full / "c.json.gz"],
        ["gap", *quick, "-o", full / "g.json", "--csv", full / "g.csv", "--plot", full / "g.svg"],
        ["report", tmp_path / "result.json", "-o", full / "r.html"],
    ]
    for command in commands:
        done = run(*command)
        assert done.exit_code == 2
        assert "wrote" not in done.stdout
        assert done.stderr.count("\n") == 1
        for path in (Path(str(part)) for part in command if str(part).startswith(str(full))):
            wanted = rf"{re.escape(str(path))}: cannot be written: No space left on device; kept in ([^\s;]+)"
            found = re.search(wanted, done.stderr)
            assert found is not None
            assert found[1].endswith("".join(path.suffixes))
            assert Path(found[1]).stat().st_size
    done = run("gap", *quick, "-o", full / "g.json", "--csv", tmp_path / "g.csv")
    assert (done.exit_code, f"wrote {tmp_path / 'g.csv'}" in done.stdout) == (2, True)
    assert not list(full.iterdir())


def test_outputs_are_checked_before_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(api, "solve", breaking(AssertionError("solved in vain")))
    for target in (tmp_path, tmp_path / "missing" / "r.json", TOY):
        done = run("solve", TOY, "-o", target)
        assert done.exit_code == 2
        assert "internal error" not in done.stderr
    done = run("solve", TOY, "-o", tmp_path / "r.png", "--plot", tmp_path / "." / "r.png")
    assert (done.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "r.png: is to be written twice" in done.stderr
    monkeypatch.setattr(console.tempfile, "TemporaryFile", breaking(OSError(30, "Read-only file system")))
    done = run("solve", TOY, "-o", tmp_path / "r.json")
    assert "r.json: cannot be written: Read-only file system" in done.stderr


def test_devices_stay_devices(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    ok("schedule", TOY, "--scheduler", "vllm", "-o", pipe)
    assert json.loads(reader.communicate(timeout=10)[0])["instance"] == "toy"
    assert pipe.is_fifo()
    if os.path.exists("/dev/full"):
        done = run("schedule", TOY, "--scheduler", "vllm", "-o", "/dev/full")
        assert done.exit_code == 2
        assert "No space left" in done.stderr
        assert not os.path.isfile("/dev/full")


def test_links_stay_links(tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("before")
    link.symlink_to(target)
    ok("schedule", TOY, "--scheduler", "vllm", "-o", link)
    assert link.is_symlink()
    assert json.loads(target.read_text())["instance"] == "toy"


def test_a_closed_pipe_is_silent() -> None:
    command = f"{sys.executable} -c 'from infermax_opt.cli.main import main; main()' profiles --json"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; for k in 1 2 3; do {command}; done | head -c 1 > /dev/null"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=WITH_FULL)])
def test_files_are_written_where_nobody_reads_the_report(full: bool, tmp_path: Path) -> None:
    ok("schedule", TOY, "--scheduler", "vllm", "-o", tmp_path / "made.json")
    ours, theirs = os.pipe()
    os.close(ours)
    command = [sys.executable, "-c", "from infermax_opt.cli.main import main; main()", "gap", str(TOY)]
    command += [
        "made.json",
        "--metric",
        "makespan",
        "--time-limit",
        "1",
        "-o",
        "gap.json",
        "--csv",
        "gap.csv",
    ]
    with os.fdopen(theirs, "w") as closed, open("/dev/full" if full else os.devnull, "w") as other:
        stdout = other if full else closed
        done = subprocess.run(
            command, cwd=tmp_path, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert json.loads((tmp_path / "gap.json").read_text())["schema"] == "infermax-opt/gap/1"
    assert (tmp_path / "gap.csv").read_text().count("\n") == 2
    if full:
        assert (done.returncode, done.stderr) == (2, "infermax-opt: output: No space left on device\n")
    else:
        assert (done.returncode, done.stderr) == (141, "")


@WITH_FULL
def test_a_full_standard_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "profiles"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "infermax-opt: output: No space left on device\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_poor_terminal_gets_its_text(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "name.json"
    value = json.loads(Path(TOY).read_text())
    path.write_text(json.dumps({**value, "name": "\u65e5\u672c \u202e\x1b[31m"}))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([*PROGRAM, "bound", path], capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout
    assert b"\\x1b[31m" in done.stdout


def test_ctrl_c_still_reports(tmp_path: Path) -> None:
    """Interrupted while it solves, `solve` reports the best so far."""
    path = ROOT / "instances" / "paper-csp" / "i64.json"
    value = json.loads(path.read_text())
    value["requests"][0].update(count=24, output_tokens=40)
    value["system"]["kv_capacity"] = 300
    (tmp_path / "large.json").write_text(json.dumps(value))
    out = tmp_path / "result.json"
    solve = ("solve", tmp_path / "large.json", "--threads", "1", "--time-limit", "30", "-o", out)
    done = stopped(*solve, after="search (exact): ", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "lower bound" in done.stdout
    assert "verified" in ok("verify", tmp_path / "large.json", out)


def crowd() -> Instance:
    """Beyond the exact engines, so that planners and searched bounds run."""
    groups = (RequestGroup("r", 32, 32, count=200),)
    return Instance("crowd", groups, System(100, 4096, 4096), paper_cost(Attention.EXACT))


def test_a_failing_bound_search_costs_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    start = bound_process.start_child
    monkeypatch.setattr(bound_process, "start_child", lambda _, errors: start("infermax_opt.nothing", errors))
    result = api.solve(crowd(), time_limit=1, threads=1)
    assert result.upper is not None
    assert result.solver is not None
    assert result.solver.details["bound search failed"] == "the process ended with exit code 1"


def test_a_certificate_that_cannot_be_written_costs_no_result(tmp_path: Path) -> None:
    write_instance(crowd(), tmp_path / "crowd.json")
    (tmp_path / "result.certificate.json.gz").mkdir()
    done = run("solve", tmp_path / "crowd.json", "--time-limit", "6", "-o", tmp_path / "result.json")
    assert done.exit_code == 2
    assert "certificate.json.gz" in done.stderr
    claim = read_schedule_or_claim(tmp_path / "result.json")
    assert isinstance(claim, Claim)
    assert claim.schedule is not None
