"""Large files of results: seconds and memory of `import` and `gap`, format by format.

Usage: ``python -m scripts.bench_files [FORMAT ...] [--megabytes N] [--commands import,gap] [--into FOLDER]``

Protocol: of each format a file of so many megabytes (10**6 bytes) is drawn (seed 0) as its tool writes it:
Poisson arrivals, prompts of 20 to 2,000 and outputs of 2 to 400 tokens, times as Python prints floats.  Files
called "tiny" have prompts of 1 to 9 and outputs of two tokens, so that the most requests fit: "vllm:tiny"
with times of microseconds and no texts, "vllm:tiny-floats" with all digits.  Those called "overloaded" have
the usual lengths, times of milliseconds, so that rows are short, and 1,000 requests a second, thirty times
what the machine serves; "vllm:tiny-overloaded" is "vllm:tiny" with a million a second.  ``infermax-opt
import`` runs as a process of its own, then ``infermax-opt gap`` on the makespan with one second for the
search; the machine is one H100 (Llama-3.1-8B).
An instance holds a million requests: of a file with more, `import` takes the first million, and `gap` refuses
it.  Seconds are those of the processor, user and system; memory is the peak.  The first run after install
compiles: run the script once with ``--megabytes 1`` before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from infermax_opt.files.csv_rows import rows_text
from scripts.bench_files import lists, rows
from scripts.bench_files.drawn import CROWD, TINY

#: Most requests of an instance.
MOST = 10**6
COLUMNS = ("file", "MB", "command", "CPU seconds", "MiB", "exit code", "said")
#: By format, what writes a file of it, and its ending; names go on behind the format after a colon.
FILES: dict[str, tuple[Callable[[int], Iterator[str]], str]] = {
    "vllm": (lists.vllm, "json"),
    "vllm:texts": (lists.vllm_texts, "json"),
    "vllm:tiny": (lists.vllm_tiny, "json"),
    "vllm:tiny-overloaded": (lists.vllm_tiny_crowd, "json"),
    "vllm:tiny-floats": (lists.vllm_tiny_floats, "json"),
    "sglang": (lists.sglang, "jsonl"),
    "sglang:tiny": (lists.sglang_tiny, "jsonl"),
}
#: Those that have a row for each request, and so files of other loads, too.
ROWS: dict[str, tuple[Callable[..., Iterator[str]], str]] = {
    "vidur": (rows.vidur, "csv"),
    "infermax": (rows.vidur, "csv"),
    "vidur-chrome-trace": (rows.vidur_chrome_trace, "json"),
    "vllm-otlp": (rows.vllm_otlp, "jsonl"),
    "inference-perf": (rows.inference_perf, "json"),
    "guidellm": (rows.guidellm, "json"),
    "aiperf": (rows.aiperf, "jsonl"),
    "blis": (rows.blis, "json"),
    "llmservingsim": (rows.llmservingsim, "jsonl"),
    "llmservingsim-sim": (rows.llmservingsim_sim, "csv"),
    "aisimulate": (rows.aisimulate, "jsonl"),
}
FILES |= ROWS
LOADS = {"tiny": TINY, "overloaded": CROWD}
for load, what in LOADS.items():
    FILES |= {f"{name}:{load}": (partial(write, load=what), end) for name, (write, end) in ROWS.items()}


class Took(NamedTuple):
    """Exit code, the last line of what it said, seconds of the processor, and peak memory in MiB."""

    code: int
    said: str
    seconds: float
    memory: int


def took(*arguments: str) -> Took:
    """Run a command."""
    command = [sys.executable, "-m", "infermax_opt", *arguments]
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(command, stdout=said, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().strip().splitlines() or [""]
        seconds = usage.ru_utime + usage.ru_stime
        return Took(child.returncode, lines[-1], seconds, usage.ru_maxrss // 1024)


def row(command: str, name: str, path: Path) -> list[str]:
    """Measure a command on a file."""
    form = name.partition(":")[0]
    with tempfile.TemporaryDirectory() as folder:
        if command == "import":
            more: tuple[str, ...] = ("--first", str(MOST), "--skip-unfit", "-o", f"{folder}/out.json.gz")
        else:
            profile = files("infermax_opt.infermax.data.profiles").joinpath("llama-3.1-8b_h100.json")
            more = ("--machine", str(profile), "--limit", "max_batch_tokens=4096", "--metric", "makespan")
            more = (*more, "--time-limit", "1", "-o", f"{folder}/out.json")
        found = took(command, str(path), "--format", form, *more)
    size = f"{path.stat().st_size / 10**6:.0f}"
    return [name, size, command, f"{found.seconds:.1f}", str(found.memory), str(found.code), found.said]


def draw(name: str, megabytes: int, path: Path) -> None:
    """Write a file."""
    write, _ = FILES[name]
    with path.open("w") as file:
        file.writelines(write(megabytes * 10**6))


def main() -> None:
    """Measure all, a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("formats", nargs="*", choices=[*FILES, []], help="which; default: all")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--commands", default="import,gap")
    parser.add_argument("--into", type=Path, default=Path("out/files"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    found: list[list[str]] = []
    for name in options.formats or FILES:
        _, ending = FILES[name]
        path = options.into / f"{name.replace(':', '-')}-{options.megabytes}.{ending}"
        if not path.exists():
            # In a process of its own: the peak memory of a process counts as that of those it starts.
            drawing = get_context("fork").Process(target=draw, args=(name, options.megabytes, path))
            drawing.start()
            drawing.join()
        for command in options.commands.split(","):
            found.append(row(command, name, path))
            print(" | ".join(found[-1]), flush=True)
    (options.into / f"files-{options.megabytes}.csv").write_text(rows_text(COLUMNS, found))


if __name__ == "__main__":
    main()
