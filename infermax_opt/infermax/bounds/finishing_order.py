"""The mean end-to-end latency from makespan certificates in which every request pays its own part.

Some bounds on the makespan (`state_flow`, `occupancy`) are sums of payments, one for each request, and hold
by a graph that only gets smaller with fewer requests.  Let C(k) be the time at which the k-th request
finishes in some schedule.

*Proof.*  Drop all other requests, and then those whose payment is negative.  Limits are upper bounds and
batch times fall, so this leaves a schedule of the rest that ends at C(k) or sooner; a batch that is left with
evictions only stays, which both bounds allow.  The same potentials prove that it takes at least the
payments of the rest.  So C(k) is at least the sum of the k smallest max(0, payment), whichever requests
finish first.  The mean of C(k), less the mean arrival, is the bound.

It does not hold for bounds with a start, an end or a number of batches rounded up: of those each k would need
one of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.least_work import least_work
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.bounds.state_flow import state_flow_bound
from infermax_opt.infermax.data.instance import Instance, RequestType

__all__ = ["finishing_order_bounds"]


def finishing_order_bounds(
    instance: Instance, *, stop: Callable[[], bool] | None = None
) -> Iterator[LowerBound]:
    """Bounds on the mean end-to-end latency, each as soon as its prices are found.

    Below zero they say nothing.

    Parameters
    ----------
    instance : Instance
    stop : callable, optional
        Asked often whether to improve the prices no longer.
    """
    occupancy = functools.partial(occupancy_bound, ends=False)
    for search, earned in ((state_flow_bound, _by_state_flow), (occupancy, _by_occupancy)):
        found = search(instance, stop=stop)
        if found is not None and found.evidence is not None:
            yield _in_order(instance, found, earned(instance, found))
        if stop is not None and stop():
            return


def _in_order(instance: Instance, bound: LowerBound, earned: list[int]) -> LowerBound:
    """The bound, given the units that a request of each type earns beside its work."""
    assert bound.evidence is not None
    unit = Fraction(2) ** bound.evidence["exponent"]
    one = [RequestType(k.input_tokens, k.output_tokens, k.arrival, k.members[:1]) for k in instance.types]
    work = [least_work(instance, [kind], bound.evidence["piece"]) for kind in one]
    paid = [w + e / unit for w, e in zip(work, earned, strict=True)]
    finished = before = arrived = Fraction(0)
    for payment, kind in sorted(zip(paid, instance.types, strict=True), key=lambda pair: pair[0]):
        least, count = max(Fraction(0), payment), len(kind.members)
        finished += count * before + least * (count * (count + 1) // 2)
        before += count * least
        arrived += count * kind.arrival
    mean = (finished / instance.cost.ticks_per_second - arrived) / len(instance.requests)
    return LowerBound(mean, f"finishing order, {bound.source}", Proof.CERTIFICATE, evidence=bound.evidence)


def _by_state_flow(instance: Instance, bound: LowerBound) -> list[int]:
    """Units that the first token of a request of each type earns."""
    assert bound.evidence is not None
    kinds = sorted({(kind.input_tokens, kind.output_tokens) for kind in instance.types})
    first = dict(zip(kinds, bound.evidence["prices"]["first"], strict=True))
    return [first[kind.input_tokens, kind.output_tokens] for kind in instance.types]


def _by_occupancy(instance: Instance, bound: LowerBound) -> list[int]:
    """Units that the tokens, the start and the finish of a request of each type earn."""
    assert bound.evidence is not None
    young, prices = bound.evidence["young"], bound.evidence["prices"]
    left = [min(young, kind.output_tokens - 1) for kind in instance.types]
    old = [(k.input_tokens + y, k.output_tokens - y) for k, y in zip(instance.types, left, strict=True)]
    first = dict(zip(sorted({i for i, _ in old}), prices["first"], strict=True))
    finish = dict(zip(sorted({i + o for i, o in old}), prices["finish"], strict=True))
    return [
        prices["token"] * o + prices["size"] * (i * o + o * (o - 1) // 2) + first[i] + finish[i + o]
        for i, o in old
    ]
