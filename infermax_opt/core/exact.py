"""Exact numbers: decimals in, rationals inside, decimals out.

Every coefficient and time of a cost model is a decimal, so it is held as a
`fractions.Fraction` and never rounded.  Floats appear only in solvers, plots
and printed figures.
"""

from __future__ import annotations

import functools
import math
import operator
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from fractions import Fraction
from typing import Literal

from infermax_opt.core.errors import InputError

__all__ = [
    "MAX_DIGITS", "Number", "Rounding", "decimal_places", "decimal_text", "figures_text", "fixed_text",
    "is_finite_decimal", "lower_rounding", "percent_text", "read_whole", "to_fraction",
]  # fmt: skip

Number = int | str | float | Decimal | Fraction
"""What the Python API takes where a decimal is meant (a float means its shortest repr)."""

Rounding = Literal["floor", "ceiling", "nearest"]
_MODES: dict[Rounding, str] = {
    "floor": ROUND_FLOOR,
    "ceiling": ROUND_CEILING,
    "nearest": ROUND_HALF_EVEN,
}

#: Digits before and after the point that a decimal may have.  Anything longer is a
#: mistake or an attack ("1e999999999"), and exact arithmetic on it would not end.
MAX_DIGITS = 40


class _NoNumber(ValueError):
    """A text that is no decimal number."""


def to_fraction(value: object) -> Fraction:
    """Read a decimal exactly.

    Parameters
    ----------
    value : int, str, float, Decimal or Fraction
        A float is read as its shortest decimal representation: 0.1 is one tenth.

    Raises
    ------
    ValueError
        If the value is not a finite decimal of at most `MAX_DIGITS` digits on either side of
        the point.
    """
    # Most of millions are texts, decimals and fractions, and to ask others whether they are one takes long.
    if type(value) not in (str, Decimal) and isinstance(value, Fraction):
        if not is_finite_decimal(value):
            raise ValueError(f"{_short(value)} is not a finite decimal")
        return value
    if isinstance(value, bool):
        raise ValueError(f"{value} is not a number")
    if not isinstance(value, str | float | Decimal):
        try:
            value = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise ValueError(f"{_short(value)} is not a number") from None
    try:
        number = Decimal(repr(float(value))) if isinstance(value, float) else Decimal(value)
    except (InvalidOperation, ValueError):
        raise _NoNumber(f"{_short(value)} is not a decimal number") from None
    if not number.is_finite():
        raise ValueError(f"{_short(value)} is not finite")
    if _is_long(number):
        raise ValueError(f"{_short(value)} has more than {MAX_DIGITS} digits beside the point")
    return Fraction(*number.as_integer_ratio())


def _is_long(number: Decimal) -> bool:
    """Whether a finite decimal has too many digits before or after the point."""
    text = str(number)
    # A short text without an exponent has no more digits than that; nearly all are, and millions count.
    if len(text) <= MAX_DIGITS and "E" not in text:
        return False
    exponent = number.as_tuple().exponent
    return not isinstance(exponent, int) or exponent < -MAX_DIGITS or number.adjusted() >= MAX_DIGITS


def read_whole(value: object, field: str) -> int:
    """Read a whole number, however it is written (4, "4", 4.0).

    Raises
    ------
    InputError
        Naming `field`, if it is none.
    """
    if type(value) is int and abs(value) < 10**MAX_DIGITS:
        return value
    try:
        number = to_fraction(value)
    except _NoNumber:
        raise InputError(f"{_short(value)} is not a whole number", field=field) from None
    except ValueError as error:
        raise InputError(str(error), field=field) from None
    if number.denominator != 1:
        raise InputError(f"{value} is not a whole number", field=field)
    return int(number)


def is_finite_decimal(value: Fraction) -> bool:
    """Tell whether `value` has a finite decimal expansion."""
    return decimal_places(value.denominator) is not None


