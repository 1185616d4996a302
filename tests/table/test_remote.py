"""Tables on the workers of a Dask scheduler: the same rows as here, whatever becomes of workers."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from infermax_opt.cli.main import cli
from infermax_opt.core.errors import InputError
from infermax_opt.core.versions import package_versions
from infermax_opt.table import remote
from infermax_opt.table.output import Table
from infermax_opt.table.run import run_table

distributed = pytest.importorskip("distributed")

ROWS = ("csp-i1-o4-b4", "csp-i2-o4-b4", "csp-i4-o4-b4", "csp-i8-o4-b4")
TIMES = {"seconds"}


def started(program: str, folder: Path, *options: str) -> subprocess.Popen[bytes]:
    """A scheduler or workers, as processes of their own; the scheduler's file names its address."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{program}", "--no-dashboard", *options]
    command += ["--scheduler-file", str(folder / "scheduler.json")]
    # Their folder and their words are out of the way; the processes that they start end with them.
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet, start_new_session=True)


def address_in(folder: Path) -> str:
    """Of the scheduler that was started there, once it is up."""
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads((folder / "scheduler.json").read_text())["address"])
        time.sleep(0.05)
    raise TimeoutError("no scheduler")


def ended(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a scheduler with two workers: processes, each worker with a nanny that starts it again."""
    folder = tmp_path_factory.mktemp("cluster")
    scheduler = started("scheduler", folder, "--host", "127.0.0.1", "--port", "0")
    address = address_in(folder)
    workers = started("worker", folder, "--nworkers", "2", "--nthreads", "1", "--memory-limit", "0")
    with distributed.Client(address, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
    yield address
    ended(workers, scheduler)


def pids(address: str) -> list[int]:
    """Processes of the workers there are now."""
    with distributed.Client(address, set_as_default=False) as client:
        found = client.run(os.getpid, on_error="return")
    return [pid for pid in found.values() if isinstance(pid, int)]


def untimed(value: Any) -> Any:
    """A JSON value without how long anything took."""
    if isinstance(value, dict):
        return {key: untimed(item) for key, item in value.items() if key not in TIMES}
    return [untimed(item) for item in value] if isinstance(value, list) else value


def journal(folder: Path) -> list[Any]:
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    return sorted(rows, key=lambda row: str(row["instance"]))


def lines(folder: Path) -> list[Any]:
    return list(csv.DictReader((folder / "table.csv").read_text().splitlines()))


def table(folder: Path, cluster: str | None, **more: Any) -> Table:
    return run_table("paper-csp", folder, only=ROWS, time_limit=3, on=cluster, **more)


def test_the_table_is_that_of_this_machine(tmp_path: Path, cluster: str) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    # One thread a row, as on the workers.
    table(here, None, jobs=os.cpu_count())
    assert table(there, cluster, best_known=None).computed == len(ROWS)
    assert untimed(journal(there)) == untimed(journal(here))
    tables = [untimed(json.loads((folder / "table.json").read_text())) for folder in (here, there)]
    assert tables[0] == tables[1]
    assert untimed(lines(there)) == untimed(lines(here))
    names = sorted(path.relative_to(here) for path in here.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(there) for path in there.rglob("*") if path.is_file())
    for name in names:
        if name.parts[0] == "instances":
            assert (there / name).read_bytes() == (here / name).read_bytes()
        elif name.suffix == ".gz":
            made = [json.loads(gzip.decompress((folder / name).read_bytes())) for folder in (here, there)]
            assert untimed(made[0]["schedule"]) == untimed(made[1]["schedule"])
    # Nothing is left to do, here or there.
    assert table(there, None).computed == 0


def test_killed_workers_lose_and_double_nothing(tmp_path: Path, cluster: str) -> None:
    killed: list[int] = []

    def kill(event: object) -> None:
        # The other worker is at a row; this one has given its answer, and gets its next when it is back.
        for pid in pids(cluster) if len(killed) < 3 else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    made = table(tmp_path, cluster, progress=kill)
    assert len(killed) >= 2
    assert dict(made.failures) == {}
    assert made.computed == len(ROWS)
    assert [row["instance"] for row in journal(tmp_path)] == sorted(ROWS)
    assert {path.name for path in (tmp_path / "results").rglob("*.gz")} == {f"{n}.json.gz" for n in ROWS}


def test_rows_start_from_the_archive_of_the_caller(tmp_path: Path, cluster: str) -> None:
    known = tmp_path / "known"
    table(tmp_path / "first", None, best_known=known)
    made = table(tmp_path / "second", cluster, best_known=known)
    assert dict(made.failures) == {}
    assert made.computed == len(ROWS)
    assert (known / "paper-csp.json").exists()


def test_a_row_that_fails_is_told(tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_given", lambda job: {f"instances/{job.name}.json": b"{}"})
    made = table(tmp_path, cluster)
    assert set(made.failures) == set(ROWS)
    assert all(f"instances/{name}.json" in reason for name, reason in made.failures.items())


def test_other_versions_are_one_line(tmp_path: Path, cluster: str) -> None:
    other = (
        "import infermax_opt.core.versions as own\n"
        "own.usual = own.package_versions\n"
        "own.package_versions = lambda: {**own.usual(), 'highspy': '0.0.1'}\n"
    )
    with distributed.Client(cluster, set_as_default=False) as client:
        client.run(exec, other, {})
        done = CliRunner().invoke(cli, ["table", "paper-csp", "--on", cluster, "-o", str(tmp_path / "table")])
        client.run(exec, "import infermax_opt.core.versions as own\nown.package_versions = own.usual\n", {})
    assert done.exit_code == 2
    assert done.stderr.startswith(f"infermax-opt: {cluster}: on: worker tcp://")
    assert done.stderr.endswith(f"has highspy 0.0.1, this machine {package_versions()['highspy']}\n")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "table").exists()


def test_a_scheduler_that_ends_is_one_line_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 3)
    scheduler = started("scheduler", tmp_path, "--host", "127.0.0.1", "--port", "0")
    address = address_in(tmp_path)
    workers = started("worker", tmp_path, "--nworkers", "1", "--nthreads", "1", "--no-nanny")

    def end(event: object) -> None:
        scheduler.kill()
        scheduler.wait()

    try:
        with pytest.raises(InputError, match="has gone, with the rows that were not finished"):
            table(tmp_path / "table", address, progress=end)
        assert capfd.readouterr() == ("", "")
    finally:
        ended(scheduler, workers)
    assert len(journal(tmp_path / "table")) == len(lines(tmp_path / "table")) == 1
    assert table(tmp_path / "table", None, jobs=2).computed == len(ROWS) - 1


def test_a_worker_that_came_later_is_checked_too() -> None:
    said = remote.remote_row({"archive": None}, {}, {**package_versions(), "highspy": "0.0.1"})
    assert "the worker has highspy" in said["error"]


def test_nobody_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 1)
    for address, words in (("tcp://127.0.0.1:9", "cannot be reached"), ("nonsense", "cannot be reached")):
        with pytest.raises(InputError, match=words) as refused:
            run_table("paper-csp", tmp_path / "table", only=ROWS, on=address)
        assert "\n" not in str(refused.value)


def test_files_of_a_worker_stay_in_the_folder(tmp_path: Path) -> None:
    class Said:
        def result(self) -> dict[str, Any]:
            return {"row": {}, "files": {"results/../../x": b""}}

    crew = remote.DaskCrew(None, "tcp://x:1")
    job: Any = type("Job", (), {"name": "x", "folder": str(tmp_path)})()
    assert "sent a file" in str(crew._answer(job, Said()).error)
    assert not list(tmp_path.iterdir())
