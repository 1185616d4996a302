"""Metrics formed from the latencies of single requests, each when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.objective import Metric

__all__ = ["LatencyMetrics"]


def _formed(metric: Metric) -> Any:
    return property(lambda metrics: metrics.latencies.metric(metric))


@dataclass(frozen=True)
class LatencyMetrics:
    """Metrics that take a look at every request; `infermax_opt.infermax.replay.metrics` defines them."""

    latencies: Latencies = field(compare=False, repr=False)

    weighted_mean_ttft = _formed(Metric.WEIGHTED_MEAN_TTFT)
    weighted_mean_tpot = _formed(Metric.WEIGHTED_MEAN_TPOT)
    weighted_mean_e2e = _formed(Metric.WEIGHTED_MEAN_E2E)
    mean_normalised_latency = _formed(Metric.MEAN_NORMALISED_LATENCY)
    max_normalised_latency = _formed(Metric.MAX_NORMALISED_LATENCY)
    p50_ttft = _formed(Metric.P50_TTFT)
    p90_ttft = _formed(Metric.P90_TTFT)
    p99_ttft = _formed(Metric.P99_TTFT)
    max_ttft = _formed(Metric.MAX_TTFT)
    p50_tpot = _formed(Metric.P50_TPOT)
    p90_tpot = _formed(Metric.P90_TPOT)
    p99_tpot = _formed(Metric.P99_TPOT)
    max_tpot = _formed(Metric.MAX_TPOT)
    p50_e2e = _formed(Metric.P50_E2E)
    p90_e2e = _formed(Metric.P90_E2E)
    p99_e2e = _formed(Metric.P99_E2E)
    max_e2e = _formed(Metric.MAX_E2E)
    class_spread = _formed(Metric.CLASS_SPREAD)
    missed = _formed(Metric.MISSED)
    unserved = _formed(Metric.UNSERVED)
    unserved_tokens = _formed(Metric.UNSERVED_TOKENS)

    @property
    def be_requests_per_second(self) -> Fraction | None:
        """None without a horizon above 0, or best-effort requests."""
        return self.latencies.best_effort_rate(tokens=False)

    @property
    def be_tokens_per_second(self) -> Fraction | None:
        """None as above."""
        return self.latencies.best_effort_rate(tokens=True)

    @property
    def attainment(self) -> Fraction | None:
        """None without a service level."""
        if self.latencies.broken is None:
            return None
        kept = self.latencies.weight(False)
        return kept / (kept + self.latencies.weight(True))

    def kept_per_second(self, makespan: Fraction) -> Fraction | None:
        """Requests a second that break no service level; None without one, or where all takes no time."""
        broken = self.latencies.broken
        return None if broken is None or not makespan else broken.count(False) / makespan
