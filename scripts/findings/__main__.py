"""Measure the findings of the InferMax paper, draw them and write the page about them.

Usage, from the root of the repository::

    python -m scripts.findings [--only fig09 ...] [--time-limit 6] [--bound-limit 3] [--out out/findings]
    python -m scripts.findings --page --out scripts/findings

The second form measures nothing: it draws figures and page from the tables that are there.

Protocol: one process, one case after the other; about 25 minutes on one core.  Schedulers and closed
forms are deterministic and do not depend on the machine.  Two things depend on its speed: a bound that
takes a search stops after ``--bound-limit`` seconds, and ``solve`` (rows named solve...) after
``--time-limit`` seconds with the best it has; it may use a second core for its bound.  No time of the
wall clock is in any table.  Every schedule is replayed and verified, every makespan bound checked
(`measure`).  A table or page replaces the old one only when it is complete, and the page is not
written when its words no longer fit the tables.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from infermax_opt.files.csv_rows import rows_text
from scripts.findings.claim import StaleTextError
from scripts.findings.figures import DRAWN, draw
from scripts.findings.measure import Limits, Row, measure
from scripts.findings.page import page
from scripts.findings.studies import STUDIES
from scripts.findings.tables import read_tables

__all__ = ["main", "present", "run_study", "table_text"]


def run_study(name: str, limits: Limits) -> list[Row]:
    """All rows of a study."""
    began = time.monotonic()
    cases = list(STUDIES[name]())
    rows: list[Row] = []
    for number, case in enumerate(cases, 1):
        rows.extend(measure(case, limits))
        spent = time.monotonic() - began
        print(f"\r{name}: {number} of {len(cases)} cases, {spent:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return rows


def table_text(rows: Sequence[Row]) -> str:
    """Rows as CSV."""
    return rows_text(list(rows[0]), [list(row.values()) for row in rows])


def write(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def present(out: Path) -> None:
    """Draw the figures and write the page from the tables in a folder."""
    tables = read_tables(out / "csv", STUDIES)
    write(out / "README.md", page(tables).encode())
    for name, (study, picture) in DRAWN.items():
        write(out / "figures" / f"{name}.png", draw(picture, tables.studies[study]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.findings", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--time-limit", type=float, default=6.0, help="seconds for one schedule search")
    parser.add_argument("--bound-limit", type=float, default=3.0, help="seconds for one lower bound")
    parser.add_argument("--out", type=Path, default=Path("out/findings"))
    parser.add_argument("--page", action="store_true", help="measure nothing, draw figures and page again")
    options = parser.parse_args(arguments)
    limits = Limits(options.bound_limit, options.time_limit)
    folder = options.out / "csv"
    for name in () if options.page else options.only:
        write(folder / f"{name}.csv", table_text(run_study(name, limits)).encode())
    if all((folder / f"{name}.csv").exists() for name in STUDIES):
        try:
            present(options.out)
        except StaleTextError as error:
            sys.exit(f"no page: {error}")
    else:
        print("no page: some of the tables are missing", file=sys.stderr)


if __name__ == "__main__":
    main()
