"""Closed-form lower bounds: least work plus a proved number of batches.

Fix one affine piece k of the batch time; as the batch time is the maximum over the pieces, the
bound of every k holds, and so does the best one.  The work is that of `least_work`.

*Chunks with "square" attention.*  In a schedule of J batches the prompt of request i is split
into at most q = J - O + 1 chunks, as O - 1 batches follow its first token; then its work is at
least I**2 / q.  For any q0 > 0, 1/q >= 2/q0 - q/q0**2: a bound that is linear in J.

*Batches.*  J >= J_min of `counts`, each at alpha_k.  With at least Y batches that prefill and X
that decode, the attention constants add p0 Y + d0 X, and min(d0, p0) for each further batch.

*Decodes.*  Let A be the KV sizes s = I + n of all tokens but the first ones, summed.  Those made in
X batches that decode sum to at most M X; any other ends a refill, which costs at least
(beta - d1) (s-1) more than the work counts.  Where that is at least d0 s / M for every s >= 2, that
is for (beta - d1) M >= 2 d0, decode presence and refills together cost at least d0 A / M.

*Together* the cost of a schedule with J batches is at least a linear function of J whose slope
alpha_k - sum(p1 I**2 / q0**2) is made non-negative by the choice of q0 = J0 - O + 1; so it is
least at J = J_min.

*Age.*  Where memory fills up between two releases of it, J >= the number of `age`, or evictions cost more
than the batches that they save, each worth alpha_k + min(d0, p0) at most.  Of what a refill costs more,
decode presence may take d0 s / M <= 2 d0 (s-1) / M: `age` is left the rest.  So it is for `spacing` and
`releases`.

*Arrivals.*  For any a, the requests that arrive at a or later are served after a by a schedule
that would serve them alone in no more time (dropping the others only shortens batches).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import chain, groupby
from typing import Any

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.age import aged_batches
from infermax_opt.infermax.bounds.counts import BatchCounts, count_batches_of
from infermax_opt.infermax.bounds.latency import latency_bounds
from infermax_opt.infermax.bounds.least_work import Totals, spreads
from infermax_opt.infermax.bounds.releases import SCALE as PRICE_SCALE
from infermax_opt.infermax.bounds.releases import released_batches
from infermax_opt.infermax.bounds.service import service_bounds
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.bounds.spacing import SCALE, spaced_batches
from infermax_opt.infermax.bounds.squares import Squares, spread_squares
from infermax_opt.infermax.bounds.trade_off import trade_off
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.objective import BY_COUNT, LINEAR, ratio

__all__ = ["closed_form_bounds", "counted_bound", "decode_presence", "presence_ticks"]

#: Where an instance keeps them: they are asked for again and again, and a million requests take seconds.
MEMO = "closed form bounds"
#: Names of the arguments of `age`, `spacing` and `releases`, whose batches may differ by piece.
AGE, SPACING, RELEASES = "KV age", "KV spacing", "KV releases"
#: Arrival times at which the arrival bound is evaluated, at most.
THRESHOLDS = 64
#: Types of requests that may be looked at for all of these times together.
KINDS = 4_000_000
#: Arrival times at which it is evaluated however many types there are.
LEAST_THRESHOLDS = 4


@dataclass(frozen=True)
class _LeastMakespan:
    """Least makespan of some requests, and what a checker needs to recompute it.

    `reference`: the J0 that spreads the squares of the prompts, None where they are not spread.
    """

    ticks: int
    piece: int
    reference: int | None


def closed_form_bounds(instance: Instance) -> list[LowerBound]:
    """All closed-form lower bounds on the objective, best first.

    Returns
    -------
    list of LowerBound
        Exact seconds.  For an objective of several metrics, the weighted sum of the best bound of
        each, and `trade_off`; for limits, the ratio of each bound to its limit.  Of a closed loop those of
        `Instance.relaxed`, and none where these say nothing (`Instance.relaxes`).
    """
    memo = vars(instance)
    if MEMO not in memo:
        memo[MEMO] = _formed(instance)
    return list(memo[MEMO])


def _formed(instance: Instance) -> list[LowerBound]:
    if not instance.relaxes:
        return []
    instance, objective = instance.relaxed, instance.objective
    if objective.is_makespan and instance.required is not None:
        return sorted(makespan_bounds(instance.required), key=lambda bound: -bound.value)
    per_metric: dict[Metric, list[tuple[str, Fraction]]] = {}
    for metric in objective.metrics:
        per_metric[metric] = _metric_bounds(instance, metric)
    if objective.limits:  # the largest ratio is at least that of any bound to its limit
        found = [(metric, limit, pair) for metric, limit in objective.limits for pair in per_metric[metric]]
        return _sorted([(f"{m.value}: {name}", ratio(value, limit)) for m, limit, (name, value) in found])
    if len(per_metric) == 1:
        ((metric, weight),) = objective.weights
        return _sorted([(name, weight * value) for name, value in per_metric[metric]])
    total = Fraction(0)
    names = []
    for metric, weight in objective.weights:
        name, value = max(per_metric[metric], key=lambda pair: pair[1])
        total += weight * value
        names.append(f"{metric.value}: {name}")
    return _sorted([("; ".join(names), total), ("trade-off", trade_off(instance))])


def _metric_bounds(instance: Instance, metric: Metric) -> list[tuple[str, Fraction]]:
    """Bounds on one metric, by argument, in its unit.

    All but those that count requests are about the requests that must be finished, and so are their bounds:
    a schedule without the others has no batch that is longer.
    """
    if metric in BY_COUNT:
        return service_bounds(instance, metric)
    if instance.required is None:
        return [("nothing has to be served", Fraction(0))]
    instance = instance.required
    if metric in LINEAR:
        return latency_bounds(instance, metric)
    if metric not in (Metric.MAKESPAN, Metric.MAX_E2E):
        return service_bounds(instance, metric)
    found = [(bound.source, bound.value) for bound in makespan_bounds(instance)]
    if metric is Metric.MAKESPAN:
        return found
    # What a schedule has after its last token could be left out; whose it is, that request arrived by then.
    last = max(kind.arrival for kind in instance.types)
    late = [(f"{source}, since the last arrival", value - last) for source, value in found if value > last]
    return [*service_bounds(instance, metric), *late]


def _sorted(bounds: Sequence[tuple[str, Fraction]]) -> list[LowerBound]:
    # Stable: of equal bounds the one named first stays first.
    ordered = sorted(bounds, key=lambda pair: -pair[1])
    return [LowerBound(value, name, Proof.CLOSED_FORM) for name, value in ordered]


class _Demand:
    """Some requests, and what every argument about them needs: each is formed once.

    Parameters
    ----------
    instance : Instance
    sizes : Sizes
        Of the requests that count.
    """

    def __init__(self, instance: Instance, sizes: Sizes):
        self.sizes = sizes
        self.counts = count_batches_of(instance, sizes)
        self.totals = Totals.of_sizes(instance, sizes)
        self.squares = Squares.of(instance, sizes) if spreads(instance) else None

    @cached_property
    def rows(self) -> list[tuple[int, int, int]]:
        """Input tokens, output tokens and number of each type."""
        return list(zip(*(column.tolist() for column in self.sizes), strict=True))


def makespan_bounds(instance: Instance) -> list[LowerBound]:
    """Closed-form bounds on the makespan, one for each argument."""
    demand = _Demand(instance, Sizes.of(instance.types))
    # Work and presence of the two phases count in every argument; they differ in the batches.
    counts, start, pieces = demand.counts, Fraction(0), range(len(instance.cost.batch))
    bounds = [
        _bound(instance, name, start, name, _cost(instance, demand, [number for _ in pieces]), counts)
        for name, number in counts.total.items()
    ]
    aged = _cost(instance, demand, [_aged(instance, demand, piece) for piece in pieces])
    bounds.append(_bound(instance, AGE, start, AGE, aged, counts))
    arguments = {RELEASES: _released}
    if instance.policy.preemption and demand.sizes.are_equal:
        arguments[SPACING] = _spaced
    for name, argument in arguments.items():
        batches, cuts = zip(*(argument(instance, demand, piece) for piece in pieces), strict=True)
        found = _cost(instance, demand, batches)
        cut = replace(counts, cuts={name: cuts[found.piece]})
        bounds.append(_bound(instance, name, start, name, found, cut))
    if not instance.offline:
        bounds.append(_arrival_bound(instance))
    return bounds


def counted_bound(
    instance: Instance, name: str, piece: int, argument: Callable[..., tuple[int, Any]]
) -> LowerBound | None:
    """A bound by batches of one affine piece that an argument counts, with a certificate.

    Parameters
    ----------
    instance : Instance
    name : str
        Of the argument.
    piece : int
    argument : callable
        Takes the requests' rows of input tokens, output tokens and number, and what a refill of the whole
        memory is worth in parts of `releases.SCALE` of a batch, None without evictions.  Returns the batches,
        and what a checker needs besides.

    Returns
    -------
    LowerBound or None
        None where another piece proves more, or there are no more batches than prefill.
    """
    demand = _Demand(instance, Sizes.of(instance.types))
    batches, cut = argument(demand.rows, _release_worth(instance, piece))
    if batches <= demand.counts.prefill:
        return None
    found = _cost(instance, demand, [batches if k == piece else 0 for k in range(len(instance.cost.batch))])
    if found.piece != piece:
        return None
    counts = replace(demand.counts, cuts={name: cut})
    return replace(_bound(instance, name, Fraction(0), name, found, counts), proof=Proof.CERTIFICATE)


def _bound(
    instance: Instance, source: str, since: Fraction, argument: str, cost: _LeastMakespan, counts: BatchCounts
) -> LowerBound:
    evidence: Mapping[str, Any] = {
        "kind": "closed-form",
        "argument": argument,
        "since": since,
        "piece": cost.piece,
        "cut": counts.cuts.get(argument),
        "reference": cost.reference,
    }
    value = since + instance.cost.to_seconds(cost.ticks)
    return LowerBound(value, source, Proof.CLOSED_FORM, evidence=evidence)


def _arrival_bound(instance: Instance) -> LowerBound:
    kinds = sorted(instance.types, key=lambda kind: kind.arrival)
    sizes, times = Sizes.of(kinds), [time for time, _ in groupby(kind.arrival for kind in kinds)]
    most = max(LEAST_THRESHOLDS, min(THRESHOLDS, KINDS // len(kinds)))
    if len(times) > most:
        # Evenly spread, the last one included: it is the one that binds at light load.
        last = len(times) - 1
        times = [times[last * k // (most - 1)] for k in range(most)]
    best = None
    for time in times:
        demand = _Demand(instance, sizes.since(bisect_left(kinds, time, key=lambda kind: kind.arrival)))
        argument, number = max(demand.counts.total.items(), key=lambda pair: pair[1])
        cost = _cost(instance, demand, [number for _ in instance.cost.batch])
        found = _bound(instance, "arrivals", time, argument, cost, demand.counts)
        if best is None or found.value > best.value:
            best = found
    assert best is not None, "an instance has requests"
    return best


def _cost(instance: Instance, demand: _Demand, numbers: Sequence[int]) -> _LeastMakespan:
    """Least makespan of a schedule with at least so many batches, by piece (module docstring)."""
    ticks, counts, totals = instance.cost.ticks, demand.counts, demand.totals
    best = _LeastMakespan(-1, 0, None)
    for piece, (alpha, beta) in enumerate(zip(ticks.alpha, ticks.beta, strict=True)):
        batches = max(numbers[piece], counts.prefill)
        total = alpha * batches + presence_ticks(instance, totals, counts, beta, batches)
        reference = None
        if demand.squares is not None:
            spread, reference = spread_squares(demand.squares, batches, alpha)
            total += totals.token_work(instance, piece) + spread
        else:
            total += totals.least_work(instance, piece)
        if total > best.ticks:
            best = _LeastMakespan(total, piece, reference)
    return best


def presence_ticks(
    instance: Instance,
    totals: Totals,
    counts: BatchCounts,
    beta: int,
    batches: int,
    also: Iterable[tuple[int, int]] = (),
) -> int:
    """Least sum of d0 and p0 in so many batches or more: more of them never cost less.

    Parameters
    ----------
    instance : Instance
    totals : Totals
    counts : BatchCounts
        Those of the requests that count.
    beta : int
        Ticks of a token.
    batches : int
        At least as many as prefill.
    also : iterable of (int, int)
        What more arguments say, as `decode_presence`.
    """
    ticks = instance.cost.ticks
    least, others = min(ticks.p0, ticks.d0), batches - counts.prefill
    arguments = chain(decode_presence(instance, totals, counts, beta), also)
    presence = (paid + least * max(0, others - number) for paid, number in arguments)
    return int(max(presence) + ticks.p0 * counts.prefill)


def decode_presence(
    instance: Instance, totals: Totals, counts: BatchCounts, beta: int
) -> Iterator[tuple[int, int]]:
    """Least sum of d0 in ticks, and the batches that pay it at least, by each argument that holds.

    Parameters
    ----------
    instance : Instance
    totals : Totals
    counts : BatchCounts
        Those of the requests that count.
    beta : int
        Ticks of a token, at least.
    """
    ticks, capacity = instance.cost.ticks, instance.system.kv_capacity
    yield ticks.d0 * counts.decode, counts.decode
    if not instance.policy.preemption or (beta - ticks.d1) * capacity >= 2 * ticks.d0:
        # A token that reads I + n - 1 leaves I + n.
        later = totals.reads + totals.later
        yield ticks.d0 * later // capacity, -(-later // capacity)


def _refilled(instance: Instance, piece: int) -> tuple[int, int]:
    """Ticks that refilling the whole memory costs more, decode presence left out, and worth of a batch."""
    ticks = instance.cost.ticks
    slack = max(0, ticks.beta[piece] - ticks.d1) * instance.system.kv_capacity
    if slack >= 2 * ticks.d0:
        slack -= 2 * ticks.d0
    return slack, max(1, ticks.alpha[piece] + min(ticks.p0, ticks.d0))


def _spaced(instance: Instance, demand: _Demand, piece: int) -> tuple[int, int]:
    """Batches of the spacing bound, as far as evictions do not pay, and its x."""
    slack, batch = _refilled(instance, piece)
    sizes, capacity = demand.sizes, instance.system.kv_capacity
    inputs, outputs, count = int(sizes.inputs[0]), int(sizes.outputs[0]), int(sizes.counts.sum())
    worth = slack * inputs * SCALE // (batch * capacity)
    return spaced_batches(inputs, outputs, count, capacity, instance.system.prefill_budget, worth)


def _aged(instance: Instance, demand: _Demand, piece: int) -> int:
    """Batches of the age bound, as far as evictions do not pay."""
    capacity, horizon = instance.system.kv_capacity, None
    if instance.policy.preemption:
        slack, batch = _refilled(instance, piece)
        horizon = slack // batch
    return aged_batches(demand.rows, capacity, horizon)


def _released(instance: Instance, demand: _Demand, piece: int) -> tuple[int, int]:
    """Batches of the release bound, as far as evictions do not pay, and its price."""
    return released_batches(demand.rows, instance.system.kv_capacity, _release_worth(instance, piece))


def _release_worth(instance: Instance, piece: int) -> int | None:
    """What a refill of the whole memory is worth, in parts of a batch; None without evictions."""
    if not instance.policy.preemption:
        return None
    slack, batch = _refilled(instance, piece)
    return slack * PRICE_SCALE // batch
