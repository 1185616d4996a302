"""A table as CSV, Markdown and JSON.

Unknown is an empty cell in CSV, a dash in Markdown and null in JSON: never 0, never infinite.
CSV holds rows only; the other two end with the summary.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

from infermax_opt.core.columns import UNKNOWN, Columns, RowKind, gap_text, percent
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.shown import ShownRows
from infermax_opt.files.csv_rows import rows_text
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.table.row import Row, RowOptions

__all__ = ["Summary", "Table", "csv_text", "markdown_text", "summary_text", "table_to_json"]


@dataclass(frozen=True)
class Summary:
    """What the rows come to.

    Attributes
    ----------
    rows, total : int
        Rows in the table, and cases of the suite.
    median_gap, mean_gap, max_gap : Fraction or None
        Of the rows whose gap is known.
    unknown_gaps : int
        Rows whose gap is not.
    verified : int
        Rows whose schedule was replayed and whose bound the verifier re-checked itself; the
        other schedules were replayed too, but their bounds are a solver's word.
    certified : int
        Rows whose bound has a certificate that the checker accepted.
    """

    rows: int
    total: int
    median_gap: Fraction | None
    mean_gap: Fraction | None
    max_gap: Fraction | None
    unknown_gaps: int
    verified: int
    certified: int


@dataclass(frozen=True)
class Table(ShownRows):
    """The rows of one suite under the same options, in the suite's order.

    Attributes
    ----------
    suite : str
    options : RowOptions
    version : str
    rows : tuple of rows of one problem
    total : int
        Cases of the suite.
    failures : mapping of name to reason
        What went wrong in this run: rows that failed, which the next run tries again, and rows
        that the archive refused.
    computed : int
        Rows that this run added.
    """

    suite: str
    options: RowOptions
    version: str
    rows: tuple[Row, ...]
    total: int
    failures: Mapping[str, str] = field(default_factory=dict)
    computed: int = 0

    def facts(self) -> Mapping[str, Any]:
        """The suite and what its rows come to."""
        own = self.summary
        found = {name: getattr(own, name) for name in ("median_gap", "mean_gap", "max_gap", "verified")}
        return {
            "suite": self.suite,
            "rows": own.rows,
            "total": own.total,
            **found,
            "failures": len(self.failures),
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each instance: the columns of the CSV file, and the gap of each scheduler, in percent."""
        for row in self.rows:
            cells = {name: cell(row) for name, cell in self.columns.csv.items()}
            cells["gap_percent"] = None if row.gap is None else 100 * row.gap
            gaps = {name: row.distance(row.schedulers.get(name)) for name in self.schedulers}
            yield cells | {f"{n}_gap_percent": None if gap is None else 100 * gap for n, gap in gaps.items()}

    @property
    def summary(self) -> Summary:
        """Count, gaps, how many are verified and certified."""
        gaps = [row.gap for row in self.rows if row.gap is not None]
        return Summary(
            rows=len(self.rows),
            total=self.total,
            median_gap=statistics.median(gaps) if gaps else None,
            mean_gap=sum(gaps, Fraction(0)) / len(gaps) if gaps else None,
            max_gap=max(gaps, default=None),
            unknown_gaps=len(self.rows) - len(gaps),
            verified=sum(row.verified for row in self.rows),
            certified=sum(row.certified for row in self.rows),
        )

    @property
    def columns(self) -> Columns:
        """What it shows of a row; all rows are of the same problem."""
        return self.rows[0].kind.columns if self.rows else RowKind("").columns

    @property
    def schedulers(self) -> list[str]:
        """Names of all schedulers that the rows compare with the bound."""
        return list(dict.fromkeys(name for row in self.rows for name in row.schedulers))


def _or_dash(value: object) -> str:
    return UNKNOWN if value is None else str(value)


# --- CSV ----------------------------------------------------------------------------------------


