"""What the words of the page rest on: differences between policies, read off the tables."""

from __future__ import annotations

from collections.abc import Sequence

from scripts.bros_study.rates import Row
from scripts.bros_study.settings import HYBRID
from scripts.bros_study.tables import Tables, one

__all__ = ["Pair", "pairs", "points", "relative", "span"]

#: The rows of two policies in one case.
Pair = tuple[Row, Row]


def pairs(tables: Tables, policy: str, other: str, workload: str | None = None) -> list[Pair]:
    """Rows of two policies in each case of the hybrid study.

    Parameters
    ----------
    tables : Tables
    policy, other : str
    workload : str, optional
        Cases of this one only.
    """
    found = list[Pair]()
    for name, profile, rate, seed in HYBRID:
        if workload in (None, name):
            where = {"workload": name, "profile": profile, "rate": rate, "seed": str(seed)}
            found.append(tuple(one(tables["hybrid"], **where, policy=p) for p in (policy, other)))  # type: ignore[arg-type]
    return found


def points(found: Sequence[Pair], column: str) -> list[float]:
    """Differences of a column."""
    return [float(row[column]) - float(other[column]) for row, other in found]


def relative(found: Sequence[Pair], column: str) -> list[float]:
    """Changes of a column, in percent of the other policy; not for shares, which can be 0."""
    return [100 * (float(row[column]) / float(other[column]) - 1) for row, other in found]


def span(values: Sequence[float], digits: int = 1) -> str:
    """Least and largest value."""
    least, most = (f"{value:+.{digits}f}" for value in (min(values), max(values)))
    return f"{least} to {most}"
