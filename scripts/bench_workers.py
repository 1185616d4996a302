"""Fewest workers over an hour of production traffic: bounds, gaps and time.

Usage: ``python scripts/bench_workers.py FOLDER [-o table.csv]``, where the folder holds the Azure 2023 traces
(``AzureLLMInferenceTrace_conv.csv`` and ``_code.csv``).

Protocol: heartbeats of 1 s, theta 1, gamma 0.5, output lengths known, one process, one row after the other;
requests that fit on no worker are left out and counted.  Seconds are wall-clock, for reading the trace, the
search (60 s at most), both bounds and the verifier's replay.  Every placement is verified; a row says so.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from fractions import Fraction
from pathlib import Path

from infermax_opt.cluster.data.formats import stream_of_trace
from infermax_opt.cluster.series import worker_series
from infermax_opt.core.exact import fixed_text
from infermax_opt.core.versions import package_versions
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.traces import read_trace
from infermax_opt.latency.workers import chosen_worker

#: Worker, TTFT and ATGT in seconds.
CASES = (
    ("llama-3.1-8b_h100", "1", "0.015"),
    ("llama-2-7b_a100", "2.5", "0.03"),
    ("13b", "2.2", "0.03"),
    ("70b", "6", "0.075"),
    ("llama-3.1-70b_a100_tp4", "5", "0.05"),
)


def row(path: Path, worker: str, ttft: str, atgt: str) -> dict[str, object]:
    """One trace on one type of worker."""
    began = time.monotonic()
    machine, slo = chosen_worker(worker, Fraction(ttft), Fraction(atgt))
    left, stream = stream_of_trace(read_trace(path, "azure"), path.stem, machine, slo, skip_unfit=True)
    series = worker_series(stream, time_limit=60)
    upper, ahead = series.mean("upper"), series.look_ahead
    return {
        "trace": path.stem,
        "worker": worker,
        "gpus_per_worker": machine.gpus,
        "ttft_s": ttft,
        "atgt_s": atgt,
        "requests": len(stream.requests),
        "left_out": left.dropped.get("can never fit", 0),
        "heartbeats": len(series.beats),
        **{f"peak_{name}": series.peak(name) for name in ("any_policy", "lower", "upper")},
        **{f"mean_{name}": f"{float(series.mean(name)):.4f}" for name in ("any_policy", "lower", "upper")},
        "gap_percent": fixed_text(100 * (1 - series.mean("lower") / upper), 4, "ceiling"),
        "any_policy_gap_percent": fixed_text(100 * (1 - series.mean("any_policy") / upper), 2, "ceiling"),
        "open_heartbeats": series.open_beats,
        "attainment_percent": fixed_text(100 * series.metrics.attainment, 2, "floor"),
        "look_ahead_peak": ahead.peak_workers if ahead else "",
        "look_ahead_mean": f"{float(ahead.mean_workers):.4f}" if ahead else "",
        "look_ahead_attainment_percent": fixed_text(100 * ahead.attainment, 2, "floor") if ahead else "",
        "verified": str(series.verified).lower(),
        "cut_short": series.cut_short is not None,
        "seconds": f"{time.monotonic() - began:.1f}",
        "versions": " ".join(f"{name}={text}" for name, text in package_versions().items()),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for kind in ("conv", "code"):
        for case in CASES:
            rows.append(row(options.folder / f"AzureLLMInferenceTrace_{kind}.csv", *case))
            print({key: rows[-1][key] for key in list(rows[-1])[:-2]}, file=sys.stderr, flush=True)
    with open(options.output or sys.stdout.fileno(), "w", newline="", encoding="utf-8") as stream:
        stream.write(rows_text(list(rows[0]), [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main()
