"""Measure fleets for the workloads of the Aladdin study, limits from arrival, and write a page.

Usage, from the root of the repository::

    python -m scripts.fleet_study [--quick] [--out instances/best-known/fleets]
    python -m scripts.fleet_study --page --out instances/best-known/fleets

The second form measures nothing: it writes the page from the table that is there.  One process, minutes.
Everything but the seconds is exact and the same on every machine: routes and schedules are replayed batch by
batch, and bounds are recomputed by the checker.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infermax_opt.files.writing import write_text
from scripts.aladdin_study.tables import Row, read_table, setting, write_table
from scripts.fleet_study.measure import MODELS, Workload, rows_of
from scripts.fleet_study.page import page

__all__ = ["FULL", "QUICK", "main"]

#: Models, requests per second, seconds of a stream, seeds.
FULL = (tuple(MODELS), (2, 5, 10, 25), 60, 1)
QUICK = (("13b",), (2,), 10, 1)
TABLE, SETTING = "fleets.csv", "fleets-setting.csv"


def measure(sizes: tuple[Sequence[str], Sequence[int], int, int]) -> tuple[list[Row], Row]:
    """All rows, and in what setting they were measured."""
    models, rates, seconds, seeds = sizes
    began, rows = time.monotonic(), list[Row]()
    for model, rate, seed in itertools.product(models, rates, range(seeds)):
        rows += rows_of(Workload(model, rate, seed, seconds))
        print(f"\r{model} at {rate}/s: {time.monotonic() - began:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    spent = f"{time.monotonic() - began:.0f}"
    return rows, {"seconds_of_stream": str(seconds), "seconds_of_study": spent, **setting()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.fleet_study")
    parser.add_argument("--quick", action="store_true", help="one small workload")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page again")
    parser.add_argument("--out", type=Path, default=Path("out/fleet-study"))
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.page:
        rows, measured_in = measure(QUICK if options.quick else FULL)
        write_table(rows, options.out / TABLE)
        write_table([measured_in], options.out / SETTING)
    rows, (measured_in,) = read_table(options.out / TABLE), read_table(options.out / SETTING)
    write_text(page(rows, measured_in), options.out / "README.md")


if __name__ == "__main__":
    main()
