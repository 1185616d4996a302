"""The columns of a table's rows, and what a problem adds to those that all have.

A cell is asked about a row (`infermax_opt.table.row.Row`).  Unknown is None, which CSV shows as an empty
cell and Markdown as a dash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.exact import Rounding, decimal_text, figures_text, lower_rounding, percent_text

__all__ = [
    "BOUNDS",
    "HOW",
    "SECONDS",
    "SHARED",
    "UNKNOWN",
    "WHO",
    "WORDS",
    "Cell",
    "Columns",
    "RowKind",
    "gap_text",
    "lower_cell",
    "nearest",
    "own",
    "percent",
    "seconds_cell",
    "share",
    "wall_cell",
]

UNKNOWN = "-"

#: Text or number of a cell.
Cell = Callable[[Any], object]


def percent(value: Fraction | None, digits: int = 4, rounding: Rounding = "nearest") -> str:
    """A share in percent, or a dash.

    Parameters
    ----------
    value : Fraction, optional
    digits : int
        Significant ones.
    rounding : {"nearest", "floor", "ceiling"}
    """
    return UNKNOWN if value is None else percent_text(value, digits=digits, rounding=rounding)


def gap_text(value: Fraction | None) -> str:
    """A gap in percent for people, never shown smaller than it is, or a dash."""
    return percent(value, rounding="ceiling")


def share(value: Fraction | None) -> str | None:
    """A share in percent to nine digits, for CSV."""
    return None if value is None else percent(value, 9)


def seconds_cell(value: Fraction | None, rounding: Rounding = "nearest") -> str:
    """A time in seconds, or a dash."""
    return UNKNOWN if value is None else figures_text(value, 9, rounding)


def lower_cell(row: Any) -> str:
    """The lower bound of a row for people, rounded down unless the schedule meets it, or a dash."""
    return seconds_cell(row.lower_bound, lower_rounding(row.gap))


def wall_cell(value: float | None) -> str:
    """Wall-clock seconds, or a dash."""
    return UNKNOWN if value is None else f"{value:.2f}"


def nearest(value: Fraction | None) -> Fraction | None:
    """The value as a decimal that ends, rounded in the 30th digit."""
    return None if value is None else Fraction(decimal_text(value, rounding="nearest"))


def own(name: str) -> Cell:
    """The cell of a field that only rows of one problem have."""
    return lambda row: row.own[name]


#: CSV columns of all problems: which row.
WHO: Mapping[str, Cell] = {
    "instance": lambda r: r.instance,
    "instance_sha256": lambda r: r.instance_sha256,
}
#: Objective of the schedule and the lower bound, where these are times.
SECONDS: Mapping[str, Cell] = {
    "upper_bound_s": lambda r: r.upper_bound,
    "lower_bound_s": lambda r: r.lower_bound,
}
#: What the bound is worth.
BOUNDS: Mapping[str, Cell] = {
    "gap_percent": lambda r: share(r.gap),
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
#: How the row was computed.
HOW: Mapping[str, Cell] = {
    "seconds": lambda r: r.seconds,
    "time_limit_s": lambda r: f"{r.time_limit:g}",
    "seed": lambda r: r.seed,
    "best_known": lambda r: str(r.best_known).lower(),
    "threads": lambda r: r.threads,
    "versions": lambda r: " ".join(f"{name}={text}" for name, text in r.versions.items()),
}
#: Titles of Markdown columns that hold words, which stand to the left.
WORDS = frozenset({"instance", "bound", "proof", "certificate", "found by"})


@dataclass(frozen=True)
class Columns:
    """Columns by title, in their order.

    Attributes
    ----------
    csv, markdown : mapping of title to cell
    words : set of str
        Titles of the Markdown columns that hold words.
    """

    csv: Mapping[str, Cell]
    markdown: Mapping[str, Cell]
    words: frozenset[str] = WORDS


#: Those of a problem that names none of its own.
SHARED = Columns(
    csv={
        **WHO,
        "requests": lambda r: r.requests,
        "upper_bound": lambda r: r.upper_bound,
        "lower_bound": lambda r: r.lower_bound,
        **BOUNDS,
        **HOW,
    },
    markdown={
        "instance": lambda r: r.instance,
        "requests": lambda r: r.requests,
        "schedule": lambda r: seconds_cell(r.upper_bound),
        "lower bound": lower_cell,
        "gap, %": lambda r: gap_text(r.gap),
        "bound": lambda r: r.bound,
        "proof": lambda r: r.proof,
        "found by": lambda r: r.schedule_source,
        "time, s": lambda r: wall_cell(r.seconds),
    },
)


@dataclass(frozen=True)
class RowKind:
    """What the rows of one problem have besides what all rows have.

    Attributes
    ----------
    schema : str
        Of such rows in a journal.
    fields : tuple of str
        Names of their own fields.
    decimals : frozenset of str
        Those that are fractions.
    cells : callable
        Fills in the own fields, given an instance and its result.
    columns : Columns
    solver_bounds : bool
        Whether a row states a bound that only a solver vouches for; else it takes the best one that can be
        checked.
    """

    schema: str
    fields: tuple[str, ...] = ()
    decimals: frozenset[str] = frozenset()
    cells: Callable[[Any, Any], Mapping[str, Any]] = lambda instance, result: {}
    columns: Columns = SHARED
    solver_bounds: bool = False
