"""Bounds of tens of thousands of requests with arrivals: seconds, memory, and the check.

Usage: ``python scripts/bench_large.py DATA [--requests 50000] [--time-limit 30] [--into out/large]``

Protocol: the conversation trace of Azure 2023 (in DATA; 19,366 requests in an hour), again and again
until there are enough requests. From the second time on each length is multiplied by a random factor of
0.9 to 1.1 (seed 0), so that few requests are equal. One H100 (Llama-3.1-8B, linear profile). Arrivals
are those of the trace, those of the trace 8 times as fast, and Poisson ones of 5.5 a second (seed 0).
For each objective ``infermax-opt bound`` runs with the time limit, as a process of its own, and then the
stand-alone checker on the certificate of the best bound that has one. Seconds are those of the whole
process, reading and writing included; memory is its peak, or that of this script where that is more.
Where no bound has a certificate, `bound` runs again without asking for one. The first run of a kernel
after install compiles it: run the script once with ``--requests 300`` before.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import infermax_opt as imx
from infermax_opt.files.arrivals import compressed, poisson
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.traces import Trace, TraceRequest, read_trace
from infermax_opt.infermax.data.aims import parsed_objective, with_slos
from infermax_opt.infermax.data.traces import trace_instance

CHECKER = Path(__file__).parent / "checkers" / "check_infermax.py"
PROFILE, TRACE = "llama-3.1-8b_h100", "AzureLLMInferenceTrace_conv.csv"
#: Objectives, and the service level of those that need one.
OBJECTIVES = {
    "mean_e2e": (),
    "makespan": (),
    "mean_ttft": (),
    "p99_e2e": (),
    "missed": ("ttft=0.5,tpot=0.05",),
    '{"makespan": 1, "mean_e2e": 1}': (),
}
COLUMNS = (
    "arrivals", "objective", "best", "source", "certified", "certified by",
    "seconds", "MiB", "checked", "check seconds", "check MiB",
)  # fmt: skip


def repeated(trace: Trace, requests: int, seed: int = 0) -> Trace:
    """The trace again and again, up to so many requests; other lengths from the second time on."""
    draw, found = random.Random(seed), list[TraceRequest]()
    hour = trace.requests[-1].arrival + 1
    while len(found) < requests:
        rounds = len(found) // len(trace.requests)
        for one in trace.requests[: requests - len(found)]:
            i, o = one.input_tokens, one.output_tokens
            if rounds:
                i, o = (max(1, round(length * draw.uniform(0.9, 1.1))) for length in (i, o))
            found.append(TraceRequest(one.line, one.arrival + rounds * hour, i, o))
    return replace(trace, requests=tuple(found))


class Run(NamedTuple):
    """Exit code, what it wrote, the last line of its complaints, seconds, and peak memory in MiB."""

    code: int
    output: str
    complaint: str
    seconds: float
    memory: int


def run(*arguments: str) -> Run:
    """Run a Python process."""
    since = time.monotonic()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen([sys.executable, *arguments], stdout=output, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds, child.returncode = time.monotonic() - since, os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        complaint = (errors.read().strip().splitlines() or [""])[-1]
        return Run(child.returncode, output.read(), complaint, seconds, usage.ru_maxrss // 1024)


def row(instance: imx.Instance, into: Path, time_limit: float) -> list[str]:
    """Bound an instance, check the certificate, and say what both took."""
    path, certificate = into / "instance.json", into / "certificate.json"
    certificate.unlink(missing_ok=True)
    imx.write_instance(instance, path)
    limit = ("--time-limit", f"{time_limit:g}")
    bound = run("-m", "infermax_opt", "bound", str(path), *limit, "--json", "--certificate", str(certificate))
    if bound.code:  # there is none to write: the closed forms alone
        bound = run("-m", "infermax_opt", "bound", str(path), *limit, "--json")
    took = [f"{bound.seconds:.1f}", str(bound.memory)]
    best = json.loads(bound.output)["lower_bounds"][0]
    found = [f"{best['value']:.6g}", best["source"]]
    if not certificate.exists():
        return [*found, "", "", *took, "", "", ""]
    proof = json.loads(certificate.read_text())
    found += [f"{float(Fraction(proof['lower_bound'])):.6g}", proof["source"]]
    check = run(str(CHECKER), str(path), str(certificate))
    said = "yes" if check.code == 0 else check.complaint
    return [*found, *took, said, f"{check.seconds:.1f}", str(check.memory)]


def main() -> None:
    """Measure all, a row at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path, help="folder of the Azure traces")
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds of a bound")
    parser.add_argument("--into", type=Path, default=Path("out/large"))
    options = parser.parse_args()
    options.into.mkdir(parents=True, exist_ok=True)
    trace = repeated(read_trace(options.data / TRACE, "azure"), options.requests)
    profile = imx.load_profile(PROFILE)
    system = imx.System(profile.capacity, max_batch_tokens=4096, max_prefill_tokens=4096)
    streams = {
        "trace": trace,
        "trace x8": compressed(trace, Fraction(8)),
        "Poisson": poisson(trace, Fraction(11, 2), 0),
    }
    rows = []
    for arrivals, made in streams.items():
        instance = trace_instance(made, f"large-{options.requests}", system, profile.cost)
        for name, slos in OBJECTIVES.items():
            aimed = with_slos(replace(instance, objective=parsed_objective(name)), slos)
            rows.append([arrivals, name, *row(aimed, options.into, options.time_limit)])
            print(" | ".join(rows[-1]), flush=True)
    (options.into / f"bounds-{options.requests}.csv").write_text(rows_text(COLUMNS, rows))
    names = "infermax-opt", "highspy", "numpy", "numba"
    print(platform.machine(), os.cpu_count(), "cores;", *(f"{name}={version(name)}" for name in names))


if __name__ == "__main__":
    main()
