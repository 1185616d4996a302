"""Real-time beside best-effort requests: what schedulers reach at several rates, and bounds on it.

    python -m scripts.bros_study                                  # a minute or two; tables in out/bros
    python -m scripts.bros_study --workload lmsys --rates 10 --horizon 600 --profile llama-3.1-70b_a100_tp4

For each rate and scheduler: attainment of the real-time requests (of TTFT and TPOT, of each, of single gaps),
best-effort requests and tokens a second, all by the horizon.  Each schedule is verified.  Bounds: on the
attainment of any schedule; on that of one with the best-effort rate of the row; on the best-effort rate of
one with the attainment of the row.  They are certified lines `missed + w * unserved >= bound` for several w.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.files.writing import write_text
from infermax_opt.infermax.data.classes import MOMENTS, bros_instance
from scripts.bros_study.rates import COLUMNS, SCHEDULERS, Row, blocks, lines, rows

__all__ = ["main", "markdown", "parser"]


def _rate(text: str) -> str:
    """A rate as it was written."""
    try:
        if 0 < float(text) < float("inf"):
            return text
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")


def markdown(found: Sequence[Row]) -> str:
    """The rows as a table."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *([row[name] for name in COLUMNS] for row in found)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def parser() -> argparse.ArgumentParser:
    """Options."""
    found = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    found.add_argument("--workload", choices=sorted(MOMENTS), default="sharegpt")
    found.add_argument(
        "--rates", nargs="+", type=_rate, default=["5", "10", "15"], help="real-time requests a second"
    )
    found.add_argument("--horizon", default="300", help="seconds")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--profile", help="cost profile; by default an estimate of OPT-30B on four A100-40GB")
    found.add_argument("--schedulers", nargs="+", default=SCHEDULERS)
    found.add_argument("--blocks", action="store_true", help="report blocks that could be shared")
    found.add_argument("--seconds", type=float, default=6, help="of the search for each of the bounds")
    found.add_argument("--out", type=Path, default=Path("out/bros"))
    return found


def main() -> None:
    """Print the table, and write it as CSV and Markdown."""
    options = parser().parse_args()
    found = list[Row]()
    for rate in options.rates:
        instance = bros_instance(options.workload, rate, options.horizon, options.seed, options.profile)
        if options.blocks:
            for name in options.schedulers:
                print(f"{rate} req/s, {name}: {blocks(instance, name)}")
            continue
        found += rows(instance, rate, options.schedulers, lines(instance, options.seconds))
        print(f"{rate} req/s: done", file=sys.stderr)
    if not found:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(text.getvalue(), options.out / f"{options.workload}.csv")
    write_text(markdown(found), options.out / f"{options.workload}.md")
    print(markdown(found), end="")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        raise SystemExit(str(error)) from None