def csv_text(table: Table) -> str:
    """One line per row; the gap of every scheduler comes last."""
    names, columns = table.schedulers, table.columns.csv
    lines = []
    for row in table.rows:
        cells = [column(row) for column in columns.values()]
        gaps = [row.distance(row.schedulers.get(name)) for name in names]
        cells += [None if gap is None else percent(gap, 9) for gap in gaps]
        lines.append([decimal_text(c) if isinstance(c, Fraction) else c for c in cells])
    return rows_text([*columns, *(f"{name}_gap_percent" for name in names)], lines)


# --- Markdown -----------------------------------------------------------------------------------


def _pairs(names: Sequence[str]) -> list[tuple[str, str | None]]:
    """Schedulers with their eviction-free variant, where there is one."""
    known = set(names)
    twins = {name for name in names if name.endswith("_ef") and name.removesuffix("_ef") in known}
    return [(n, f"{n}_ef" if f"{n}_ef" in twins else None) for n in names if n not in twins]


def markdown_text(table: Table) -> str:
    """The table for people: schedulers' gaps in brackets are those of the eviction-free variants."""
    pairs = _pairs(table.schedulers)
    columns = table.columns
    head = [*columns.markdown, *(f"{name} (ef), %" if twin else f"{name}, %" for name, twin in pairs)]
    rule = [" --- " if title in columns.words else " ---: " for title in head]
    lines = [f"# {table.suite}", "", "| " + " | ".join(head) + " |", "|" + "|".join(rule) + "|"]
    for row in table.rows:
        cells = [column(row) for column in columns.markdown.values()]
        for name, twin in pairs:
            cell = gap_text(row.distance(row.schedulers.get(name)))
            if twin:
                cell += f" ({gap_text(row.distance(row.schedulers.get(twin)))})"
            cells.append(cell)
        lines.append("| " + " | ".join(_or_dash(cell).replace("|", "\\|") for cell in cells) + " |")
    lines += ["", *(f"- {line}" for line in _footer(table))]
    return "\n".join(lines) + "\n"


def _footer(table: Table) -> list[str]:
    s, options = table.summary, table.options
    unknown = f" ({s.unknown_gaps} unknown)" if s.unknown_gaps else ""
    gaps = [f"{name} {gap_text(value)}" for name, value in _gaps(s).items()]
    start = ", schedules of the best-known archive at hand" if options.best_known else ""
    lines = [
        f"rows: {s.rows} of {s.total}",
        f"gap, %: {', '.join(gaps)}{unknown}; gap = (schedule - lower bound) / schedule",
        f"verified (schedule replayed, bound re-checked): {s.verified} of {s.rows}; certified: {s.certified}",
        f"infermax-opt {table.version}, {options.time_limit:g} s a row, seed {options.seed}{start}",
    ]
    return lines + [f"{name}: {reason}" for name, reason in table.failures.items()]


def _gaps(summary: Summary) -> dict[str, Fraction | None]:
    return {"median": summary.median_gap, "mean": summary.mean_gap, "max": summary.max_gap}


def summary_text(table: Table) -> str:
    """The summary in a few lines."""
    return "\n".join([table.suite, *(f"  {line}" for line in _footer(table))])


# --- JSON ---------------------------------------------------------------------------------------


def table_to_json(table: Table) -> dict[str, Any]:
    """Return the table as a JSON value; times are exact decimals, gaps have 12 digits."""
    return {
        "schema": SCHEMAS["table"],
        "suite": table.suite,
        "options": dict(table.options.__dict__),
        "version": table.version,
        "rows": [_row(row) for row in table.rows],
        "failures": dict(table.failures),
        "summary": {f.name: _rounded(getattr(table.summary, f.name)) for f in fields(Summary)},
    }


def _row(row: Row) -> dict[str, Any]:
    value = row.values()
    value["schedulers"] = {
        name: {"value": reached, "gap": _rounded(row.distance(reached))}
        for name, reached in row.schedulers.items()
    }
    return {**value, "gap": _rounded(row.gap), "verified": row.verified, "certified": row.certified}


def _rounded(value: object) -> object:
    return Fraction(decimal_text(value, digits=12)) if isinstance(value, Fraction) else value
