"""Picture of scores: bars with the bound as a line, and how latencies are distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infermax_opt.core.checks import checked_kind
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.files.figure import CATEGORIES, entitle, legend_label, panels, styled
from infermax_opt.files.text import percent, printable
from infermax_opt.gaps.explain import Explained
from infermax_opt.gaps.score import Group

__all__ = ["plot_comparison", "plot_gap", "plot_gaps"]

BOUND = "#000000"
#: Of metrics, which differ without their colours, too.
MARKERS = "osD^v<>"
#: Parts of a schedule's time, in their order: what is done, what is done again, batches by reason, nothing.
SPENT = (
    "#0072B2", "#56B4E9", "#004B75", "#D55E00", "#8C564B", "#E69F00", "#F0E442",
    "#C9A227", "#CC79A7", "#7A4A66", "#8FB8A8", "#BBBBBB", "#E8E8E8",
)  # fmt: skip
#: Panels beside each other.
ACROSS = 4


def plot_gap(group: Group, metric: str | None = None, ax: Any | None = None) -> Any:
    """Draw one metric of all runs: bars, with the lower bound as a line across.

    Parameters
    ----------
    group : Group
    metric : str, optional
        Default: the first that was compared.
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.

    Raises
    ------
    InputError
        If the metric was not compared.
    """
    checked_kind(group, Group, "group")
    known = [bound.metric for bound in group.bounds]
    chosen = known[0] if metric is None else metric
    if chosen not in known:
        raise InputError(f"{chosen!r} is none of {', '.join(known)}", field="metric")

    with styled():
        (axes,) = panels(ax, (1.6 + 1.1 * max(4, len(group.runs)), 4.2))
        _bars(axes, group, chosen)
        axes.set_title("")
        axes.set_ylabel(_named(group, chosen))
        labels = [printable(run.subject.label) for run in group.runs]
        axes.set_xticks(range(len(labels)), labels, rotation=20 if len(labels) > 4 else 0)
        for k, run in enumerate(group.runs):
            row = next(row for row in run.rows if row.metric == chosen)
            if row.value is not None and row.gap is not None:
                text = f"gap {percent(row.gap, 'ceiling')}"
                axes.annotate(text, (k, float(row.value)), ha="center", va="bottom", fontsize=8)
        axes.margins(y=0.12)
        lower = next(bound.lower for bound in group.bounds if bound.metric == chosen)
        words = "no lower bound is known" if lower is None else f"line: lower bound ({lower.source})"
        alt = f"A bar for each of {', '.join(labels)}: {chosen}; {words}."
        return entitle(ax, [axes], [f"{printable(group.instance.name)}: {chosen}", words], alt)


def plot_comparison(group: Group, ax: Any | None = None) -> Any:
    """Draw the gaps of all runs in all metrics, in percent: how much a schedule could gain at most.

    Parameters
    ----------
    group : Group
        Of `compare_schedulers` or `gap`.
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.
    """
    checked_kind(group, Group, "group")
    metrics = [bound.metric for bound in group.bounds]
    runs = sorted(group.runs, key=lambda run: -(run.rows[0].gap or 0))
    with styled():
        (axes,) = panels(ax, (9, 1.6 + 0.32 * max(4, len(runs))))
        for m, metric in enumerate(metrics):
            gaps = [next(row.gap for row in run.rows if row.metric == metric) for run in runs]
            known = [(100 * float(gap), k) for k, gap in enumerate(gaps) if gap is not None]
            if known:
                xs, ys = zip(*known, strict=True)
                mark = MARKERS[(m + m // len(CATEGORIES)) % len(MARKERS)]
                axes.plot(
                    xs, ys, mark, color=_colour(m), label=metric, markersize=7,
                    markeredgecolor="#333333", markeredgewidth=0.6, linestyle="none", zorder=3,
                )  # fmt: skip
        axes.set_yticks(range(len(runs)), [printable(run.subject.label) for run in runs])
        axes.set_ylim(-0.7, len(runs) - 0.3)
        axes.axvline(0, color=BOUND, linewidth=1.6, zorder=1.5)
        axes.grid(color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("gap to the lower bound (%): no schedule gains more")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
        sources = [f"{b.metric}: {b.lower.source}" for b in group.bounds if b.lower is not None]
        title = [f"{printable(group.instance.name)}: gaps of {len(runs)} runs"]
        alt = f"A row for each run, a mark for each metric. Lower bounds: {'; '.join(sources) or 'none'}."
        return entitle(ax, [axes], title, alt)


def plot_gaps(group: Group, explanations: Sequence[Explained] = ()) -> Any:
    """Draw the runs of one instance: a panel for each metric, one for each latency.

    Parameters
    ----------
    group : Group
    explanations : sequence of Explained
        Where the time of each schedule goes, to be drawn below.

    Returns
    -------
    matplotlib.axes.Axes
        The first of a new figure.
    """
    checked_kind(group, Group, "group")
    metrics = [bound.metric for bound in group.bounds if _drawn(group, bound.metric)]
    latencies = list(dict.fromkeys(name for run in group.runs for name in run.subject.measured.latencies))
    shown = len(metrics) + len(latencies)
    down = -(-shown // ACROSS)
    spent = [some for some in explanations if some.parts.over_time]
    with styled():
        (whole,) = panels(None, (3.2 * ACROSS, 2.9 * (down + len(spent)) + 0.8))
        figure = whole.figure
        whole.remove()
        grid = figure.add_gridspec(down + len(spent), ACROSS)
        axes = [figure.add_subplot(grid[k // ACROSS, k % ACROSS]) for k in range(shown)]
        for axis, metric in zip(axes, metrics, strict=False):
            _bars(axis, group, metric)
        for axis, name in zip(axes[len(metrics) :], latencies, strict=False):
            _distribution(axis, group, name)
        for k, some in enumerate(spent):
            _spent(figure.add_subplot(grid[down + k, :]), some)
        handles = _handles(group)
        figure.legend(handles=handles, loc="outside lower center", ncols=min(4, len(handles)), fontsize=8)
        labels = ", ".join(printable(run.subject.label) for run in group.runs)
        sources = [f"{b.metric}: {b.lower.source}" for b in group.bounds if b.lower is not None]
        alt = (
            f"Bars of {labels} in {len(metrics)} metrics with the lower bound as a line, and how "
            f"{len(latencies)} latencies are distributed. Lower bounds: {'; '.join(sources) or 'none'}."
        )
        return entitle(None, figure.axes, [printable(group.instance.name)], alt)


def _drawn(group: Group, metric: str) -> bool:
    return any(row.metric == metric and row.value is not None for run in group.runs for row in run.rows)


def _colour(index: int) -> str:
    return CATEGORIES[index % len(CATEGORIES)]


def _handles(group: Group) -> Sequence[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    runs = [
        Patch(color=_colour(k), label=legend_label(run.subject.label)) for k, run in enumerate(group.runs)
    ]
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
    axis.set_title(_named(group, metric), fontsize=10)
    axis.set_xticks([])
    axis.set_xlim(-0.6, len(group.runs) - 0.4)


def _named(group: Group, metric: str) -> str:
    unit = problem_of(group.instance).metrics.units.get(metric)
    return f"{metric} ({unit})" if unit else metric


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
