"""Rows of CSV files and JSON lines, read one by one, and the numbers in them."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from typing import Any, NoReturn, TypeVar

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction
from infermax_opt.files.fields import shown
from infermax_opt.files.json import parse_json
from infermax_opt.files.streams import open_text
from infermax_opt.files.text import counted

__all__ = [
    "MAX_ROWS",
    "Block",
    "Cells",
    "Row",
    "csv_blocks",
    "csv_cells",
    "csv_rows",
    "fault",
    "in_blocks",
    "json_rows",
    "number",
    "token_count",
]

#: Most requests of a file, of which an instance may take a part.
MAX_ROWS = 10**7
#: Most characters of a CSV cell: a list of the gaps between all tokens of a request is one.
MAX_CELL = 2**30
#: Rows that are held at a time where a file is read by column.
BLOCK = 2**13

#: Numbers of a few digits, and the powers of ten by which they are divided.
_PLAIN = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?")
_POWERS = [10**k for k in range(19)]

Row = tuple[int, Mapping[str, object]]
"""Line, from 1, and values by column."""

Cells = tuple[Any, ...]
"""Line, from 1, and cells of some columns."""

Block = tuple[tuple[int, ...], Mapping[str, tuple[str, ...]]]
"""Lines of rows, from 1, and by column the cells of these."""


T = TypeVar("T")


def fault(path: str, line: int, column: str | None, problem: str) -> NoReturn:
    """Raise an `InputError` that names a place of a file.

    Parameters
    ----------
    path : str
    line : int
    column : str or None
        None for the whole line.
    problem : str
    """
    where = f"line {line}" + (f", column {column!r}" if column else "")
    raise InputError(problem, field=where, source=path)


def number(value: object) -> Fraction:
    """Read a decimal of at least 0, exactly.

    Raises
    ------
    ValueError
        If it is none.
    """
    if isinstance(value, str | Decimal):
        plain = _PLAIN.fullmatch(str(value))
        # Most of millions are, and those need no more checks.
        if plain:
            whole, places = plain.groups("")
            return Fraction(int(whole + places), _POWERS[len(places)])
    if isinstance(value, str):
        value = value.strip()
        # Decimal() also takes underscores and digits of other scripts; a trace holds neither.
        if not value.isascii() or "_" in value:
            raise ValueError(f"{shown(value)} is not a decimal number")
    found = to_fraction(value)
    if found.numerator < 0:
        raise ValueError(f"{shown(value)} is negative; the least is 0")
    return found


def token_count(value: object) -> int:
    """Read a whole number of tokens.

    Raises
    ------
    ValueError
        If it is none, or above `MAX_TOKENS`.
    """
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    if type(value) is str and len(value) < 10 and value.isascii() and value.isdigit():
        return int(value)
    found = number(value)
    if found.denominator != 1:
        raise ValueError(f"{shown(value)} is not a whole number of tokens")
    if found > MAX_TOKENS:
        raise ValueError(f"{shown(value)} tokens; the most is {MAX_TOKENS}")
    return int(found)


def csv_rows(
    path: str | os.PathLike[str], columns: tuple[str, ...], known: tuple[str, ...] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Read a CSV file with a header; `columns` must be in it once, `known` ones may be.

    Parameters
    ----------
    path : path
    columns, known : tuple of str

    Raises
    ------
    InputError
        Naming file and line.
    """
    rows = _csv_cells(os.fspath(path), columns, known)
    _, header = next(rows)
    for line, row in rows:
        yield line, dict(zip(header, row, strict=True))


def csv_blocks(path: str | os.PathLike[str], columns: tuple[str, ...]) -> Iterator[Block]:
    """Read these columns of a CSV file with a header, thousands of rows at a time.

    Parameters
    ----------
    path : path
    columns : tuple of str
        At least two.

    Raises
    ------
    InputError
        Naming file and line.
    """
    for block in in_blocks(csv_cells(path, columns)):
        lines, *cells = zip(*block, strict=True)
        yield lines, dict(zip(columns, cells, strict=True))


def csv_cells(path: str | os.PathLike[str], columns: tuple[str, ...]) -> Iterator[Cells]:
    """Read these columns of a CSV file with a header, row by row; otherwise as `csv_blocks`."""
    rows = _csv_cells(os.fspath(path), columns, ())
    _, header = next(rows)
    chosen = itemgetter(*map(header.index, columns))
    return ((line, *chosen(row)) for line, row in rows)


def in_blocks(rows: Iterator[T]) -> Iterator[Sequence[T]]:
    """Thousands of rows at a time; what is wrong with one comes after those before it."""
    block: list[T] = []
    try:
        for row in rows:
            block.append(row)
            if len(block) == BLOCK:
                yield block
                block = []
    except InputError:
        if block:
            yield block
        raise
    if block:
        yield block


def _csv_cells(
    path: str, columns: tuple[str, ...], known: tuple[str, ...]
) -> Iterator[tuple[int, list[str]]]:
    """Lines and cells: of the header, then of each row, which has as many."""
    before = csv.field_size_limit(MAX_CELL)
    reader = csv.reader(open_text(path, ""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise InputError("is empty; a header line is needed", source=path)
        for name in (*columns, *known):
            if header.count(name) > 1 or (name in columns and name not in header):
                problem = "is there twice" if name in header else "is missing"
                fault(path, 1, name, f"{problem}; the header is {shown(','.join(header))}")
        yield 1, header
        for row in reader:
            if not row:
                continue
            if len(row) != len(header):
                many = counted(len(row), "columns")
                fault(path, reader.line_num, None, f"has {many}; the header has {len(header)}")
            yield reader.line_num, row
    except csv.Error as error:
        fault(path, reader.line_num, None, f"is not CSV: {error}")
    finally:
        csv.field_size_limit(before)


def json_rows(
    path: str | os.PathLike[str], columns: tuple[str, ...], *, finite: bool = True
) -> Iterator[Row]:
    """Read a file with one JSON object a line; `columns` must be in each.

    Parameters
    ----------
    path : path
    columns : tuple of str
    finite : bool
        False lets NaN and Infinity stand where nobody reads them.

    Raises
    ------
    InputError
        Naming file and line.
    """
    name = os.fspath(path)
    for line, text in enumerate(open_text(path, "\n"), 1):
        if not text.strip():
            continue
        try:
            value = parse_json(text, finite=finite)
        except InputError as error:
            fault(name, line, None, error.problem)
        if not isinstance(value, dict):
            fault(name, line, None, f"{shown(value)} is not an object")
        for column in columns:
            if column not in value:
                fault(name, line, column, "is missing")
        yield line, value
