"""Wheel and sdist in empty environments, with each extra: what they weigh and how long a first command takes.

Builds both, checks them, makes a virtual environment for each interpreter and extra in a temporary folder,
installs the wheel with what it depends on, and runs commands outside the checkout.  Every command is the
first of its environment that does such work, so nothing is compiled yet.  Takes minutes and an index of
packages::

    .venv/bin/python scripts/check_packages.py --python python3.11 --python python3.13 --extra all

After each command stand its seconds, and in brackets those that it computed.  An environment where
a command fails is named, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("", "fast", "milp", "plot", "frames", "cluster", "calibrate", "all", "notebook")
#: Those that bring what all commands need.
WHOLE = ("all", "notebook")
#: Those that bring pandas: OR-Tools needs it, and so does AIConfigurator.
WITH_FRAMES = ("frames", "milp", "calibrate", *WHOLE)
MEBIBYTE = 2**20
PLAN = ("--format", "vidur", "--machines", "llama-3.1-8b_h100", "--ttft", "1", "--tpot", "0.1")
#: A request every tenth of a second.
TRACE = [
    "arrived_at,num_prefill_tokens,num_decode_tokens",
    *(f"{k / 10},{900 + k},{5 + k % 70}" for k in range(120)),
]
FRONT = ("--x", "mean_tpot", "--y", "tokens_per_second", "--time-limit", "2")
#: What takes no formulation, picture or compiled kernel, and so runs in every environment.
ALWAYS = (
    ("versions", "versions"),
    ("solve toy", "solve", "toy.json", "-o", "result.json"),
    ("verify toy", "verify", "toy.json", "result.json"),
    ("bound toy", "bound", "toy.json"),
    ("schedule i64", "schedule", "i64.json", "--scheduler", "vllm"),
    ("solve placement-toy", "solve", "placement-toy.json"),
    ("solve pipelining-small", "solve", "pipelining-small.json", "--time-limit", "2"),
    ("bound 32 requests", "bound", "b32.json", "--time-limit", "3"),
    ("gap", "gap", "toy.json", "result.json", "--explain", "--metric", "makespan"),
    ("plan", "plan", "trace.csv", *PLAN),
    ("certificate", "bound", "i64.json", "--certificate", "certificate.json", "--time-limit", "3"),
    ("check", "check", "i64.json", "certificate.json"),
    ("schedulers", "schedulers"),
    ("problems", "problems"),
)
#: Not in `all`.
APART = ("calibrate",)
MACHINE = "aiconfigurator:Qwen/Qwen3-8B@h100_sxm/vllm"
#: Commands that need an extra: elsewhere they end with exit code 2 and one line that names it.
WITH = (
    ("plot", "plot toy", "plot", "toy.json", "result.json", "-o", "toy.svg"),
    ("plot", "solve and plot", "solve", "toy.json", "--plot", "course.svg"),
    ("plot", "gap and plot", "gap", "toy.json", "result.json", "--plot", "gap.svg", "--metric", "makespan"),
    ("plot", "front and plot", "front", "toy.json", *FRONT, "--plot", "front.svg"),
    ("plot", "workers and plot", "workers", "stream.json", "--plot", "workers.svg"),
    ("milp", "solve toy, CP-SAT", "solve", "toy.json", "--solver", "cpsat", "--time-limit", "20"),
    ("milp", "solve toy, HiGHS", "solve", "toy.json", "--solver", "highs", "--time-limit", "20"),
    ("milp", "solve toy, flow", "solve", "toy.json", "--formulation", "flow", "--time-limit", "20"),
    ("milp", "export toy", "export", "toy.json", "--formulation", "flow", "-o", "toy.mps"),
    ("calibrate", f"calibrate {MACHINE}", "calibrate", MACHINE, "--for", "batches", "-o", "profile.json"),
)
FRAMES = """
import infermax_opt
result = infermax_opt.solve(infermax_opt.read_instance("toy.json"), time_limit=1)
try:
    print(len(result.to_frame()), len(result.requests_frame()))
