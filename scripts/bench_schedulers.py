"""Speed of the schedulers and of the replay.

Protocol: one process, one thread.  Each call is run once to compile (or load) its kernel, then
five times; the median wall time of the whole call counts, from `Instance` to `Schedule` or from
`Schedule` to `Replay`.  A request-token is one output token of one request.  The workload is
the paper's high contention case: B = 1024 equal requests, I = O = 1024, M = 100K, C = 4096,
whose costs are those of the shipped Llama-2-7B example.  State versions and CPU, as printed
first, with any figure quoted from here.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from infermax_opt.infermax.replay.fast import replay

T = TypeVar("T")


def median_seconds(call: Callable[[], T], runs: int) -> tuple[float, T]:
    result = call()
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds), result


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description="Request-tokens per second of schedulers and replay.")
    parser.add_argument("--requests", type=int, default=1024)
    parser.add_argument("--input", type=int, default=1024, help="input tokens")
    parser.add_argument("--output", type=int, default=1024, help="output tokens")
    parser.add_argument("--capacity", type=int, default=100_000, help="KV tokens")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--scheduler", action="append", help="repeatable; default: all")
    options = parser.parse_args()
    cost = CostModel(batch=[("0.007", "0.000075")], decode=("0.0003", "2.6e-7"), prefill=("0.0003", "1.5e-9"))
    group = RequestGroup("r", options.input, options.output, count=options.requests)
    instance = Instance("bench", (group,), System(options.capacity, 4096, 4096), cost)
    work = instance.output_tokens
    packages = ", ".join(f"{name} {version(name)}" for name in ("infermax-opt", "numba", "numpy"))
    print(f"{processor()}; Python {platform.python_version()}; {packages}")
    print(f"{work} request-tokens, median of {options.runs}")
    print(f"{'scheduler':16} {'s':>8} {'tokens/s':>10} {'replay s':>9} {'tokens/s':>10} {'batches':>8}")
    for name in options.scheduler or scheduler_names():
        seconds, schedule = median_seconds(lambda name=name: run_scheduler(instance, name), options.runs)  # type: ignore[misc]
        again, replayed = median_seconds(lambda plan=schedule: replay(instance, plan), options.runs)  # type: ignore[misc]
        print(
            f"{name:16} {seconds:8.3f} {work / seconds:10.2e} {again:9.3f} {work / again:10.2e} "
            f"{len(replayed.ends):8d}"
        )


if __name__ == "__main__":
    main()
