"""The two metrics of a front, and the values that a schedule has in them.

A metric that is to be high, as tokens per second, is a number divided by one that is to be low: generated
tokens by the makespan.  A front is computed in what is to be low.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import AnyProblem
from infermax_opt.core.values import AnyInstance, AnyMetrics

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
    number : int or None
        Divided by `metric` it is `name`; None where both are the same.
    """

    name: str
    metric: str
    unit: str = ""
    number: int | None = None

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
            If there is no such metric.
        """
        known = problem.metrics.definitions
        if name not in known:
            raise InputError(f"{name!r} is none of {', '.join(known)}", field=field)
        unit = problem.metrics.units.get(name, "")
        divided = problem.reciprocal(instance, name)
        if divided is not None:
            return cls(name, divided[0], unit, divided[1])
        return cls(name, name, unit)

    def value(self, metrics: AnyMetrics) -> Fraction:
        """What is to be low; 0 where it is undefined."""
        return Fraction(dict(metrics.items())[self.metric] or 0)

    def shown(self, value: Fraction) -> Fraction | None:
        """The metric as people read it, given what is to be low; None where it is undefined."""
        if self.number is None:
            return value
        return self.number / value if value else None
