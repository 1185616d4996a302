"""Closed-form lower bounds on ranks and maxima of latencies, on missed service levels and on class spread.

``alone``: no request is faster than with the machine to itself (`lone`), be it of TTFT, TPOT or end-to-end
latency.  So the r-th smallest latency is at least the r-th smallest lone one, for at least n - r + 1 requests
have a lone latency that is as large, and each of them takes that long; r = n is the maximum.  Of the TPOT,
n counts the requests that have one.  The largest normalised latency is at least the largest lone one, by
output token.  A request whose lone latency is above a
limit of its service level misses it in every schedule, and these weigh what they weigh.  So does one that
cannot end by the horizon.  A spread is never below 0.

This bound on a rank of the TPOT is its optimum where no refill takes less than a decode step: requests that
are served one after another have no company, so each later token takes just the D(s) of `lone`.  A search for
better bounds on it would be in vain.

``work``: optional requests that arrive from a on and are served by the horizon H do all their work
(`least_work`) in batches that lie between a and H and last at least as long.  Of all choices whose work fits,
the fractional knapsack (least work for its weight first) weighs the most; all above that is unserved.

``order``: the r requests of the smallest latencies have their last (first) tokens by some time, that of one
of them, which is T_r of `latency.order_ticks` or later.  That request arrived by the last arrival a, so its
latency, which is the r-th smallest at most, is at least T_r - a.  And the largest normalised latency is at
least the sum of all end-to-end latencies by the sum of all output tokens (the mediant is no larger
than the largest ratio), which is n times the bound ``order`` of the mean by that sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.bounds.latency import latency_bounds, order_ticks
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.instance import Instance, Metric, RequestType
from infermax_opt.infermax.data.objective import QUANTILES, UNSERVED, Latency, rank

__all__ = ["service_bounds"]


def service_bounds(instance: Instance, metric: Metric) -> list[tuple[str, Fraction]]:
    """Closed-form bounds on a metric that is no sum of latencies, by argument, in its unit."""
    if metric is Metric.CLASS_SPREAD:
        return [("alone", Fraction(0))]
    if metric is Metric.MISSED:
        return [("alone", _late(instance, missed=True))]
    if metric in UNSERVED:
        counted = _by_tokens(instance) if metric is Metric.UNSERVED_TOKENS else instance
        return [("alone", _late(counted, missed=False)), ("work", _unserved(counted))]
    if metric is Metric.MAX_NORMALISED_LATENCY:
        return [("alone", _normalised(instance)), ("order", _mediant(instance))]
    found = [("alone", _lone_rank(instance, metric))]
    if metric.latency is not Latency.TPOT:
        found.append(("order", _order_rank(instance, metric)))
    return found


def _lone(instance: Instance, latency: Latency) -> list[tuple[Fraction, RequestType]]:
    """Lone latency in seconds of each type that has it."""
    lone, unit = LoneLatency(instance), instance.cost.ticks_per_second
    kinds = [kind for kind in instance.types if latency is not Latency.TPOT or kind.output_tokens > 1]
    return [(lone.of(kind).ticks(latency, kind.output_tokens) / unit, kind) for kind in kinds]


def _lone_rank(instance: Instance, metric: Metric) -> Fraction:
    percent, latency = QUANTILES[metric]
    ordered = sorted(_lone(instance, latency), key=lambda pair: pair[0])
    if not ordered:
        return Fraction(0)  # what is undefined counts as 0
    left = rank(percent, sum(len(kind.members) for _, kind in ordered))
    for value, kind in ordered:
        left -= len(kind.members)
        if left <= 0:
            return value
    raise AssertionError("a rank is at most the number of requests")


def _order_rank(instance: Instance, metric: Metric) -> Fraction:
    percent, latency = QUANTILES[metric]
    ticks = order_ticks(instance, latency)[rank(percent, len(instance.requests)) - 1]
    last = max(kind.arrival for kind in instance.types)
    return max(Fraction(0), instance.cost.to_seconds(ticks) - last)


def _normalised(instance: Instance) -> Fraction:
    return max(value / kind.output_tokens for value, kind in _lone(instance, Latency.E2E))


def _mediant(instance: Instance) -> Fraction:
    mean = dict(latency_bounds(instance, Metric.MEAN_E2E))["order"]
    return mean * len(instance.requests) / instance.output_tokens


def _late(instance: Instance, missed: bool) -> Fraction:
    """Weight of what misses its service level, or of what is optional and ends after the horizon."""
    lone, unit = LoneLatency(instance), instance.cost.ticks_per_second
    total = Fraction(0)
    for kind in instance.types:
        limits = {Latency(name): limit for name, limit in kind.terms.slo.given().items()} if missed else {}
        if kind.output_tokens == 1:
            limits.pop(Latency.TPOT, None)
        counts = bool(kind.terms.slo) if missed else kind.terms.optional
        if counts and instance.horizon is not None:
            left = Fraction(instance.horizon) - kind.arrival
            limits[Latency.E2E] = min(left, limits.get(Latency.E2E, left))
        found = lone.of(kind)
        if any(found.ticks(latency, kind.output_tokens) > limit * unit for latency, limit in limits.items()):
            total += len(kind.members) * kind.terms.weight
    return total


def _by_tokens(instance: Instance) -> Instance:
    """The same with the output tokens of each request for its weight."""
    return replace(instance, groups=tuple(replace(g, weight=g.output_tokens) for g in instance.groups))


def _unserved(instance: Instance) -> Fraction:
    """Weight of what cannot be served by the horizon, for the machine lacks time."""
    if instance.horizon is None:
        return Fraction(0)
    kinds = [kind for kind in instance.types if kind.terms.optional]
    return max(
        (_too_much(instance, kinds, since) for since in {k.arrival for k in kinds}), default=Fraction(0)
    )


def _too_much(instance: Instance, kinds: Sequence[RequestType], since: Fraction) -> Fraction:
    """Weight, of the requests that arrive from some moment on, above what fits until the horizon."""
    ticks = instance.cost.ticks_per_second
    late = [kind for kind in kinds if kind.arrival >= since]
    most = Fraction(0)  # of the pieces, the one that leaves most unserved
    for piece in range(len(instance.cost.batch)):
        room = max(Fraction(0), Fraction(instance.horizon or 0) - since) * ticks
        works = [(least_work(instance, [kind], piece) // len(kind.members), kind) for kind in late]
        left = Fraction(0)
        for work, kind in sorted(works, key=lambda pair: pair[0] / pair[1].terms.weight):
            count = len(kind.members)
            served = Fraction(count) if work == 0 else min(Fraction(count), room / work)
            room -= served * work
            left += (count - served) * kind.terms.weight
        most = max(most, left)
    return most
