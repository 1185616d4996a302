"""What of an objective first tokens decide: whose count, how much, and by when."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from infermax_opt.infermax.data.first_tokens import levels_of_first_tokens
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import QUANTILES, Latency, Metric

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Flags = npt.NDArray[np.bool_]
    Whole = npt.NDArray[np.int64]

__all__ = ["Aims", "aims_of"]


@dataclass(frozen=True)
class Aims:
    """What a search for first tokens goes by.

    Attributes
    ----------
    counted : array of bool
        Whose first tokens count; all others come last.
    weight : array
        What a second before the first token weighs, or a broken service level, per request.
    due : array
        When a request is due, seconds: at its arrival, and its service level later where these count.
    percents : tuple of int
        Percentiles below the maximum that count: for them, some requests may be given up.
    levels : bool
        Whether service levels of first tokens count.
    """

    counted: Flags
    weight: Floats
    due: Floats
    percents: tuple[int, ...]
    levels: bool

    @property
    def spares(self) -> bool:
        """Whether it may pay to give requests up: their latency does not count beyond some limit."""
        return bool(self.counted.any()) and (self.levels or bool(self.percents))


def aims_of(instance: Instance) -> Aims:
    """What counts of the first tokens of an instance."""
    terms = [request.terms for request in instance.requests]
    arrival = np.array([float(request.arrival) for request in instance.requests])
    limit = np.array([_seconds(some.slo.ttft) for some in terms])
    metrics, levels = instance.objective.metrics, levels_of_first_tokens(instance)
    first = [metric for metric in metrics if metric.latency is Latency.TTFT]
    counted = np.array([not some.optional for some in terms])
    if levels:
        counted = np.isfinite(limit) | (counted & bool(first))
    weight = np.ones(len(terms))
    if levels or Metric.WEIGHTED_MEAN_TTFT in metrics:
        weight = np.array([float(some.weight) for some in terms])
    percents = sorted(QUANTILES[metric][0] for metric in first if metric in QUANTILES)
    return Aims(
        counted,
        np.where(counted, weight, 0.0),
        arrival + np.where(np.isfinite(limit) & levels, limit, 0.0),
        tuple(percent for percent in percents if percent < 100),
        levels,
    )


def _seconds(limit: Fraction | None) -> float:
    """A limit in floats; none is infinite."""
    return float("inf") if limit is None else float(limit)
