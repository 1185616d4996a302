"""Cells of measured CSV files: rows with their lines, numbers, and one line for whatever is wrong."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NoReturn

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction
from infermax_opt.files.fields import shown
from infermax_opt.files.json import read_text

__all__ = ["LEAST", "MOST_SECONDS", "count", "fault", "number", "rows", "time"]

#: Least and most seconds of a measurement: a slip of the unit, not a measurement, lies beyond.
LEAST, MOST_SECONDS = Fraction(1, 10**9), 10**6


def rows(path: str, needed: Iterable[str], known: Iterable[str] = ()) -> Iterator[tuple[int, dict[str, str]]]:
    """Lines of a CSV file with their cells by column; blank lines are left out.

    Parameters
    ----------
    path : str
    needed : iterable of str
        Columns that must be there.
    known : iterable of str
        Columns that may be there, once.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing or twice, or a row has more or fewer cells.
    """
    needed = list(needed)
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise InputError("is empty; a header line is needed", source=path)
        for name in (*needed, *known):
            if header.count(name) > 1 or (name in needed and name not in header):
                problem = "is there twice" if name in header else "is missing"
                fault(path, 1, name, f"{problem}; the header is {shown(','.join(header))}")
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                fault(path, reader.line_num, None, f"has {len(row)} columns; the header has {len(header)}")
            yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        fault(path, reader.line_num, None, f"is not CSV: {error}")


def number(path: str, line: int, column: str, text: str) -> Fraction:
    """A decimal number.

    Parameters
    ----------
    path, line, column
        Where it stands.
    text : str
    """
    text = text.strip()
    # Decimal() also takes underscores and digits of other scripts; a measurement holds neither.
    if not text or not text.isascii() or "_" in text:
        fault(path, line, column, f"{shown(text)} is not a decimal number")
    try:
        return to_fraction(text)
    except ValueError as error:
        fault(path, line, column, str(error))


def count(path: str, line: int, column: str, text: str, most: int, least: int = 1) -> int:
    """A whole number within limits.

    Parameters
    ----------
    path, line, column
        Where it stands.
    text : str
    most, least : int
        Limits.
    """
    # The usual case, which is fast.
    if text.isascii() and text.isdigit() and len(text) < 16:
        value = int(text)
    else:
        found = number(path, line, column, text)
        value = int(found) if found.denominator == 1 else least - 1
    if not least <= value <= most:
        fault(path, line, column, f"{shown(text)} is not a whole number from {least} to {most}")
    return value


def time(path: str, line: int, column: str, text: str, *, per_second: int = 1) -> Fraction:
    """A measured time, s.

    Parameters
    ----------
    path, line, column
        Where it stands.
    text : str
    per_second : int
        Units of the column in a second.
    """
    value = number(path, line, column, text) / per_second
    if not LEAST <= value <= MOST_SECONDS:
        low, high = float(LEAST * per_second), float(MOST_SECONDS * per_second)
        fault(path, line, column, f"{shown(text)} is not between {low:g} and {high:g}")
    return value


def fault(path: str, line: int, column: str | None, problem: str) -> NoReturn:
    """Say what is wrong in a line of a file.

    Parameters
    ----------
    path : str
    line : int
    column : str or None
    problem : str
    """
    where = f"line {line}" + (f", column {column!r}" if column else "")
    raise InputError(problem, field=where, source=path)
