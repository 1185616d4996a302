"""Tables: what a row says, and that no kill loses or doubles one."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt import api
from infermax_opt.api import verify
from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Result
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.infermax import heuristics
from infermax_opt.infermax.columns import ROW_KIND
from infermax_opt.infermax.data.formats import read_instance, write_instance
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.suites import csp_case
from infermax_opt.infermax.heuristics import aimed_names, scheduler_names
from infermax_opt.infermax.problem import InferMaxProblem
from infermax_opt.table import compute as table_compute
from infermax_opt.table import pool as table_pool
from infermax_opt.table import run as table_run
from infermax_opt.table.archive import Archive, schedule_sha256
from infermax_opt.table.compute import Job, compute_row
from infermax_opt.table.journal import JOURNAL, open_journal
from infermax_opt.table.output import Table, csv_text, markdown_text, table_to_json
from infermax_opt.table.pool import Answer, run_jobs
from infermax_opt.table.row import Row, RowOptions
from infermax_opt.table.run import run_table
from infermax_opt.table.suites import Case, Suite, get_suite
from tests.campaign import campaign
from tests.support import ROOT

PROGRAM = [sys.executable, "-c", "from infermax_opt.cli.main import main; main()"]
SMALL = ("csp-i1-o4-b4", "csp-i2-o4-b4", "csp-i4-o4-b4")
only_linux = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="looks for processes in /proc")


def some_row(name: str = "mine", **changes: Any) -> Row:
    own = {
        "input_tokens": 1, "output_tokens": 4, "kv_capacity": 8, "max_batch_tokens": 16,
        "max_prefill_tokens": 16, "batches": 7, "evictions": 0,
    }  # fmt: skip
    own |= {name: changes.pop(name) for name in own if name in changes}
    row = Row(
        kind=ROW_KIND, own=own,
        suite="paper-csp", instance=name, instance_sha256=name * 3, protocol="01234567", requests=4,
        status="feasible", upper_bound=Fraction("0.2"), lower_bound=Fraction("0.15"), bound="KV area",
        proof="closed-form", bound_check="recomputed", certificate=None, schedule_source="scheduler:vllm",
        schedule_sha256="ab" * 32, result=f"results/01234567/{name}.json.gz",
        schedulers={"vllm": Fraction("0.2"), "vllm_ef": Fraction("0.3"), "rank": None},
        seconds=0.125, time_limit=60.0, seed=0, best_known=False, threads=1,
        versions={"infermax-opt": "0.1.0"},
    )  # fmt: skip
    return replace(row, **changes)


UNKNOWN = some_row(
    "unknown", input_tokens=None, output_tokens=None, upper_bound=None, lower_bound=None, bound=None,
    proof=None, bound_check=None, schedule_source=None, schedule_sha256=None, schedulers={"vllm": None},
    batches=None, evictions=None, seconds=None, status="unknown",
)  # fmt: skip


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


def names_in(folder: Path) -> list[str]:
    return [json.loads(line)["instance"] for line in (folder / JOURNAL).read_text().splitlines()]


def workers_of(process: int) -> list[int]:
    """Table workers among the children of a process."""
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            for child in (task / "children").read_text().split():
                if b"table.worker" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
    return found


def gone(process: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return " Z " in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True


def all_gone(processes: list[int]) -> bool:
    return all(map(gone, processes))


def until(true: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def wait_for_rows(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until the journal has so many lines, or the process has ended."""

    def there() -> bool:
        return process.poll() is not None or (path.exists() and path.read_bytes().count(b"\n") >= count)

    until(there)


# --- rows and their texts -----------------------------------------------------------------------


@pytest.mark.parametrize("row", [some_row(), UNKNOWN])
def test_a_row_is_read_back(row: Row) -> None:
    assert Row.from_json(json.loads(json.dumps(row.to_json())), ROW_KIND) == row


