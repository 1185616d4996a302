"""How many batches an optimal schedule may have, and how many every schedule needs.

Formulations choose their size by the first and are cut by the second.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from infermax_opt.infermax.bounds.counts import count_batches
from infermax_opt.infermax.data.instance import Instance

__all__ = ["PackingRow", "horizon_bound", "least_batches", "least_variable_cost", "packing_rows"]


def least_variable_cost(instance: Instance, piece: int) -> Fraction:
    """Cost in seconds that no schedule avoids, priced with one affine piece, its alpha left out.

    A request's first token takes I prefill tokens.  Token k >= 2 either ends a decode step, which
    processes one token and reads I+k-2, or a refill: then the request was evicted after token
    k-1 and has processed I+k-1 prefill tokens since.  These steps are disjoint, so every token
    pays at least the cheaper one.  Attention work of L tokens that are prefilled from an empty
    cache is L**2 in one chunk and whatever the chunks under "exact" (c(2m+c) telescopes); under
    "square" L chunks of one token do L.  Prefill attention starts in at least
    ceil(sum I / min(P, C)) batches.
    """
    unit = instance.cost.seconds
    beta: Fraction = unit.beta[piece]
    policy = instance.policy
    splits = policy.chunked_prefill and not instance.cost.exact_attention
    total = Fraction(0)
    prompts = 0
    for kind in instance.types:
        size, outputs, count = kind.input_tokens, kind.output_tokens, len(kind.members)
        prompts += count * size
        cost = beta * size + unit.p1 * (size if splits else size**2)
        steps = outputs - 1
        if not policy.preemption:
            cost += steps * beta + unit.d1 * (steps * size + steps * (steps - 1) // 2)
        else:
            for level in range(size + 1, size + outputs):
                refill = beta * level + unit.p1 * (level if splits else level**2)
                cost += min(beta + unit.d1 * (level - 1), refill)
        total += count * cost
    return Fraction(total + unit.p0 * -(-prompts // instance.system.prefill_budget))


def horizon_bound(instance: Instance, upper: Fraction) -> int | None:
    """Most batches of an optimal schedule, given that one takes at most `upper` seconds.

    Proof.  Let the schedule have J batches.  For every affine piece (alpha, beta) batch j takes at
    least alpha + beta * tokens_j plus its attention, whether it processes tokens or only evicts;
    summed, J * alpha + F with F of `least_variable_cost`.  This is at most `upper` (waiting for
    arrivals only adds to it), hence J <= floor((upper - F) / alpha) for every piece with alpha > 0.

    Also, a batch with tokens takes at least tau = max(alpha + beta) + min(d0 + d1, p0 + p1), as a
    decode reads at least one token and a prefill does at least one unit of work; so at most
    K = floor(upper / tau) batches process tokens.  Of the batches that only evict, one is enough
    between two of these, since requests evicted together hold nothing until they process again:
    J <= 2 K, or K without preemption.

    Returns
    -------
    int or None
        None where batches may be free of charge, so that no number is proved.
    """
    unit = instance.cost.seconds
    bounds = [
        (upper - least_variable_cost(instance, k)) // alpha for k, alpha in enumerate(unit.alpha) if alpha
    ]
    tau = max(a + b for a, b in zip(unit.alpha, unit.beta, strict=True))
    tau += min(unit.d0 + unit.d1, unit.p0 + unit.p1)
    if tau:
        bounds.append((upper // tau) * (2 if instance.policy.preemption else 1))
    return max(1, int(min(bounds))) if bounds else None


class PackingRow(NamedTuple):
    """One dual-feasible function f_k, scaled to integers: items of one batch weigh at most `limit`."""

    k: int
    limit: int

    def weight(self, size: int) -> int:
        """Scaled weight of an item of `size` tokens of the `limit / k` available."""
        capacity = self.limit // self.k
        if (self.k + 1) * size % capacity == 0:
            return self.k * size
        return capacity * ((self.k + 1) * size // capacity)


def packing_rows(instance: Instance, most: int = 8) -> list[PackingRow]:
    """Cuts on what a batch holds, stronger than the KV capacity M itself.

    Let the requests that hold KV after a batch hold sizes s (in whole blocks); sum s <= M.  For
    k = 1, 2, ... the function f_k(s) = s / M if (k+1) s / M is an integer, else
    floor((k+1) s / M) / k, is dual feasible (Fekete and Schepers 2001): sum f_k(s) <= 1 follows.
    Proof: let x = s / M and call an item whole if (k+1) x is an integer.  If all items are whole,
    f_k is the size itself.  Else let A be the sum of (k+1) x over the whole ones and B the sum of
    the floors of the others: A + B < sum (k+1) x <= k+1, so A + B <= k and
    A / (k+1) + B / k <= (A + B) / k <= 1.  For k = 1: two sizes above M/2 never share a batch, and
    one above M/2 does not share it with one of exactly M/2.

    f_k is non-decreasing, so a lower bound on a size may stand for it.  `limit` is k * M.
    """
    smallest = min(instance.system.held(kind.input_tokens) for kind in instance.types)
    capacity = instance.system.kv_capacity
    # Where k + 1 smallest items fit, f_k still differs from s / M but hardly ever binds.
    return [PackingRow(k, k * capacity) for k in range(1, min(most, capacity // smallest) + 1)]


def least_batches(instance: Instance) -> int:
    """Batches that every schedule needs.

    Tokens of one request are made in different batches, and token k in one after which it holds
    I+k-1 tokens.  So all tokens of all requests are packed into the batches, and their
    `packing_rows` weights are at most `limit` a batch; `count_batches` gives further arguments.
    """
    system = instance.system
    counts = count_batches(instance, instance.types).total
    shares = []
    for row in packing_rows(instance):
        weight = sum(
            len(kind.members) * row.weight(system.held(kind.input_tokens + k))
            for kind in instance.types
            for k in range(kind.output_tokens)
        )
        shares.append(-(-weight // row.limit))
    return max(*counts.values(), *shares)
