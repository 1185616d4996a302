"""Picture of a series of workers: bounds over time."""

from __future__ import annotations

from typing import Any

from infermax_opt.cluster.report import BOUNDS
from infermax_opt.cluster.series import WorkerSeries
from infermax_opt.core.checks import checked_kind
from infermax_opt.core.exact import figures_text, lower_rounding
from infermax_opt.files.figure import entitle, panels, styled
from infermax_opt.files.text import printable

__all__ = ["plot_workers"]

COLOURS = {"any_policy": "#D55E00", "lower": "#009E73", "upper": "#0072B2"}
#: What lies below is drawn broader, so that equal lines are both seen.
WIDTHS = {"any_policy": 1.6, "lower": 1.2, "upper": 2.4}
#: Lines that differ without their colours, too.
LINES = {"any_policy": "-", "lower": "--", "upper": "-"}
#: Between the bound for any policy and what is used.
ROOM = "#E3EEF7"


def plot_workers(series: WorkerSeries, ax: Any | None = None) -> Any:
    """Draw the workers at each heartbeat: used, and both lower bounds.

    The room between the workers in use and the bound for any policy is shaded.

    Parameters
    ----------
    series : WorkerSeries
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.
    """
    checked_kind(series, WorkerSeries, "series")
    heartbeat = float(series.stream.heartbeat)
    times = [beat.beat * heartbeat for beat in series.beats]
    # The last heartbeat lasts as long as the others.
    times.append(times[-1] + heartbeat)
    with styled():
        from matplotlib.ticker import MaxNLocator

        (axes,) = panels(ax, (11, 4.5))
        drawn = {}
        for name in COLOURS:
            values = [getattr(beat, name) for beat in series.beats]
            drawn[name] = [*values, values[-1]]
        axes.fill_between(times, drawn["any_policy"], drawn["upper"], step="post", color=ROOM, linewidth=0)
        for name in ("upper", "lower", "any_policy"):
            axes.step(
                times, drawn[name], where="post", color=COLOURS[name], label=BOUNDS[name],
                linewidth=WIDTHS[name], linestyle=LINES[name],
            )  # fmt: skip
        axes.set_ylim(bottom=0)
        axes.set_xlim(times[0], times[-1])
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("workers")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, frameon=False)
        used, least = series.mean("upper"), figures_text(series.mean("any_policy"), 4, lower_rounding())
        words = f"workers in use: mean {float(used):.4g}, at most {series.peak('upper')}"
        bound = f"lower bound for any policy: mean {least}, at most {series.peak('any_policy')}"
        alt = f"Steps over {len(series.beats)} heartbeats: {', '.join(BOUNDS[name] for name in COLOURS)}."
        return entitle(ax, [axes], [printable(series.stream.name), f"{words}; {bound}"], alt)
