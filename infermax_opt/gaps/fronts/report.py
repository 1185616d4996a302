"""A front as text, as a JSON value and as CSV."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import decimal_text, lower_rounding
from infermax_opt.core.values import amount
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.report import metric_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import aligned, percent, printable
from infermax_opt.gaps.fronts.axes import Axis
from infermax_opt.gaps.fronts.trace import Front, HalfPlane, Point

__all__ = ["front_csv", "front_text", "front_to_json"]


def front_text(front: Front) -> str:
    """The schedules that no other one beats, and the lines that no schedule is below."""
    x, y = front.x, front.y
    lines = [
        f"{printable(front.instance.name)}: {x.name} and {y.name}",
        "schedules that no known one beats in both",
        *aligned(
            [
                (x.name, y.name, f"{x.name} at best", f"{y.name} at best", "gap", "found by"),
                *(_point(front, some) for some in front.points),
            ]
        ),
        "  at best: no schedule that is no worse in the other metric is better than that",
        f"  gap: no schedule has both {x.metric} and {y.metric} lower by more than that",
        f"  other schedules, no better in either: {len(front.others)}",
        "no schedule is below these",
        *aligned(
            (
                plane.instance.objective_name,
                f">= {amount(plane.instance, plane.bound.value, lower_rounding(_above(front, plane)))}",
                _how(plane),
            )
            for plane in front.half_planes
        ),
        *(f"{name} is undefined in some schedules and counts as 0 there" for name in front.undefined),
        *(["stopped early: not all weighted sums were solved"] if front.stopped else []),
    ]
    return "\n".join(lines)


def _above(front: Front, plane: HalfPlane) -> Fraction | None:
    """By how much the lowest schedule is above a line; None if there is no schedule."""
    known = (plane.u * point.x + plane.v * point.y for point in (*front.points, *front.others))
    return min((value - plane.bound.value for value in known), default=None)


def _point(front: Front, point: Point) -> tuple[str, ...]:
    return (
        _value(front.x, point.x), _value(front.y, point.y),
        _bound(front.x, front.least_x(point), point.x), _bound(front.y, front.least_y(point), point.y),
        percent(front.gap(point), "ceiling"), point.source,
    )  # fmt: skip


def _value(axis: Axis, value: Fraction) -> str:
    return metric_text(axis.shown(value), axis.unit or None)


def _how(plane: HalfPlane) -> str:
    return f"{plane.bound.source} ({plane.bound.proof.value})"


def _bound(axis: Axis, value: Fraction, reached: Fraction) -> str:
    """The same, of what no schedule is better than: down, what is to be high up, unless it is reached."""
    if value == reached:
        return _value(axis, value)
    return metric_text(axis.shown(value), axis.unit or None, "floor" if axis.reading is None else "ceiling")


def front_to_json(front: Front) -> dict[str, Any]:
    """Points and half-planes; values of points to 30 digits, bounds rounded down."""
    points = [(point, True) for point in front.points] + [(point, False) for point in front.others]
    return {
        "schema": SCHEMAS["front"],
        "instance": front.instance.name,
        "instance_sha256": front.instance.sha256,
        "x": {"name": front.x.name, "metric": front.x.metric},
        "y": {"name": front.y.name, "metric": front.y.metric},
        "undefined": list(front.undefined),
        "stopped": front.stopped,
        "points": [
            {
                front.x.metric: _digits(point.x),
                front.y.metric: _digits(point.y),
                "least": {
                    front.x.metric: _floor(front.least_x(point)),
                    front.y.metric: _floor(front.least_y(point)),
                },
                "gap": front.gap(point),
                "source": point.source,
                "on_front": on_front,
            }
            for point, on_front in points
        ],
        "half_planes": [
            {
                "weights": {front.x.metric: plane.u, front.y.metric: plane.v},
                "lower_bound": _floor(plane.bound.value),
                "source": plane.bound.source,
                "proof": plane.bound.proof.value,
            }
            for plane in front.half_planes
        ],
    }


def _digits(value: Fraction) -> Fraction:
    return Fraction(decimal_text(value))


def _floor(value: Fraction) -> Fraction:
    return Fraction(decimal_text(value, rounding="floor"))


def front_csv(front: Front) -> str:
    """A line for each point, then one for each half-plane."""
    columns = ["kind", front.x.metric, front.y.metric, "lower_bound", "gap", "source", "proof"]
    rows: list[list[Any]] = []
    for kind, points in (("front", front.points), ("other", front.others)):
        rows += [
            [kind, float(point.x), float(point.y), None, float(front.gap(point)), point.source, None]
            for point in points
        ]
    rows += [
        [
            "half-plane", float(plane.u), float(plane.v),
            float(plane.bound.value), None, plane.bound.source, plane.bound.proof.value,
        ]
        for plane in front.half_planes
    ]  # fmt: skip
    return rows_text(columns, rows)
