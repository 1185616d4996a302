"""No room for a file: one line, exit code 2, nothing half-written, and what has been computed is not lost."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from infermax_opt.cli.main import cli
from infermax_opt.table import run as run_of_tables
from tests.support import ROOT

TRACE = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,512,64\n0.1,2048,32\n0.15,300,80\n"
#: Each writes files whose names begin with out.
CALLS = [
    "solve toy.json --time-limit 5 -o out.json --plot out.png",
    "bound toy.json --time-limit 2 -o out.json --certificate out.certificate.json.gz",
    "schedule toy.json --scheduler vllm -o out.json",
    "gap toy.json schedule.json --metric makespan --time-limit 2 --csv out.csv --plot out.svg",
    "import trace.csv --format vidur -o out.json.gz",
    "plan trace.csv --format vidur --machines llama-3.1-8b_h100 --ttft 1 -o out.csv --certificates out",
    "workers stream.json -o out.csv --placement out.json --plot out.png --stream out.stream.json",
    "simulate stream.json -o out.csv --placement out.json",
    "calibrate --profile llama-3.1-8b_h100 -o out.json",
    "front toy.json --x makespan --y mean_e2e --directions 2 --time-limit 2 -o out.json --plot out.png",
    "table paper-csp --only csp-i1-o4-b4 --time-limit 2 -o out",
    "export toy.json --formulation flow -o out.mps",
    "export toy.json schedule.json --as vllm-requests -o out.jsonl",
    "plot toy.json schedule.json -o out.svg",
]


@pytest.fixture(autouse=True)
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "instances" / "toy.json", "toy.json")
    shutil.copy(ROOT / "instances" / "stream-poisson-8.json", "stream.json")
    Path("trace.csv").write_text(TRACE)
    assert run("schedule toy.json --scheduler vllm -o schedule.json").exit_code == 0


@contextlib.contextmanager
def room(most: int) -> Iterator[None]:
    """No file becomes larger than so many bytes, in this process and those that it starts."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def run(words: str) -> Done:
    return CliRunner().invoke(cli, words.split())


def written() -> list[Path]:
    return sorted(path for path in Path().rglob("*") if path.is_file() and str(path).startswith(("out", ".")))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: " ".join(call.split()[:2]))
def test_no_room_at_all(call: str) -> None:
    with room(0):
        done = run(call)
    assert done.exit_code == 2, done.output
    assert done.stderr.count("\n") == 1
    assert "out" in done.stderr.split(": ")[1]
    assert done.stderr.endswith(": cannot be written: File too large\n")
    # The journal of a table has no row yet.
    assert [path for path in written() if path.stat().st_size or path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("call", "kept"),
    [(CALLS[0], "out.json"), (CALLS[6].partition(" --stream")[0], "out.csv"), (CALLS[9], "out.json")],
    ids=["solve", "workers", "front"],
)
def test_no_room_for_the_picture(call: str, kept: str) -> None:
    with room(24 * 2**10):
        done = run(call)
    assert done.exit_code == 2, done.output
    assert done.stderr == "infermax-opt: out.png: cannot be written: File too large\n"
    assert Path(kept) in written()
    for path in written():
        if path.suffix == ".json":
            json.loads(path.read_text())
        assert path.suffix in (".json", ".csv")


def test_no_room_for_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run_of_tables.WRITERS, "table.md", lambda table: "x" * 100_000)  # type: ignore[attr-defined]
    with room(50_000):
        done = run(CALLS[10])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.endswith("out/table.md: cannot be written: File too large\n")
    names = [path.name for path in written()]
    assert "table.csv" in names
    assert not [name for name in names if name.startswith(".table") or name == "table.md"]


def test_two_outputs_are_two_files() -> None:
    done = run("front toy.json --x makespan --y mean_e2e -o out.png --plot ./out.png")
    assert (done.exit_code, written()) == (2, [])
    assert done.stderr == "infermax-opt: ./out.png: is to be written twice\n"
