"""Measure the claims of the EcoServe paper, draw its figures and write the page about them.

Protocol: one process, one core, about twelve minutes.  Nothing but the best schedules of ``sharing`` depends
on the speed of the machine, and no time of the wall clock is in any table.  Every schedule is replayed and
verified.  The page is not written when its words no longer fit the tables.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.writing import write_text
from scripts.ecoserve_study.figures import DRAWN, draw
from scripts.ecoserve_study.measure import text
from scripts.ecoserve_study.page import page
from scripts.ecoserve_study.studies import STUDIES, Row
from scripts.findings.claim import StaleTextError
from scripts.findings.tables import read_tables

__all__ = ["main", "present", "table_text"]


def table_text(rows: Sequence[Row]) -> str:
    """Rows as CSV, numbers with four digits."""
    columns = list(rows[0])
    cells = [["" if row[column] is None else text(row[column]) for column in columns] for row in rows]
    return rows_text(columns, cells)


def present(out: Path) -> None:
    """Draw the figures and write the page from the tables in a folder."""
    tables = read_tables(out / "csv", STUDIES)
    write_text(page(tables), out / "README.md")
    (out / "figures").mkdir(exist_ok=True)
    for name, picture in DRAWN.items():
        draw(picture, tables, out / "figures" / f"{name}.svg")


def main(arguments: Sequence[str]) -> int:
    """Run the studies, or present what they have found."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.ecoserve_study claims", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--out", type=Path, default=Path("out/ecoserve"))
    parser.add_argument("--page", action="store_true", help="measure nothing, draw figures and page again")
    options = parser.parse_args(arguments)
    folder = options.out / "csv"
    folder.mkdir(parents=True, exist_ok=True)
    for name in () if options.page else options.only:
        began, rows = time.monotonic(), []
        for row in STUDIES[name]():
            rows.append(row)
            spent = time.monotonic() - began
            print(f"\r{name}: {len(rows)} rows, {spent:.0f} s", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        write_text(table_text(rows), folder / f"{name}.csv")
    if not all((folder / f"{name}.csv").exists() for name in STUDIES):
        print("no page: some of the tables are missing", file=sys.stderr)
        return 0
    try:
        present(options.out)
    except StaleTextError as error:
        print(f"no page: {error}", file=sys.stderr)
        return 1
    return 0
