"""Scores as text, as a JSON value and as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import decimal_text, lower_rounding
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import LowerBound
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.report import bound_items, metric_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import UNKNOWN, aligned, counted, percent, printable
from infermax_opt.gaps.bounds import MetricBound
from infermax_opt.gaps.explain import Explained, explained_text, explained_to_json
from infermax_opt.gaps.score import Compared, Group, Row

__all__ = ["gaps_csv", "gaps_text", "gaps_to_json"]

#: What a run that is faster than any schedule says.
TOO_FAST = (
    "FASTER THAN ANY SCHEDULE of this machine: the cost model, the lengths or prefix-cache hits must be wrong"
)


# --- text ---------------------------------------------------------------------------------------


def gaps_text(groups: Sequence[Group], explanations: Sequence[Sequence[Explained]] = ()) -> str:
    """What is impossible first; then each instance with its bounds and runs.

    Parameters
    ----------
    groups : sequence of Group
    explanations : sequence of sequences of Explained
        Of each group, where the time of schedules goes; none if that is not asked for.
    """
    lines = _too_fast(groups)
    for k, group in enumerate(groups):
        lines += [*([""] if lines else []), *_group(group)]
        if explanations:
            text = explained_text(explanations[k])
            if group.band is not None and text:
                lines += ["", "on the machine of the instance itself, not on all of the band:"]
            lines += ["", text or "where the time goes is known of schedules on a KV cache only"]
    return "\n".join(lines)


def _too_fast(groups: Sequence[Group]) -> list[str]:
    rows = [
        (
            run.subject.label, name, _value(group, row.metric, row.value),
            f"{percent(row.faster)} below the bound {_least(group, row.metric, row.lower)}",
        )
        for group in groups for run in group.runs for name, row in _named(run)
        if row.faster is not None and row.lower is not None
    ]  # fmt: skip
    return [TOO_FAST, *aligned(rows)] if rows else []


def _named(run: Compared) -> list[tuple[str, Row]]:
    """Rows of a run, and what they are called."""
    return [(row.metric, row) for row in run.rows] + [(f"{row.metric} (own clock)", row) for row in run.own]


def _group(group: Group) -> list[str]:
    count = len(group.instance.requests)
    lines = [f"{printable(group.instance.name)}: {count} request{'' if count == 1 else 's'}"]
    machine = _machines(group) or "this machine"
    lines += [f"lower bounds, each metric by itself: no schedule has less on {machine}"]
    lines += aligned(_bound(group, some) for some in group.bounds)
    if len(group.runs) > 1:
        lines += _overview(group)
    for run in group.runs:
        lines += _run(group, run)
    return lines


def _machines(group: Group) -> str | None:
    """The machines that all holds for, in words; None for one."""
    if group.band is not None:
        return group.band.words
    return problem_of(group.instance).scoring.machines(group.instance)


def _bound(group: Group, some: MetricBound) -> tuple[str, str, str]:
    cut = "; the search was stopped" if some.stopped else ""
    if some.lower is None:
        return some.metric, UNKNOWN, cut.removeprefix("; ")
    source = f"{some.lower.source} ({some.lower.proof.value}){cut}"
    return some.metric, _least(group, some.metric, some.lower), source


def _overview(group: Group) -> list[str]:
    """Gaps of all runs side by side."""
    names = [metric.metric for metric in group.bounds]
    rows = [(run.subject.label, *map(_gap, run.rows), run.subject.kind) for run in group.runs]
    return ["", "gaps side by side", *aligned([("", *names, ""), *rows])]


def _gap(row: Row) -> str:
    return percent(row.gap, "ceiling") if row.faster is None else "below the bound"


def _run(group: Group, run: Compared) -> list[str]:
    subject = run.subject
    worst = ", worst case" if _machines(group) is not None and subject.schedule is not None else ""
    lines = ["", f"{printable(subject.label)} ({subject.kind}{worst})"]
    rows = [
        (
            name, _value(group, row.metric, row.value), _gap(row),
            metric_text(row.gain, _unit(group, row.metric), "ceiling"),
        )
        for name, row in _named(run)
    ]  # fmt: skip
    lines += aligned([("", "value", "gap", "a schedule could gain at most"), *rows])
    known = [(name, _value(group, name, value)) for name, value in run.beside.items() if value is not None]
    lines += aligned(known) if known else []
    lines += [
        f"  left out: {counted(count, 'requests')}: {reason}" for reason, count in subject.left_out.items()
    ]
    return lines + [f"  note: {printable(remark)}" for remark in subject.measured.remarks]


def _value(group: Group, metric: str, value: Fraction | int | None) -> str:
    return metric_text(value, _unit(group, metric))


def _least(group: Group, metric: str, lower: LowerBound) -> str:
    return metric_text(lower.value, _unit(group, metric), lower_rounding())


def _unit(group: Group, metric: str) -> str | None:
    units: Mapping[str, str | None] = problem_of(group.instance).metrics.units
    return units.get(metric)


# --- JSON values and CSV ------------------------------------------------------------------------


def gaps_to_json(groups: Sequence[Group], explanations: Sequence[Sequence[Explained]] = ()) -> dict[str, Any]:
    """Bounds and runs by instance; values to 30 digits, bounds rounded down.

    Parameters
    ----------
    groups : sequence of Group
    explanations : sequence of sequences of Explained
        Of each group, where the time of schedules goes; none if that is not asked for.
    """
    found = [_group_to_json(group) for group in groups]
    for value, some in zip(found, explanations, strict=False):
        value["explained"] = explained_to_json(some)
    return {"schema": SCHEMAS["gap"], "instances": found}


def _group_to_json(group: Group) -> dict[str, Any]:
    return {
        "instance": group.instance.name,
        "instance_sha256": group.instance.sha256,
        "requests": len(group.instance.requests),
        "band": None if group.band is None else str(group.band),
        "lower_bounds": {
            some.metric: bound_items([some.lower])[0] if some.lower else None for some in group.bounds
        },
        "units": {some.metric: _unit(group, some.metric) for some in group.bounds},
        "search_stopped": [some.metric for some in group.bounds if some.stopped],
        "runs": [_run_to_json(run) for run in group.runs],
    }


def _run_to_json(run: Compared) -> dict[str, Any]:
    return {
        "file": run.subject.label,
        "format": run.subject.kind,
        "left_out": dict(run.subject.left_out),
        "remarks": list(run.subject.measured.remarks),
        "faster_than_bound": list(run.faster),
        "metrics": _rows_to_json(run.rows),
        "own_clock": _rows_to_json(run.own),
        "beside": {name: _digits(value) for name, value in run.beside.items()},
    }


def _rows_to_json(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        row.metric: {"value": _digits(row.value), "gap": row.gap, "gain": _digits(row.gain)} for row in rows
    }


def _digits(value: Fraction | int | None) -> Fraction | int | None:
    return Fraction(decimal_text(value)) if isinstance(value, Fraction) else value


def gaps_csv(groups: Sequence[Group]) -> str:
    """A line for each run: four columns for each metric, then what has no bound."""
    metrics = list(dict.fromkeys(some.metric for group in groups for some in group.bounds))
    beside = list(dict.fromkeys(name for group in groups for run in group.runs for name in run.beside))
    columns = ["file", "format", "instance", "requests", "left_out", "faster_than_bound"]
    columns += [name + end for name in metrics for end in ("", "_bound", "_gap", "_gain")] + beside
    return rows_text(columns, [_line(group, run, metrics, beside) for group in groups for run in group.runs])


def _line(group: Group, run: Compared, metrics: Sequence[str], beside: Sequence[str]) -> list[Any]:
    rows = {row.metric: row for row in run.rows}
    cells: list[Any] = [run.subject.label, run.subject.kind, group.instance.name]
    cells += [len(group.instance.requests), sum(run.subject.left_out.values())]
    cells.append(" ".join(run.faster))
    for name in metrics:
        row = rows.get(name, Row(name, None, None))
        lower = row.lower.value if row.lower else None
        cells += [_float(value) for value in (row.value, lower, row.gap, row.gain)]
    return cells + [_float(run.beside.get(name)) for name in beside]


def _float(value: Fraction | int | None) -> float | int | None:
    return float(value) if isinstance(value, Fraction) else value
