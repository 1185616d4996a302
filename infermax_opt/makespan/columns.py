"""Columns of tables of makespan instances."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infermax_opt.core.columns import (
    BOUNDS,
    HOW,
    SECONDS,
    WHO,
    Columns,
    RowKind,
    gap_text,
    lower_cell,
    nearest,
    own,
    percent,
    seconds_cell,
    share,
    wall_cell,
)
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import Result
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.metrics import MakespanMetrics

__all__ = ["ROW_KIND"]

COLUMNS = Columns(
    csv={
        **WHO,
        "requests": lambda r: r.requests,
        "clients": own("clients"),
        "input_tokens": own("input_tokens"),
        "output_tokens": own("output_tokens"),
        **SECONDS,
        **BOUNDS,
        "closed_form_s": own("closed_form"),
        "bins": own("bins"),
        "rounds": own("rounds"),
        "utilisation_percent": lambda r: share(r.own["utilisation"]),
        "tokens_per_second": own("tokens_per_second"),
        **HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "clients": own("clients"),
        "schedule, s": lambda r: seconds_cell(r.upper_bound),
        "lower bound, s": lower_cell,
        "gap, %": lambda r: gap_text(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "closed form, s": lambda r: seconds_cell(r.own["closed_form"], "floor"),
        "found by": lambda r: r.schedule_source,
        "bins": own("bins"),
        "rounds": own("rounds"),
        "utilisation, %": lambda r: percent(r.own["utilisation"]),
        "time, s": lambda r: wall_cell(r.seconds),
    },
)


def _cells(
    instance: MakespanInstance, result: Result[MakespanSchedule, MakespanMetrics]
) -> Mapping[str, Any]:
    """Tokens of all requests; ``closed_form``: the best bound that is a formula; what the schedule does."""
    metrics, certified = result.metrics, result.certified
    return {
        "clients": instance.clients,
        "input_tokens": sum(r.input_tokens for r in instance.requests),
        "output_tokens": sum(r.output_tokens for r in instance.requests),
        "closed_form": Fraction(decimal_text(certified.value, rounding="floor")) if certified else None,
        "bins": metrics.bins if metrics else None,
        "rounds": metrics.rounds if metrics else None,
        "utilisation": nearest(metrics.utilisation if metrics else None),
        "tokens_per_second": nearest(metrics.tokens_per_second if metrics else None),
    }


ROW_KIND = RowKind(
    schema="infermax-opt/makespan-row/1",
    fields=(
        "clients", "input_tokens", "output_tokens", "closed_form", "bins", "rounds", "utilisation",
        "tokens_per_second",
    ),
    decimals=frozenset({"closed_form", "utilisation", "tokens_per_second"}),
    cells=_cells,
    columns=COLUMNS,
    solver_bounds=True,
)  # fmt: skip
