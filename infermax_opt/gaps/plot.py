"""Picture of scores: bars with the bound as a line, and how latencies are distributed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from infermax_opt.core.registry import problem_of
from infermax_opt.files.figure import STYLE, picture_format, save_figure
from infermax_opt.files.text import printable
from infermax_opt.gaps.explain import Explained
from infermax_opt.gaps.score import Group

__all__ = ["plot_gaps"]

#: Okabe and Ito's palette, one colour a run, again from the start after the last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
BOUND = "#000000"
#: Parts of a schedule's time, in their order: what is done, what is done again, batches by reason, nothing.
SPENT = (
    "#0072B2", "#56B4E9", "#004B75", "#D55E00", "#8C564B", "#E69F00", "#F0E442",
    "#C9A227", "#CC79A7", "#7A4A66", "#8FB8A8", "#BBBBBB", "#E8E8E8",
)  # fmt: skip
#: Panels beside each other.
ACROSS = 4


def plot_gaps(group: Group, path: str | os.PathLike[str], explanations: Sequence[Explained] = ()) -> None:
    """Draw the runs of one instance: a panel for each metric, one for each latency.

    Parameters
    ----------
    group : Group
    path : path
        PNG or SVG by its ending; written whole or not at all.
    explanations : sequence of Explained
        Where the time of each schedule goes, to be drawn below.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    picture_format(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    metrics = [bound.metric for bound in group.bounds if _drawn(group, bound.metric)]
    latencies = list(dict.fromkeys(name for run in group.runs for name in run.subject.measured.latencies))
    panels = len(metrics) + len(latencies)
    down = -(-panels // ACROSS)
    spent = [some for some in explanations if some.parts.over_time]
    with rc_context(STYLE):
        figure = Figure(figsize=(3.2 * ACROSS, 2.9 * (down + len(spent)) + 0.8), layout="constrained")
        grid = figure.add_gridspec(down + len(spent), ACROSS)
        axes = [figure.add_subplot(grid[k // ACROSS, k % ACROSS]) for k in range(panels)]
        for axis, metric in zip(axes, metrics, strict=False):
            _bars(axis, group, metric)
        for axis, name in zip(axes[len(metrics) :], latencies, strict=False):
            _distribution(axis, group, name)
        for k, some in enumerate(spent):
            _spent(figure.add_subplot(grid[down + k, :]), some)
        figure.suptitle(printable(group.instance.name))
        handles = _handles(group)
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), fontsize=8)
        save_figure(figure, path)


def _drawn(group: Group, metric: str) -> bool:
    return any(row.metric == metric and row.value is not None for run in group.runs for row in run.rows)


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _handles(group: Group) -> Sequence[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    runs = [Patch(color=_colour(k), label=printable(run.subject.label)) for k, run in enumerate(group.runs)]
    return [*runs, Line2D([], [], color=BOUND, linewidth=1.6, label="lower bound: no schedule is below")]


def _bars(axis: Any, group: Group, metric: str) -> None:
    """One bar a run; the bound is a line across."""
    for k, run in enumerate(group.runs):
        row = next(row for row in run.rows if row.metric == metric)
        if row.value is not None:
            axis.bar(k, float(row.value), color=_colour(k), width=0.7)
    lower = next(bound.lower for bound in group.bounds if bound.metric == metric)
    if lower is not None:
        axis.axhline(float(lower.value), color=BOUND, linewidth=1.6)
    unit = problem_of(group.instance).metrics.units.get(metric)
    axis.set_title(f"{metric}, {unit}" if unit else metric, fontsize=10)
    axis.set_xticks([])
    axis.set_xlim(-0.6, len(group.runs) - 0.4)


def _distribution(axis: Any, group: Group, name: str) -> None:
    """Share of the requests whose latency is at most x."""
    for k, run in enumerate(group.runs):
        values = sorted(map(float, run.subject.measured.latencies.get(name, ())))
        if values:
            shares = [(i + 1) / len(values) for i in range(len(values))]
            axis.step([0.0, *values], [0.0, *shares], where="post", color=_colour(k), linewidth=1.4)
    axis.set_title(f"{name.upper()} of requests, s", fontsize=10)
    axis.set_ylabel("share of requests")
    axis.set_ylim(0, 1.02)
    axis.set_xlim(left=0)


def _spent(axis: Any, some: Explained) -> None:
    """Shares of the parts over time, one above the other."""
    shares = some.parts.over_time
    slices = len(next(iter(shares.values())))
    last = float(some.parts.value)
    x = [last * k / slices for k in range(slices + 1)]
    stacked = [[*values, values[-1]] for values in shares.values()]
    colours = [SPENT[k % len(SPENT)] for k, part in enumerate(some.parts.parts) if part.name in shares]
    axis.stackplot(x, stacked, labels=list(shares), colors=colours, step="post")
    axis.set_title(f"where the time of {printable(some.label)} goes", fontsize=10)
    axis.set_ylabel("share of the time")
    axis.set_xlabel("s")
    axis.set_xlim(0, last)
    axis.set_ylim(0, 1)
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, reverse=True)
