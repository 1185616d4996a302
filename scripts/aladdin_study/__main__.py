"""Measure the simulations of the Aladdin paper with lower bounds beside them, and write a page about them.

Usage, from the root of the repository::

    python -m scripts.aladdin_study [--only fleets ...] [--quick] [--out out/aladdin-study]
    python -m scripts.aladdin_study --page --out instances/best-known/aladdin

The second form measures nothing: it draws figures and page from the tables that are there.

Protocol: one process, one core, one workload after the other, about 15 minutes in all.  Everything but
the times of ``scheduling`` is exact and the same on every machine.  Every placement in a table is replayed
once more by the verifier (`infermax_opt.cluster.verify`), which must see the same metrics, and no limit
broken where a policy promises to keep the limits a to e.  ``--quick`` measures a few small workloads.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from infermax_opt.files.writing import write_text
from scripts.aladdin_study.effects import effect_rows
from scripts.aladdin_study.figures import draw_all
from scripts.aladdin_study.fleets import fleet_rows
from scripts.aladdin_study.page import page
from scripts.aladdin_study.scheduling import scheduling_rows
from scripts.aladdin_study.tables import Row, read_table, setting, write_table
from scripts.aladdin_study.workload import MODES, Workload

__all__ = ["FULL", "QUICK", "STUDIES", "Sizes", "main"]


@dataclass(frozen=True)
class Sizes:
    """What is measured: rates in requests per second, lengths of streams in seconds."""

    models: tuple[str, ...]
    rates: tuple[int, ...]
    seeds: int
    seconds: int
    quick_heartbeat_rates: tuple[int, ...]
    busy_rates: tuple[int, ...]
    effect_rate: int
    effect_seeds: int

    def fleets(self) -> Iterator[Workload]:
        """Figures 11 and 12, and mixed workloads with four heartbeats a second."""
        for mode, model, rate in itertools.product(MODES, self.models, self.rates):
            for seed in range(self.seeds):
                yield Workload(mode, model, rate, seed, self.seconds)
        for rate in self.quick_heartbeat_rates:
            yield Workload("mixed", self.models[0], rate, 0, self.seconds, heartbeat=Fraction(1, 4))

    def scheduling(self) -> Iterator[Workload]:
        """Figure 13."""
        for rate in self.busy_rates:
            yield Workload("mixed", self.models[0], rate, 0, self.seconds)

    def effects(self) -> Iterator[Workload]:
        """Bases of the effects."""
        base = Workload("mixed", self.models[0], self.effect_rate, 0, self.seconds)
        return (replace(base, seed=seed) for seed in range(self.effect_seeds))


FULL = Sizes(("13b", "70b"), (2, 5, 10, 15, 25), 3, 60, (2, 10), (5, 10, 25, 50, 100, 200), 15, 3)
QUICK = Sizes(("13b",), (2, 4), 1, 10, (2,), (4, 10), 4, 1)

#: Tables: the workloads of a size, and the rows of one of them.
STUDIES: dict[str, tuple[Callable[[Sizes], Iterator[Workload]], Callable[[Workload], Iterator[Row]]]] = {
    "fleets": (Sizes.fleets, fleet_rows),
    "scheduling": (Sizes.scheduling, scheduling_rows),
    "effects": (Sizes.effects, effect_rows),
}


def measure(name: str, sizes: Sizes) -> tuple[list[Row], Row]:
    """The rows of a study, and in what setting they were measured."""
    workloads, rows_of = STUDIES[name]
    began, rows = time.monotonic(), list[Row]()
    for number, workload in enumerate(workloads(sizes), 1):
        rows += rows_of(workload)
        spent = time.monotonic() - began
        print(f"\r{name}: {number} workloads, {spent:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    seconds = f"{time.monotonic() - began:.0f}"
    sizing = {"seconds_of_stream": str(sizes.seconds), "seconds_of_study": seconds}
    return rows, {"table": name, **sizing, **setting()}


def present(out: Path) -> None:
    """Draw the figures and write the page from the tables in a folder."""
    tables = {name: read_table(out / f"{name}.csv") for name in STUDIES}
    settings = [read_table(out / f"{name}-setting.csv")[0] for name in STUDIES]
    draw_all(tables, out)
    write_text(page(tables, settings), out / "README.md")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.aladdin_study", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--only", nargs="+", choices=list(STUDIES), default=list(STUDIES), metavar="STUDY")
    parser.add_argument("--quick", action="store_true", help="a few small workloads")
    parser.add_argument("--out", type=Path, default=Path("out/aladdin-study"))
    parser.add_argument("--page", action="store_true", help="measure nothing, draw figures and page again")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in () if options.page else options.only:
        rows, measured_in = measure(name, QUICK if options.quick else FULL)
        write_table(rows, options.out / f"{name}.csv")
        write_table([measured_in], options.out / f"{name}-setting.csv")
    if all((options.out / f"{name}.csv").exists() for name in STUDIES):
        present(options.out)
    else:
        print("no page: some of the tables are missing", file=sys.stderr)


if __name__ == "__main__":
    main()
