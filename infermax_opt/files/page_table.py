"""A table of a suite as a page for a browser, made from its JSON alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import figures_text, lower_rounding
from infermax_opt.files.charts import line_chart, range_chart
from infermax_opt.files.fields import Fields
from infermax_opt.files.page import definitions, figure, grid, page, paragraph, section, table
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.text import percent

__all__ = ["table_page"]

#: Columns of the table of all rows that are words of no use on a page, or have a section of their own.
LEFT_OUT = ("suite", "protocol", "schedulers", "result", "schedule_sha256", "instance_sha256", "versions")
#: Rows up to which each has a line of its own in a chart.
FEW = 30


class _Row:
    """A row: its name, bounds, gap, and the gap of each scheduler."""

    def __init__(self, value: object, path: str):
        if not isinstance(value, Mapping):
            raise InputError("is not an object", field=path)
        fields = Fields(value, path, value)
        for key in ("instance", "lower_bound", "upper_bound", "gap", "schedulers"):
            if key not in value:
                raise InputError("is missing", field=fields.at(key))
        self.values: Mapping[str, Any] = value
        self.name = fields.text("instance")
        self.lower, self.upper, self.gap = (
            fields.seconds(key) for key in ("lower_bound", "upper_bound", "gap")
        )
        known = value["schedulers"]
        each = Fields(known, fields.at("schedulers"), known if isinstance(known, Mapping) else ())
        self.schedulers = {
            str(name): Fields(one, each.at(str(name)), ("value", "gap")).seconds("gap")
            for name, one in each.values.items()
        }


def table_page(value: object) -> str:
    """The page of the JSON of `table`.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    top = Fields(value, "", ("schema", "suite", "options", "version", "rows", "failures", "summary"))
    top.schema(SCHEMAS["table"])
    rows = [_Row(one, f"rows[{k}]") for k, one in enumerate(top.items("rows"))]
    if not rows:
        raise InputError("there are none", field="rows")
    known = sorted(row.gap for row in rows if row.gap is not None)
    failures, options = (_object(top, key) for key in ("failures", "options"))
    said: list[tuple[object, object]] = [(name, one) for name, one in options.items()]
    said += [("version", top.text("version"))]
    said += [(f"failed: {name}", reason) for name, reason in failures.items()]
    return page(
        f"Suite {top.text('suite')}",
        paragraph(_answer(top.text("suite"), rows, known), "answer"),
        section("Gaps", _words(), grid([*_gaps(rows, known), *_schedulers(rows)])),
        section("All rows", _all_rows(rows)),
        section("Assumptions", definitions(said)),
    )


def _object(fields: Fields, key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    if not isinstance(value, Mapping):
        raise InputError("is not an object", field=key)
    return value


def _answer(suite: str, rows: Sequence[_Row], known: Sequence[Fraction]) -> str:
    """The gaps of all rows in a sentence."""
    if not known:
        return f"{len(rows)} rows of {suite}; no gap is known."
    words = [percent(gap, "ceiling") for gap in (median(known), known[-1])]
    closed = sum(gap == 0 for gap in known)
    verb = "is" if closed == 1 else "are"
    unknown = f"; {len(rows) - len(known)} gaps are unknown" if len(known) < len(rows) else ""
    return (
        f"Of {len(rows)} rows of {suite}, {closed} {verb} proved optimal; the gap is {words[0]} in the "
        f"median and {words[1]} at most{unknown}."
    )


def _words() -> str:
    return paragraph(
        "The gap is (schedule - lower bound) / schedule: no schedule is better by more. Every schedule was "
        "replayed by the verifier."
    )


def _gaps(rows: Sequence[_Row], known: Sequence[Fraction]) -> list[str]:
    """Gaps by row where there are few, else how many rows are within which."""
    if not known:
        return []
    if len(rows) <= FEW:
        title = "Gap by row, %"
        shown = [(row.name, None, None if row.gap is None else 100 * float(row.gap)) for row in rows]
        behind = table(title, ("row", "gap, %"), [[name, gap] for name, _, gap in shown])
        return [figure(title, range_chart(title, shown, "gap, %", ends=("", "gap")), behind)]
    title = "Gap of rows, the smallest first, %"
    points = [(float(k), 100 * float(gap)) for k, gap in enumerate(known, 1)]
    behind = table(title, ("rows", "gap at most, %"), [[int(k), gap] for k, gap in points])
    return [figure(title, line_chart(title, points, None, "rows", "gap, %"), behind)]


def _schedulers(rows: Sequence[_Row]) -> list[str]:
    """Gaps of each scheduler: least, median and most over all rows."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, gap in row.schedulers.items():
            if gap is not None:
                found.setdefault(name, []).append(100 * float(gap))
    if not found:
        return []
    title = "Gap of schedulers over the rows, %"
    lines = sorted(
        ((name, median(gaps), max(gaps)) for name, gaps in found.items()), key=lambda line: line[1:]
    )
    picture = range_chart(title, lines, "gap, %", ends=("median", "most"))
    behind = table(
        title,
        ("scheduler", "least", "median", "most", "rows"),
        [[name, min(found[name]), middle, most, len(found[name])] for name, middle, most in lines],
    )
    return [figure(title, picture, behind)]


def _all_rows(rows: Sequence[_Row]) -> str:
    """Every single value of every row."""
    names = [
        name
        for name, value in rows[0].values.items()
        if name not in LEFT_OUT and not isinstance(value, Mapping | list)
    ]
    names.remove("instance")
    lines = [[row.name, *(_cell(row, name) for name in names)] for row in rows]
    return table("All rows", ("instance", *names), lines)


def _cell(row: _Row, name: str) -> Any:
    """A value of a row as a cell takes it: to six digits, the lower bound rounded down."""
    if name == "lower_bound" and row.lower is not None:
        return float(figures_text(row.lower, rounding=lower_rounding(row.gap)))
    value = row.values.get(name)
    return float(value) if isinstance(value, Decimal) else value
