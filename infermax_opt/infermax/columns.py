"""Columns of tables of InferMax instances."""

from __future__ import annotations

from collections.abc import Mapping
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
    own,
    seconds_cell,
    wall_cell,
)
from infermax_opt.core.result import Result
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.metrics import Metrics

__all__ = ["ROW_KIND"]

COLUMNS = Columns(
    csv={
        **WHO,
        "B": lambda r: r.requests,
        "I": own("input_tokens"),
        "O": own("output_tokens"),
        "M": own("kv_capacity"),
        "C": own("max_batch_tokens"),
        "P": own("max_prefill_tokens"),
        **SECONDS,
        **BOUNDS,
        "batches": own("batches"),
        "evictions": own("evictions"),
        **HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "B": lambda r: r.requests,
        "I": own("input_tokens"),
        "O": own("output_tokens"),
        "M": own("kv_capacity"),
        "P": own("max_prefill_tokens"),
        "schedule, s": lambda r: seconds_cell(r.upper_bound),
        "lower bound, s": lower_cell,
        "gap, %": lambda r: gap_text(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "certificate": lambda r: r.certificate,
        "found by": lambda r: r.schedule_source,
        "evictions": own("evictions"),
        "time, s": lambda r: wall_cell(r.seconds),
    },
)


def _cells(instance: Instance, result: Result[Schedule, Metrics]) -> Mapping[str, Any]:
    """I and O, None where requests differ; M, C and P; batches and evictions of the schedule."""
    metrics = result.metrics
    return {
        "input_tokens": _only({t.input_tokens for t in instance.types}),
        "output_tokens": _only({t.output_tokens for t in instance.types}),
        "kv_capacity": instance.system.kv_capacity,
        "max_batch_tokens": instance.system.max_batch_tokens,
        "max_prefill_tokens": instance.system.max_prefill_tokens,
        "batches": metrics.batches if metrics else None,
        "evictions": metrics.evictions if metrics else None,
    }


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None


ROW_KIND = RowKind(
    schema="infermax-opt/row/1",
    fields=(
        "input_tokens", "output_tokens", "kv_capacity", "max_batch_tokens", "max_prefill_tokens", "batches",
        "evictions",
    ),
    cells=_cells,
    columns=COLUMNS,
)  # fmt: skip
