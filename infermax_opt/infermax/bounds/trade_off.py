"""What large batches save of the makespan, they cost in latency: a closed form for weighted sums of both.

Let lambda be the weight of the makespan.  The *rate* of a request is what a second weighs that it spends
between arrival and first token, or between first and last token (`Objective.rates`).  In batch j, of
duration T_j, let R_j be the rates of the requests that process tokens, X_j the work of these tokens, and A_j
the fixed part.  A batch lies within the stretch of whoever processes tokens in it, and idle time only adds:

    objective >= sum_j T_j (lambda + R_j),    T_j >= A_j + X_j  (one affine piece, the best in the end).

*Proof.*  An item is a decode step, or a chunk of a prompt or refill.  Let a be the least fixed part of a
batch with tokens, and a' that of a batch with such an item: alpha + p0 for a prompt, alpha + d0 for a later
token, with min(d0, p0) for d0 where it may come from a refill.  Let k_j be the KV of the tokens made in j by
M; it is at most 1.  Over items of work w and rate r, Cauchy gives X_j R_j >= z^2, with z the sum of
sqrt(w r), and z^2 >= 2 x z - x^2 for any x.  With x^2 <= lambda a, as 1 - k_j is not below 0,

    (A_j + X_j)(lambda + R_j) >= sum over items of lambda w + a' r + 2 x sqrt(w r), plus (lambda a - x^2) k_j.

This is a sum over items, so it does not matter how batches are formed.  Split into chunks, the work of a
token is no less, the sum of its roots is no less than the root of the sum, and at least one item has its
rate; what an eviction throws away is not counted.  The KV s of a token is there when it is made.  The work
of a token is that of `least_work`.  Over the later tokens of a request it rises evenly, and a concave
function lies above its chord: the sum of their roots is at least their number times the mean of the first
and the last root.  The result is concave in x and taken at the best x with x^2 <= lambda a.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt

from infermax_opt.infermax.bounds.least_work import later_work, prompt_pairs
from infermax_opt.infermax.data.instance import Instance, Metric, RequestType

__all__ = ["trade_off"]

#: Binary places of a square root.
PLACES = 64


@dataclass
class _Sums:
    """The bound as a polynomial: plain + 2 x roots - x^2 kv."""

    plain: Fraction = Fraction(0)
    roots: Fraction = Fraction(0)
    kv: Fraction = Fraction(0)


def trade_off(instance: Instance) -> Fraction:
    """Lower bound on a weighted sum of makespan and latencies, in its unit; 0 where it has none."""
    if instance.required is None:
        return Fraction(0)
    instance = instance.required  # a schedule without the others has no batch that is longer
    objective, ticks = instance.objective, instance.cost.ticks
    makespan = objective.weight(Metric.MAKESPAN)
    best = Fraction(0)
    for piece in range(len(ticks.alpha)) if makespan else ():
        least = ticks.alpha[piece] + min(ticks.d0, ticks.p0)
        sums = _sums(instance, piece, makespan)
        sums.plain += makespan * least * sums.kv
        x = min(_root(makespan * least), sums.roots / sums.kv)
        best = max(best, sums.plain + 2 * x * sums.roots - x * x * sums.kv)
    return best / instance.cost.ticks_per_second


def _sums(instance: Instance, piece: int, makespan: Fraction) -> _Sums:
    """All requests together."""
    ticks, sums = instance.cost.ticks, _Sums()
    alpha, beta = ticks.alpha[piece], ticks.beta[piece]
    preemption = instance.policy.preemption
    d1 = min(ticks.d1, beta) if preemption else ticks.d1
    later_fixed = alpha + (min(ticks.d0, ticks.p0) if preemption else ticks.d0)
    young, old = instance.objective.rates(instance.types)
    for kind, before, after in zip(instance.types, young, old, strict=True):
        i, steps, count = kind.input_tokens, kind.output_tokens - 1, len(kind.members)
        prompt = beta * i + ticks.p1 * prompt_pairs(instance, kind)
        plain = makespan * (prompt + later_work(instance, kind, piece))
        plain += (alpha + ticks.p0) * before + later_fixed * steps * after
        roots = _root(prompt * before)
        if steps:
            ends = _root((beta + d1 * i) * after) + _root((beta + d1 * (i + steps - 1)) * after)
            roots += steps * ends / 2
        sums.plain += count * plain
        sums.roots += count * roots
        sums.kv += Fraction(count * _kv(kind), instance.system.kv_capacity)
    return sums


def _kv(kind: RequestType) -> int:
    """KV of all tokens of a request, each when it is made."""
    i, o = kind.input_tokens, kind.output_tokens
    return i * o + o * (o - 1) // 2


def _root(value: Fraction | int) -> Fraction:
    """Square root, rounded down."""
    value = Fraction(value)
    shift = 1 << PLACES
    return Fraction(isqrt(value.numerator * value.denominator * shift * shift), value.denominator * shift)
