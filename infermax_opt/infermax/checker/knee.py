"""Proof: knee, by what batches below a knee of the batch time cost, and tokens beyond it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.closed_form import decode_presence
from infermax_opt.infermax.checker.instance import Instance, Kinds
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.ramp import filling_terms
from infermax_opt.infermax.checker.served import Served
from infermax_opt.infermax.checker.token_payments import chunk_payments, sum_of_payments

#: Slope and constant, in ticks by the KV tokens that a decode leaves.
KvPrice = tuple[Fraction, Fraction]


def knee(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, batches by KV area, and what they cost below and beyond a knee.

    See `infermax_opt.infermax.bounds.knee`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        The steep piece of the batch time.
    """
    kinds = instance.since()
    instance.work.spend(50 * len(kinds))
    alpha, beta = instance.pieces[evidence["flat"].whole(0, len(instance.pieces) - 1)]
    require(alpha > piece.alpha and beta < piece.beta, "flat: the pieces have no knee")
    fixed, slope = alpha - piece.alpha, piece.beta - beta
    theta, omega = (Fraction(evidence[name].whole(0, 1000), 1000) for name in ("share", "kv"))
    below = (1 - theta) * fixed
    kappa = min(Fraction(instance.p0), (1 - omega) * below)
    full = instance.capacity // instance.block * instance.block
    area = sum(c * (o * i + o * (o - 1) // 2) for i, o, c in kinds)
    served = Served(instance, kinds, evidence, Piece(alpha, beta, piece.unit))
    paid = theta * instance.token_work(kinds, beta) + (1 - theta) * instance.token_work(kinds, piece.beta)
    paid += instance.squares(kinds)
    paid += max(ticks for ticks, _ in decode_presence(served)) + (instance.p0 - kappa) * served.prefill
    batch, corner = alpha - below + kappa, Fraction(fixed, slope)
    alone = omega * below / full, -(kappa + omega * below) / corner
    paid += batch * area / full + least_of_decodes(kinds, alone, beside_prompts(instance, beta, full))
    paid += waiting(instance, evidence, corner, batch / full, theta * slope, -(-area // full))
    return paid / instance.scale


def beside_prompts(instance: Instance, beta: int, full: int) -> KvPrice:
    """What a decode beside prompts pays for the KV that it leaves: 0 where evictions might save it.

    Parameters
    ----------
    instance : Instance
    beta : int
        Ticks of a token, at least.
    full : int
        Tokens of KV.
    """
    e0, e1 = instance.e0, instance.e1
    if instance.preemption and (beta - instance.d1 - e1) * full < 2 * (instance.d0 + e0):
        return Fraction(0), Fraction(0)
    return e1 + Fraction(e0, full), Fraction(-e1)


def least_of_decodes(kinds: Kinds, one: KvPrice, other: KvPrice) -> Fraction:
    """The sum over decodes of the least of two lines at the KV that they leave; may be below 0.

    Parameters
    ----------
    kinds : list of (int, int, int)
    one, other : (Fraction, Fraction)
        Slope and constant.
    """
    flat, steep = sorted((one, other))
    crossing: Fraction | None = None
    if flat[0] < steep[0]:
        crossing = (flat[1] - steep[1]) / (steep[0] - flat[0])
    few = tokens = all_few = all_tokens = 0
    for i, o, c in kinds:
        under = 0 if crossing is None else min(o - 1, max(0, math.ceil(crossing) - 1 - i))
        few, tokens = few + c * under, tokens + c * (under * i + under * (under + 1) // 2)
        all_few, all_tokens = all_few + c * (o - 1), all_tokens + c * ((o - 1) * i + (o - 1) * o // 2)
    paid = steep[0] * tokens + steep[1] * few
    return paid + flat[0] * (all_tokens - tokens) + flat[1] * (all_few - few)


def waiting(
    instance: Instance, evidence: Field, corner: Fraction, wait: Fraction, beyond: Fraction, terms: int
) -> Fraction:
    """What tokens pay that fill memory, or that are beyond the knee.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    corner : Fraction
        Tokens at the knee.
    wait : Fraction
        Ticks for a token of KV that nobody uses in a batch who makes a token.
    beyond : Fraction
        Ticks for a token of a batch beyond the knee.
    terms : int
        Of the ramp, at most.
    """
    kinds = instance.since()
    full, most = instance.capacity // instance.block * instance.block, instance.batch_tokens
    refills = evidence["refills"].whole(0, 100)
    prompts = evidence["prompts"].whole(0, 100 - refills)
    length = evidence["batches"].whole(0, terms)
    corners = [min(corner, Fraction(most)), Fraction(most)]
    rest = beyond * (100 - refills - prompts) / 100
    lines = [(wait * x, rest * max(Fraction(0), x - corner)) for x in corners]
    paid = filling_terms(instance.work, wait * full, lines, length)
    if not wait:
        return paid
    width = max(1, math.ceil(corner))
    dear = beyond * refills / 100
    if dear:
        cached = Counter[int]()
        for i, o, c in kinds:
            cached[i + o - 1] += c
        never = full * min(dear, wait * ((max(cached) - 1) // width))
        sums = sum_of_payments(instance.work, cached.items(), wait, Fraction(0), width, dear)
        paid += max(Fraction(0), sums - never)
    dear = beyond * prompts / 100
    narrow = min(width, instance.budget) if dear else instance.budget
    return paid + chunk_payments(instance, wait + instance.p2, narrow, dear or None)
