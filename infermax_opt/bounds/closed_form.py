"""Closed-form lower bounds: least work plus a proved number of batches.

Fix one affine piece k of the batch time; as the batch time is the maximum over the pieces, the
bound of every k holds, and so does the best one.

*Work.*  Before its first token, request i processes at least I tokens of prefill: beta I, plus
attention work of I**2 (without chunks, or with "exact" attention, where the chunks telescope).
Each later token, made when n exist, is either a decode step, beta + d1 (I+n-1), or ends a refill
of I+n tokens, which costs at least beta (I+n).  So it costs at least
beta + min(d1, beta) (I+n-1), or d1 in place of min(d1, beta) when preemption is off.

*Chunks with "square" attention.*  In a schedule of J batches the prompt of request i is split
into at most q = J - O + 1 chunks, as O - 1 batches follow its first token; then its work is at
least I**2 / q.  For any q0 > 0, 1/q >= 2/q0 - q/q0**2: a bound that is linear in J.

*Batches.*  J >= J_min of `counts`, each at alpha_k.  With at least Y batches that prefill and X
that decode, the attention constants add p0 Y + d0 X, and min(d0, p0) for each further batch.

*Together* the cost of a schedule with J batches is at least a linear function of J whose slope
alpha_k - sum(p1 I**2 / q0**2) is made non-negative by the choice of q0 = J0 - O + 1; so it is
least at J = J_min.

*Arrivals.*  For any a, the requests that arrive at a or later are served after a by a schedule
that would serve them alone in no more time (dropping the others only shortens batches).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from infermax_opt.bounds.counts import BatchCounts, count_batches
from infermax_opt.bounds.latency import latency_bounds
from infermax_opt.instance import Instance, Metric, RequestType
from infermax_opt.result import LowerBound, Proof

__all__ = ["closed_form_bounds"]

#: Arrival times at which the arrival bound is evaluated, at most.
THRESHOLDS = 64


def closed_form_bounds(instance: Instance) -> list[LowerBound]:
    """All closed-form lower bounds on the objective, best first.

    Returns
    -------
    list of LowerBound
        Exact seconds.  For an objective of several metrics, the weighted sum of the best bound of
        each.
    """
    objective = instance.objective
    if objective.is_makespan:
        return _sorted(makespan_bounds(instance))
    per_metric: dict[Metric, list[tuple[str, Fraction]]] = {}
    for metric, _ in objective.weights:
        if metric is Metric.MAKESPAN:
            per_metric[metric] = makespan_bounds(instance)
        else:
            per_metric[metric] = latency_bounds(instance, metric)
    if len(per_metric) == 1:
        ((metric, weight),) = objective.weights
        return _sorted([(name, weight * value) for name, value in per_metric[metric]])
    total = Fraction(0)
    names = []
    for metric, weight in objective.weights:
        name, value = max(per_metric[metric], key=lambda pair: pair[1])
        total += weight * value
        names.append(f"{metric.value}: {name}")
    return _sorted([("; ".join(names), total)])


def _sorted(bounds: Sequence[tuple[str, Fraction]]) -> list[LowerBound]:
    # Stable: of equal bounds the one named first stays first.
    ordered = sorted(bounds, key=lambda pair: -pair[1])
    return [LowerBound(value, name, Proof.CLOSED_FORM) for name, value in ordered]


def makespan_bounds(instance: Instance) -> list[tuple[str, Fraction]]:
    """Closed-form bounds on the makespan, by argument, in seconds."""
    kinds = instance.types
    counts = count_batches(instance, kinds)
    seconds = instance.cost.to_seconds
    # Work and presence of the two phases count in every argument; they differ in the batches.
    bounds = [
        (name, seconds(_cost(instance, kinds, counts, number))) for name, number in counts.total.items()
    ]
    if not instance.offline:
        bounds.append(("arrivals", _arrival_bound(instance)))
    return bounds


def _arrival_bound(instance: Instance) -> Fraction:
    times = sorted({kind.arrival for kind in instance.types})
    if len(times) > THRESHOLDS:
        # Evenly spread, the last one included: it is the one that binds at light load.
        last = len(times) - 1
        times = [times[last * k // (THRESHOLDS - 1)] for k in range(THRESHOLDS)]
    best = Fraction(0)
    for time in times:
        late = [kind for kind in instance.types if kind.arrival >= time]
        counts = count_batches(instance, late)
        cost = _cost(instance, late, counts, max(counts.total.values()))
        best = max(best, time + instance.cost.to_seconds(cost))
    return best


def _cost(instance: Instance, kinds: Sequence[RequestType], counts: BatchCounts, batches: int) -> int:
    """Least makespan in ticks of a schedule with at least `batches` batches (module docstring)."""
    ticks = instance.cost.ticks
    batches = max(batches, counts.prefill)
    # More batches never cost less presence, so the least number may be used.
    others = max(0, batches - counts.prefill - counts.decode)
    presence = ticks.p0 * counts.prefill + ticks.d0 * counts.decode + min(ticks.p0, ticks.d0) * others
    spread = instance.policy.chunked_prefill and not instance.cost.exact_attention
    squares = [(k.input_tokens**2 * len(k.members) * ticks.p1, k.output_tokens) for k in kinds]
    best = 0
    for alpha, beta in zip(ticks.alpha, ticks.beta, strict=True):
        d1 = min(ticks.d1, beta) if instance.policy.preemption else ticks.d1
        work = 0
        for kind in kinds:
            i, o = kind.input_tokens, kind.output_tokens
            reads = (o - 1) * i + (o - 1) * (o - 2) // 2  # sum of I + n - 1 for n = 1..O-1
            work += len(kind.members) * (beta * (i + o - 1) + d1 * reads)
        if spread:
            work += _spread_squares(squares, batches, alpha)
        else:
            work += sum(square for square, _ in squares)
        best = max(best, alpha * batches + work)
    return int(best + presence)


def _spread_squares(squares: Sequence[tuple[int, int]], batches: int, alpha: int) -> int:
    """Least prefill work, plus alpha for each batch beyond `batches` that spreading it takes."""
    longest = max(o for _, o in squares)
    low = max(batches, longest)

    def slope(reference: int) -> int:
        """Work saved per batch added, rounded up."""
        return sum(-(-square // (reference - o + 1) ** 2) for square, o in squares)

    reference, step = low, 1
    while slope(reference) > alpha:
        # The slope falls like 1/q**2, but for a rounding of one tick per type.
        if alpha <= len(squares):
            return 0
        reference, step = reference + step, step * 2
    if reference > low:
        below = reference - step // 2
        while reference - below > 1:
            middle = (reference + below) // 2
            if slope(middle) > alpha:
                below = middle
            else:
                reference = middle
    base = sum(square // (reference - o + 1) for square, o in squares)
    gain = sum(square // (reference - o + 1) ** 2 for square, o in squares)
    return base + (reference - batches) * gain
