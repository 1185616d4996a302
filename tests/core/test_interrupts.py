"""SIGTERM ends every command as Ctrl-C does: with the result there is, and no worker left behind."""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import pickle
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import highspy
import numpy as np
import pytest
from click.testing import CliRunner
from llvmlite.binding import ExecutionEngine
from numba.core.serialize import _numba_unpickle

from infermax_opt.cli.main import cli
from infermax_opt.cluster import series
from infermax_opt.cluster.data.formats import write_stream
from infermax_opt.cluster.data.generate import poisson_stream
from infermax_opt.core.interrupts import Terminated, deferred, heed_signals, patient
from infermax_opt.core.linear import ended_by, quiet_solver
from tests.stopped import begin, stopped, until
from tests.support import ROOT

SIGNALS = [signal.SIGINT, signal.SIGTERM]


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the program as from a terminal; whatever is left of it ends with the test."""
    begun = []

    def run(*args: object) -> subprocess.Popen[str]:
        begun.append(begin(*args))
        return begun[-1]

    yield run
    for process in begun:
        if process.poll() is None:
            process.kill()
            process.communicate()


def workers_of(process: int) -> list[int]:
    return [int(k) for k in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def batches(tmp_path: Path, count: int, tokens: int, capacity: int) -> Path:
    value = json.loads((ROOT / "instances" / "paper-csp" / "i64.json").read_text())
    value["requests"][0].update(count=count, output_tokens=tokens)
    value["system"]["kv_capacity"] = capacity
    path = tmp_path / "batches.json"
    path.write_text(json.dumps(value))
    return path


@pytest.mark.parametrize("number", SIGNALS)
def test_solve_reports_what_it_has(tmp_path: Path, number: signal.Signals) -> None:
    path, out = batches(tmp_path, 24, 40, 300), tmp_path / "r.json"
    solve = ("solve", path, "--solver", "search", "--threads", "1", "-o", out)
    done = stopped(*solve, after="search (exact): ", folder=tmp_path, number=number)
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended by      interrupted" in done.stdout
    assert CliRunner().invoke(cli, ["verify", str(path), str(out)]).exit_code == 0


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", SIGNALS)
def test_engines_in_processes_end_too(tmp_path: Path, start: Start, number: signal.Signals) -> None:
    path = batches(tmp_path, 8, 6, 200)
    process = start("solve", path, "--formulation", "csp", "--solver", "cpsat", "--threads", "1")
    until(lambda: bool(workers_of(process.pid)))
    time.sleep(0.3)
    workers = workers_of(process.pid)
    assert workers
    process.send_signal(number)
    text, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert "ended by      interrupted" in text
    assert not [worker for worker in workers if Path(f"/proc/{worker}").exists()]


@pytest.fixture
def heeded() -> Iterator[None]:
    """Signals raise in this process as they do in the program."""
    old = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    heed_signals()
    yield
    for number, handler in old.items():
        signal.signal(number, handler)


class Told:
    """What a compiled function fetches, at which moment a signal comes."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[int]]:
        return signal.raise_signal, (self.number,)


def then_waits(work: Callable[[], object], done: list[object]) -> None:
    """Keep what some work gives, and wait for a signal that was to come in it."""
    done.append(work())
    time.sleep(5)


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_comes_after_what_a_compiled_function_fetches(number: signal.Signals) -> None:
    """Raised within, numba says that the function returned "a result with an exception set"."""
    fetched: list[object] = []
    data = pickle.dumps(Told(number)), number.name.encode()
    with pytest.raises(Terminated if number == signal.SIGTERM else KeyboardInterrupt):
        then_waits(lambda: _numba_unpickle(0, *data), fetched)
    assert fetched == [None]


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_comes_after_what_the_compiler_calls(number: signal.Signals) -> None:
    """It waits while LLVM compiles, so the first code of Python that sees it is this."""
    kept: list[object] = []

    def keep(module: object, code: bytes) -> None:
        signal.raise_signal(number)
        kept.append(code)

    engine = types.SimpleNamespace(_object_cache_notify=keep, _find_module_ptr=lambda pointer: pointer)
    contents = types.SimpleNamespace(module_ptr=1, buf_ptr=ctypes.c_char_p(b"code"), buf_len=4)
    told = functools.partial(ExecutionEngine._raw_object_cache_notify, engine)
    with pytest.raises(Terminated if number == signal.SIGTERM else KeyboardInterrupt):
        then_waits(lambda: told(types.SimpleNamespace(contents=contents)), [])
    assert kept == [b"code"]


