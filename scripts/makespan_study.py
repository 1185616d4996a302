"""The methods of the makespan paper on cases like its own (section V): time, utilisation, gap to the bound.

Usage: ``python scripts/makespan_study.py [--cases 100] [--error 0.2] [--out FILE.csv]``

Protocol: case k of each distribution has seed k, 1319 requests on 200 clients, lengths with the moments of
Table III, and estimated output lengths that are off by a lognormal factor of deviation ``--error``.
Every method runs once on every case; every schedule is replayed, and the bound is the best closed form.
A gain is the difference to ``fcfs`` on the same case.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from pathlib import Path

from infermax_opt.files.writing import write_text
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.data.generate import DISTRIBUTIONS, gsm8k_like
from infermax_opt.makespan.methods.by_name import METHODS, run_method
from infermax_opt.makespan.replay.bins import replay_bins

COLUMNS = [
    "case", "method", "makespan_s", "utilisation_percent", "tokens_per_second", "gap_percent", "bins",
    "decisions", "slow_decisions",
]  # fmt: skip
#: Milliseconds that a decision may take, says the paper.
SLOW_MS = 5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100, help="of each distribution")
    parser.add_argument("--error", type=float, default=0.2, help="of estimated output lengths")
    parser.add_argument("--distribution", choices=[*DISTRIBUTIONS], action="append")
    parser.add_argument("--out", type=Path, help="CSV of all runs")
    options = parser.parse_args()
    rows = []
    for distribution in options.distribution or ["normal"]:
        for seed in range(options.cases):
            rows += case(distribution, seed, options.error)
            print(f"\r{distribution}: {seed + 1} of {options.cases}", end="", file=sys.stderr)
        print(file=sys.stderr)
    print(f"{platform.machine()}; {len(rows) // len(METHODS)} cases, error of estimates {options.error:g}")
    print(table(rows))
    if options.out:
        text = "\n".join(",".join(map(str, row)) for row in [COLUMNS, *rows]) + "\n"
        write_text(text, options.out)
    return 0


def case(distribution: str, seed: int, error: float) -> list[tuple[object, ...]]:
    """All methods on one case."""
    instance = gsm8k_like(seed=seed, distribution=distribution, error=error)
    bound = closed_form_makespan_bounds(instance)[0].value
    rows: list[tuple[object, ...]] = []
    for name in METHODS:
        run = run_method(instance, name)
        found = replay_bins(instance, run.schedule)
        if not found.valid or found.makespan < bound:
            raise SystemExit(f"{instance.name}, {name}: {found.violations[:1] or 'below the bound'}")
        gap = 1 - bound / found.makespan
        numbers = [found.makespan, found.utilisation * 100, found.tokens_per_second, gap * 100]
        slow = sum(seconds * 1000 > SLOW_MS for seconds in run.decision_seconds)
        counts = len(run.schedule.bins), len(run.decision_seconds), slow
        rows.append((instance.name, name, *(f"{float(x):.6g}" for x in numbers), *counts))
    return rows


def table(rows: list[tuple[object, ...]]) -> str:
    """Means over the cases with their standard deviations, and gains against the baseline."""
    columns = {name: [row for row in rows if row[1] == name] for name in METHODS}

    def values(name: str, k: int) -> list[float]:
        return [float(str(row[k])) for row in columns[name]]

    def shown(numbers: list[float]) -> str:
        spread = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
        return f"{statistics.fmean(numbers):.2f} ± {spread:.2f}"

    lines = [
        "| method | makespan, s | utilisation, % | tokens/s | gap, % | gain: utilisation, points | tokens/s |"
    ]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for name in METHODS:
        gains = [
            [mine - base for mine, base in zip(values(name, k), values("fcfs", k), strict=True)]
            for k in (3, 4)
        ]
        cells = [shown(values(name, k)) for k in (2, 3, 4, 5)] + [shown(gain) for gain in gains]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    decisions = sum(int(str(row[7])) for row in rows)
    slow = sum(int(str(row[8])) for row in rows)
    lines.append(f"{decisions} decisions, {slow} of them slower than {SLOW_MS} ms")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
