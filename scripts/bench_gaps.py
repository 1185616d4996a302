"""Certified gaps of a suite, several runs: the protocol behind docs/results.

Usage: ``python scripts/bench_gaps.py paper-b1024 --only '*-p4096' --time-limit 60 --runs 3``

Protocol: every run is a table of its own (``OUT/run-0``, ``run-1``, ...; seeds 0, 1, ...), computed
with `infermax_opt.table.run.run_table` from nothing but the suite: no archive, no schedule of another
run.  Rows one at a time (``--jobs 1``) have all cores, which is what the targets mean; with more jobs
they share them, and the figures say so.  The time limit is for everything that `solve` does for a row.
A row counts only if its schedule passed the verifier; the last columns say how many bounds were
checked by certificate or formula.  The gap of a cell is the median over the runs, and mean, median and
maximum are taken over these.  Kernels are compiled once before the clock starts.

The script can be killed and started again: finished rows are kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path

import infermax_opt as imx
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.table.run import Table, run_table
from infermax_opt.table.suites import get_suite, suite_names

WARM_UP = ("b32-i1-o32-m100-p4096", "b32-i8-o128-m1000-p4096")


def main() -> None:
    parser = argparse.ArgumentParser(description="Certified gaps of a suite: median of several runs.")
    parser.add_argument("suite", choices=suite_names())
    parser.add_argument("--only", action="append", default=[], help="glob of rows; repeatable")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a row")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data", type=Path, help="folder of the Azure traces")
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args()

    warm_up()
    tables = []
    for run in range(options.runs):
        tables.append(
            run_table(
                options.suite,
                options.out / f"run-{run}",
                time_limit=options.time_limit,
                jobs=options.jobs,
                only=options.only,
                data=options.data,
                seed=run,
                progress=note,
            )
        )
    cells = gaps(tables)
    write(options.out / "gaps.csv", cells)
    names = "infermax-opt", "highspy", "numpy", "numba"
    print(platform.machine(), os.cpu_count(), "cores;", *(f"{name}={version(name)}" for name in names))
    print(f"{options.suite}: {options.runs} runs, {options.time_limit:g} s a row, {options.jobs} at a time")
    medians = [statistics.median(values) for values in cells.values()]
    if medians:
        summary = (statistics.median(medians), statistics.fmean(medians), max(medians))
        print("gap, %: median {:.3f}, mean {:.3f}, maximum {:.3f}".format(*summary))
    rows = [row for table in tables for row in table.rows]
    checked = sum(row.bound_check is not None and row.lower_bound is not None for row in rows)
    failed = sum(len(table.failures) for table in tables)
    print(f"{len(rows)} rows, all verified; {checked} bounds checked; {failed} rows failed")


def note(line: object) -> None:
    """Say how far the run is."""
    sys.stderr.write(f"{line}\n")


def warm_up() -> None:
    """Compile what `solve` uses, so that no row pays for it."""
    for case in get_suite("paper-b32").select(WARM_UP):
        imx.solve(case.build(), time_limit=5)


def gaps(tables: list[Table]) -> dict[str, list[float]]:
    """Gaps of each instance in percent, one for each run that has it."""
    found: dict[str, list[float]] = {}
    for table in tables:
        for row in table.rows:
            if row.upper_bound is not None and row.lower_bound is not None:
                gap = 1 - Fraction(row.lower_bound) / Fraction(row.upper_bound)
                found.setdefault(row.instance, []).append(100 * float(gap))
    return found


def write(path: Path, cells: dict[str, list[float]]) -> None:
    """One line per instance: the median gap, then the gap of each run."""
    rows = [
        (name, f"{statistics.median(values):.6g}", " ".join(f"{v:.6g}" for v in values))
        for name, values in cells.items()
    ]
    temporary = path.with_suffix(".tmp")
    temporary.write_text(rows_text(("instance", "median_gap_percent", "gaps_percent"), rows))
    temporary.replace(path)


if __name__ == "__main__":
    main()
