"""Compiling ahead: `warm` leaves nothing to compile, and before it a first schedule does not wait."""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import infermax_opt
from infermax_opt.cli.main import cli
from infermax_opt.core import compiled as compiling
from infermax_opt.core.compiled import COMPILING_STEPS, compiled, hurrying, rehearsing, worthwhile
from infermax_opt.core.errors import InputError
from tests.support import ROOT

PACKAGE = ROOT / "infermax_opt"


def python(*arguments: str, folder: Path | None = None) -> str:
    """What a process of its own prints; kernels are taken once a process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if folder is not None:
        environment["NUMBA_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def kernels_in(node: ast.AST, homes: dict[str, str]) -> Iterator[str]:
    """Kernels that calls of `compiled` name; several functions of a module may import by one name."""
    homes = homes | {
        alias.asname or alias.name: f"{line.module}.{alias.name}"
        for line in ast.iter_child_nodes(node)
        if isinstance(line, ast.ImportFrom)
        for alias in line.names
    }
    if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "compiled":
        kernel: Any = node.args[0]
        yield f"{homes[kernel.value.id]}.{kernel.attr}".removeprefix("infermax_opt.")
    for child in ast.iter_child_nodes(node):
        yield from kernels_in(child, homes)


def test_no_kernel_is_left_to_compile_after_warm() -> None:
    """Every kernel of the source is run, and no instance calls one by other types."""
    of_warm, of_others = json.loads(python("-m", "tests.api.kernels_called"))
    sources = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    assert of_warm.keys() == {name for source in sources for name in kernels_in(source, {})}
    assert {name: len(types) for name, types in of_warm.items()} == dict.fromkeys(of_warm, 1)
    assert len(of_others) > 8
    assert {name: of_warm[name] for name in of_others} == of_others


def test_a_part_is_compiled_once(tmp_path: Path) -> None:
    script = """
import infermax_opt
infermax_opt.warm(["pipelining"], progress=print)
print(infermax_opt.warm(["pipelining"]))
"""
    first, second, again = python("-c", script, folder=tmp_path).splitlines()
    assert first.startswith("pipelining.heuristics._kernel.anneal compiled in ")
    assert second.startswith("pipelining.bounds._prices_kernel.most_held compiled in ")
    assert again == f"2 kernels, all compiled before, in {tmp_path}"


def test_two_processes_share_the_work(tmp_path: Path) -> None:
    ways = [("--jobs", "2", "--progress"), ("--jobs", "1")]
    first, again = (python("-m", "infermax_opt", "warm", "pipelining", *way, folder=tmp_path) for way in ways)
    assert first.startswith("2 kernels, 2 compiled in ")
    assert again == f"2 kernels, all compiled before, in {tmp_path}\n"


def test_a_first_schedule_compiles_nothing(tmp_path: Path) -> None:
    """Of a size that compiled code is for, where there is none yet."""
    script = """
import infermax_opt as i
instance = i.load_instance("paper-b1024/b1024-i32-o128-m10000-p4096")
print(i.solve(instance, progress=lambda event: event.step == "schedule").upper.source)
"""
    assert python("-c", script, folder=tmp_path) == "scheduler:vllm\n"
    assert list(tmp_path.rglob("*.nbi")) == []


def test_what_cannot_be_done_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refusal(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["warm", *arguments], prog_name="infermax-opt")
        assert done.exit_code == 2
        return done.output

    with pytest.raises(InputError, match="jobs"):
        infermax_opt.warm(jobs=0)
    parts = "infermax, makespan, pipelining, placement, plan"
    assert refusal("abacus") == f"infermax-opt: part: 'abacus' is none of {parts}\n"
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file))
    assert refusal("pipelining") == f"infermax-opt: NUMBA_CACHE_DIR: {file} cannot be written: File exists\n"
    monkeypatch.setitem(sys.modules, "numba", None)
    missing = "numba is not installed; pip install 'infermax-opt[fast]'"
    assert refusal() == f"infermax-opt: compiled kernels cannot be had: {missing}\n"


def twice(number: int) -> int:
    """Such as kernels are."""
    return 2 * number


def test_kernels_run_where_no_folder_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unkept(*_: object) -> None:
        raise RuntimeError("cannot cache function 'twice': no locator available for file 'x'")

    monkeypatch.setattr("numba.core.dispatcher.Dispatcher.enable_caching", unkept)
    compiling._tell_unkept.cache_clear()
    for _ in range(2):
        assert compiled(twice, ())(4) == 8
    assert capsys.readouterr().err == f"infermax-opt: {compiling.UNKEPT}\n"
    with rehearsing(print), pytest.raises(infermax_opt.InputError, match="set NUMBA_CACHE_DIR"):
        compiled(twice, ())


def four_times(number: int) -> int:
    """Calls a helper."""
    return twice(twice(number))


@pytest.mark.parametrize("allocates", [False, True])
def test_no_helper_gets_a_wrapper_for_c(allocates: bool, tmp_path: Path) -> None:
    """Such wrappers are a fifth of all compiling."""
    lines = (
        "from numba.core.lowering import Lower",
        "made, usual = [], Lower.create_cfunc_wrapper",
        "Lower.create_cfunc_wrapper = lambda self: (made.append(self.fndesc.qualname), usual(self))[1]",
        "from infermax_opt.core.compiled import compiled",
        "from tests.api.test_warming import four_times, twice",
        f"assert compiled(four_times, (twice,), allocates={allocates})(3) == 12",
        "print(*made)",
    )
    assert "twice" not in python("-c", "\n".join(lines), folder=tmp_path)


class Kernel:
    """Stands for a compiled function."""

    def __init__(self, overloads: tuple[str, ...]):
        self.overloads, self.stats = overloads, SimpleNamespace(cache_path=None)


def test_when_work_is_enough_for_compiled_code() -> None:
    cold, loaded = (functools.cache(lambda some=some: Kernel(some)) for some in ((), ("types",)))
    assert not worthwhile(cold, 9, 10, 5)
    with hurrying():
        assert not worthwhile(cold, 10, 10, 5)
        assert worthwhile(cold, COMPILING_STEPS, 10, 5)
        assert worthwhile(loaded, 10, 10, 5)
    assert worthwhile(cold, 10, 10, 5)
    assert worthwhile(loaded, 5, 10, 5)
    with rehearsing(print):
        assert worthwhile(cold, 0, 10, 5)


def test_small_work_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where numba is loaded, compiled code is loaded for small work, too, once there was enough of it."""
    one, other = (functools.cache(lambda: Kernel(("types",))) for _ in "12")
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    assert [worthwhile(one, 4, 10, 2) for _ in range(5)] == [False] * 5
    monkeypatch.setitem(sys.modules, "numba", SimpleNamespace())
    assert [worthwhile(other, 4, 10, 2) for _ in range(5)] == [False, False, True, True, True]
    other()
    assert not worthwhile(other, 1, 10, 2)


def test_plain_python_works_for_as_long_as_compiling_takes() -> None:
    cold, loaded, other = (functools.cache(lambda some=some: Kernel(some)) for some in ((), ("types",), ()))
    assert [worthwhile(cold, 40, 10, 5, 100) for _ in range(3)] == [False, False, True]
    assert not worthwhile(other, 40, 10, 5, 100), "each kernel has a budget of its own"
    assert worthwhile(loaded, 40, 10, 5, 100)
    assert worthwhile(other, 60, 10, 5, 100)
