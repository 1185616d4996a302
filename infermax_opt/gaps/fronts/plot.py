"""Picture of a front: schedules as points, and what no schedule reaches as an area."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infermax_opt.files.figure import entitle, panels, styled
from infermax_opt.files.text import percent, printable
from infermax_opt.gaps.fronts.axes import Axis
from infermax_opt.gaps.fronts.trace import Front, Point

__all__ = ["plot_front"]

#: Values of x at which the border of what is excluded is drawn.
STEPS = 400
#: How far the picture goes beyond the front, as a factor.
BEYOND = 1.6
FRONT, OTHERS, EXCLUDED = "#0072B2", "#B7DDF2", "#F3D3E4"


def plot_front(front: Front, ax: Any | None = None) -> Any:
    """Draw a front.

    Parameters
    ----------
    front : Front
    ax : matplotlib.axes.Axes, optional
        What to draw into; default: a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The given ones, or those of the new figure.
    """
    with styled():
        (axes,) = panels(ax, (8, 5.5))
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
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize=8, frameon=False)
        count = len(front.points)
        few = "1 schedule" if count == 1 else f"{count} schedules"
        words = f"{front.x.name} and {front.y.name}: {few} that no known one beats"
        if front.points:
            words += f", gap at most {percent(max(map(front.gap, front.points)), 'ceiling')}"
        sources = ", ".join(sorted({plane.bound.source for plane in front.half_planes})) or "none"
        alt = (
            f"{len(front.points)} points on the front and {len(front.others)} others; shaded is what no "
            f"schedule reaches, by lower bounds: {sources}."
        )
        return entitle(ax, [axes], [printable(front.instance.name), words], alt)


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
