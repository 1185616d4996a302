"""Columns of tables of pipelining instances."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infermax_opt.core.columns import (
    BOUNDS,
    HOW,
    UNKNOWN,
    WHO,
    Columns,
    RowKind,
    gap_text,
    nearest,
    own,
    wall_cell,
)
from infermax_opt.core.exact import figures_text
from infermax_opt.core.result import Result
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.heuristics.place import make_schedule
from infermax_opt.pipelining.replay.metrics import PipeliningMetrics

__all__ = ["ROW_KIND"]

#: Heuristics that each row is compared with.
COMPARED = ("apart", "dyadic", "splitting")


def _times(name: str) -> Any:
    """Cell of an amount that is so many times the capacity; the most that there can be is rounded up."""

    def cell(row: Any) -> str:
        value, bound = row.own[name], name == "most" and row.gap != 0
        return UNKNOWN if value is None else figures_text(value, 4, "ceiling" if bound else "nearest")

    return cell


COLUMNS = Columns(
    csv={
        **WHO,
        "requests": lambda r: r.requests,
        "objective": own("aim"),
        "capacity": own("capacity"),
        "upper_bound": lambda r: r.upper_bound,
        "lower_bound": lambda r: r.lower_bound,
        "packed_per_capacity": own("packed"),
        "bound_per_capacity": own("most"),
        **{f"{name}_per_capacity": own(name) for name in COMPARED},
        **BOUNDS,
        **HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "objective": own("aim"),
        "no pipelining, / M": _times("apart"),
        "paper's rule, / M": _times("dyadic"),
        "splitting, / M": _times("splitting"),
        "best, / M": _times("packed"),
        "bound, / M": _times("most"),
        "gap, %": lambda r: gap_text(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "found by": lambda r: r.schedule_source,
        "time, s": lambda r: wall_cell(r.seconds),
    },
)


def _cells(instance: PipeliningInstance, result: Result[Pipelining, PipeliningMetrics]) -> Mapping[str, Any]:
    """What is packed, what can be at most, and what heuristics pack, divided by the capacity."""

    def packed(name: str) -> Fraction:
        offsets = make_schedule(instance, name).offsets
        total = sum((instance.values[instance.index[some]] for some in offsets), Fraction(0))
        return total / instance.capacity

    lower = result.lower
    return {
        "aim": instance.objective,
        "capacity": instance.capacity,
        "packed": nearest(1 / result.upper.value) if result.upper else None,
        "most": nearest(1 / lower.value) if lower else None,
        **{name: nearest(packed(name)) for name in COMPARED},
    }


ROW_KIND = RowKind(
    schema="infermax-opt/pipelining-row/1",
    fields=("aim", "capacity", "packed", "most", *COMPARED),
    decimals=frozenset({"packed", "most", *COMPARED}),
    cells=_cells,
    columns=COLUMNS,
)
