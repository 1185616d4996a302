"""CSV that spreadsheets only read: the one writer of all tables, and its reader.

A spreadsheet runs a cell as a formula where it begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break.
Names in our tables come from the files of strangers, so such a text gets an apostrophe in front, which
spreadsheets take as "this is text".  Numbers stay numbers.  A text that has apostrophes before one of these
gets one more: so taking one away, as `read_rows` does, gives back what was written.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["read_rows", "rows_text"]

#: What a spreadsheet may run, behind apostrophes and blanks, also in its full-width form.
_RISKY = re.compile(r"'*(?:[\t\r\n]|\s*[=+\-@＝＋－＠])")
#: What looks like it but is a number, or the dash of an unknown one.
_HARMLESS = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|-")
#: Some spreadsheets part cells at these, too.
_PARTS = re.compile(r'[",;\t\r\n]')


def rows_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Write a table as CSV: a line of columns, a line for each row; None is an empty cell."""
    return "".join(",".join(map(_cell, row)) + "\n" for row in [columns, *rows])


def read_rows(text: str) -> list[dict[str, str]]:
    """Read what `rows_text` wrote, as texts by column."""
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    names = [_plain(name) for name in header]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in rows]


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    if _RISKY.match(text) and not _HARMLESS.fullmatch(text):
        text = f"'{text}"
    return '"' + text.replace('"', '""') + '"' if _PARTS.search(text) else text


def _plain(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _RISKY.match(cell) else cell
