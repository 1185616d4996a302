"""Exact search for the requests that miss a service level, where it may help to wait.

A TPOT may be kept by making the first token later, so a batch may start later than it could.  Choose who
promises to keep all limits; nobody else has any (`infermax_opt.infermax.exact.promises`).  Sets are tried
from those on that cost least to miss.  The first one whose limits can be kept is an optimum; until one is
found, what misses at the next one is a lower bound.  The objective may be a multiple of that weight, or its
ratio to a limit: both rise with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, LimitReached, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.promises import MAX_PROMISED, Ways, promises_of

__all__ = ["missed_applies", "missed_search"]


def missed_applies(instance: Instance) -> bool:
    """Whether the objective goes by the weight of requests that miss a limit alone, and these are few."""
    return instance.objective.metrics == (Metric.MISSED,) and len(instance.requests) <= MAX_PROMISED


def missed_search(
    instance: Instance, *, upper: Fraction | None = None, limits: EngineLimits | None = None
) -> EngineOutcome[Schedule]:
    """Find a schedule that misses the least, or a bound within the limits.

    Parameters
    ----------
    instance : Instance
        One of those that `missed_applies` names.
    upper : Fraction, optional
        Objective of a known schedule: only better ones are looked for.
    limits : EngineLimits, optional
    """
    unit, promises = promises_of(instance)
    ways = Ways(instance, unit, limits or EngineLimits())
    floor, schedule, termination = Fraction(0), None, Termination.OPTIMAL
    try:
        for missed, kept in _sets(instance):
            floor = instance.objective.value({Metric.MISSED: missed}.__getitem__)
            if upper is not None and floor >= upper:
                floor = upper  # nothing is better than what is known
                break
            promised = {k: promises[k] for k in kept}
            goal = ways.reach(promised)
            if goal is not None:
                schedule = ways.schedule(goal, promised)
                break
    except LimitReached as stop:
        termination = stop.termination
    except KeyboardInterrupt:
        termination = Termination.INTERRUPTED
    return EngineOutcome(
        schedule=schedule,
        lower=LowerBound(floor, "search", Proof.SOLVER),
        termination=termination,
        upper=None if schedule is None else floor,
        details={"labels": ways.made},
    )


def _sets(instance: Instance) -> Iterator[tuple[Fraction, set[int]]]:
    """Weights of those who miss, rising, and the others; those who promise nothing are in no set."""
    requests = instance.requests
    able = [k for k, request in enumerate(requests) if request.terms.slo]
    subsets = [some for size in range(len(able) + 1) for some in combinations(able, size)]
    weights = [sum((requests[k].terms.weight for k in some), Fraction(0)) for some in subsets]
    for missed, some in sorted(zip(weights, subsets, strict=True)):
        yield missed, set(able) - set(some)
