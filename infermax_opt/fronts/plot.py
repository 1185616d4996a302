"""Picture of a front: schedules as points, and what no schedule reaches as an area."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from infermax_opt.files.figure import STYLE, picture_format, save_figure
from infermax_opt.files.text import printable
from infermax_opt.fronts.axes import Axis
from infermax_opt.fronts.trace import Front, Point

__all__ = ["plot_front"]

#: Values of x at which the border of what is excluded is drawn.
STEPS = 400
#: How far the picture goes beyond the front, as a factor.
BEYOND = 1.6
FRONT, OTHERS, EXCLUDED = "#0072B2", "#B7DDF2", "#F3D3E4"


def plot_front(front: Front, path: str | os.PathLike[str]) -> None:
    """Draw a front.

    Parameters
    ----------
    front : Front
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

    with rc_context(STYLE):
        figure = Figure(figsize=(8, 5.5), layout="constrained")
        axes = figure.subplots()
        most_x, most_y = (
            BEYOND * max((float(value) for value in values), default=1.0) or 1.0
            for values in ([p.x for p in front.points], [p.y for p in front.points])
        )
        _excluded(axes, front, most_x, most_y)
        shown = [p for p in front.others if p.x <= most_x and p.y <= most_y]
        _scatter(axes, front, shown, OTHERS, "other schedules")
        _scatter(axes, front, front.points, FRONT, "schedules on the front")
        axes.set_xlabel(_label(front.x))
        axes.set_ylabel(_label(front.y))
        axes.set_title(printable(front.instance.name))
        figure.legend(loc="outside lower center", ncols=3, fontsize=8)
        save_figure(figure, path)


def _label(axis: Axis) -> str:
    return f"{axis.name}, {axis.unit}" if axis.unit else axis.name


def _shown(axis: Axis, value: float) -> float:
    return value if axis.number is None else axis.number / value


def _scatter(axes: Any, front: Front, points: Sequence[Point], colour: str, label: str) -> None:
    """Points, in the metrics that people read."""
    drawn = [p for p in points if (p.x or front.x.number is None) and (p.y or front.y.number is None)]
    xs, ys = [_shown(front.x, float(p.x)) for p in drawn], [_shown(front.y, float(p.y)) for p in drawn]
    axes.scatter(xs, ys, color=colour, label=label, zorder=3, s=26)


def _excluded(axes: Any, front: Front, most_x: float, most_y: float) -> None:
    """The area below the half-planes: for each x, all y below the highest line."""
    import numpy as np

    planes = [(float(p.u), float(p.v), float(p.bound.value)) for p in front.half_planes]
    least = max((bound / u for u, v, bound in planes if u and not v), default=0.0)
    x = np.linspace(most_x / STEPS, most_x, STEPS)
    y = np.zeros(STEPS)
    for u, v, bound in planes:
        if v:
            y = np.maximum(y, (bound - u * x) / v)
    y = np.where(x < least, np.inf, np.clip(y, most_y / STEPS, most_y))
    label = "excluded by lower bounds"
    if front.y.number is None:
        y, floor = np.minimum(y, most_y), 0.0
    else:  # less of what is to be low is more of the metric
        y, floor = front.y.number / y, front.y.number / (most_y / STEPS)
    best = max((_shown(front.y, float(p.y)) for p in front.points if p.y), default=1.0)
    axes.fill_between(_shown_all(front.x, x), y, floor, color=EXCLUDED, label=label, zorder=1)
    axes.set_ylim(0, most_y if front.y.number is None else BEYOND * best)
    axes.set_xlim(0, most_x if front.x.number is None else BEYOND * front.x.number / min(_positive(front)))


def _positive(front: Front) -> list[float]:
    return [float(p.x) for p in front.points if p.x] or [1.0]


def _shown_all(axis: Axis, values: Any) -> Any:
    return values if axis.number is None else axis.number / values
