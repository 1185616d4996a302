"""Where the time of a schedule goes: parts that add up exactly to a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

__all__ = ["Explanation", "Part"]


@dataclass(frozen=True)
class Part:
    """One part of a metric.

    Attributes
    ----------
    name : str
        In a few words.
    value : Fraction
        What it adds to the metric, in its unit.
    needed : Fraction
        What it adds in every schedule that does each thing once, at the least.
    words : str
        What it counts, such as how many batches.
    stages : tuple of Fraction
        Its value by stage of the schedule; they add up to it.
    """

    name: str
    value: Fraction
    needed: Fraction = Fraction(0)
    words: str = ""
    stages: tuple[Fraction, ...] = ()

    @property
    def above(self) -> Fraction:
        """What it adds beyond what is needed; below 0 where a schedule saves some of that."""
        return self.value - self.needed


@dataclass(frozen=True)
class Explanation:
    """A metric of a schedule in parts.

    Attributes
    ----------
    metric : str
    parts : tuple of Part
        Equal names for all schedules of an instance; their values add up to the metric.
    stages : tuple of str
        Names of the stages of the schedule, with when they end.
    over_time : mapping of part to shares
        Share of each equal slice of the schedule that the part takes, for pictures.
    """

    metric: str
    parts: tuple[Part, ...]
    stages: tuple[str, ...] = ()
    over_time: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def value(self) -> Fraction:
        """The metric."""
        return sum((part.value for part in self.parts), Fraction(0))

    @property
    def needed(self) -> Fraction:
        """What all parts together need at least."""
        return sum((part.needed for part in self.parts), Fraction(0))
