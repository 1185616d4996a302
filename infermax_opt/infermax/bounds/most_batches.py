"""How many batches some optimal schedule has at most, for the makespan and every sum of latencies.

*Normal form.*  Take any schedule and leave out

* what is processed of a request after an eviction of it (or from the start) and before the next one, if the
  request makes no token in between, with the eviction at the end of it;
* all evict-only batches of a row but the first, which does their evictions, too;
* batches in which nothing happens.

Each limit still holds, as less is held.  A batch that is left takes no longer, and may start later, so that
it ends when it did: each token is made at the same time.  So where there is an optimal schedule, there is one
in this form.

*Batches of tokens.*  In normal form each of them makes a token or processes a chunk of a prefill that ends
in a token.  Token n + 1 of a request takes one prefill of I + n tokens or, after the first, one decode.  So
there are no more than tokens processed, I + (I + 1) + ... + (I + O - 1) for each request at most, or
I + O - 1 where nothing is evicted; without chunks no more than tokens made.

*Batches that only evict.*  Each has a batch of tokens after it, and an eviction has a token of the request
before it that none of its other evictions has: O - 1 for each request at most.

*Time.*  In normal form, too, the batches fit into the makespan (`horizon_bound`), and that is limited by the
objective's value V.  If a second that request i is unfinished counts r_i or more, and one of the makespan
counts R, the last request to finish ends at E with  R E + r_i (E - a_i) + what the others count alone <= V.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from infermax_opt.infermax.bounds.horizon import horizon_bound
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.instance import Instance, Metric, RequestType

__all__ = ["most_batches", "proved_batches"]


def proved_batches(instance: Instance, upper: Fraction) -> int:
    """Batches that some optimal schedule has at most.

    Parameters
    ----------
    instance : Instance
        If its objective is more than the makespan and sums of latencies, costs prove nothing.
    upper : Fraction
        Objective of some schedule.
    """
    if instance.objective.beyond_sums:
        return most_batches(instance)
    young, old = instance.objective.rates(instance.types)
    steady = [
        first if kind.output_tokens == 1 else min(first, later)
        for kind, first, later in zip(instance.types, young, old, strict=True)
    ]
    makespan = _latest(instance, upper, steady)
    bounds = [most_batches(instance)]
    if makespan is not None:
        bounds.append(horizon_bound(instance, makespan) or bounds[0])
    elif not any(old):
        bounds += _until_first_tokens(instance, upper, young)
    return min(bounds)


def most_batches(instance: Instance) -> int:
    """Batches of a schedule in normal form at most, whatever they cost."""
    policy = instance.policy
    batches = evictions = 0
    for kind in instance.types:
        size, outputs, count = kind.input_tokens, kind.output_tokens, len(kind.members)
        if not policy.chunked_prefill:
            batches += count * outputs
        elif policy.preemption:
            batches += count * (outputs * size + outputs * (outputs - 1) // 2)
        else:
            batches += count * (size + outputs - 1)
        evictions += count * (outputs - 1) * policy.preemption
    return batches + min(batches, evictions)


def _latest(instance: Instance, upper: Fraction, rates: Sequence[Fraction]) -> Fraction | None:
    """When the last request ends at the latest, if a second of each kind counts so much until it ends.

    None where it may count nothing.
    """
    makespan = instance.objective.weight(Metric.MAKESPAN)
    alone = _alone(instance)
    spent = sum((n * len(kind.members) for kind, n in zip(instance.types, alone, strict=True)), Fraction(0))
    ends = []
    for kind, rate, own in zip(instance.types, rates, alone, strict=True):
        if not makespan + rate:
            return None
        ends.append((upper - (spent - own) + rate * kind.arrival) / (makespan + rate))
    return max(ends)


def _alone(instance: Instance) -> list[Fraction]:
    """What the latencies of one request of each kind count at least."""
    lone, unit = LoneLatency(instance), instance.cost.ticks_per_second
    young, old = instance.objective.rates(instance.types)

    def least(kind: RequestType, first: Fraction, later: Fraction) -> Fraction:
        known = lone.of(kind)
        return (first * known.first + later * known.later) / unit

    return [least(*each) for each in zip(instance.types, young, old, strict=True)]


def _until_first_tokens(instance: Instance, upper: Fraction, rates: Sequence[Fraction]) -> list[int]:
    """Batches at most where nothing counts but first tokens; none where these may be free of charge.

    Up to the last first token, a batch takes max_k alpha_k or more.  The rest is free.  Without evictions
    only decodes are left, at least one in a batch.  With them it may begin by evicting all, and serve one
    request after the other: each takes a prefill, and decodes for the other tokens.  Without chunks a prefill
    may be too large for that, but each batch makes a token, or evicts who has made one since the last time.
    """
    last, alpha = _latest(instance, upper, rates), max(instance.cost.seconds.alpha)
    if last is None or not alpha:
        return []
    policy = instance.policy
    rest = 0
    for kind in instance.types:
        size, outputs, each = kind.input_tokens, kind.output_tokens, kind.output_tokens - 1
        if policy.preemption and not policy.chunked_prefill:
            each *= 2
        elif policy.preemption and each:
            each += -(-(size + outputs - 1) // instance.system.prefill_budget) - 1
        rest += each * len(kind.members)
    return [int(last // alpha) + rest + policy.preemption]
