"""Picture of a front: schedules as points, and what no schedule reaches as an area."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from infermax_opt.core.checks import checked_kind
from infermax_opt.core.readings import Rest
from infermax_opt.core.values import SHARE, SHARE_REACHED
from infermax_opt.files.figure import entitle, panels, styled
from infermax_opt.files.text import percent, printable
from infermax_opt.gaps.fronts.axes import Axis
from infermax_opt.gaps.fronts.trace import Front, Point

__all__ = ["plot_front"]

#: Values of x at which the border of what is excluded is drawn.
STEPS = 400
#: How far the picture goes beyond the front, as a factor, and beyond what would be all.
BEYOND, MARGIN = 1.6, 1.05
#: An axis is logarithmic where its largest value is at least so many times its smallest.
SPREAD = 10
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
    checked_kind(front, Front, "front")
    with styled():
        (axes,) = panels(ax, (8, 5.5))
        most_x = _most(front.x, [float(p.x) for p in front.points])
        most_y = _most(front.y, [float(p.y) for p in front.points])
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
    return axis.name if axis.unit in ("", SHARE, SHARE_REACHED) else f"{axis.name}, {axis.unit}"


def _scatter(axes: Any, front: Front, points: Sequence[Point], colour: str, label: str) -> None:
    """Points, in the metrics that people read."""
    drawn = [p for p in points if (p.x or not front.x.divides) and (p.y or not front.y.divides)]
    xs, ys = [front.x.drawn(float(p.x)) for p in drawn], [front.y.drawn(float(p.y)) for p in drawn]
    axes.scatter(xs, ys, color=colour, label=label, zorder=3, s=26)


def _excluded(axes: Any, front: Front, most_x: float, most_y: float) -> None:
    """The area below the half-planes: for each x, all y below the highest line."""
    import numpy as np

    planes = [(float(p.u), float(p.v), float(p.bound.value)) for p in front.half_planes]
    least = _least(planes)
    low_x = _start(front.x, [float(p.x) for p in front.points], least)
    low_y = _start(front.y, [float(p.y) for p in front.points], _least((v, u, b) for u, v, b in planes))
    x = np.geomspace(low_x, most_x, STEPS) if low_x else np.linspace(most_x / STEPS, most_x, STEPS)
    y = np.zeros(STEPS)
    for u, v, bound in planes:
        if v:
            y = np.maximum(y, (bound - u * x) / v)
    y = np.where(x < least, np.inf, np.clip(y, most_y / STEPS, most_y))
    floor = most_y / STEPS if front.y.divides else 0.0
    y = y if front.y.divides else np.minimum(y, most_y)
    label = "excluded by lower bounds"
    axes.fill_between(
        front.x.drawn(x), front.y.drawn(y), front.y.drawn(floor), color=EXCLUDED, label=label, zorder=1
    )
    axes.set_xlim(low_x, _end(front.x, most_x, [float(p.x) for p in front.points]))
    axes.set_ylim(low_y, _end(front.y, most_y, [float(p.y) for p in front.points]))
    _far_apart(axes, low_x, low_y)


def _most(axis: Axis, values: Sequence[float]) -> float:
    """The most of what is to be low that the picture has."""
    if isinstance(axis.reading, Rest):
        return float(axis.reading.whole)
    return BEYOND * max(values, default=1.0) or 1.0


def _least(planes: Iterable[tuple[float, float, float]]) -> float:
    """The best bound on the first metric alone."""
    return max((bound / u for u, v, bound in planes if u and not v), default=0.0)


def _far_apart(axes: Any, low_x: float, low_y: float) -> None:
    """Make those axes logarithmic that begin above 0."""
    if low_x:
        axes.set_xscale("log")
        _plain_ticks(axes.xaxis)
    if low_y:
        axes.set_yscale("log")
        _plain_ticks(axes.yaxis)


def _start(axis: Axis, values: Sequence[float], least: float) -> float:
    """Where an axis begins: above 0 where points are so far apart that it is logarithmic."""
    if axis.reading is not None or min(values, default=0.0) <= 0 or max(values) < SPREAD * min(values):
        return 0.0
    return min([*values, *([least] if least > 0 else [])]) / BEYOND


def _plain_ticks(axis: Any) -> None:
    """Plain numbers beside a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _end(axis: Axis, most: float, values: Sequence[float]) -> float:
    """Where an axis of the picture ends: of what is to be high, a little beyond the best."""
    if axis.reading is None:
        return most
    if axis.divides:
        return float(BEYOND * axis.drawn(min([value for value in values if value] or [1.0])))
    return float(MARGIN * axis.drawn(0.0))
