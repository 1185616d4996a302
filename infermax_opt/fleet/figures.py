"""Numbers of a plan for people and for files: lower bounds are rounded down, unless they are met."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.exact import Rounding, decimal_text, figures_text, lower_rounding, to_fraction
from infermax_opt.files.text import UNKNOWN

__all__ = ["bounds", "cell", "least", "number", "share", "short"]

Value = Fraction | float | None


def number(value: Value, rounding: Rounding = "nearest") -> float | None:
    """With six digits, for JSON and CSV."""
    return None if value is None else float(figures_text(value, rounding=rounding))


def least(lower: Value, upper: Value) -> float | None:
    """A lower bound for JSON and CSV, beside the upper one."""
    return number(lower, _rounding(lower, upper))


def cell(value: int | None) -> str:
    """A whole number in a table."""
    return UNKNOWN if value is None else str(value)


def short(value: Value, rounding: Rounding = "nearest", digits: int = 4) -> str:
    """With few digits, for a text.

    Parameters
    ----------
    value : Fraction, float or None
    rounding : {"floor", "ceiling", "nearest"}
    digits : int
    """
    return UNKNOWN if value is None else figures_text(value, digits, rounding)


def share(value: Fraction | float) -> str:
    """What has to be kept, in percent and with all digits: 99.9999 % is not all."""
    return f"{decimal_text(100 * to_fraction(value))} %"


def bounds(lower: Value, upper: Value, unit: int = 1) -> str:
    """Both bounds in words, which are one number where they meet.

    Parameters
    ----------
    lower, upper : Fraction, float or None
    unit : int
        By which both are divided.
    """
    low, high = (None if value is None else value / unit for value in (lower, upper))
    if low is not None and low == high:
        return short(high)
    return f"{short(low, _rounding(low, high))} to {short(high)}"


def _rounding(lower: Value, upper: Value) -> Rounding:
    return lower_rounding(None if lower is None or upper is None else upper - lower)