except infermax_opt.InputError as error:
    raise SystemExit(f"infermax-opt: {error}") from None
"""
#: A cell of a notebook, in a kernel of its own.
CELL = """
from jupyter_client.manager import run_kernel
cell = "import infermax_opt; infermax_opt.solve(infermax_opt.read_instance('toy.json'), time_limit=1)"
with run_kernel() as client:
    raise SystemExit(client.execute_interactive(cell, timeout=60)["content"]["status"] != "ok")
"""
#: The rows of a table on two workers.
ON_WORKERS = ("table", "paper-csp", "--only", "csp-i[124]-o4-b4", "--time-limit", "3", "-o", "table")
#: Where nothing listens: without the extra, the line that names it comes first.
NOWHERE = "tcp://127.0.0.1:9"
#: A scheduler is to be there, and its workers, within so many seconds.
PATIENCE = 60
INSTANCES = {
    "toy.json": "toy",
    "stream.json": "stream-poisson-8",
    "placement-toy.json": "placement-toy",
    "pipelining-small.json": "pipelining-small",
    "i64.json": "paper-csp/csp-i64-o4-b4",
    "b32.json": "paper-b32/b32-i32-o32-m1000-p4096",
}


class Done(NamedTuple):
    """What became of a command: exit code, its words, and its time in words."""

    code: int
    out: str
    error: str
    took: str


def run(*command: str | Path, cwd: Path) -> Done:
    """Run a command."""
    began, used = time.monotonic(), processor()
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    took = f"{time.monotonic() - began:.1f} s ({processor() - used:.1f})"
    return Done(done.returncode, done.stdout, done.stderr.strip(), took)


def processor() -> float:
    """Seconds that processes which were waited for have computed."""
    times = os.times()
    return times.children_user + times.children_system


def must(*command: str | Path, cwd: Path) -> str:
    """What a command that must succeed says."""
    done = run(*command, cwd=cwd)
    if done.code:
        sys.exit(f"{' '.join(map(str, command))}\n{done.out}{done.error}")
    return done.out


def built(folder: Path) -> Path:
    """The wheel, from the sdist; both are checked."""
    tools = Path(sys.executable).parent
    must(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    files = sorted(folder.iterdir())
    (wheel,) = [path for path in files if path.suffix == ".whl"]
    must(tools / "twine", "check", "--strict", *files, cwd=folder)
    must(tools / "check-wheel-contents", wheel, cwd=folder)
    print(", ".join(f"{path.name} {path.stat().st_size / MEBIBYTE:.1f} MiB" for path in files))
    return wheel


def size(folder: Path) -> int:
    """MiB of all files below a folder."""
    return round(sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / MEBIBYTE)


def unlike(done: Done, needed: str, title: str, code: int = 2) -> list[str]:
    """What is wrong where a command lacks an extra: it is to say so in a line."""
    if done.code == code and "\n" not in done.error and f"pip install 'infermax-opt[{needed}]'" in done.error:
        return []
    return [f"{title}, without {needed}: exit code {done.code}: {done.error}"]


@contextlib.contextmanager
def on_workers(home: Path, work: Path) -> Iterator[str]:
    """The address of a Dask scheduler with two workers, processes of an environment, while one is inside."""
    names = work / "scheduler.json"
    shared = ("--no-dashboard", "--scheduler-file", names)
    asked = (
        ("scheduler", "--host", "127.0.0.1", "--port", "0"),
        ("worker", "--nworkers", "2", "--nthreads", "1", "--memory-limit", "0", "--death-timeout", PATIENCE),
    )
    quiet = subprocess.DEVNULL
    began = [
        subprocess.Popen(
            [str(part) for part in (home / "bin/dask", *options, *shared)],
            cwd=work,
            stdout=quiet,
            stderr=quiet,
            start_new_session=True,
        )
        for options in asked
    ]
    try:
        address, ends = "", time.monotonic() + PATIENCE
        while not address and time.monotonic() < ends:
            with contextlib.suppress(OSError, ValueError):
                address = json.loads(names.read_text())["address"]
            time.sleep(0.1)
        ready = f"from distributed import Client; Client('{address}').wait_for_workers(2, {PATIENCE})"
        must(home / "bin/python", "-c", ready, cwd=work)
        yield address
    finally:
        for process in began:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def on_cluster(home: Path, work: Path) -> Done:
    """Compute rows on two workers; the command fails where a row is missing."""
    with on_workers(home, work) as address:
        done = run(home / "bin/infermax-opt", *ON_WORKERS, "--on", address, "--json", cwd=work)
    rows = (work / "table/rows.jsonl").read_text().count("\n") if done.code == 0 else 0
    return (
        done if done.code or rows == 3 else done._replace(code=1, error=f"{rows} rows in the journal, not 3")
    )


def from_python(home: Path, extra: str, work: Path) -> list[str]:
    """What fails of data frames, and of a cell in a notebook's kernel."""
    done = run(home / "bin/python", "-c", FRAMES, cwd=work)
    if extra not in WITH_FRAMES:
        said = unlike(done, "frames", "data frames", 1)
    else:
        said = [f"data frames: {done.error}"] if done.code else []
    if extra == "notebook":
        done = run(home / "bin/python", "-c", CELL, cwd=work)
        said += [f"cell of a notebook: {done.out}{done.error}"] if done.code else []
    return said


