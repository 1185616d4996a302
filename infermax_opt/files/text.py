"""Words and numbers as text: escaped, aligned, with their units.  Unknown is a dash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from infermax_opt.core.exact import Rounding, figures_text, percent_text

__all__ = ["UNKNOWN", "aligned", "counted", "percent", "printable", "seconds"]

#: The plain hyphen prints in every encoding.
UNKNOWN = "-"


def printable(text: object) -> str:
    """`text` on one line: control characters and lone surrogates escaped."""
    return "".join(ch if ch.isprintable() else repr(ch)[1:-1] for ch in str(text))


def seconds(value: Fraction | float | None, rounding: Rounding = "nearest") -> str:
    """A time with its unit."""
    return UNKNOWN if value is None else f"{figures_text(value, rounding=rounding)} s"


def counted(value: Fraction | int, unit: str | None, rounding: Rounding = "nearest") -> str:
    """A number with its unit, if it has one.

    Parameters
    ----------
    value : Fraction or int
    unit : str, optional
        Of several; of one it has no s at its end.
    rounding : {"nearest", "floor", "ceiling"}
    """
    number = str(value) if isinstance(value, int) else figures_text(value, rounding=rounding)
    if unit is None:
        return number
    if value == 1 and "/" not in unit:
        unit = unit.removesuffix("es" if unit.endswith("ches") else "s")
    return f"{number} {unit}"


def percent(value: Fraction | None, rounding: Rounding = "nearest") -> str:
    """A share in percent; a gap is rounded up, an attainment down."""
    return UNKNOWN if value is None else f"{percent_text(value, rounding=rounding)} %"


def aligned(rows: Iterable[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows of cells as lines, columns aligned; the last column runs free."""
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    return [
        (indent + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]])).rstrip()
        for row in rows
    ]
