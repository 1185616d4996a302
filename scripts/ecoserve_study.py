"""EcoServe's schedulers on its workloads, by the metrics of its Figure 1, beside bounds for every schedule.

Usage: ``python scripts/ecoserve_study.py --trace sharegpt --requests 1000 --load 0.8 -o FOLDER``

Writes FOLDER/TRACE.csv and FOLDER/TRACE.md: a row for each scheduler and load, each schedule verified.  A
load is a share of the rate that no schedule can sustain; ``--rate`` gives rates themselves.  ``--schedulers``
names schedulers with their settings, and ``--sweep padding=0,0.1,0.2`` runs each that reserves KV with each
value.
Settings that neither names are those of the trace.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from infermax_opt.core.errors import InputError
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.json import write_text
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.latency import latency_bounds
from infermax_opt.infermax.bounds.overload import overload_bound
from infermax_opt.infermax.bounds.priced_work import sustainable_rate
from infermax_opt.infermax.bounds.service import service_bounds
from infermax_opt.infermax.data.ecoserve import OPT_13B, OPT_13B_KV, TRACES, ecoserve_instance
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.iterations import PERCENTS, STATES, iterations
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.schedulers.reservation.presets import (
    RESERVATION,
    is_reservation,
    reservation_options,
)
from infermax_opt.infermax.schedulers.reservation.run import ReservationRun, reservation_run

Cell = str | int | float | None

#: Shown in the markdown table; the CSV has all columns.
SHORT = (
    "scheduler", "mean_jct", "jct_gap", "ssr", "ssr_bound", "rate", "normalised", "mean_tbt", "tbt_p95",
    "forward_share", "kv_used", "kv_reserved", "failures", "completions", "barren",
)  # fmt: skip
#: Requests that a bound on the SSR looks at together, at most.
TOGETHER = 8_000


def runs(of: Instance, names: Iterable[tuple[str, str]]) -> Iterator[dict[str, Cell]]:
    """Metrics of each scheduler on an instance; names come with what a table calls them.

    Raises
    ------
    InputError
        If a schedule breaks a rule.
    """
    for label, name in names:
        began = time.perf_counter()
        made: ReservationRun | None = None
        if is_reservation(name):
            made = reservation_run(of, reservation_options(name))
        schedule = made.schedule if made is not None else run_scheduler(of, name)
        took = time.perf_counter() - began
        found = replay(of, schedule)
        if not found.valid:
            raise InputError(f"{name}: {found.violations[0]}")
        metrics, batches = measure(of, found), iterations(of, schedule, found)
        first = min(request.arrival for request in of.requests)
        row: dict[str, Cell] = {
            "scheduler": label,
            "settings": name.partition("@")[2],
            "mean_jct": _float(metrics.mean_e2e),
            "ssr": _float(metrics.attainment),
            "rate": _float(len(of.requests) / (metrics.makespan - first)),
            "normalised": _float(metrics.mean_normalised_latency),
            "mean_tbt": _float(batches.mean_tbt),
            **{f"tbt_p{p}": _float(batches.tbt.get(p)) for p in PERCENTS},
            "forward_size": _float(batches.forward_size),
            "forward_share": _float(batches.forward_share),
            "kv_used": _float(metrics.mean_kv_use),
            # Without reservations what is used is all that is reserved.
            "kv_reserved": _float(metrics.mean_kv_use if made is None else made.reserved_share),
            "failures": None if made is None else _float(made.failed_share),
            "completions": _float(batches.mean_completions),
            "barren": _float(batches.barren_share),
            **{state: _float(batches.states[state]) for state in STATES},
            "evictions": metrics.evictions,
            "recompute_tax": _float(metrics.recompute_tax),
            "guests": None if made is None else made.counts.guests,
            "seconds": took,
        }
        yield row


def bounds(of: Instance, seconds: float) -> dict[str, float | None]:
    """What no schedule beats: rate at most, mean JCT at least, SSR at most; and the seconds each took.

    After so many seconds no finer bound on the SSR is begun; 0 asks for none at all.
    """
    began = time.perf_counter()
    rate = float(sustainable_rate(of))
    rated = time.perf_counter()
    jct = max(value for _, value in latency_bounds(of, Metric.MEAN_E2E))
    searched = overload_bound(of)
    if searched is not None:
        jct = max(jct, searched.value)
    late = time.perf_counter()
    kept = float(1 - missed_bound(of, seconds) / len(of.requests)) if seconds > 0 else None
    done = time.perf_counter()
    return {
        "rate_bound": rate,
        "jct_bound": float(jct),
        "ssr_bound": kept,
        "rate_seconds": rated - began,
        "jct_seconds": late - rated,
        "ssr_seconds": done - late,
    }


def missed_bound(of: Instance, seconds: float) -> Fraction:
    """Requests that miss their deadlines in every schedule, at least.

    Those that arrive one after the other are looked at some at a time: a schedule without all others is none
    that is later for these, so what they have to miss adds up.
    """
    groups = sorted(of.groups, key=lambda group: Fraction(group.arrival))
    parts = [groups[k : k + TOGETHER] for k in range(0, len(groups), TOGETHER)]
    total = Fraction(0)
    for part in parts:
        some = replace(of, groups=tuple(part))
        alone = max(value for _, value in service_bounds(some, Metric.MISSED))
        found: list[Fraction] = []
        stop = partial(_passed, found, time.perf_counter() + seconds / len(parts))
        for bound in attainment_bounds(some, stop=stop):
            found.append(bound.value)
        total += max([alone, *found])
    return total


def _passed(found: list[Fraction], end: float) -> bool:
    """Whether the time is over and there is a bound: one that is stopped early says nothing."""
    return bool(found) and time.perf_counter() > end


def swept(names: Sequence[str], sweeps: Sequence[str], settings: str) -> list[tuple[str, str]]:
    """Names of schedulers with the values of each sweep, and the same with the settings of a trace as well.

    Parameters
    ----------
    names : sequence of str
    sweeps : sequence of str
        ``SETTING=VALUE,VALUE,...``
    settings : str
        ``padding=0.15,reserve=0.03,buffer=0.15``, where a name does not say.
    """
    found = []
    for name in names:
        if not is_reservation(name):
            found.append((name, name))
            continue
        base, _, own = name.partition("@")
        choices: list[dict[str, str]] = [{}]
        for sweep in sweeps:
            key, equals, values = sweep.partition("=")
            if not equals:
                raise InputError(f"{sweep!r} is not SETTING=VALUE,VALUE,...", field="sweep")
            choices = [{**choice, key: value} for choice in choices for value in values.split(",")]
        for choice in choices:
            said = {**_parts(own), **choice}
            found.append((_joined(base, said), _joined(base, {**_parts(settings), **said})))
    return found


def _parts(settings: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in settings.split(",") if part)


def _joined(base: str, settings: dict[str, str]) -> str:
    parts = (f"{key}={value}" if value else key for key, value in settings.items())
    return f"{base}@{','.join(parts)}" if settings else base


def _float(value: Fraction | int | None) -> float | None:
    return None if value is None else float(value)


def text(value: Cell) -> str:
    """A cell as the tables show it."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


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
    found.add_argument("--profile", help="cost profile; by default an estimate of OPT-13B on an A100")
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
    cost = load_profile(options.profile).cost if options.profile else OPT_13B
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
    """Run the study."""
    options = parser().parse_args(arguments)
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