def test_gaps() -> None:
    row = some_row()
    assert row.gap == Fraction(1, 4)
    assert row.distance(row.schedulers["vllm_ef"]) == Fraction(1, 2)
    assert row.distance(None) is None
    assert (row.verified, row.certified) == (True, False)
    # Bounds that are equal as fractions may differ in the 30th digit of what is written.
    assert some_row(status="optimal").gap == 0
    assert UNKNOWN.gap is None
    assert not UNKNOWN.verified
    assert not some_row(
        bound_check="not checked: proved by a solver, and too large to enumerate here"
    ).verified
    assert some_row(certificate="certificates/x.json").certified


def table_of(*rows: Row, **more: Any) -> Table:
    return Table("paper-csp", RowOptions(), "0.1.0", rows, 22, **more)


def test_unknown_is_never_a_number() -> None:
    table = table_of(some_row(), UNKNOWN, failures={"csp-i8-o4-b4": "no row: killed"})
    first, second = csv.DictReader(io.StringIO(csv_text(table)))
    assert (first["gap_percent"], first["vllm_ef_gap_percent"], first["rank_gap_percent"]) == ("25", "50", "")
    assert first["upper_bound_s"] == "0.2"
    empty = ("I", "O", "upper_bound_s", "lower_bound_s", "gap_percent", "certificate", "vllm_gap_percent")
    assert [second[name] for name in (*empty, "seconds")] == [""] * 8
    text = markdown_text(table)
    assert (
        "| mine | 4 | 1 | 4 | 8 | 16 | 0.2 | 0.15 | 25 | KV area | closed-form | - | scheduler:vllm |" in text
    )
    assert "| 25 (50) | - |" in text
    assert "| unknown | 4 | - | - | 8 | 16 | - | - | - | - | - | - | - | - | - | - (-) | - |" in text
    assert "rows: 2 of 22" in text
    assert "gap, %: median 25, mean 25, max 25 (1 unknown)" in text
    assert "csp-i8-o4-b4: no row: killed" in text
    value = table_to_json(table)
    assert value["rows"][1]["gap"] is None
    assert value["rows"][0]["schedulers"]["vllm_ef"] == {"value": Fraction("0.3"), "gap": Fraction(1, 2)}
    assert value["summary"]["verified"] == 1
    assert "inf" not in str(table_to_json(table_of(UNKNOWN))["summary"])


def test_summary() -> None:
    bounds = [Fraction(x, 20) for x in (4, 3, 2, 1)]
    rows = [some_row(str(k), upper_bound=Fraction(1, 5), lower_bound=b) for k, b in enumerate(bounds)]
    summary = table_of(*rows).summary
    assert (summary.median_gap, summary.mean_gap, summary.max_gap) == (
        Fraction(3, 8), Fraction(3, 8), Fraction(3, 4),
    )  # fmt: skip
    assert table_of().summary.max_gap is None
    assert "| --- |" in markdown_text(table_of())


# --- the journal --------------------------------------------------------------------------------


