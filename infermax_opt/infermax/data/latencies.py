"""Metrics of the latencies of single requests, from the times of their first and last tokens."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import LINEAR, QUANTILES, Latency, Metric, rank
from infermax_opt.infermax.data.requests import Request

__all__ = ["Latencies"]


class Latencies:
    """Latencies of the requests of an instance, each formed when it is first asked for.

    Parameters
    ----------
    instance : Instance
    unit : int
        Ticks per second; arrivals are whole ticks.
    firsts, lasts : sequence of int, one per request
        Ticks at which the first and the last token are made.

    Attributes
    ----------
    ttft, span, e2e : list of int, one per request
        Ticks from arrival to first token, from first to last token, and from arrival to last token.
    """

    def __init__(self, instance: Instance, unit: int, firsts: Sequence[int], lasts: Sequence[int]):
        self.instance = instance
        self.unit = unit
        self.firsts, self.lasts = firsts, lasts

    def metric(self, metric: Metric) -> Fraction | None:
        """A metric in its unit, None where it is undefined; the makespan is that of the last token."""
        if metric in LINEAR:
            return self.linear(metric)
        if metric in QUANTILES:
            return self.quantile(metric)
        if metric is Metric.MAX_NORMALISED_LATENCY:
            return self.worst_normalised
        if metric is Metric.CLASS_SPREAD:
            return self.class_spread
        return self.missed if metric is Metric.MISSED else Fraction(max(self.lasts), self.unit)

    def _since_arrival(self, times: Sequence[int]) -> list[int]:
        arrivals = (request.arrival for request in self.instance.requests)
        return [time - int(at * self.unit) if at else time for time, at in zip(times, arrivals, strict=True)]

    @cached_property
    def ttft(self) -> list[int]:
        """See the class."""
        return self._since_arrival(self.firsts)

    @cached_property
    def e2e(self) -> list[int]:
        """See the class."""
        return self._since_arrival(self.lasts)

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
        sums: dict[Fraction, int] = {}  # by the share of a tick, of which there are few
        for kind, share in zip(self.instance.types, self.instance.shares(metric), strict=True):
            if share:
                each = share / (kind.output_tokens - 1) if latency is Latency.TPOT else share
                sums[each] = sums.get(each, 0) + sum([ticks[i] for i in kind.members])
        if not sums:
            return None
        return sum((share * total for share, total in sums.items()), Fraction(0)) / self.unit

    def quantile(self, metric: Metric) -> Fraction:
        """A metric of `QUANTILES`, s."""
        percent, latency = QUANTILES[metric]
        found = self.sorted_ttft if latency is Latency.TTFT else self.sorted_e2e
        return Fraction(found[rank(percent, len(found)) - 1], self.unit)

    @cached_property
    def worst_normalised(self) -> Fraction:
        """Largest end-to-end latency by output token, s."""
        worst: dict[int, int] = {}
        for request, ticks in zip(self.instance.requests, self.e2e, strict=True):
            tokens = request.output_tokens
            worst[tokens] = max(ticks, worst.get(tokens, ticks))
        return max(Fraction(ticks, tokens) for tokens, ticks in worst.items()) / self.unit

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
        return (max(means) - min(means)) / self.unit

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
            limit is not None and ticks > limit * times * self.unit
            for limit, ticks, times in (
                (slo.ttft, self.ttft[i], 1),
                (slo.tpot, self.span[i], steps),
                (slo.e2e, self.e2e[i], 1),
            )
        )

    @property
    def missed(self) -> Fraction | None:
        """Weight of the requests that break a service level of theirs; None where none has any."""
        return None if self.broken is None else self.weight(True)

    def weight(self, broken: bool) -> Fraction:
        """Weight of the requests that break a service level of theirs, or that keep all of theirs."""
        found = zip(self.instance.requests, self.broken or (), strict=True)
        weights = (r.terms.weight for r, breaks in found if r.terms.slo and breaks is broken)
        return sum(weights, Fraction(0))