def checked(python: str, extra: str, wheel: Path, work: Path) -> list[str]:
    """Print the row of an environment; what failed in it."""
    home = work / "venv"
    must(python, "-m", "venv", home, cwd=work)
    bare = size(home)
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    done = run(home / "bin/pip", "install", "--quiet", "--disable-pip-version-check", what, cwd=work)
    if done.code:
        return [f"cannot be installed: {done.error}"]
    program, said = home / "bin/infermax-opt", []
    cells = [f"{size(home) - bare} MiB"]
    cells.append(f"import {run(home / 'bin/python', '-c', 'import infermax_opt', cwd=work).took}")
    for name, shipped in INSTANCES.items():
        done = run(program, "instance", shipped, "-o", name, cwd=work)
        if done.code:
            return [f"instance {shipped}: {done.error}"]
        if name == next(iter(INSTANCES)):
            cells.append(f"first command {done.took}")
    (work / "trace.csv").write_text("\n".join(TRACE) + "\n")
    for title, *command in ALWAYS:
        done = run(program, *command, cwd=work)
        cells.append(f"{title} {done.took}")
        if done.code:
            said.append(f"{title}: {done.error}")
    for needed, title, *command in WITH:
        done = run(program, *command, cwd=work)
        if extra != needed and (extra not in WHOLE or needed in APART):
            said += unlike(done, needed, title)
            continue
        cells.append(f"{title} {done.took}")
        if done.code:
            said.append(f"{title}: exit code {done.code}: {done.error}")
    said += from_python(home, extra, work)
    if extra in ("cluster", *WHOLE):
        done = on_cluster(home, work)
        cells.append(f"table on two workers {done.took}")
        if done.code:
            said.append(f"table on two workers: exit code {done.code}: {done.error}")
    else:
        said += unlike(run(program, *ON_WORKERS, "--on", NOWHERE, cwd=work), "cluster", "table")
    version = must(home / "bin/python", "-c", "import platform as p; print(p.python_version())", cwd=work)
    print(f"Python {version.strip()}, {extra or 'core'}: {'; '.join(cells)}", flush=True)
    return said


def main() -> int:
    """Check all environments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", action="append", help="interpreter; repeatable; default: this one")
    parser.add_argument(
        "--extra", action="append", help=f"of {', '.join(EXTRAS[1:])}; '' is the core; default: all"
    )
    options = parser.parse_args()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "dist").mkdir()
        wheel = built(Path(folder) / "dist")
        for python in options.python or [sys.executable]:
            for extra in EXTRAS if options.extra is None else options.extra:
                with tempfile.TemporaryDirectory(dir=folder) as work:
                    found = checked(python, extra, wheel, Path(work))
                    failures += [f"{python}, {extra or 'core'}: {line}" for line in found]
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