def test_a_last_line_cut_anywhere(tmp_path: Path) -> None:
    first, second, third = (some_row(name) for name in ("one", "two", "three"))
    with open_journal(tmp_path) as journal:
        journal.append(first)
        journal.append(second)
    path = tmp_path / JOURNAL
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    near = 60  # of the ends of the line every cut is tried, in between some
    for end in [
        end
        for end in range(start, len(whole))
        if end < start + near or end > len(whole) - near or not end % 5
    ]:
        path.write_bytes(whole[:end])
        with open_journal(tmp_path) as journal:
            assert list(journal.rows.values()) == [first]
            assert path.read_bytes() == whole[:start]
            if end % 50 == 0:
                journal.append(second)
                journal.append(third)
                journal.append(second)
        if end % 50 == 0:
            with open_journal(tmp_path) as journal:
                assert list(journal.rows.values()) == [first, second, third]
    # Zeros are what a file system may show of a write that a power cut interrupted.
    path.write_bytes(whole + b"\0" * 100)
    with open_journal(tmp_path) as journal:
        assert list(journal.rows.values()) == [first, second]


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with open_journal(tmp_path) as journal:
        journal.append(some_row("one"))
        before = (tmp_path / JOURNAL).read_bytes()
        monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[:10]))
        with pytest.raises(InputError) as caught:
            journal.append(some_row("two"))
        assert str(caught.value) == f"{tmp_path / JOURNAL}: cannot be written: No space left on device"
        monkeypatch.undo()
        assert (tmp_path / JOURNAL).read_bytes() == before
        journal.append(some_row("two"))
    assert names_in(tmp_path) == ["one", "two"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{}", "line 2, suite: is missing"),
        (b"{", "line 2: is not JSON"),
        (b"\xff", "line 2: is not UTF-8"),
        (b'"\xc3\xa4"', "line 2: 'ä' is not an object"),
    ],
)
def test_foreign_lines(tmp_path: Path, line: bytes, problem: str) -> None:
    text = json.dumps(some_row().to_json()).encode() + b"\n"
    if problem.endswith("suite: is missing"):
        value = some_row().to_json()
        del value["suite"]
        line = json.dumps(value).encode()
    (tmp_path / JOURNAL).write_bytes(text + line + b"\n" + text)
    with pytest.raises(InputError) as caught, open_journal(tmp_path):
        pass
    assert f"{tmp_path / JOURNAL}: {problem}" in str(caught.value)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with open_journal(tmp_path):
        message = rf"is in use by another run \(process {os.getpid()}\)"
        with pytest.raises(InputError, match=message), open_journal(tmp_path):
            pass
        done = subprocess.run(
            [*PROGRAM, "table", "paper-csp", "-o", tmp_path], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert done.stderr == f"infermax-opt: {tmp_path}: is in use by another run (process {os.getpid()})\n"
    assert not (tmp_path / ".lock").exists()


def test_the_lock_of_a_killed_run_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path\n"
        "from infermax_opt.table.journal import open_journal\n"
        "with open_journal(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(InputError, match=f"process {holder.pid}"), open_journal(tmp_path):
        pass
    holder.kill()
    holder.communicate()
    assert (tmp_path / ".lock").exists()
    with open_journal(tmp_path) as journal:
        journal.append(some_row())


# --- one row ------------------------------------------------------------------------------------


def job(tmp_path: Path, instance: Instance, archive: Path | None = None, seconds: float = 3.0) -> Job:
    write_instance(instance, tmp_path / f"{instance.name}.json")
    options = RowOptions(seconds, 0, archive is not None)
    return Job("mine", instance.name, str(tmp_path), "1", options, 1, archive and str(archive))


def test_a_row_is_a_function_of_its_instance_and_options(tmp_path: Path) -> None:
    instance = csp_case(2, chunked=False)
    row = compute_row(instance, job(tmp_path, instance))
    assert row == replace(compute_row(instance, job(tmp_path, instance)), seconds=row.seconds)
    assert (row.requests, row.own["input_tokens"], row.own["output_tokens"], row.own["kv_capacity"]) == (
        4,
        2,
        4,
        5,
    )
    assert row.status == "optimal"
    assert row.gap == 0
    assert row.verified
    assert row.schedulers.keys() == {*scheduler_names(), *aimed_names()}
    assert all((row.distance(value) or 0) >= row.gap for value in row.schedulers.values())
    claim = read_schedule_or_claim(tmp_path / row.result)
    check = verify(instance, claim)
    assert check.ok
    assert check.objective == row.upper_bound


def test_mixed_lengths_are_null(tmp_path: Path) -> None:
    toy = read_instance(ROOT / "instances" / "toy.json")
    mixed = replace(toy, groups=(toy.groups[0], replace(toy.groups[1], input_tokens=3)))
    row = compute_row(mixed, job(tmp_path, mixed))
    assert (row.requests, row.own["input_tokens"], row.own["output_tokens"]) == (2, None, 4)


def test_nothing_wrong_gets_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = csp_case(2, chunked=False)
    real = api.solve

    def solve(too_much: Fraction, *args: Any, **options: Any) -> Result:
        result = real(*args, **options)
        assert result.upper is not None
        lower = LowerBound(result.upper.value * too_much, "liar", Proof.CLOSED_FORM)
        return replace(result, upper=replace(result.upper, value=result.upper.value * 2), lower=lower)

    monkeypatch.setattr(api, "solve", lambda *a, **o: solve(Fraction(1), *a, **o))
    with pytest.raises(InputError, match="did not pass verification"):
        compute_row(instance, job(tmp_path, instance))
    monkeypatch.setattr(api, "solve", lambda *a, **o: solve(Fraction(3, 2), *a, **o))
    with pytest.raises(ValueError, match="exceeds upper bound"):  # a scheduler refutes it
        compute_row(instance, job(tmp_path, instance))
    assert not list(tmp_path.rglob("*.json.gz"))


def test_no_scheduler_beats_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = csp_case(2, chunked=False)

    def solve(instance: Instance, **options: Any) -> Result:
        return Result(instance.name, instance.sha256, str(instance.objective), lower=api.bound(instance)[0])

    monkeypatch.setattr(api, "solve", solve)
    row = compute_row(instance, job(tmp_path, instance))
    assert row.upper_bound == min(v for v in row.schedulers.values() if v is not None)
    assert str(row.schedule_source).startswith("scheduler:")
    assert row.seconds is None
    assert row.gap is not None


def test_failed_schedulers_are_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    instance = csp_case(2, chunked=False)
    real = heuristics.run_scheduler

    def run_scheduler(instance: Instance, name: str) -> Any:
        if name == "sarathi":
            raise InputError("needs too many batches")
        return real(instance, name)

    monkeypatch.setattr(heuristics, "run_scheduler", run_scheduler)
    row = compute_row(instance, job(tmp_path, instance))
    assert row.schedulers["sarathi"] is None
    assert row.schedulers["vllm"] is not None
    assert row.status == "optimal"


def test_certificates_count_when_the_checker_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = csp_case(2, chunked=False)

    def certificate(instance: Instance, result: Result, directory: Path) -> str:
        (directory / "proof.json").write_text("{}")
        return "proof.json"

    monkeypatch.setattr(table_compute, "_certificate", certificate)
    row = compute_row(instance, job(tmp_path, instance))
    assert row.certified
    assert (tmp_path / str(row.certificate)).read_text() == "{}"


def test_rows_start_from_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = csp_case(2, chunked=False)
    optimal = api.solve(instance, time_limit=20)
    monkeypatch.setattr(
        InferMaxProblem, "heuristics_for", lambda problem, instance: ("vllm",)
    )  # not the best one
    archive = Archive(tmp_path / "best", "mine")
    assert optimal.schedule is not None
    archive.improve(instance, optimal, source="search", versions={})
    seen: list[Any] = []
    real = api.solve

    def solve(*args: Any, **options: Any) -> Result:
        seen.append(options["warm_start"])
        return real(*args, **options)

    monkeypatch.setattr(api, "solve", solve)
    row = compute_row(instance, job(tmp_path, instance, archive.directory))
    assert [schedule_sha256(schedule) for schedule in seen] == [schedule_sha256(optimal.schedule)]
    assert row.schedule_source == "archive"
    assert row.best_known
    assert row.status == "optimal"


# --- whole tables -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Table]:
    folder = tmp_path_factory.mktemp("table") / "new" / "folder"
    lines: list[str] = []
    table = run_table(
        "paper-csp", folder, time_limit=2, only=SMALL, jobs=2, progress=lambda event: lines.append(str(event))
    )
    assert len(lines) == 3
    assert all(line.startswith(f"{k}/3 csp-i") for k, line in enumerate(lines, 1))
    assert "gap 0 %; about " in lines[0]
    assert lines[0].endswith(" left")
    assert lines[2].endswith("gap 0 %")
    return folder, table


def test_a_table(made: tuple[Path, Table]) -> None:
    folder, table = made
    assert [row.instance for row in table.rows] == list(SMALL)
    assert (table.computed, table.total, table.failures) == (3, 22, {})
    assert table.summary.verified == 3
    rows = list(csv.DictReader((folder / "table.csv").open()))
    assert [row["instance"] for row in rows] == list(SMALL)
    value = json.loads((folder / "table.json").read_text())
    assert value["schema"] == "infermax-opt/table/1"
    assert [row["instance"] for row in value["rows"]] == list(SMALL)
    assert value["summary"]["max_gap"] == 0
    assert (folder / "table.md").read_text() == markdown_text(table)
    for row in rows:
        files = (folder / "instances" / f"{row['instance']}.json", folder / row["result"])
        assert run("verify", *files).exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "certificates", "instances", "results", "rows.jsonl", "table.csv", "table.json", "table.md",
    ]  # fmt: skip


