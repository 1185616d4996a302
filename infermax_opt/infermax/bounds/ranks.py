"""Bounds on percentiles and maxima of TTFT and end-to-end latency, from attainment and from who is on time.

The r-th smallest of n latencies is at most x if and only if at most n - r of them are above x: if no more
than n - r requests miss x as a limit.  So where a bound says that more have to miss it (`attainment`, with
this limit alone and weight 1 for everybody, of all requests together or of `crowds`), the r-th smallest
latency is above x.  The largest such x is searched for by bisection; its certificate is that of the bound on
who misses it.

Of the TTFT, `on_time` says it in less time and mostly better, so it comes first.  Where few may be late,
crowds come next: they see each one that is, where all together see shares of many.  Under overload they come
last, for limits are far from what requests take alone, and crowds large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from infermax_opt.core.exact import decimal_text
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.crowds import CrowdSearch, crowds_bound
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.on_time import on_time_bound
from infermax_opt.infermax.bounds.service import service_bounds
from infermax_opt.infermax.data.instance import Instance, Metric, Objective, RequestGroup
from infermax_opt.infermax.data.objective import QUANTILES, Latency, rank

__all__ = ["promising", "rank_bounds"]

#: Figures of a limit.
FIGURES = 4
#: A limit is what is proved times this until one is not, and the search ends when the limit is known up to
#: the second factor: by attainment, and by crowds, where a limit that is not proved takes longest.
FAR, CLOSE = Fraction(2), Fraction(101, 100)
NEAR, NEAR_CLOSE = Fraction(105, 100), Fraction(1005, 1000)
#: Limits tried, at most.
DOUBLINGS = 40
#: Requests for each that may be late, fewer than which are no crowd.
CROWD = 20
#: Kinds of requests beyond which crowds are not looked for: all are read for each limit.
MAX_KINDS = 100_000

Stop = Callable[[], bool]


class Argument(NamedTuple):
    """What proves a limit, by what limits rise until it does not, and up to what factor they are searched."""

    proves: Callable[[Fraction], LowerBound | None]
    factor: Fraction
    close: Fraction


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
    for tried in _arguments(instance, metric, allowed, stop):
        for bound in _rising(tried, low, stop):
            low = bound.value
            yield bound


def _arguments(instance: Instance, metric: Metric, allowed: int, stop: Stop | None) -> list[Argument]:
    """Arguments by which a limit may be a bound, the one that gets farther in little time first.

    Parameters
    ----------
    instance : Instance
    metric : Metric
    allowed : int
        Requests that may miss it.
    stop : callable, optional
        Asked whether to try no other limit.
    """

    def attained(limit: Fraction) -> LowerBound | None:
        """By how many can attain it."""
        found = next(attainment_bounds(promising(instance, metric, limit), stop=stop), None)
        if found is None or found.value <= allowed:
            return None
        evidence = {**(found.evidence or {}), "kind": "rank", "limit": decimal_text(limit)}
        return LowerBound(limit, "attainment", Proof.CERTIFICATE, evidence=evidence)

    def crowded(search: CrowdSearch, limit: Fraction) -> LowerBound | None:
        """By crowds, of each of which some miss it."""
        return crowds_bound(search, promising(instance, metric, limit), limit, allowed)

    found = [Argument(attained, FAR, CLOSE)]
    if allowed * CROWD <= len(instance.requests) and len(instance.types) <= MAX_KINDS:
        searches = (CrowdSearch(piece, stop) for piece in range(len(instance.cost.batch)))
        by_crowds = [Argument(partial(crowded, search), NEAR, NEAR_CLOSE) for search in searches]
        found = [*found, *by_crowds] if _overloaded(instance) else [*by_crowds, *found]
    return found


def _overloaded(instance: Instance) -> bool:
    """Whether work comes faster than it is done, so that all wait ever longer."""
    span = max(kind.arrival for kind in instance.types) * instance.cost.ticks_per_second
    works = (least_work(instance, instance.types, piece) for piece in range(len(instance.cost.batch)))
    return max(works) > span


def _rising(argument: Argument, low: Fraction, stop: Stop | None) -> Iterator[LowerBound]:
    """Bounds by an argument for limits that rise from a known one.

    Parameters
    ----------
    argument : Argument
    low : Fraction
        Seconds.
    stop : callable, optional
        Asked whether to try no other limit.
    """
    high: Fraction | None = None
    for _ in range(DOUBLINGS):
        if stop is not None and stop():
            return
        middle = argument.factor * low if high is None else (low + high) / 2
        limit = Fraction(decimal_text(middle, digits=FIGURES))
        if limit <= low or (high is not None and high <= low * argument.close):
            return
        found = argument.proves(limit)
        if found is None:
            high = limit
            continue
        low = limit
        yield found
