"""Columns of tables of iteration instances: rates of the best batch and of Algorithm 1, and who is served."""

from __future__ import annotations

from collections.abc import Mapping
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
from infermax_opt.iteration.data.instance import BE_TOKENS, IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.replay.metrics import IterationMetrics, measure_batch

__all__ = ["ROW_KIND"]

#: Whose batches a row compares.
WHOSE = ("best", "literal", "guarded")
#: Metrics of each batch that a row compares.
COMPARED = ("rate", "be_tokens_per_second", "rt_served", "rt_late")


def _rate(name: str) -> Any:
    """A number of a row, short; the highest rate that there can be is rounded up."""

    def cell(row: Any) -> str:
        value, bound = row.own[name], name == "bound_rate" and row.gap != 0
        return UNKNOWN if value is None else figures_text(value, 5, "ceiling" if bound else "nearest")

    return cell


def _counts(who: str) -> Any:
    """Real-time requests served, and late."""
    return lambda r: f"{r.own[f'{who}_rt_served']}, {r.own[f'{who}_rt_late']}"


COLUMNS = Columns(
    csv={
        **WHO,
        "requests": lambda r: r.requests,
        "rt_requests": own("rt_requests"),
        "upper_bound": lambda r: r.upper_bound,
        "lower_bound": lambda r: r.lower_bound,
        **BOUNDS,
        **{
            f"{who}_{name}": own(f"{who}_{name}")
            for who in ("best", "literal", "guarded")
            for name in COMPARED
        },
        "bound_rate": own("bound_rate"),
        **HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "rate, /s": _rate("best_rate"),
        "bound, /s": _rate("bound_rate"),
        "gap, %": lambda r: gap_text(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "found by": lambda r: r.schedule_source,
        "A1 / rate": _rate("literal_share"),
        "guarded / rate": _rate("guarded_share"),
        "BE tokens/s": _rate("best_be_tokens_per_second"),
        "RT served, late": _counts("best"),
        "of A1": _counts("literal"),
        "of guarded": _counts("guarded"),
        "time, s": lambda r: wall_cell(r.seconds),
    },
)


def _compared(who: str, instance: IterationInstance, metrics: IterationMetrics | None) -> dict[str, Any]:
    if metrics is None:
        return dict.fromkeys((f"{who}_{name}" for name in COMPARED), None)
    tokens = metrics.be_tokens_per_second
    rate = tokens if instance.objective == BE_TOKENS else metrics.value_per_second
    values = (nearest(rate or 0), nearest(tokens or 0), metrics.rt_served, metrics.rt_late)  # type: ignore[arg-type]
    return {f"{who}_{name}": value for name, value in zip(COMPARED, values, strict=True)}


def _cells(instance: IterationInstance, result: Result[Selection, IterationMetrics]) -> Mapping[str, Any]:
    """Rates for the objective, BE tokens/s, requests served and late: of the best and of Algorithm 1."""
    from infermax_opt.iteration.heuristics.algorithm1 import algorithm1

    cells = _compared("best", instance, result.metrics)
    for name in ("literal", "guarded"):
        batch = algorithm1(instance, guarded=name == "guarded").batch
        cells |= _compared(name, instance, measure_batch(instance, batch))
        best = cells["best_rate"]
        cells[f"{name}_share"] = nearest(cells[f"{name}_rate"] / best) if best else None
    lower = result.lower
    cells["bound_rate"] = nearest(1 / lower.value) if lower is not None and lower.value else None
    return {"rt_requests": sum(r.real_time for r in instance.requests), **cells}


_SHARES = ("literal_share", "guarded_share", "bound_rate")
_RATES = tuple(f"{who}_{name}" for who in WHOSE for name in COMPARED[:2])
ROW_KIND = RowKind(
    schema="infermax-opt/iteration-row/1",
    fields=("rt_requests", *(f"{who}_{name}" for who in WHOSE for name in COMPARED), *_SHARES),
    decimals=frozenset({*_SHARES, *_RATES}),
    cells=_cells,
    columns=COLUMNS,
)
