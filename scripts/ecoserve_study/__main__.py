"""EcoServe's schedulers on its workloads, by the metrics of its Figure 1, beside bounds for every schedule.

Usage, from the root of the repository::

    python -m scripts.ecoserve_study --trace sharegpt --requests 1000 --load 0.8 -o FOLDER
    python -m scripts.ecoserve_study claims [--only rates ...] [--out out/ecoserve]
    python -m scripts.ecoserve_study claims --page --out scripts/ecoserve_study

The first form writes FOLDER/TRACE.csv and FOLDER/TRACE.md: a row for each scheduler and load, each schedule
verified.  A load is a share of the rate that no schedule can sustain; ``--rate`` gives rates themselves.
``--schedulers`` names schedulers with their settings, and ``--sweep padding=0,0.1,0.2`` runs each that
reserves KV with each value.  Settings that neither names are those of the trace.

The others measure what the paper's figures show, draw it and write a page about its claims
(`scripts.ecoserve_study.command`); with ``--page`` from the tables that are there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.writing import write_text
from infermax_opt.infermax.bounds.priced_work import sustainable_rate
from infermax_opt.infermax.data.ecoserve import OPT_13B_KV, OPT_13B_PROFILE, TRACES, ecoserve_instance
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.schedulers.reservation.presets import RESERVATION
from scripts.ecoserve_study import command
from scripts.ecoserve_study.measure import Cell, bounds, runs, swept, text

#: Shown in the markdown table; the CSV has all columns.
SHORT = (
    "scheduler", "mean_jct", "jct_gap", "ssr", "ssr_bound", "rate", "normalised", "mean_tbt", "tbt_p95",
    "forward_share", "kv_used", "kv_reserved", "failures", "completions", "barren",
)  # fmt: skip


def page(trace: str, blocks: Sequence[tuple[str, list[dict[str, Cell]]]]) -> str:
    """Tables of all loads, in markdown."""
    lines = [f"# {trace}", ""]
    for title, rows in blocks:
        lines += [title, "", "| " + " | ".join(SHORT) + " |", "| " + " | ".join("---" for _ in SHORT) + " |"]
        lines += ["| " + " | ".join(text(row.get(key)) for key in SHORT) + " |" for row in rows]
        lines.append("")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """Options of the study."""
    found = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    found.add_argument("--trace", choices=tuple(TRACES), default="sharegpt")
    found.add_argument("--requests", type=int, default=1000)
    found.add_argument("--load", type=Fraction, nargs="*", default=[], help="share of the sustainable rate")
    found.add_argument("--rate", type=Fraction, nargs="*", default=[], help="requests a second")
    found.add_argument("--profile", default=OPT_13B_PROFILE, help="cost profile; by default %(default)s")
    found.add_argument("--kv-capacity", type=int, default=OPT_13B_KV)
    found.add_argument("--slo-scale", type=Fraction, nargs="*", default=[Fraction(2)])
    found.add_argument("--error", type=float, help="spread of predictions; by default the trace's")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--schedulers", nargs="*", default=["vllm", "sarathi", *RESERVATION])
    found.add_argument("--sweep", nargs="*", default=[], metavar="SETTING=VALUE,...")
    found.add_argument(
        "--bound-seconds", type=float, default=15.0, help="of the search for a bound on the SSR"
    )
    found.add_argument("-o", "--output", type=Path, required=True)
    return found


def study(options: argparse.Namespace) -> Iterator[tuple[str, list[dict[str, Cell]]]]:
    """Rows of each rate and scale, with their bounds, and a title."""
    cost = load_profile(options.profile).cost
    common = {
        "requests": options.requests, "seed": options.seed, "kv_capacity": options.kv_capacity,
        "error": options.error,
    }  # fmt: skip
    model = TRACES[options.trace]
    most = sustainable_rate(ecoserve_instance(options.trace, cost, **common))
    rates = [*(load * most for load in options.load), *options.rate] or [Fraction(4, 5) * most]
    names = swept(options.schedulers, options.sweep, model.settings)
    for rate in rates:
        for scale in options.slo_scale:
            of = ecoserve_instance(options.trace, cost, rate=rate, slo_scale=scale, **common)
            known = bounds(of, options.bound_seconds)
            share = float(rate / most)
            title = (
                f"{float(rate):.3g} requests/s ({share:.2f} of the {known['rate_bound']:.3g} that can be "
                f"sustained), SLO scale {float(scale):g}; mean JCT at least {text(known['jct_bound'])} s, "
                f"SSR at most {text(known['ssr_bound'])}"
            )
            rows = []
            for row in runs(of, names):
                jct = known["jct_bound"] or 0.0
                mean = float(row["mean_jct"] or 0)
                head = {"trace": options.trace, "load": share, "slo_scale": float(scale)}
                gap = 1 - jct / mean if mean else 0.0
                rows.append({**head, **row, **known, "jct_gap": gap})
                print(f"{text(share)} {row['scheduler']}: {text(row['mean_jct'])} s", file=sys.stderr)
            yield title, rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study, or that of the claims."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["claims"]:
        return command.main(given[1:])
    options = parser().parse_args(given)
    try:
        blocks = []
        for block in study(options):  # what is done is there if the rest is stopped
            blocks.append(block)
            options.output.mkdir(parents=True, exist_ok=True)
            rows = [row for _, some in blocks for row in some]
            columns = list(rows[0])
            cells = [[text(row[column]) for column in columns] for row in rows]
            write_text(rows_text(columns, cells), options.output / f"{options.trace}.csv")
            write_text(page(options.trace, blocks), options.output / f"{options.trace}.md")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
