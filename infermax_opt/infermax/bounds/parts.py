"""Bounds on weighted sums from certified bounds on makespan, mean end-to-end latency and missed levels.

Let W be a weighted sum, and lambda and mu the weights of makespan and `missed` in it.  Let r be the least
rate that any request has, before its first token or after it (`Objective.rates`; means by weight only add
to W).  Then

    W >= lambda * makespan + mu * missed + n r * mean_e2e.

*Proof.*  No metric and no weight is negative, so metrics may be left out.  What a request adds to the sums of
latencies is its first rate times its TTFT plus its second one times the rest of its end-to-end latency, so at
least r times its end-to-end latency; the sum of these is n times their mean.

Each of these bounds comes with its own certificate, and the certificate of the sum holds both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from itertools import zip_longest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.data.instance import Instance, Metric, Objective

__all__ = ["coefficients", "part_bounds"]

#: Means by weight, whose shares differ between requests.
BY_WEIGHT = (Metric.WEIGHTED_MEAN_TTFT, Metric.WEIGHTED_MEAN_TPOT, Metric.WEIGHTED_MEAN_E2E)

Searches = Callable[[Objective], Iterator[LowerBound]]


def coefficients(instance: Instance) -> dict[Metric, Fraction]:
    """What a unit of each metric that has certified bounds is worth in a weighted sum, if anything."""
    kinds = instance.types
    weights = tuple(pair for pair in instance.objective.weights if pair[0] not in BY_WEIGHT)
    young, old = Objective(weights).rates(kinds)
    later = [rate for kind, rate in zip(kinds, old, strict=True) if kind.output_tokens > 1]
    found = {
        Metric.MAKESPAN: instance.objective.weight(Metric.MAKESPAN),
        Metric.MISSED: instance.objective.weight(Metric.MISSED),
        Metric.MEAN_E2E: len(instance.requests) * min([*young, *later]),
    }
    return {metric: worth for metric, worth in found.items() if worth}


def part_bounds(instance: Instance, searches: Searches) -> Iterator[LowerBound]:
    """Bounds on a weighted sum, better and better as those of its parts are found in turn.

    Parameters
    ----------
    instance : Instance
    searches : callable
        Gives the certified bounds on an objective that is a single metric.
    """
    worth = coefficients(instance)
    runs = [searches(Objective.of(metric.value)) for metric in worth]
    best: dict[Metric, LowerBound] = {}
    for found in zip_longest(*runs):
        for metric, bound in zip(worth, found, strict=True):
            known = best.get(metric)
            if bound is not None and bound.evidence and (known is None or bound.value > known.value):
                best[metric] = bound
                yield _together(best, worth)


def _together(best: Mapping[Metric, LowerBound], worth: Mapping[Metric, Fraction]) -> LowerBound:
    """The sum of the best bounds."""
    parts = [{"metric": metric.value, **(bound.evidence or {})} for metric, bound in best.items()]
    return LowerBound(
        sum((worth[metric] * bound.value for metric, bound in best.items()), Fraction(0)),
        "; ".join(f"{metric.value}: {bound.source}" for metric, bound in best.items()),
        Proof.CERTIFICATE,
        evidence={"kind": "parts", "parts": parts},
    )
