"""The objective by a simulated clock, in floats: what a search compares; replay says what is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import LINEAR, QUANTILES, Latency, Metric, rank

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["Estimate"]


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
        names = [r.terms.class_name for r in requests]
        self._classes = [np.array([other == name for other in names]) for name in dict.fromkeys(names)]
        self._weight = np.array([float(r.terms.weight) for r in requests])
        slos = [(r.terms.slo.ttft, r.terms.slo.tpot, r.terms.slo.e2e) for r in requests]
        self._limits = np.array([[np.inf if v is None else float(v) for v in slo] for slo in slos]).T

    def _share(self, metric: Metric) -> Floats:
        """Share of each request in a linear metric."""
        found = np.zeros(len(self._outputs))
        for kind, share in zip(self.instance.types, self.instance.shares(metric), strict=True):
            found[list(kind.members)] = float(share)
        return found

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
        if metric in QUANTILES:
            percent, latency = QUANTILES[metric]
            place = rank(percent, len(first)) - 1
            return float(np.partition(found[latency], place)[place])
        if metric is Metric.MISSED:
            late = [found[latency] > limit for latency, limit in zip(Latency, self._limits, strict=True)]
            return float(self._weight[np.any(late, axis=0)].sum())
        normalised = found[Latency.E2E] / self._outputs
        if metric is Metric.MAX_NORMALISED_LATENCY:
            return float(normalised.max())
        means = [float(normalised[members].mean()) for members in self._classes]
        return max(means) - min(means)
