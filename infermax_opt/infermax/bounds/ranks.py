"""Bounds on percentiles and maxima of TTFT and end-to-end latency, from attainment and from who is on time.

The r-th smallest of n latencies is at most x if and only if at most n - r of them are above x: if no more
than n - r requests miss x as a limit.  So where a bound says that more have to miss it (`attainment`, with
this limit alone and weight 1 for everybody), the r-th smallest latency is above x.  The largest such x is
searched for by bisection; its certificate is that of the attainment bound.

Of the TTFT, `on_time` says it in less time and mostly better, so it comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.on_time import on_time_bound
from infermax_opt.infermax.bounds.service import service_bounds
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, RequestGroup
from infermax_opt.infermax.data.objective import QUANTILES, Latency, rank

__all__ = ["promising", "rank_bounds"]

#: Figures of a limit.
FIGURES = 4
#: The search ends when the limit is known up to this factor.
CLOSE = Fraction(101, 100)
#: Doublings of a limit, at most.
DOUBLINGS = 40

Stop = Callable[[], bool]


def promising(instance: Instance, metric: Metric, limit: Fraction) -> Instance:
    """The same requests, each promised this limit of the latency of a metric alone, and of weight 1.

    Parameters
    ----------
    instance : Instance
    metric : Metric
        One of `SEARCHED_QUANTILES`.
    limit : Fraction
        Seconds.
    """
    slo = {QUANTILES[metric][1].value: limit}
    groups = tuple(
        RequestGroup(one.id, one.input_tokens, one.output_tokens, one.arrival, one.count, slo=slo)
        for one in instance.groups
    )
    missed = Objective.of(Metric.MISSED.value)
    return replace(instance, groups=groups, classes=(), horizon=None, objective=missed)


def rank_bounds(instance: Instance, *, stop: Stop | None = None) -> Iterator[LowerBound]:
    """Bounds on the one percentile or maximum that is the objective, each better than those before.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked whether to try no other limit.
    """
    metric = Metric(instance.objective.name)
    allowed = len(instance.requests) - rank(QUANTILES[metric][0], len(instance.requests))
    low = max(value for _, value in service_bounds(instance, metric))
    if metric.latency is Latency.TTFT:
        punctual = on_time_bound(instance, allowed, low, stop=stop)
        if punctual is not None:
            low = punctual.value
            yield punctual
    yield from _by_attainment(instance, metric, allowed, low, stop)


def _by_attainment(
    instance: Instance, metric: Metric, allowed: int, low: Fraction, stop: Stop | None
) -> Iterator[LowerBound]:
    """Limits that more requests miss than are allowed to, rising from `low`.

    Parameters
    ----------
    instance : Instance
    metric : Metric
    allowed : int
        Requests that may miss the limit.
    low : Fraction
        A bound in seconds.
    stop : callable, optional
        Asked whether to try no other limit.
    """
    high: Fraction | None = None
    for _ in range(DOUBLINGS):
        if stop is not None and stop():
            return
        middle = 2 * low if high is None else (low + high) / 2
        limit = Fraction(decimal_text(middle, digits=FIGURES))
        if limit <= low or (high is not None and high <= low * CLOSE):
            return
        found = next(attainment_bounds(promising(instance, metric, limit), stop=stop), None)
        if found is None or found.value <= allowed:
            high = limit
            continue
        low = limit
        evidence = {**(found.evidence or {}), "kind": "rank", "limit": decimal_text(limit)}
        yield LowerBound(limit, "attainment", Proof.CERTIFICATE, evidence=evidence)
