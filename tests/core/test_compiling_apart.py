"""A time limit holds while kernels are compiled: a child compiles, and is killed when time is up.

Each case runs in a process of its own, with an empty folder for compiled code.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

KERNEL = '''
import json, os, threading, time
from infermax_opt.core.compiled import compiled
from infermax_opt.core.compiling_apart import OutOfTime, in_time, under_limit
from numba.core import event

here = []  # what was compiled in this process


class Listener(event.Listener):
    def on_start(self, heard):
        here.append(heard.data["dispatcher"].py_func.__name__)

    def on_end(self, heard):
        pass


event.register("numba:compile", Listener())


def total(number):
    """Such as kernels are."""
    found = 0
    for k in range(number):
        found += k
    return found


def children():
    return open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()


def kept():
    folder = os.environ["NUMBA_CACHE_DIR"]
    return sum(name.endswith(".nbc") for *_, names in os.walk(folder) for name in names)
'''


def said(script: str, folder: Path) -> Any:
    """What a script that knows a kernel prints last, as JSON."""
    file = folder / "script.py"
    file.write_text(KERNEL + script)
    cache = folder / "cache"
    cache.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, str(file)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout.splitlines()[-1])


def test_a_child_compiles_and_this_process_loads(tmp_path: Path) -> None:
    script = """
kernel = compiled(total, ())
with in_time(lambda: False) as limit:
    value = kernel(5)
print(json.dumps([value, here, kept(), children(), limit.ended]))
"""
    assert said(script, tmp_path) == [10, [], 1, [], False]


def test_a_child_that_fails_leaves_the_work_to_this_process(tmp_path: Path) -> None:
    script = """
kernel = compiled(total, ())
kernel._cache.save_overload = lambda *_: 1 / 0 if os.getpid() != parent else None
parent = os.getpid()
with in_time(lambda: False):
    value = kernel(5)
print(json.dumps([value, here]))
"""
    assert said(script, tmp_path) == [10, ["total"]]


@pytest.mark.parametrize("looks", [1, 3])
def test_the_call_of_a_kernel_ends_with_the_limit(looks: int, tmp_path: Path) -> None:
    """Before a child begins, or while it compiles; it is killed, and the kernel can be had later."""
    script = f"""
kernel, seen = compiled(total, ()), []
with in_time(lambda: seen.append(1) or len(seen) >= {looks}) as limit:
    try:
        kernel(5)
    except OutOfTime:
        ended = [limit.ended, children(), len(seen), here[:], kept()]
print(json.dumps([ended, kernel(5), here]))
"""
    assert said(script, tmp_path) == [[True, [], looks, [], 0], 10, ["total"]]


def test_what_runs_in_another_thread_ends_too(tmp_path: Path) -> None:
    script = """
kernel, ended = compiled(total, ()), []


def work():
    try:
        kernel(5)
    except OutOfTime:
        ended.append("late")


with in_time(lambda: True) as limit:
    for run in (under_limit(work), work):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
print(json.dumps([ended, limit.ended, here]))
"""
    assert said(script, tmp_path) == [["late"], True, ["total"]]


def test_a_child_does_not_outlive_its_parent_nor_hold_its_pipes(tmp_path: Path) -> None:
    """The parent is killed; whoever reads what it prints sees the end at once, and the child ends."""
    script = """
import signal, subprocess, sys
inner = __file__.replace("script", "inner")
open(inner, "w").write(open(__file__).read().split("import signal, subprocess")[0] + '''
kernel = compiled(total, ())
kernel._compiler.compile = lambda *_: time.sleep(60)
print("ready", flush=True)
with in_time(lambda: bool(children()) and print(children()[0], flush=True)):
    kernel(5)
''')
child = subprocess.Popen([sys.executable, inner], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline() == "ready\\n"
number = int(child.stdout.readline())
began = time.monotonic()
child.kill()
child.stdout.read()
child.wait()
while time.monotonic() - began < 30 and os.path.exists(f"/proc/{number}"):
    if "Z" in open(f"/proc/{number}/stat").read().rpartition(")")[2].split()[:1]:
        break
    time.sleep(0.02)
print(json.dumps(time.monotonic() - began < 30))
"""
    assert said(script, tmp_path) is True


def test_a_solve_says_what_it_had_no_time_to_compile(tmp_path: Path) -> None:
    """It has a schedule from plain Python.  Time is up as soon as the first kernel is being compiled."""
    script = """
import infermax_opt as i
from infermax_opt.core.compiled import tell_compiling
from infermax_opt.core.compiling_apart import UNCOMPILED
from infermax_opt.core.run import SolveRun
begun = []
tell_compiling(begun.append)
SolveRun.late = lambda run: bool(begun)
instance = i.load_instance("paper-b1024/b1024-i32-o128-m10000-p4096")
result = i.solve(instance, time_limit=60)
note = result.solver.details["not tried"]
print(json.dumps([result.upper.source.partition(":")[0], dict([UNCOMPILED]) == note,
                  result.solver.termination, len(begun), children(), here]))
"""
    assert said(script, tmp_path) == ["scheduler", True, "time_limit", 1, [], []]


def test_bounds_and_gaps_end_with_the_limit(tmp_path: Path) -> None:
    """Where compiling takes a minute; both say what they had no time for, commands on standard error."""
    script = """
import infermax_opt as i
from numba.core.dispatcher import _FunctionCompiler
_FunctionCompiler.compile = lambda *_: time.sleep(60)
instance = i.load_instance("paper-b32/b32-i32-o32-m1000-p4096")
began = time.monotonic()
told = []
bounds = i.bound(instance, time_limit=0.5, progress=told.append)
metrics = ["makespan", "mean_e2e"]
gaps = i.gap(instance, i.schedule(instance, "vllm"), metrics=metrics, time_limit=0.5, progress=told.append)
late = time.monotonic() - began > 50
untried = {event.source for event in told if event.step == "untried"}

from click.testing import CliRunner
from infermax_opt.cli.main import cli
i.write_instance(instance, "row.json")
done = CliRunner().invoke(cli, ["bound", "row.json", "--time-limit", "0.5"])
line = done.stderr.splitlines()
heard = [None in untried, len(untried) > 1, line]
print(json.dumps([len(bounds) > 3, len(gaps.bounds), children(), here, late, *heard]))
"""
    line = (
        "infermax-opt: compiled kernels: not compiled within the time limit; infermax-opt warm does it ahead"
    )
    assert said(script, tmp_path) == [True, 2, [], [], False, True, True, [line]]
