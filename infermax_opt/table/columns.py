"""The columns of a table, for the rows of each problem.

Unknown is None, which CSV shows as an empty cell and Markdown as a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.table.row import AnyRow, MakespanRow, PlacementRow, Row

__all__ = ["UNKNOWN", "Columns", "columns_of", "percent"]

UNKNOWN = "-"

#: Text or number of a cell.  A column is asked about rows of its problem only.
Cell = Callable[[Any], object]


@dataclass(frozen=True)
class Columns:
    """Columns by title, in their order.

    Attributes
    ----------
    csv, markdown : mapping of title to cell
    words : set of str
        Titles of the Markdown columns that hold words, which stand to the left.
    """

    csv: Mapping[str, Cell]
    markdown: Mapping[str, Cell]
    words: frozenset[str]


def percent(value: Fraction | None, digits: int = 4) -> str:
    """A share in percent, or a dash."""
    return UNKNOWN if value is None else f"{100 * float(value):.{digits}g}"


def _seconds(value: Fraction | None) -> str:
    return UNKNOWN if value is None else f"{float(value):.9g}"


def _wall(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _share(value: Fraction | None) -> str | None:
    return None if value is None else percent(value, 9)


_WHO: dict[str, Cell] = {"instance": lambda r: r.instance, "instance_sha256": lambda r: r.instance_sha256}
_BOUNDS: dict[str, Cell] = {
    "gap_percent": lambda r: _share(r.gap),
    "status": lambda r: r.status,
    "bound": lambda r: r.bound,
    "proof": lambda r: r.proof,
    "bound_check": lambda r: r.bound_check,
    "verified": lambda r: str(r.verified).lower(),
    "certified": lambda r: str(r.certified).lower(),
    "certificate": lambda r: r.certificate,
    "schedule_source": lambda r: r.schedule_source,
    "schedule_sha256": lambda r: r.schedule_sha256,
    "result": lambda r: r.result,
}
_SECONDS: dict[str, Cell] = {
    "upper_bound_s": lambda r: r.upper_bound,
    "lower_bound_s": lambda r: r.lower_bound,
}
_HOW: dict[str, Cell] = {
    "seconds": lambda r: r.seconds,
    "time_limit_s": lambda r: f"{r.time_limit:g}",
    "seed": lambda r: r.seed,
    "best_known": lambda r: str(r.best_known).lower(),
    "threads": lambda r: r.threads,
    "versions": lambda r: " ".join(f"{name}={text}" for name, text in r.versions.items()),
}
_WORDS = frozenset({"instance", "bound", "proof", "certificate", "found by"})

_BATCHES = Columns(
    csv={
        **_WHO,
        "B": lambda r: r.requests,
        "I": lambda r: r.input_tokens,
        "O": lambda r: r.output_tokens,
        "M": lambda r: r.kv_capacity,
        "C": lambda r: r.max_batch_tokens,
        "P": lambda r: r.max_prefill_tokens,
        **_SECONDS,
        **_BOUNDS,
        "batches": lambda r: r.batches,
        "evictions": lambda r: r.evictions,
        **_HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "B": lambda r: r.requests,
        "I": lambda r: r.input_tokens,
        "O": lambda r: r.output_tokens,
        "M": lambda r: r.kv_capacity,
        "P": lambda r: r.max_prefill_tokens,
        "schedule, s": lambda r: _seconds(r.upper_bound),
        "lower bound, s": lambda r: _seconds(r.lower_bound),
        "gap, %": lambda r: percent(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "certificate": lambda r: r.certificate,
        "found by": lambda r: r.schedule_source,
        "evictions": lambda r: r.evictions,
        "seconds": lambda r: _wall(r.seconds),
    },
    words=_WORDS,
)
_CLIENTS = Columns(
    csv={
        **_WHO,
        "requests": lambda r: r.requests,
        "clients": lambda r: r.clients,
        "input_tokens": lambda r: r.input_tokens,
        "output_tokens": lambda r: r.output_tokens,
        **_SECONDS,
        **_BOUNDS,
        "closed_form_s": lambda r: r.closed_form,
        "bins": lambda r: r.bins,
        "rounds": lambda r: r.rounds,
        "utilisation_percent": lambda r: _share(r.utilisation),
        "tokens_per_second": lambda r: r.tokens_per_second,
        **_HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "clients": lambda r: r.clients,
        "schedule, s": lambda r: _seconds(r.upper_bound),
        "lower bound, s": lambda r: _seconds(r.lower_bound),
        "gap, %": lambda r: percent(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "closed form, s": lambda r: _seconds(r.closed_form),
        "found by": lambda r: r.schedule_source,
        "bins": lambda r: r.bins,
        "rounds": lambda r: r.rounds,
        "utilisation, %": lambda r: percent(r.utilisation),
        "seconds": lambda r: _wall(r.seconds),
    },
    words=_WORDS,
)


_WORKERS = Columns(
    csv={
        **_WHO,
        "requests": lambda r: r.requests,
        "ongoing_requests": lambda r: r.ongoing_requests,
        "input_tokens": lambda r: r.input_tokens,
        "output_tokens": lambda r: r.output_tokens,
        "workers": lambda r: r.upper_bound,
        "lower_bound_workers": lambda r: r.lower_bound,
        **_BOUNDS,
        "closed_form_workers": lambda r: r.closed_form,
        "gpus": lambda r: r.gpus,
        "iteration_use_percent": lambda r: _share(r.mean_iteration_use),
        "prefill_use_percent": lambda r: _share(r.mean_prefill_use),
        "kv_use_percent": lambda r: _share(r.mean_kv_use),
        **_HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "workers": lambda r: r.upper_bound,
        "lower bound": lambda r: r.lower_bound,
        "gap, %": lambda r: percent(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "closed form": lambda r: r.closed_form,
        "found by": lambda r: r.schedule_source,
        "GPUs": lambda r: r.gpus,
        "iteration time, %": lambda r: percent(r.mean_iteration_use),
        "prefill, %": lambda r: percent(r.mean_prefill_use),
        "KV, %": lambda r: percent(r.mean_kv_use),
        "seconds": lambda r: _wall(r.seconds),
    },
    words=_WORDS,
)
_COLUMNS: dict[type[AnyRow], Columns] = {Row: _BATCHES, MakespanRow: _CLIENTS, PlacementRow: _WORKERS}


def columns_of(row: AnyRow | None) -> Columns:
    """The columns of a table that begins with this row; None: it has none."""
    return _BATCHES if row is None else _COLUMNS[type(row)]
