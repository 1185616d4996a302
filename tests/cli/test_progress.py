"""What a command tells while it works, also where nobody sits at a terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from click.testing import Result as Done

from infermax_opt.cli.main import cli
from tests.support import ROOT

TOY = str(ROOT / "instances" / "toy.json")
STREAM = str(ROOT / "instances" / "stream-poisson-8.json")
LINE = re.compile(r"\[ *\d+\.\d s\] \S.*")


def run(*args: str | Path) -> Done:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.mark.parametrize("option", ["--progress", "--no-progress", None])
def test_progress_is_for_who_asks(tmp_path: Path, option: str | None) -> None:
    more = [] if option is None else [option]
    table = ("table", "paper-csp", "--only", "csp-i1-o4-b4", "-o", tmp_path / str(option))
    for call in (("solve", TOY), ("bound", TOY), table):
        done = run(*call, *more)
        assert done.exit_code == 0
        lines = done.stderr.splitlines()
        assert all(LINE.fullmatch(line) for line in lines)
        assert bool(lines) == (option == "--progress")
        assert not any(LINE.fullmatch(line) for line in done.stdout.splitlines())


def test_workers_tells_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infermax_opt.cluster.series.NEWS", 10)
    done = run("workers", STREAM, "--progress")
    assert "heartbeat 10 of 60" in done.stderr
    assert run("workers", STREAM).stderr == ""


def test_a_first_compilation_says_what_it_waits_for(tmp_path: Path) -> None:
    """Once: the second run finds what the first one compiled.  So many lengths take compiled code."""
    value = json.loads((ROOT / "instances" / "makespan-100x20.json").read_text())
    value["requests"] = [{"id": f"r{k}", "input_tokens": 9, "output_tokens": k + 9} for k in range(450)]
    many, seen = tmp_path / "many.json", []
    many.write_text(json.dumps(value))
    for _ in "12":
        done = subprocess.run(
            [sys.executable, "-m", "infermax_opt", "bound", str(many), "--progress"],
            capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path)},
        )  # fmt: skip
        seen.append(done.stderr)
    assert all(LINE.fullmatch(line) for text in seen for line in text.splitlines())
    told = "compiling makespan.bounds._segments.next_row, once after install: this takes some seconds"
    told += "; infermax-opt warm does it ahead for all commands"
    assert [text.count(told) for text in seen] == [1, 0]
    assert "compiling" not in seen[1]
