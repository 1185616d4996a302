"""What the values of every problem have in common: as much as the rest of the house asks of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple, Protocol

from infermax_opt.core.exact import Rounding, figures_text

__all__ = [
    "SHARE", "SHARE_REACHED",
    "AnyInstance", "AnyMetrics", "AnySchedule", "AnyViolation", "MetricRow", "amount", "one_each",
]  # fmt: skip

#: Unit of a metric that is a share, which people read in percent.
SHARE = "share"
#: Unit of a metric that is a share to be reached: shown in percent, never higher than it is.
SHARE_REACHED = "share reached"


class AnyInstance(Protocol):
    """An instance of any problem."""

    @property
    def unit(self) -> tuple[str, str]:
        """Unit of the objective, for one and for many."""
        ...

    @property
    def name(self) -> str:
        """Name of the instance, which schedules and results repeat."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of the meaning: equal for files that differ only in notation."""
        ...

    @property
    def objective_name(self) -> str:
        """The objective, as results name it."""
        ...

    @property
    def requests(self) -> Sequence[Any]:
        """All requests."""
        ...


class AnySchedule(Protocol):
    """A schedule of any problem: decisions, no times."""

    @property
    def instance(self) -> str:
        """Name of the instance it is for."""
        ...


class AnyMetrics(Protocol):
    """Metrics of a replayed schedule of any problem: a dataclass, whose fields are the metrics.

    Attributes
    ----------
    definitions : mapping of metric to text
        What each one means.
    units : mapping of metric to text
        Units of those that have one: ``s``, `SHARE`, `SHARE_REACHED` or any word to stand behind the number.
    """

    definitions: ClassVar[Mapping[str, str]]
    units: ClassVar[Mapping[str, str]]

    def items(self) -> Sequence[tuple[str, Fraction | int | None]]:
        """Name and value of every metric; None is undefined."""
        ...


class MetricRow(NamedTuple):
    """A row of a report: its title, the metrics whose values it shows, and what they mean."""

    title: str
    names: tuple[str, ...]
    meaning: str


def one_each(metrics: AnyMetrics) -> list[MetricRow]:
    """A row for each metric."""
    return [MetricRow(name, (name,), metrics.definitions[name]) for name, _ in metrics.items()]


class AnyViolation(Protocol):
    """A rule that a schedule of any problem breaks: a dataclass, whose text says what is wrong in a line."""

    @property
    def rule(self) -> enum.Enum:
        """Which one; reports count them by its value."""
        ...


def amount(instance: AnyInstance, value: Fraction | float, rounding: Rounding = "nearest") -> str:
    """A value of the objective with its unit, to six digits.

    Parameters
    ----------
    instance : instance of any problem
    value : Fraction or float
    rounding : {"nearest", "floor", "ceiling"}
        Of a lower bound as `lower_rounding` says.
    """
    one, many = instance.unit
    return f"{figures_text(value, rounding=rounding)} {one if value == 1 else many}"
