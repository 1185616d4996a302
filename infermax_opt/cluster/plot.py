"""Picture of a series of workers: bounds over time."""

from __future__ import annotations

import os

from infermax_opt.cluster.report import BOUNDS
from infermax_opt.cluster.series import WorkerSeries
from infermax_opt.files.figure import STYLE, picture_format, save_figure
from infermax_opt.files.text import printable

__all__ = ["plot_series"]

COLOURS = {"any_policy": "#D55E00", "lower": "#009E73", "upper": "#0072B2"}
#: What lies below is drawn broader, so that equal lines are both seen.
WIDTHS = {"any_policy": 0.9, "lower": 0.8, "upper": 2.2}


def plot_series(series: WorkerSeries, path: str | os.PathLike[str]) -> None:
    """Draw the workers at each heartbeat: used, and both lower bounds.

    Parameters
    ----------
    series : WorkerSeries
    path : path
        PNG or SVG by its ending; written whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    picture_format(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    heartbeat = float(series.stream.heartbeat)
    times = [beat.beat * heartbeat for beat in series.beats]
    with rc_context(STYLE):
        figure = Figure(figsize=(11, 4.5), layout="constrained")
        axes = figure.subplots()
        for name in ("upper", "lower", "any_policy"):
            values = [getattr(beat, name) for beat in series.beats]
            axes.step(
                times, values, where="post", color=COLOURS[name], label=BOUNDS[name], linewidth=WIDTHS[name]
            )
        axes.set_ylim(bottom=0)
        axes.set_xlabel("time, s")
        axes.set_ylabel("workers")
        axes.set_title(printable(series.stream.name))
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
        save_figure(figure, path)
