"""Columns of tables of placement instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infermax_opt.core.columns import (
    BOUNDS,
    HOW,
    WHO,
    Columns,
    RowKind,
    gap_text,
    nearest,
    own,
    percent,
    share,
    wall_cell,
)
from infermax_opt.core.result import Result
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.metrics import PlacementMetrics

__all__ = ["ROW_KIND"]

COLUMNS = Columns(
    csv={
        **WHO,
        "requests": lambda r: r.requests,
        "ongoing_requests": own("ongoing_requests"),
        "input_tokens": own("input_tokens"),
        "output_tokens": own("output_tokens"),
        "workers": lambda r: r.upper_bound,
        "lower_bound_workers": lambda r: r.lower_bound,
        **BOUNDS,
        "closed_form_workers": own("closed_form"),
        "gpus": own("gpus"),
        "iteration_use_percent": lambda r: share(r.own["mean_iteration_use"]),
        "prefill_use_percent": lambda r: share(r.own["mean_prefill_use"]),
        "kv_use_percent": lambda r: share(r.own["mean_kv_use"]),
        **HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "workers": lambda r: r.upper_bound,
        "lower bound": lambda r: r.lower_bound,
        "gap, %": lambda r: gap_text(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "closed form": own("closed_form"),
        "found by": lambda r: r.schedule_source,
        "GPUs": own("gpus"),
        "iteration time, %": lambda r: percent(r.own["mean_iteration_use"]),
        "prefill, %": lambda r: percent(r.own["mean_prefill_use"]),
        "KV, %": lambda r: percent(r.own["mean_kv_use"]),
        "time, s": lambda r: wall_cell(r.seconds),
    },
)


def _cells(instance: PlacementInstance, result: Result[Placement, PlacementMetrics]) -> Mapping[str, Any]:
    """Ongoing requests; predicted tokens of all; ``closed_form``: the best bound that is a formula."""
    metrics, certified = result.metrics, result.certified
    return {
        "ongoing_requests": sum(r.ongoing for r in instance.requests),
        "input_tokens": sum(r.input_tokens for r in instance.requests),
        "output_tokens": sum(r.predicted_output_tokens for r in instance.requests),
        "closed_form": certified.value if certified else None,
        "gpus": metrics.gpus if metrics else None,
        "mean_iteration_use": nearest(metrics.mean_iteration_use if metrics else None),
        "mean_prefill_use": nearest(metrics.mean_prefill_use if metrics else None),
        "mean_kv_use": nearest(metrics.mean_kv_use if metrics else None),
    }


ROW_KIND = RowKind(
    schema="infermax-opt/placement-row/1",
    fields=(
        "ongoing_requests", "input_tokens", "output_tokens", "closed_form", "gpus", "mean_iteration_use",
        "mean_prefill_use", "mean_kv_use",
    ),
    decimals=frozenset({"closed_form", "mean_iteration_use", "mean_prefill_use", "mean_kv_use"}),
    cells=_cells,
    columns=COLUMNS,
)  # fmt: skip