def test_a_second_run_computes_nothing(made: tuple[Path, Table]) -> None:
    folder, table = made
    before = (folder / JOURNAL).read_bytes()
    again = run_table("paper-csp", folder, time_limit=2, only=["csp-i1-o4-b4"], limit_rows=5)
    assert again == replace(table, computed=0)
    assert (folder / JOURNAL).read_bytes() == before


def test_other_options_are_another_table(tmp_path: Path, made: tuple[Path, Table]) -> None:
    (tmp_path / JOURNAL).write_bytes((made[0] / JOURNAL).read_bytes())
    table = run_table("paper-csp", tmp_path, time_limit=2, only=SMALL, seed=1, limit_rows=1)
    assert [(row.instance, row.seed) for row in table.rows] == [(SMALL[0], 1)]
    assert len(names_in(tmp_path)) == 4
    assert len(run_table("paper-csp", tmp_path, time_limit=2, only=SMALL).rows) == 3
    assert len(names_in(tmp_path)) == 4


def test_the_archive_grows_with_the_table(tmp_path: Path) -> None:
    best, options = (
        tmp_path / "best",
        {"time_limit": 2, "only": ["csp-i[14]-o4-b4"], "best_known": tmp_path / "best"},
    )
    table = run_table("paper-csp", tmp_path / "t", **options)  # type: ignore[arg-type]
    assert not table.failures
    archive = Archive(best, "paper-csp")
    for row in table.rows:
        entry = archive.entries()[row.instance]
        assert entry.upper is not None
        assert entry.lower is not None
        assert (entry.upper.value, entry.lower.value) == (row.upper_bound, row.lower_bound)
        assert entry.upper.schedule_sha256 == row.schedule_sha256
    # A run that is killed between journal and archive makes up for it later.
    before = archive.path.read_text()
    archive.path.unlink()
    assert run_table("paper-csp", tmp_path / "t", **options).computed == 0  # type: ignore[arg-type]
    assert archive.path.read_text() == before
    # An archive that lies costs the rows that it lies about.
    value = json.loads(before)
    value["entries"][0]["lower"] = None
    value["entries"][0]["upper"]["value"] = "0.01"
    archive.path.write_text(json.dumps(value))
    done = run(
        "table", "paper-csp", "-o", tmp_path / "u", "--time-limit", "2", "--only", "csp-i[14]-o4-b4",
        "--best-known", best,
    )  # fmt: skip
    assert done.exit_code == 1
    assert "rows: 1 of 22" in done.stdout
    assert "csp-i1-o4-b4: no row: " in done.stdout
    assert "claims 0.01, but its schedule replays to 0.0819" in done.stdout
    assert names_in(tmp_path / "u") == ["csp-i4-o4-b4"]


