"""The page on what scheduling can still gain for latencies: docs/latency.md and its picture.

Usage: ``python scripts/latency_page.py [--tables instances/best-known/tables] [--into docs]``

Everything on it comes from tables that are in the repository; nothing is solved.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from infermax_opt.files.csv_rows import read_rows
from infermax_opt.files.figure import STYLE, save_figure
from infermax_opt.files.writing import write_text

ROOT = Path(__file__).parents[1]
#: Ending of the columns that hold the gap of one scheduler.
GAP = "_gap_percent"
SCHEDULER, PLAN, BOUND = "#B7DDF2", "#0072B2", "#D55E00"

PAGE = """# What scheduling can still gain

For each objective and load: the best of the schedulers that the tables run, the best plan, which knows
all requests from the start, and a bound that no schedule is below. What lies between scheduler and plan is
what better scheduling gains at least; what lies between plan and bound is where we cannot say. Made by
`python scripts/latency_page.py` from the tables in `instances/best-known/tables`; each row was verified, and
each certificate checked. Real runs of vLLM have [a page](vllm-runs.md), MC-SF's models
[a page of their own](mcsf.md).

![Plans and bounds in shares of the best scheduler](latency.svg)

{sections}
"""


@dataclass(frozen=True)
class Row:
    """One instance, or the mean of some: best scheduler, plan and bound in the unit of the objective."""

    name: str
    scheduler: float | None
    who: str
    plan: float
    bound: float

    def cells(self) -> list[str]:
        """Of the page."""
        best = "-" if self.scheduler is None else f"{self.scheduler:.4g}"
        gained = "-" if not self.scheduler else f"{100 * (1 - self.plan / self.scheduler):.1f}"
        open_part = "0" if self.plan == 0 else f"{100 * (1 - self.bound / self.plan):.1f}"
        return [self.name, self.who, best, f"{self.plan:.4g}", f"{self.bound:.4g}", gained, open_part]


def read(tables: Path, name: str) -> list[dict[str, str]]:
    """Rows of a table."""
    return read_rows((tables / f"{name}.csv").read_text(encoding="utf-8"))


def row(values: dict[str, str]) -> Row:
    """A row of a table; the best scheduler follows from its gap, unless the bound is 0."""
    bound, plan = float(values["lower_bound_s"]), float(values["upper_bound_s"])
    gaps = {name[: -len(GAP)]: float(x) for name, x in values.items() if name.endswith(GAP) and x}
    if not gaps or not bound:
        return Row(values["instance"], None, "-", plan, bound)
    who = min(gaps, key=lambda name: gaps[name])
    return Row(values["instance"], bound / (1 - gaps[who] / 100), who, plan, bound)


def averages(rows: Iterable[dict[str, str]], key: str, label: str) -> list[Row]:
    """The mean of each group of rows with the same value of a column.

    Parameters
    ----------
    rows : iterable of dict
    key : str
        Column.
    label : str
        What its values are called.
    """
    groups: dict[str, list[Row]] = {}
    for values in rows:
        groups.setdefault(values[key], []).append(row(values))
    found = []
    for value, some in sorted(groups.items(), key=lambda pair: int(pair[0])):
        # Of shares of each instance's plan, so that long instances do not count for more.
        shares = [(one.scheduler or one.plan) / one.plan for one in some]
        bounds = [one.bound / one.plan for one in some]
        found.append(
            Row(f"{label} {value}, {len(some)} cells", mean(shares), "best of each", 1.0, mean(bounds))
        )
    return found


def section(title: str, text: str, rows: Sequence[Row]) -> str:
    """A part of the page.

    Parameters
    ----------
    title, text : str
    rows : sequence of Row
    """
    head = ["", "best scheduler", "its value", "plan", "bound", "gained by planning, %", "open, %"]
    lines = [head, ["---", "---", *["---:"] * 5], *(one.cells() for one in rows)]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"## {title}\n\n{text}\n\n{table}"


def draw(rows: Sequence[Row], path: Path) -> None:
    """Plans and bounds in shares of the best scheduler."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = [one for one in rows if one.scheduler]
    with rc_context(STYLE):
        figure = Figure(figsize=(9, 0.32 * len(drawn) + 1.2), layout="constrained")
        axes = figure.subplots()
        places = range(len(drawn))
        axes.barh(places, [1.0] * len(drawn), color=SCHEDULER, label="best scheduler")
        axes.barh(places, [one.plan / (one.scheduler or 1) for one in drawn], color=PLAN, label="plan")
        axes.barh(places, [one.bound / (one.scheduler or 1) for one in drawn], color=BOUND, label="bound")
        axes.set_yticks(places, [one.name for one in drawn], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("share of the best scheduler's value (less is better)")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
        save_figure(figure, path)


def main() -> None:
    """Write page and picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, default=ROOT / "instances" / "best-known" / "tables")
    parser.add_argument("--into", type=Path, default=ROOT / "docs")
    options = parser.parse_args()
    online = [row(values) for values in read(options.tables, "online-60s")]
    tails = [row(values) for values in read(options.tables, "tails-60s")]
    levels = [row(values) for values in read(options.tables, "attainment-120s")]
    grid = averages(read(options.tables, "latency-60s"), "M", "M =")
    sections = [
        section(
            "Mean end-to-end latency with arrivals, s",
            "Ten minutes of the Azure 2023 traces on one H100 (Llama-3.1-8B), 1 to 8 times as fast; a\n"
            "minute a row. At 4 times the rate, and on the code trace, a quarter to a half is open: each\n"
            "request may begin and end in the bounds where few others are in its way, or they count it\n"
            "only while work of it is left. What is lost where is on [a page](results/latencies.md).",
            online,
        ),
        section(
            "99th percentiles with arrivals, s",
            "The conversation trace as above; 31 of 3,118 requests may be later. A minute a row, on two\n"
            "cores that other work shared. A plan for first tokens lets all other tokens wait. The bounds\n"
            "on the TTFT count how many prompts can be on time one after the other; those on the end-to-end\n"
            "latency count crowds, of each of which one is late.",
            tails,
        ),
        section(
            "Missed service levels, requests",
            "The conversation trace, limits of TTFT and TPOT for all 3,118 requests; two minutes a row.\n"
            "The paper's schedulers do not look at limits. `deadline`, which does, came after this table:\n"
            "with limits of 1 s and 30 ms at 4 times the rate, 159 requests miss one.",
            levels,
        ),
        section(
            "Mean end-to-end latency without arrivals, in shares of the plan",
            "The grid of 1,024 equal requests, a minute a cell, or a few seconds where waves are\n"
            "better, schedules of the archive at hand; means over the cells of each KV capacity M.",
            grid,
        ),
    ]
    write_text(PAGE.format(sections="\n\n".join(sections)), options.into / "latency.md")
    draw([*online, *tails, *levels, *grid], options.into / "latency.svg")


if __name__ == "__main__":
    main()
