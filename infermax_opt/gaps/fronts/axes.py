"""The two metrics of a front, and the values that a schedule has in them.

A metric that is to be high, as tokens per second or an attainment, follows from one that is to be low: the
makespan, or the weight of missed service levels.  A front is computed in what is to be low.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import AnyProblem
from infermax_opt.core.readings import Quotient, Reading
from infermax_opt.core.values import AnyInstance, AnyMetrics
from infermax_opt.files.json import under

__all__ = ["Axis"]


@dataclass(frozen=True)
class Axis:
    """One of two metrics.

    Attributes
    ----------
    name : str
        The metric, as people read it.
    metric : str
        The metric that is minimised.
    unit : str
        Of `name`, empty for none.
    reading : Quotient or Rest or None
        How `name` follows from `metric`; None where both are the same.
    """

    name: str
    metric: str
    unit: str = ""
    reading: Reading | None = None

    @classmethod
    def of(cls, problem: AnyProblem, instance: AnyInstance, name: str, field: str) -> Axis:
        """The axis of that metric.

        Parameters
        ----------
        problem : Problem
            Of the instance.
        instance : instance
        name : str
        field : str
            Names it in an error.

        Raises
        ------
        InputError
            If there is no such metric, or the instance has not what it is about.
        """
        unit = problem.metrics.units.get(name, "")
        with under(field):
            reading = problem.reading(instance, name)
        axis = cls(name, name if reading is None else reading.metric, unit, reading)
        if name not in problem.metrics.definitions or not _minimised(problem, instance, axis.metric):
            able = [other for other in problem.metrics.definitions if _able(problem, instance, other)]
            others = f"none of {', '.join(able)}" if able else f"no axis of {problem.name} instances"
            raise InputError(f"{name!r} is {others}", field=field)
        return axis

    def value(self, metrics: AnyMetrics) -> Fraction | None:
        """What is to be low; None where it is undefined."""
        found = dict(metrics.items())[self.metric]
        return None if found is None else Fraction(found)

    def shown(self, value: Fraction) -> Fraction | None:
        """The metric as people read it, given what is to be low; None where it is undefined."""
        return value if self.reading is None else self.reading.shown(value)

    def drawn(self, value: Any) -> Any:
        """The metric as people read it, of a float or an array of what is to be low."""
        return value if self.reading is None else self.reading.of(value)

    @property
    def divides(self) -> bool:
        """Whether it is undefined at 0, and without limit near it."""
        return isinstance(self.reading, Quotient)


def _minimised(problem: AnyProblem, instance: AnyInstance, metric: str) -> bool:
    """Whether schedules of the instance can be asked for the least of it."""
    try:
        problem.aimed(instance, json.dumps({metric: 1}), ())
    except InputError:
        return False
    return True


def _able(problem: AnyProblem, instance: AnyInstance, name: str) -> bool:
    """Whether a metric can be an axis."""
    try:
        reading = problem.reading(instance, name)
    except InputError:
        return False
    return _minimised(problem, instance, name if reading is None else reading.metric)
