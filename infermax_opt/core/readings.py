"""Metrics that are to be high, read off metrics that are minimised.

A rate is often a number divided by a time; a share that is kept is often a whole less what is missed.  Both
fall where what is minimised rises, so a least value of one is a largest value of the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError

__all__ = ["Quotient", "Reading", "Rest"]


@dataclass(frozen=True)
class Quotient:
    """``number / metric``, as tokens per second are generated tokens / makespan.

    Attributes
    ----------
    metric : str
        What is minimised.
    number : int
    """

    metric: str
    number: int

    def of(self, value: Any) -> Any:
        """The reading of a value above 0 of the metric, or of an array of these."""
        return self.number / value

    def shown(self, value: Fraction) -> Fraction | None:
        """The same of any value; None where it is undefined."""
        return Fraction(self.number) / value if value else None

    def limit(self, least: Fraction, field: str) -> Fraction:
        """The largest value of the metric with a reading of at least this.

        Parameters
        ----------
        least : Fraction
        field : str
            Names it in an error.

        Raises
        ------
        InputError
            If every value has one.
        """
        if not least:
            raise InputError("0 is not above 0", field=field)
        return Fraction(self.number) / least


@dataclass(frozen=True)
class Rest:
    """``(whole - metric) / unit``, as the attainment is 1 - missed weight / all weight.

    Attributes
    ----------
    metric : str
        What is minimised.
    whole : Fraction
        Its value where nothing is reached.
    unit : Fraction
        What of it is a reading of 1; above 0.
    """

    metric: str
    whole: Fraction
    unit: Fraction

    def of(self, value: Any) -> Any:
        """The reading of a value of the metric, or of an array of floats."""
        exact = isinstance(value, Fraction)
        whole, unit = (self.whole, self.unit) if exact else (float(self.whole), float(self.unit))
        return (whole - value) / unit

    def shown(self, value: Fraction) -> Fraction | None:
        """The same, exact."""
        return (self.whole - value) / self.unit

    def limit(self, least: Fraction, field: str) -> Fraction:
        """The largest value of the metric with a reading of at least this.

        Parameters
        ----------
        least : Fraction
        field : str
            Names it in an error.

        Raises
        ------
        InputError
            If no value has one.
        """
        most = self.whole / self.unit
        if least > most:
            raise InputError(f"{float(least):g} is above {float(most):g}", field=field)
        return self.whole - least * self.unit


Reading = Quotient | Rest
"""How a metric that is to be high depends on one that is minimised."""
