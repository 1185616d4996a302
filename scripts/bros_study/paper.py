"""Measure the figures of the BROS paper in shape, draw them and write the page about its claims.

Usage, from the root of the repository::

    python -m scripts.bros_study.paper [--only hybrid ...] [--out out/bros-paper]
    python -m scripts.bros_study.paper --page --out scripts/bros_study

The second form measures nothing: it draws figures and page from the tables that are there.  All studies
take some ten minutes on one core.  Schedulers do not depend on the machine.  What does: processor
times, and bounds
of attainment, whose search stops after some seconds with what it has proved.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.writing import write_text
from scripts.bros_study.figures import draw_all
from scripts.bros_study.measure import STUDIES
from scripts.bros_study.page import page
from scripts.bros_study.rates import Row
from scripts.bros_study.tables import read_tables
from scripts.findings.claim import StaleTextError

__all__ = ["main", "run_study"]


def run_study(name: str) -> list[Row]:
    """All rows of a study."""
    began, rows = time.monotonic(), list[Row]()
    for row in STUDIES[name]():
        rows.append(row)
        print(f"{name}: {len(rows)} rows, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, write."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bros_study.paper")
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--out", type=Path, default=Path("out/bros-paper"))
    parser.add_argument("--page", action="store_true", help="measure nothing, draw figures and page again")
    options = parser.parse_args(arguments)
    folder = options.out / "csv"
    folder.mkdir(parents=True, exist_ok=True)
    for name in () if options.page else options.only:
        rows = run_study(name)
        write_text(rows_text(list(rows[0]), [list(row.values()) for row in rows]), folder / f"{name}.csv")
    missing = [name for name in STUDIES if not (folder / f"{name}.csv").exists()]
    if missing:
        print(f"no page: no table of {', '.join(missing)}", file=sys.stderr)
        return
    tables = read_tables(folder, STUDIES)
    try:
        text = page(tables)
    except StaleTextError as error:
        sys.exit(f"no page: {error}")
    draw_all(tables, options.out / "figures")
    write_text(text, options.out / "README.md")


if __name__ == "__main__":
    main()
