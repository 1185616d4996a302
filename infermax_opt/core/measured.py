"""What was measured of a run, by replay or on another system, as numbers that bounds are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

__all__ = ["Measured"]


@dataclass(frozen=True)
class Measured:
    """Metrics of one run.

    Attributes
    ----------
    metrics : mapping of metric to value
        As the problem defines them, exact; None where a metric is not known.
    latencies : mapping of name to values
        Those of single requests, seconds, for pictures.
    remarks : tuple of str
        What must be said beside the numbers, a sentence each.
    """

    metrics: Mapping[str, Fraction | int | None]
    latencies: Mapping[str, Sequence[Fraction]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