def test_your_own_cases(tmp_path: Path) -> None:
    toy = read_instance(ROOT / "instances" / "toy.json")
    table = run_table(Suite("mine", (Case("toy", lambda: toy),)), tmp_path, time_limit=2)
    assert [row.instance for row in table.rows] == ["toy"]


# --- kills --------------------------------------------------------------------------------------


@contextlib.contextmanager
def table_process(folder: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    command = [*PROGRAM, "table", "paper-csp", "-o", str(folder), "--time-limit", "0.3", "--jobs", "2", *more]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # Where the tests run in the background of a shell, Ctrl-C would be ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@only_linux
def test_kill_9_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Killed at random moments until all rows are there; a row once written stays as it is."""
    wanted = [case.name for case in get_suite("paper-csp").select(["csp-*-b4"])]
    assert len(wanted) == 11
    draw = random.Random(1)
    kept = b""
    path = tmp_path / JOURNAL
    for _ in campaign(3, 6):
        with table_process(tmp_path, "--only", "csp-*-b4") as process:
            wait_for_rows(path, kept.count(b"\n") + 1, process)
            time.sleep(draw.uniform(0, 0.5))
            workers = workers_of(process.pid) if process.poll() is None else []
            process.send_signal(signal.SIGKILL)
            process.wait()
            # Workers end with the run that they work for, in the middle of a row too.
            until(partial(all_gone, workers), 5)
        now = path.read_bytes()
        assert now.startswith(kept)
        kept = now[: now.rfind(b"\n") + 1]
    done = run(
        "table", "paper-csp", "-o", tmp_path, "--time-limit", "0.3", "--only", "csp-*-b4", "--jobs", "2"
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / JOURNAL).read_bytes().startswith(kept)
    assert sorted(names_in(tmp_path)) == sorted(wanted)
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["instance"] for row in rows] == wanted
    assert not list(tmp_path.rglob(".*"))


def test_tables_that_take_long_are_written_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of many rows would otherwise be most of a run."""
    written: list[int] = []

    def slow(table: Table) -> str:
        written.append(len(table.rows))
        time.sleep(0.3)
        return ""

    def run(jobs: Iterable[Job], workers: int) -> Iterator[Answer]:
        for job in jobs:
            yield Answer(job, some_row(job.name, suite="mine", protocol=job.options.protocol(job.version)))

    monkeypatch.setattr(table_run, "WRITERS", {"table.csv": slow})
    monkeypatch.setattr(table_run, "PAUSE", 0.0)
    monkeypatch.setattr(table_pool, "run_jobs", run)
    case = csp_case(1, chunked=False)
    suite = Suite("mine", tuple(Case(f"m{k}", partial(replace, case, name=f"m{k}")) for k in range(40)))
    run_table(suite, tmp_path, time_limit=1, jobs=1)
    assert written == [1, 40]


@only_linux
def test_a_killed_worker_costs_its_row(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(event: object) -> None:
        # The first row is there; the one that is being computed now takes its full time.
        if not killed:
            until(lambda: workers_of(os.getpid()))
            killed.extend(workers_of(os.getpid()))
            for worker in killed:
                os.kill(worker, signal.SIGKILL)

    fast, slow, last = (csp_case(size, chunked=size == 64) for size in (1, 64, 2))
    suite = Suite("mine", tuple(Case(i.name, partial(replace, i)) for i in (fast, slow, last)))
    table = run_table(suite, tmp_path, time_limit=0.5, jobs=1, progress=kill)
    assert len(killed) == 1
    assert table.failures == {slow.name: "no row: the worker ended with SIGKILL"}
    assert [row.instance for row in table.rows] == [fast.name, last.name]
    again = run_table(suite, tmp_path, time_limit=0.5, jobs=1)
    assert again.computed == 1
    assert len(again.rows) == 3
    assert again.failures == {}


@only_linux
def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    with table_process(
        tmp_path, "--time-limit", "20", "--only", "csp-i1-*", "--only", "csp-i128-*chunked"
    ) as process:
        until(lambda: (tmp_path / JOURNAL).exists() and len(names_in(tmp_path)) >= 2)
        workers = workers_of(process.pid)
        assert workers
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=10)
    assert process.returncode == 130
    assert stderr == "infermax-opt: interrupted\n"
    assert stdout == ""
    assert all(map(gone, workers))
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert {row["instance"] for row in rows} == {"csp-i1-o4-b4", "csp-i1-o4-b4-chunked"}
    assert "rows: 2 of 22" in (tmp_path / "table.md").read_text()


def test_a_worker_that_cannot_start() -> None:
    options = RowOptions(1.0)
    jobs = [Job("s", name, "/", "1", options, 1) for name in ("a", "b", "c")]
    code = "import sys; print('some trouble', file=sys.stderr); sys.exit(3)"
    answers = list(run_jobs(jobs, 2, [sys.executable, "-c", code]))
    assert sorted(answer.job.name for answer in answers) == ["a", "b", "c"]
    for answer in answers:
        assert answer.row is None
        assert answer.error == "the worker ended with exit code 3: some trouble"


def test_a_worker_reports_errors_and_goes_on(tmp_path: Path) -> None:
    jobs = [Job("s", name, str(tmp_path), "1", RowOptions(1.0), 1) for name in ("a", "b")]
    answers = list(run_jobs(jobs, 1))
    assert [answer.job.name for answer in answers] == ["a", "b"]
    assert all("cannot be read: No such file" in str(answer.error) for answer in answers)


# --- the command --------------------------------------------------------------------------------


def test_the_command(made: tuple[Path, Table]) -> None:
    folder, _ = made
    options = ("table", "paper-csp", "-o", folder, "--time-limit", "2", "--only", "csp-i[12]-o4-b4")
    done = run(*options)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert done.stdout.startswith("paper-csp\n  rows: 3 of 22\n  gap, %: median 0, mean 0, max 0;")
    assert f"wrote table.csv, table.md and table.json in {folder}\n" in done.stdout
    assert json.loads(run(*options, "--json").stdout)["summary"]["rows"] == 3
    assert "Examples:" in run("table", "--help").stdout


def test_unusable_input_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("INFERMAX_OPT_DATA", raising=False)
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for problem, *args in [
        ("suite: no suite 'paper'; there are paper-csp", "paper"),
        ("only: 'x*' matches no row", "paper-csp", "--only", "x*"),
        ("file: is not a directory", "paper-csp", "-o", "file"),
        ("cannot be written", "paper-csp", "-o", "file/below"),
        ("cannot be written", "paper-csp", "-o", "/proc/nowhere"),
        ("file: is not a directory", "paper-csp", "--best-known", "file"),
        ("file/below: cannot be written", "paper-csp", "--best-known", "file/below"),
        ("time_limit: nan is not a positive", "paper-csp", "--time-limit", "nan"),
        ("time_limit: 0.0 is not a positive", "paper-csp", "--time-limit", "0"),
        ("data: the suite 'azure' reads AzureLLMInferenceTrace_code.csv", "azure"),
        ("empty: holds no AzureLLMInferenceTrace_conv.csv", "azure", "--data", "empty", "--only", "*conv*"),
    ]:
        done = run("table", *args)
        assert done.exit_code == 2, (args, done.output)
        assert problem in done.stderr
        assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]
    with pytest.raises(InputError) as caught:
        run_table("paper-csp", tmp_path, jobs=0)
    assert str(caught.value) == "jobs: 0 is less than 1"


def test_rows_state_what_can_be_checked(tmp_path: Path) -> None:
    """Where only a solver vouches for the best bound, the row has the best one with a certificate."""
    table = run_table("paper-csp", tmp_path, time_limit=1, only=("csp-i16-o4-b4-chunked",))
    (row,) = table.rows
    assert row.certified
    assert row.proof != "solver"
    assert row.lower_bound is not None
    assert row.upper_bound is not None
    assert 0 < row.lower_bound < row.upper_bound
