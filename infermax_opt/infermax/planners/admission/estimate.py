"""The objective by a simulated clock, in floats: what a search compares; replay says what is true."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from infermax_opt.infermax.data.instance import Instance, Terms
from infermax_opt.infermax.data.objective import BY_COUNT, LINEAR, QUANTILES, Latency, Metric, rank

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["HAIR", "Estimate", "of_rank", "of_requests"]

#: Share by which a latency may be above its limit and count as kept: replay decides.
HAIR = 1e-12


class Estimate:
    """Values of the objective of an instance, given the times of first and last tokens.

    Parameters
    ----------
    instance : Instance
    """

    def __init__(self, instance: Instance):
        self.instance = instance
        requests = instance.requests
        self._arrival = np.array([float(r.arrival) for r in requests])
        self._outputs = np.array([r.output_tokens for r in requests], np.float64)
        self._steps = np.maximum(self._outputs - 1, 1)
        self._shares = {
            metric: self._share(metric) for metric in instance.objective.metrics if metric in LINEAR
        }
        self._read_terms([request.terms for request in requests])

    def _read_terms(self, terms: Sequence[Terms]) -> None:
        """What requests are promised, and how they count."""
        horizon = self.instance.horizon
        self._horizon = np.inf if horizon is None else float(horizon)
        self._optional = np.array([some.optional for some in terms])
        self._required = ~self._optional
        self._promised = np.array([bool(some.slo) for some in terms])
        names = [some.class_name for some in terms if not some.optional]
        self._classes = [np.array([other == name for other in names]) for name in dict.fromkeys(names)]
        self._weight = np.array([float(some.weight) for some in terms])
        slos = [(some.slo.ttft, some.slo.tpot, some.slo.e2e) for some in terms]
        self._limits = np.array([[np.inf if v is None else float(v) for v in slo] for slo in slos]).T

    def _share(self, metric: Metric) -> Floats:
        """Share of each request in a linear metric."""
        return of_requests(self.instance, self.instance.shares(metric))

    def value(self, first: Floats, last: Floats) -> float:
        """Value of the objective, in its unit; an undefined metric counts as 0."""
        return float(self.instance.objective.value(lambda metric: self._metric(metric, first, last)))

    def _metric(self, metric: Metric, first: Floats, last: Floats) -> float:
        found = {
            Latency.TTFT: first - self._arrival,
            Latency.TPOT: (last - first) / self._steps,
            Latency.E2E: last - self._arrival,
        }
        if metric is Metric.MAKESPAN:
            return float(last.max())
        if metric in LINEAR:
            return float(found[LINEAR[metric]] @ self._shares[metric])
        if metric in BY_COUNT:
            limits = self._limits * (1 + HAIR)
            late = [found[latency] > limit for latency, limit in zip(Latency, limits, strict=True)]
            missed, ended = np.any(late, axis=0), last <= self._horizon
            broken = (missed | ~ended) & self._promised
            return float(self._weight[broken if metric is Metric.MISSED else ~ended & self._optional].sum())
        if metric in QUANTILES:
            percent, latency = QUANTILES[metric]
            having = self._required & (self._outputs > 1) if latency is Latency.TPOT else self._required
            return of_rank(found[latency][having], percent)
        if not self._required.any():
            return 0.0
        found = {latency: values[self._required] for latency, values in found.items()}
        normalised = found[Latency.E2E] / self._outputs[self._required]
        if metric is Metric.MAX_NORMALISED_LATENCY:
            return float(normalised.max())
        means = [float(normalised[members].mean()) for members in self._classes]
        return max(means) - min(means)


def of_requests(instance: Instance, values: Sequence[Fraction]) -> Floats:
    """A column of all requests, given the value of each kind."""
    found = np.zeros(len(instance.requests))
    for kind, value in zip(instance.types, values, strict=True):
        found[list(kind.members)] = float(value)
    return found


def of_rank(values: Floats, percent: int) -> float:
    """A percentile of latencies, 0 of none."""
    if not len(values):
        return 0.0
    place = rank(percent, len(values)) - 1
    return float(np.partition(values, place)[place])
