"""Metrics formed from the latencies of single requests, each when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import LINEAR, QUANTILES, Latency, Metric, rank, shares
from infermax_opt.infermax.data.requests import Request
from infermax_opt.infermax.replay.plain import Replay

__all__ = ["Latencies", "LatencyMetrics"]


class Latencies:
    """Latencies of the requests of a valid replay.

    Attributes
    ----------
    ttft, span, e2e : list of int, one per request
        Ticks from arrival to first token, from first to last token, and from arrival to last token.
    """

    def __init__(self, instance: Instance, replay: Replay):
        self.instance = instance
        self.replay = replay

    @cached_property
    def _arrivals(self) -> list[int]:
        unit = self.replay.ticks_per_second
        return [int(request.arrival * unit) for request in self.instance.requests]

    def _since_arrival(self, batches: Iterable[int]) -> list[int]:
        ends = self.replay.ends
        return [ends[batch] - arrival for batch, arrival in zip(batches, self._arrivals, strict=True)]

    @cached_property
    def ttft(self) -> list[int]:
        """See the class."""
        return self._since_arrival(self.replay.first_batch)

    @cached_property
    def e2e(self) -> list[int]:
        """See the class."""
        return self._since_arrival(self.replay.last_batch)

    @cached_property
    def span(self) -> list[int]:
        """See the class."""
        return [e2e - ttft for e2e, ttft in zip(self.e2e, self.ttft, strict=True)]

    @cached_property
    def sorted_ttft(self) -> list[int]:
        """In ascending order."""
        return sorted(self.ttft)

    @cached_property
    def sorted_e2e(self) -> list[int]:
        """In ascending order."""
        return sorted(self.e2e)

    def linear(self, metric: Metric) -> Fraction | None:
        """A metric of `LINEAR` in its unit; None where no request has its latency."""
        latency = LINEAR[metric]
        ticks = {Latency.TTFT: self.ttft, Latency.TPOT: self.span, Latency.E2E: self.e2e}[latency]
        kinds = self.instance.types
        sums: dict[Fraction, int] = {}  # by the share of a tick, of which there are few
        for kind, share in zip(kinds, shares(metric, kinds), strict=True):
            if share:
                each = share / (kind.output_tokens - 1) if latency is Latency.TPOT else share
                sums[each] = sums.get(each, 0) + sum([ticks[i] for i in kind.members])
        if not sums:
            return None
        return sum((share * total for share, total in sums.items()), Fraction(0)) / self._unit

    def quantile(self, metric: Metric) -> Fraction:
        """A metric of `QUANTILES`, s."""
        percent, latency = QUANTILES[metric]
        found = self.sorted_ttft if latency is Latency.TTFT else self.sorted_e2e
        return self.replay.seconds(found[rank(percent, len(found)) - 1])

    @property
    def _unit(self) -> int:
        return self.replay.ticks_per_second

    @cached_property
    def worst_normalised(self) -> Fraction:
        """Largest end-to-end latency by output token, s."""
        worst: dict[int, int] = {}
        for request, ticks in zip(self.instance.requests, self.e2e, strict=True):
            tokens = request.output_tokens
            worst[tokens] = max(ticks, worst.get(tokens, ticks))
        return max(Fraction(ticks, tokens) for tokens, ticks in worst.items()) / self._unit

    @cached_property
    def class_spread(self) -> Fraction | None:
        """Largest difference between classes' mean normalised latencies, s; None with one class."""
        sums: dict[str | None, dict[int, int]] = {}
        counts: dict[str | None, int] = {}
        for request, ticks in zip(self.instance.requests, self.e2e, strict=True):
            name, tokens = request.terms.class_name, request.output_tokens
            by_tokens = sums.setdefault(name, {})
            by_tokens[tokens] = by_tokens.get(tokens, 0) + ticks
            counts[name] = counts.get(name, 0) + 1
        if len(sums) < 2:
            return None
        means = [
            sum((Fraction(ticks, tokens) for tokens, ticks in found.items()), Fraction(0)) / counts[name]
            for name, found in sums.items()
        ]
        return (max(means) - min(means)) / self._unit

    @cached_property
    def broken(self) -> list[bool] | None:
        """Whether a request breaks a service level of its own, for each; None where none has any."""
        requests = self.instance.requests
        if not any(request.terms.slo for request in requests):
            return None
        return [self._breaks(i, request) for i, request in enumerate(requests)]

    def _breaks(self, i: int, request: Request) -> bool:
        slo, steps = request.terms.slo, request.output_tokens - 1
        return bool(slo) and any(
            limit is not None and ticks > limit * times * self._unit
            for limit, ticks, times in (
                (slo.ttft, self.ttft[i], 1),
                (slo.tpot, self.span[i], steps),
                (slo.e2e, self.e2e[i], 1),
            )
        )

    def weight(self, broken: bool) -> Fraction:
        """Weight of the requests that break a service level of theirs, or that keep all of theirs."""
        found = zip(self.instance.requests, self.broken or (), strict=True)
        weights = (r.terms.weight for r, breaks in found if r.terms.slo and breaks is broken)
        return sum(weights, Fraction(0))


def _linear(metric: Metric) -> Any:
    return property(lambda metrics: metrics.latencies.linear(metric))


def _quantile(metric: Metric) -> Any:
    return property(lambda metrics: metrics.latencies.quantile(metric))


@dataclass(frozen=True)
class LatencyMetrics:
    """Metrics that take a look at every request; `infermax_opt.infermax.replay.metrics` defines them."""

    latencies: Latencies = field(compare=False, repr=False)

    weighted_mean_ttft = _linear(Metric.WEIGHTED_MEAN_TTFT)
    weighted_mean_tpot = _linear(Metric.WEIGHTED_MEAN_TPOT)
    weighted_mean_e2e = _linear(Metric.WEIGHTED_MEAN_E2E)
    mean_normalised_latency = _linear(Metric.MEAN_NORMALISED_LATENCY)
    p50_ttft = _quantile(Metric.P50_TTFT)
    p90_ttft = _quantile(Metric.P90_TTFT)
    p99_ttft = _quantile(Metric.P99_TTFT)
    max_ttft = _quantile(Metric.MAX_TTFT)
    p50_e2e = _quantile(Metric.P50_E2E)
    p90_e2e = _quantile(Metric.P90_E2E)
    p99_e2e = _quantile(Metric.P99_E2E)
    max_e2e = _quantile(Metric.MAX_E2E)

    @property
    def max_normalised_latency(self) -> Fraction:
        """See `DEFINITIONS`, as for all of these."""
        return self.latencies.worst_normalised

    @property
    def class_spread(self) -> Fraction | None:
        """None with one class."""
        return self.latencies.class_spread

    @property
    def missed(self) -> Fraction | None:
        """None without a service level."""
        return None if self.latencies.broken is None else self.latencies.weight(True)

    @property
    def attainment(self) -> Fraction | None:
        """None without a service level."""
        if self.latencies.broken is None:
            return None
        kept = self.latencies.weight(False)
        return kept / (kept + self.latencies.weight(True))

    @property
    def goodput(self) -> Fraction | None:
        """None without a service level, or where all takes no time."""
        broken, end = self.latencies.broken, self.latencies.replay.ends[-1]
        if broken is None or not end:
            return None
        return Fraction(broken.count(False) * self.latencies.replay.ticks_per_second, end)