@pytest.mark.usefixtures("heeded")
def test_a_signal_comes_after_an_import_by_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import signal\nsignal.raise_signal(signal.SIGTERM)\nwhole = 1\n"
    (tmp_path / "inner.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    numba = types.ModuleType("numba.some")
    exec("def load():\n    import inner\n    return inner.whole", numba.__dict__)
    imported: list[object] = []
    with pytest.raises(Terminated):
        then_waits(numba.load, imported)
    assert imported == [1]


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize(("part", "cut"), [("fewest_at", True), ("any_policy_bounds", False)])
def test_workers_reports_its_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, part: str, cut: bool
) -> None:
    """Wherever it comes: in the search, which it ends, or after it."""
    path = tmp_path / "stream.json"
    write_stream(poisson_stream(2, 20, seed=3), path)
    work, calls = getattr(series, part), itertools.count()

    def interrupted(*args: object, **options: object) -> object:
        if next(calls) == 0:
            signal.raise_signal(number)
        return work(*args, **options)

    monkeypatch.setattr(series, part, interrupted)
    done = CliRunner().invoke(cli, ["workers", str(path), "--json"])
    assert (done.exit_code, done.stderr) == (0, "")
    value = json.loads(done.stdout)
    assert value["verified"]
    assert (value["cut_short"] is not None) == cut


def test_a_command_without_a_result_says_how_it_ended(tmp_path: Path, start: Start) -> None:
    process = start(
        "table", "paper-csp", "-o", tmp_path / "t", "--time-limit", "30", "--only", "*i512*chunked"
    )
    until(lambda: (tmp_path / "t" / "rows.jsonl").exists())
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    text, errors = process.communicate(timeout=30)
    assert (process.returncode, text, errors) == (143, "", "infermax-opt: terminated\n")
    assert "rows: 0 of 22" in (tmp_path / "t" / "table.md").read_text()


@pytest.mark.usefixtures("heeded")
@pytest.mark.parametrize("number", SIGNALS)
def test_patience_raises_in_a_search_and_for_the_second_signal(number: signal.Signals) -> None:
    kind = Terminated if number == signal.SIGTERM else KeyboardInterrupt
    before = signal.getsignal(number)
    with patient() as patience:
        signal.raise_signal(number)
        assert patience.stopped
        with pytest.raises(kind):
            signal.raise_signal(number)
    with patient() as patience:
        patience.searching = True
        with pytest.raises(kind):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_comes_while_a_linear_program_calls_back_ends_it(number: int) -> None:
    """What HiGHS calls loses exceptions, and nothing else of Python runs until it ends."""
    rng = np.random.default_rng(0)
    program = highspy.HighsLp()
    program.num_col_ = program.num_row_ = size = 300
    program.col_cost_, program.col_lower_ = -rng.random(size), np.zeros(size)
    program.col_upper_, program.row_upper_ = np.full(size, np.inf), np.ones(size)
    program.row_lower_ = np.full(size, -np.inf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.arange(size + 1) * size
    program.a_matrix_.index_ = np.tile(np.arange(size), size)
    program.a_matrix_.value_ = rng.random(size * size) + 0.1
    solver, calls = quiet_solver(), itertools.count()
    solver.setOptionValue("solver", "ipm")

    def send(event: Any) -> None:
        if next(calls) == 0:
            signal.raise_signal(number)

    def run() -> None:
        solver.run()
        until(lambda: False, seconds=5)

    before = {some: signal.getsignal(some) for some in SIGNALS}
    try:
        heed_signals()
        solver.cbIpmInterrupt += send
        solver.cbIpmInterrupt += ended_by(lambda: False)
        solver.passModel(program)
        with pytest.raises(KeyboardInterrupt):
            run()
    finally:
        for some, handler in before.items():
            signal.signal(some, handler)
    assert solver.getModelStatus() == highspy.HighsModelStatus.kInterrupt
    assert not deferred()
