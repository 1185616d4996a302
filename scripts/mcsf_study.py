"""How far MC-SF is from the optimum in the two synthetic models of its study, with proofs.

Usage: ``python scripts/mcsf_study.py TABLE_DIR [--csv FILE]``

TABLE_DIR is the folder of a finished ``infermax-opt table mcsf``.  Each schedule is replayed again and
set against the one that MC-SF makes.  A schedule that is better by x % proves, whatever the bound, that MC-SF
is at least x % above the optimum; that MC-SF is at most y % above it is what the lower bound proves.  All
shares are exact fractions; what is proved at least is rounded down, what is proved at most is rounded up.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import infermax_opt as imx
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.files.writing import write_text
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.table.journal import open_journal
from infermax_opt.table.suites import get_suite

#: Shares, in percent, that MC-SF is proved to be above the optimum by, at least.
LEVELS = (0, 2, 4, 6, 8, 10)


@dataclass(frozen=True)
class Row:
    """An instance: mean latencies in rounds, and the lower bound on them."""

    name: str
    requests: int
    capacity: int
    mc_sf: Fraction
    svf: Fraction
    schedule: Fraction
    bound: Fraction
    proof: str

    @property
    def above(self) -> Fraction:
        """Share by which MC-SF is above the optimum, at least."""
        return self.mc_sf / self.schedule - 1

    @property
    def at_most(self) -> Fraction:
        """Share by which it is above the optimum, at most."""
        return self.mc_sf / self.bound - 1

    @property
    def saved(self) -> Fraction:
        """Share of MC-SF's latency that the schedule saves."""
        return 1 - self.schedule / self.mc_sf

    @property
    def gap(self) -> Fraction:
        """Of the schedule."""
        return 1 - self.bound / self.schedule


def measured(folder: Path) -> list[Row]:
    """The rows of a table, everything replayed again."""
    cases = {case.name: case for case in get_suite("mcsf").cases}
    with open_journal(folder) as journal:
        found = [row for row in journal.rows.values() if row.suite == "mcsf"]
    rows = []
    for row in sorted(found, key=lambda row: tuple(map(int, row.instance.split("-")[1:]))):
        instance = cases[row.instance].build()
        assert isinstance(instance, imx.Instance)
        claim = read_schedule_or_claim(folder / row.result)
        check = imx.verify(instance, claim)
        mc_sf, svf = (replayed(instance, run_scheduler(instance, name)) for name in ("mc-sf", "svf"))
        if not check.ok or check.objective is None or row.lower_bound is None:
            raise SystemExit(f"{row.instance}: the result is wrong: {[*check.violations, *check.faults][:1]}")
        size = len(instance.requests), instance.system.kv_capacity
        rows.append(Row(row.instance, *size, mc_sf, svf, check.objective, row.lower_bound, row.proof or "-"))
    return rows


def replayed(instance: imx.Instance, schedule: imx.Schedule) -> Fraction:
    """Mean latency of a schedule."""
    check = imx.verify(instance, schedule)
    assert check.ok
    assert check.objective is not None
    return check.objective


def percent(share: Fraction, up: bool = False) -> str:
    """A share in percent with two digits, rounded down or up."""
    hundredths = share * 10_000
    whole = -(-hundredths // 1) if up else hundredths // 1
    return f"{int(whole) / 100:.2f}"


def mean(values: Iterable[Fraction]) -> Fraction:
    """Of some values."""
    some = list(values)
    return sum(some, Fraction(0)) / len(some)


def summary(rows: list[Row]) -> list[list[str]]:
    """Lines of the table of means, one for each model."""
    lines = []
    for model in ("1", "2"):
        some = [row for row in rows if row.name.split("-")[1] == model]
        if not some:
            continue
        columns: list[tuple[Callable[[Row], Fraction], bool]] = [
            (lambda row: row.above, False), (lambda row: row.at_most, True),
            (lambda row: row.svf / row.schedule - 1, False), (lambda row: row.saved, False),
            (lambda row: row.gap, True),
        ]  # fmt: skip
        cells = [percent(mean(of(row) for row in some), up) for of, up in columns]
        least, most = min(row.above for row in some), max(row.above for row in some)
        cells.insert(1, f"{percent(least)} to {percent(most)}")
        proved = sum(row.gap == 0 for row in some)
        lines.append([model, str(len(some)), *cells, str(proved)])
    return lines


def levels(rows: list[Row]) -> list[list[str]]:
    """Number of instances in which MC-SF is proved to be at least so far above the optimum."""
    lines = []
    for level in LEVELS:
        counts = [
            sum(row.above >= Fraction(level, 100) and row.above > 0 for row in rows if model in row.name)
            for model in ("mcsf-1-", "mcsf-2-")
        ]
        lines.append([f"{level} %" if level else "anything", *map(str, counts)])
    return lines


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """A table."""
    rule = ["---:"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"


def tables(rows: list[Row]) -> str:
    """All of what is measured, as Markdown."""
    means = markdown(
        [
            "model", "instances", "MC-SF above the optimum, at least, %", "least to most, %",
            "at most, %", "svf above the schedule, %", "saved against MC-SF, %", "gap, %", "proved optimal",
        ],
        summary(rows),
    )  # fmt: skip
    counts = markdown(["MC-SF is above the optimum by at least", "model 1", "model 2"], levels(rows))
    return f"{means}\n{counts}"


def csv_text(rows: list[Row]) -> str:
    """One line for each instance; the lower bound is rounded down."""
    head = (
        "instance", "B", "M", "mc_sf", "svf", "schedule", "lower_bound", "proof", "mc_sf_above_percent",
        "saved_percent", "gap_percent",
    )  # fmt: skip
    lines = [
        [
            row.name, row.requests, row.capacity,
            *(f"{float(value):.6f}" for value in (row.mc_sf, row.svf, row.schedule)),
            f"{int(row.bound * 10**6) / 10**6:.6f}",
            row.proof, percent(row.above), percent(row.saved), percent(row.gap, True),
        ]
        for row in rows
    ]  # fmt: skip
    return rows_text(head, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="MC-SF against verified schedules and bounds.")
    parser.add_argument("table", type=Path, help="folder of a table of the suite mcsf")
    parser.add_argument("--csv", type=Path, help="file of one line for each instance")
    options = parser.parse_args()
    rows = measured(options.table)
    sys.stdout.write(tables(rows))
    if options.csv is not None:
        write_text(csv_text(rows), options.csv)
    return 0


if __name__ == "__main__":
    sys.exit(main())
