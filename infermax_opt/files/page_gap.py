"""What `gap` says of runs as a page for a browser, made from its JSON alone."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import figures_text, lower_rounding
from infermax_opt.files.charts import range_chart
from infermax_opt.files.fields import Fields
from infermax_opt.files.page import definitions, escaped, figure, grid, page, paragraph, section, table
from infermax_opt.files.page_result import PROOFS
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import UNKNOWN, counted, percent

__all__ = ["gap_page"]

INSTANCE = ("instance", "instance_sha256", "requests", "band", "lower_bounds", "search_stopped", "runs")
RUN = ("file", "format", "left_out", "remarks", "faster_than_bound", "metrics", "beside")


def gap_page(value: object) -> str:
    """The page of the JSON of `gap`.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    top = Fields(value, "", ("schema", "instances"))
    top.schema(SCHEMAS["gap"])
    groups = [
        Fields(one, f"instances[{k}]", INSTANCE, ("explained", "units"))
        for k, one in enumerate(top.items("instances"))
    ]
    if not groups:
        raise InputError("there are none", field="instances")
    answers, parts = list[str](), list[str]()
    for group in groups:
        said, drawn = _group(group)
        answers += said
        parts.append(drawn)
    items = "".join(f"<li>{escaped(text)}</li>" for text in answers)
    return page("How far runs are from optimal", f'<ul class="answer">{items}</ul>', *parts, _meaning())


def _group(group: Fields) -> tuple[list[str], str]:
    """What is said of the runs of an instance, and its section."""
    name, bounds = group.text("instance"), _objects(group, "lower_bounds")
    runs = [
        Fields(one, group.at(f"runs[{k}]"), RUN, ("own_clock",)) for k, one in enumerate(group.items("runs"))
    ]
    units = _objects(group, "units") if "units" in group.values else {}
    drawn, known = list[str](), list[list[Any]]()
    for metric, value in bounds.items():
        bound = None if value is None else _bound(value, group.at(f"lower_bounds.{metric}"))
        low, source, proof = bound or (None, None, None)
        known.append([metric, _float(low), source, proof])
        cells = [(run.text("file"), low, _metric(run, metric)) for run in runs]
        rows = [(label, low, *some) for label, low, some in cells if some and some[0] is not None]
        if rows:
            unit = units.get(metric)
            drawn.append(_chart(f"{name}: {metric}", metric if unit is None else f"{metric}, {unit}", rows))
    behind = table(f"{name}: lower bounds", ("metric", "bound", "found by", "proved"), known)
    title = f"{name}: {group.get('requests')} requests"
    said = [_answer(name, run) for run in runs]
    return said, section(title, *_remarks(group, runs), grid(drawn), behind)


def _answer(name: str, run: Fields) -> str:
    """How far a run is from optimal, in a sentence."""
    label, faster = run.text("file"), run.items("faster_than_bound")
    if faster:
        names = ", ".join(map(str, faster))
        return f"{label} is faster than any schedule of {name} ({names}): the cost model must be wrong."
    gaps = {metric: _metric(run, metric) for metric in _objects(run, "metrics")}
    known = [
        f"{metric} {percent(some[1], 'ceiling')}"
        for metric, some in gaps.items()
        if some and some[1] is not None
    ]
    return f"{label}, on {name}, is at most so far from optimal: {', '.join(known) or UNKNOWN}."


def _chart(title: str, across: str, rows: list[tuple[Any, ...]]) -> str:
    ranges = [(name, _float(low), _float(value)) for name, low, value, *_ in rows]
    lines = [
        [name, _least(low, gap), _float(value), _percent(gap), _float(gain)]
        for name, low, value, gap, gain in rows
    ]
    head = ("run", "lower bound", "value", "gap", "could gain at most")
    return figure(title, range_chart(title, ranges, across, ends=("bound", "run")), table(title, head, lines))


def _float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def _least(low: Fraction | None, gap: Fraction | None) -> float | None:
    """A lower bound as a cell shows it, to six digits."""
    return None if low is None else float(figures_text(low, rounding=lower_rounding(gap)))


def _percent(gap: Fraction | None) -> str | None:
    return None if gap is None else percent(gap, "ceiling")


def _remarks(group: Fields, runs: list[Fields]) -> list[str]:
    """What else is said of an instance and its runs."""
    found = []
    if group.get("band") is not None:
        found.append(paragraph(f"For machines whose batches take {group.get('band')} times as long."))
    stopped = ", ".join(map(str, group.items("search_stopped")))
    if stopped:
        found.append(paragraph(f"The search was stopped early for: {stopped}."))
    for run in runs:
        out = _objects(run, "left_out")
        said = [f"{counted(count, 'requests')} left out: {reason}" for reason, count in out.items()]
        said += [str(remark) for remark in run.items("remarks")]
        if said:
            found.append(paragraph(f"{run.text('file')}: {'; '.join(said)}."))
    return found


def _bound(value: object, path: str) -> tuple[Fraction, str, str]:
    """Value, source and proof of a lower bound."""
    fields = Fields(value, path, ("value", "source", "proof"), ("certificate",))
    proof = fields.text("proof")
    if proof not in PROOFS:
        raise InputError(f"{proof!r} is none of {', '.join(PROOFS)}", field=fields.at("proof"))
    return fields.decimal("value"), fields.text("source"), proof


def _metric(run: Fields, metric: str) -> tuple[Fraction | None, Fraction | None, Fraction | None] | None:
    """Value, gap and gain of a metric of a run; None where it has none."""
    found = _objects(run, "metrics").get(metric)
    if found is None:
        return None
    fields = Fields(found, run.at(f"metrics.{metric}"), ("value", "gap", "gain"))
    return fields.seconds("value"), fields.seconds("gap"), fields.seconds("gain")


def _objects(fields: Fields, key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    if not isinstance(value, Mapping):
        raise InputError("is not an object", field=fields.at(key))
    return value


def _meaning() -> str:
    said: list[tuple[object, object]] = [
        ("bound", "no schedule of the instance has less of this metric, whatever it does for the others"),
        ("gap", "(value - bound) / value: what a better schedule could gain at most"),
        *((f"proved: {name}", words) for name, words in PROOFS.items()),
    ]
    return section("What the numbers mean", definitions(said))