@functools.lru_cache(maxsize=2**12)
def decimal_places(denominator: int) -> int | None:
    """Digits behind the point of a fraction in lowest terms, by its denominator; None for no end."""
    # A product of twos and fives divides the power of ten with as many of each as it has bits.
    if pow(10, denominator.bit_length(), denominator):
        return None
    shift, power = 0, 1
    while power % denominator:
        shift += 1
        power *= 10
    return shift


def decimal_text(value: Fraction, *, digits: int = 30, rounding: Rounding = "nearest") -> str:
    """Write `value` as a decimal literal: exact where it is finite, else `digits` long.

    Parameters
    ----------
    value : Fraction
    digits : int
        Significant digits kept where the expansion does not end, or has more than `MAX_DIGITS` on either
        side of the point; none are beyond these behind it.
    rounding : {"floor", "ceiling", "nearest"}
        Direction of the rounding; a lower bound is rounded down so that it stays one.
    """
    if value.denominator == 1:
        return str(value.numerator)
    shift = decimal_places(value.denominator)
    if shift is not None:
        figures = str(abs(value.numerator) * (10**shift // value.denominator))
        if max(shift, len(figures) - shift) <= MAX_DIGITS:
            text = figures.rjust(shift + 1, "0")
            sign = "-" if value.numerator < 0 else ""
            return f"{sign}{text[:-shift]}.{text[-shift:]}"
    number = _rounded(value, digits, rounding)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent < -MAX_DIGITS:
        number = number.quantize(Decimal(1).scaleb(-MAX_DIGITS), _MODES[rounding], Context(prec=MAX_DIGITS))
    return format(number, "f")


def percent_text(value: Fraction, *, digits: int = 3, rounding: Rounding = "nearest") -> str:
    """Write a share as a number of percent.

    Parameters
    ----------
    value : Fraction
    digits : int
        Significant digits.
    rounding : {"floor", "ceiling", "nearest"}
        An attainment is rounded down, so that 100 means all; a gap is rounded up, so that none is
        shown smaller than it is.
    """
    return f"{float(_rounded(100 * value, digits, rounding)):.{digits}g}"


def figures_text(value: Fraction | float, digits: int = 6, rounding: Rounding = "nearest") -> str:
    """Write `value` for people, with so many significant digits.

    Parameters
    ----------
    value : Fraction or float
        A float means its shortest repr.
    digits : int
        Significant digits, at most 15.
    rounding : {"floor", "ceiling", "nearest"}
        See `lower_rounding`.
    """
    number = float(value)
    if rounding != "nearest" and math.isfinite(number):
        exact = Fraction(repr(value)) if isinstance(value, float) else Fraction(value)
        number = float(_rounded(exact, digits, rounding))
    return f"{number:.{digits}g}"


def lower_rounding(gap: Fraction | float | None = None) -> Rounding:
    """How a lower bound is rounded where it is shown: down, so that none is shown above what is proved.

    One that a schedule meets, with a gap of 0, is shown as the schedule's value is: to the nearest.
    """
    return "nearest" if gap is not None and gap == 0 else "floor"


def fixed_text(value: Fraction | float, decimals: int, rounding: Literal["floor", "ceiling"]) -> str:
    """Write `value` with so many decimals, an attainment rounded down and a gap up.

    Parameters
    ----------
    value : Fraction
    decimals : int
        Digits behind the point.
    rounding : {"nearest", "floor", "ceiling"}
    """
    scaled = value * 10**decimals
    whole = math.floor(scaled) if rounding == "floor" else math.ceil(scaled)
    return f"{whole / 10**decimals:.{decimals}f}"


def _rounded(value: Fraction, digits: int, rounding: Rounding) -> Decimal:
    context = Context(prec=digits, rounding=_MODES[rounding])
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def common_denominator(values: list[Fraction]) -> int:
    """Return the least integer D with D * value integral for every value."""
    return math.lcm(1, *(value.denominator for value in values))


def _short(value: object) -> str:
    try:
        text = repr(str(value)) if isinstance(value, Decimal | Fraction) else repr(value)
    except ValueError:  # int too long for a decimal repr
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
