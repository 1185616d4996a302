"""Give the best-known archive what finished tables found.

Usage: ``python scripts/archive_tables.py paper-b1024 out/run-0 out/run-1 [--into instances/best-known]``

`infermax-opt table --best-known DIR` starts from the archive; benchmarks must not, so their tables are
offered to it afterwards.  Every result is verified again, certificates included, before it counts.
"""

from __future__ import annotations

import argparse
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim
from infermax_opt.files.results import read_schedule_or_claim
from infermax_opt.infermax.data.formats import read_instance
from infermax_opt.table.archive import Archive
from infermax_opt.table.journal import open_journal
from infermax_opt.table.suites import suite_names


def main() -> int:
    parser = argparse.ArgumentParser(description="Offer the rows of finished tables to the archive.")
    parser.add_argument("suite", choices=suite_names())
    parser.add_argument("tables", type=Path, nargs="+", help="folders of tables of that suite")
    parser.add_argument("--into", type=Path, default=Path("instances/best-known"))
    parser.add_argument("--only", action="append", default=[], help="glob of rows; repeatable")
    options = parser.parse_args()
    archive = Archive(options.into, options.suite)
    archive.prepare()
    improved = failed = 0
    for folder in options.tables:
        with open_journal(folder) as journal:
            rows = [row for row in journal.rows.values() if row.suite == options.suite]
        if options.only:
            rows = [row for row in rows if any(fnmatchcase(row.instance, glob) for glob in options.only)]
        for row in rows:
            try:
                if not archive.beaten_by(row.instance, row.upper_bound, row.lower_bound):
                    continue
                claim = read_schedule_or_claim(folder / row.result)
                if not isinstance(claim, Claim):
                    raise InputError("is not a result", source=row.result)
                sides = archive.improve(
                    read_instance(folder / "instances" / f"{row.instance}.json"),
                    claim,
                    source=row.schedule_source or "unknown",
                    versions=row.versions,
                    certificate=folder / row.certificate if row.certificate else None,
                )
                improved += bool(sides)
                if sides:
                    print(f"{row.instance}: {' and '.join(sides)} improved")
            except (InputError, OSError) as error:
                failed += 1
                print(f"{row.instance}: {error}", file=sys.stderr)
    print(f"{improved} improved, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
