"""Read the tables and find rows in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from infermax_opt.files.csv_rows import read_rows
from scripts.bros_study.rates import Row

__all__ = ["Tables", "choose", "numbers", "one", "read_tables"]

Tables = Mapping[str, Sequence[Row]]


def read_tables(folder: Path, names: Iterable[str]) -> Tables:
    """Tables by name."""
    return {name: read_rows((folder / f"{name}.csv").read_text(encoding="utf-8")) for name in names}


def choose(rows: Sequence[Row], **where: str) -> list[Row]:
    """Rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def one(rows: Sequence[Row], **where: str) -> Row:
    """The row with these values.

    Raises
    ------
    KeyError
        If there is none, or more than one.
    """
    found = choose(rows, **where)
    if len(found) != 1:
        raise KeyError(f"{len(found)} rows with {where}")
    return found[0]


def numbers(rows: Sequence[Row], column: str) -> list[float]:
    """A column."""
    return [float(row[column]) for row in rows]
