"""Cells of measured CSV files: numbers, counts and times, and one line for whatever is wrong with one."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.exact import to_fraction
from infermax_opt.files.fields import shown
from infermax_opt.files.rows import fault

__all__ = ["LEAST", "MOST_SECONDS", "count", "number", "time"]

#: Least and most seconds of a measurement: a slip of the unit, not a measurement, lies beyond.
LEAST, MOST_SECONDS = Fraction(1, 10**9), 10**6


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
