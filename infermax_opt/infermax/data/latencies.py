"""Metrics of the latencies of single requests, from the times of their first and last tokens."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import floor, lcm

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import (
    LINEAR,
    QUANTILES,
    UNWEIGHTED,
    Latency,
    Metric,
    rank,
)
from infermax_opt.infermax.data.readings import best_effort
from infermax_opt.infermax.data.release import NEVER
from infermax_opt.infermax.data.requests import Request, RequestType

__all__ = ["NEVER", "Latencies", "beyond_states", "counts_span", "gains_by_waiting"]


class Latencies:
    """Latencies of the requests of an instance, each formed when it is first asked for.

    Parameters
    ----------
    instance : Instance
    unit : int
        Ticks per second; arrivals are whole ticks.
    firsts, lasts : sequence of int, one per request
        Ticks at which the first and the last token are made; `NEVER` where one is not.
    released : mapping of int to int, optional
        Ticks at which requests of a closed loop arrive.

    Attributes
    ----------
    ttft, span, e2e : list of int, one per request
        Ticks from arrival to first token, from first to last token, and from arrival to last token.
    """

    def __init__(
        self,
        instance: Instance,
        unit: int,
        firsts: Sequence[int],
        lasts: Sequence[int],
        released: Mapping[int, int] | None = None,
    ):
        self.instance, self._released = instance, released or {}
        self.unit = unit
        self.firsts, self.lasts = firsts, lasts
        self._linear: dict[Metric, Fraction | None] = {}

    @cached_property
    def required(self) -> Latencies | None:
        """Those of the requests that must be finished; None for none."""
        required = self.instance.required
        if required is None or required is self.instance:
            return None if required is None else self
        kept = [i for i, request in enumerate(self.instance.requests) if not request.terms.optional]
        released = {k: self._released[i] for k, i in enumerate(kept) if i in self._released}
        firsts, lasts = [self.firsts[i] for i in kept], [self.lasts[i] for i in kept]
        return Latencies(required, self.unit, firsts, lasts, released)

    def metric(self, metric: Metric) -> Fraction | None:
        """A metric in its unit, None where it is undefined; the makespan is that of the last token.

        Those of latencies are about the requests that must be finished.
        """
        if metric is Metric.MAKESPAN:
            return Fraction(max((last for last in self.lasts if last < NEVER), default=0), self.unit)
        if metric is Metric.UNSERVED:
            return self._unserved(tokens=False)
        if metric is Metric.UNSERVED_TOKENS:
            return self._unserved(tokens=True)
        if metric is Metric.MISSED:
            return self.missed
        required = self.required
        return None if required is None else required.of_all(metric)

    def of_all(self, metric: Metric) -> Fraction | None:
        """A metric of latencies, of requests that all must be finished."""
        if metric in LINEAR:
            if metric in UNWEIGHTED and self._equal_weights:
                metric = UNWEIGHTED[metric]
            if metric not in self._linear:
                self._linear[metric] = self.linear(metric)
            return self._linear[metric]
        if metric in QUANTILES:
            return self.quantile(metric)
        if metric is Metric.MAX_NORMALISED_LATENCY:
            return self.worst_normalised
        return self.class_spread

    @cached_property
    def _equal_weights(self) -> bool:
        return len({kind.terms.weight for kind in self.instance.types}) == 1

    def _since_arrival(self, times: Sequence[int]) -> list[int]:
        arrivals = (request.arrival for request in self.instance.requests)
        # Without a fraction for each of a million.
        unit, pairs = self.unit, zip(times, arrivals, strict=True)
        found = [time - at.numerator * unit // at.denominator for time, at in pairs]
        for i, arrival in self._released.items():
            found[i] = NEVER if times[i] == NEVER else times[i] - arrival
        return found

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

    @cached_property
    def sorted_tpot(self) -> list[tuple[float, int, int]]:
        """TPOT of the requests of two output tokens or more in ascending order: as a float, ticks, steps.

        A quotient of whole numbers is rounded correctly, so no float is above that of a larger TPOT; those of
        the same float are in no order.
        """
        steps = (request.output_tokens - 1 for request in self.instance.requests)
        pairs = ((span, count) for span, count in zip(self.span, steps, strict=True) if count)
        return sorted((span / count, span, count) for span, count in pairs)

    def linear(self, metric: Metric) -> Fraction | None:
        """A metric of `LINEAR` in its unit; None where no request has its latency."""
        latency = LINEAR[metric]
        spans = latency is Latency.TPOT
        ticks = {Latency.TTFT: self.ttft, Latency.TPOT: self.span, Latency.E2E: self.e2e}[latency]
        # By the share of a tick, of which there are few: one object each, as to hash a fraction takes long.
        sums: dict[tuple[int, int], int] = {}
        shares = self.instance.shares(metric)
        for kind, share in zip(self.instance.types, shares, strict=True):
            each, members = (id(share), kind.output_tokens), kind.members
            # Of a million requests most are alone of their type.
            own = ticks[members[0]] if len(members) == 1 else sum([ticks[i] for i in members])
            sums[each] = sums.get(each, 0) + own
        by_id = {id(share): share for share in shares}
        found = [
            (by_id[share].numerator * total, by_id[share].denominator * (outputs - 1 if spans else 1))
            for (share, outputs), total in sums.items()
            if by_id[share]
        ]
        if not found:
            return None
        common = lcm(*{d for _, d in found})
        return Fraction(sum(n * (common // d) for n, d in found), common * self.unit)

    def quantile(self, metric: Metric) -> Fraction | None:
        """A metric of `QUANTILES`, s; None where no request has its latency."""
        percent, latency = QUANTILES[metric]
        if latency is Latency.TPOT:
            return self._tpot_of_rank(rank(percent, len(self.sorted_tpot))) if self.sorted_tpot else None
        found = self.sorted_ttft if latency is Latency.TTFT else self.sorted_e2e
        return Fraction(found[rank(percent, len(found)) - 1], self.unit)

    def _tpot_of_rank(self, number: int) -> Fraction:
        """The TPOT of a rank from 1, s."""
        found, place = self.sorted_tpot, number - 1
        near, ticks, steps = found[place]
        first, end = bisect_left(found, (near,)), bisect_right(found, near, key=lambda some: some[0])
        if found[first] == found[end - 1]:
            return Fraction(ticks, steps * self.unit)
        equal = sorted(Fraction(ticks, steps) for _, ticks, steps in found[first:end])
        return equal[place - first] / self.unit

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
        means = self.class_means.values()
        return max(means) - min(means) if len(means) > 1 else None

    @cached_property
    def class_means(self) -> dict[str | None, Fraction]:
        """Mean normalised latency of each class, s; requests without one are a class."""
        sums: dict[str | None, dict[int, int]] = {}
        counts: dict[str | None, int] = {}
        for request, ticks in zip(self.instance.requests, self.e2e, strict=True):
            name, tokens = request.terms.class_name, request.output_tokens
            by_tokens = sums.setdefault(name, {})
            by_tokens[tokens] = by_tokens.get(tokens, 0) + ticks
            counts[name] = counts.get(name, 0) + 1
        return {
            name: sum((Fraction(ticks, tokens) for tokens, ticks in found.items()), Fraction(0))
            / (counts[name] * self.unit)
            for name, found in sums.items()
        }

    @cached_property
    def broken(self) -> list[bool] | None:
        """Whether a request breaks a service level of its own, or does not end by the horizon, for each.

        None where none has a service level.
        """
        requests = self.instance.requests
        if not any(request.terms.slo for request in requests):
            return None
        return [self._breaks(i, request) for i, request in enumerate(requests)]

    @cached_property
    def last_tick(self) -> int:
        """The last tick that counts."""
        horizon = self.instance.horizon
        return NEVER - 1 if horizon is None else floor(Fraction(horizon) * self.unit)

    def late(self, i: int) -> bool:
        """Whether a request does not end, or not by the horizon."""
        return self.lasts[i] > self.last_tick

    def _unserved(self, tokens: bool) -> Fraction | None:
        """Weight, or output tokens, of the optional requests that do not end in time; None for none."""
        optional = [(i, r) for i, r in enumerate(self.instance.requests) if r.terms.optional]
        left = (Fraction(r.output_tokens if tokens else r.terms.weight) for i, r in optional if self.late(i))
        return sum(left, Fraction(0)) if optional else None

    def best_effort_rate(self, *, tokens: bool) -> Fraction | None:
        """Weight, or output tokens, a second by the horizon of the best-effort requests that end by then.

        None without a horizon above 0, or such requests.
        """
        members = best_effort(self.instance) if self.instance.horizon else []
        if not members:
            return None
        done = [self.instance.requests[i] for i in members if not self.late(i)]
        served = (Fraction(r.output_tokens if tokens else r.terms.weight) for r in done)
        return sum(served, Fraction(0)) / Fraction(self.instance.horizon or 1)

    def _breaks(self, i: int, request: Request) -> bool:
        slo = request.terms.slo
        return self.late(i) or any(
            not self.within(i, latency, limit)
            for latency, limit in ((Latency.TTFT, slo.ttft), (Latency.TPOT, slo.tpot), (Latency.E2E, slo.e2e))
            if limit is not None
        )

    def within(self, i: int, latency: Latency, limit: Fraction) -> bool:
        """Whether a latency of a request is at most `limit` seconds, the horizon aside.

        Parameters
        ----------
        i : int
        latency : Latency
        limit : Fraction
        """
        if latency is Latency.TTFT:
            return self.ttft[i] <= limit * self.unit
        if latency is Latency.E2E:
            return self.e2e[i] <= limit * self.unit
        steps = self.instance.requests[i].output_tokens - 1
        return steps == 0 or self.span[i] <= limit * steps * self.unit

    @property
    def missed(self) -> Fraction | None:
        """Weight of the requests that break a service level of theirs; None where none has any."""
        return None if self.broken is None else self.weight(True)

    def weight(self, broken: bool) -> Fraction:
        """Weight of the requests that break a service level of theirs, or that keep all of theirs."""
        found = zip(self.instance.requests, self.broken or (), strict=True)
        weights = (r.terms.weight for r, breaks in found if r.terms.slo and breaks is broken)
        return sum(weights, Fraction(0))


def beyond_states(instance: Instance) -> tuple[Metric, ...]:
    """Metrics for which states do not tell what a schedule is worth: all, where requests are optional."""
    return instance.objective.beyond_sums if instance.required is instance else instance.objective.metrics


def gains_by_waiting(instance: Instance) -> Metric | None:
    """A metric of the objective that a later token may improve, if there is one.

    Most are *regular*: no first or last token that comes earlier makes them worse.  A spread of classes may
    gain by anything later.  A TPOT, and so a mean, a rank or a limit of it, may gain by a later first token,
    but not where all requests are there from the start: without a wait all that follows comes earlier by as
    much, so first tokens come no later, last ones neither, and no time between two of them grows.
    """
    for metric in instance.objective.metrics:
        if metric is Metric.CLASS_SPREAD:
            return metric
        if not instance.offline and any(counts_span(metric, kind) for kind in instance.types):
            return metric
    return None


def counts_span(metric: Metric, request: Request | RequestType) -> bool:
    """Whether a metric depends on the time between first and last token of a request."""
    terms = request.terms
    counts = metric.latency is Latency.TPOT and not terms.optional
    return request.output_tokens > 1 and (counts or (metric is Metric.MISSED and terms.slo.tpot is not None))
