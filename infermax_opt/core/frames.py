"""Rows as data frames of pandas, which is an extra; and exact values as plain ones.

A row is a mapping.  Exact numbers become floats there: a frame is for looking and plotting, never for proofs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.extras import require

if TYPE_CHECKING:
    import pandas

__all__ = ["frame", "plain", "request_fields"]


def plain(value: Any) -> Any:
    """The same value of plain types only, as JSON knows them; exact numbers become the nearest float.

    Parameters
    ----------
    value : object
        Mappings and sequences are gone through.
    """
    if isinstance(value, Fraction | Decimal):
        return float(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes):
        return [plain(item) for item in value]
    return value


def frame(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """Rows as a data frame.

    Parameters
    ----------
    rows : iterable of mapping
    columns : sequence of str, optional
        Of a frame that may have no row; default: what the rows name.

    Raises
    ------
    InputError
        If pandas is not installed.
    """
    require("pandas", "data frames")
    import pandas

    return pandas.DataFrame([plain(dict(row)) for row in rows], columns=columns)


def request_fields(request: Any) -> dict[str, Any]:
    """What an instance says of a request, by name; what it does not say is left out."""
    simple = (str, int, float, bool, Fraction, type(None))
    found = {field.name: getattr(request, field.name) for field in fields(request)}
    return {name: value for name, value in found.items() if isinstance(value, simple)}
