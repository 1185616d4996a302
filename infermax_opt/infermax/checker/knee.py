"""Proof: knee, by what batches below a knee of the batch time cost, and tokens beyond it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.closed_form import Served, decode_presence
from infermax_opt.infermax.checker.instance import Instance, Kinds
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.ramp import filling_terms
from infermax_opt.infermax.checker.token_payments import sum_of_payments


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
    theta = Fraction(evidence["share"].whole(0, 1000), 1000)
    weight = Fraction(evidence["weight"].whole(0, 10**6), 100)
    kappa = min(Fraction(instance.p0), (1 - theta) * fixed / (1 + weight))
    full = instance.capacity // instance.block * instance.block
    area = sum(c * (o * i + o * (o - 1) // 2) for i, o, c in kinds)
    served = Served(instance, kinds, evidence, Piece(alpha, beta, piece.unit))
    paid = theta * instance.token_work(kinds, beta) + (1 - theta) * instance.token_work(kinds, piece.beta)
    paid += instance.p1 * sum(c * (i if instance.spread else i * i) for i, _, c in kinds)
    paid += max(ticks for ticks, _ in decode_presence(served)) + (instance.p0 - kappa) * served.prefill
    batch = piece.alpha + theta * fixed + kappa
    paid += batch * area / full - kappa * excused(kinds, Fraction(fixed, slope), weight, full)
    return (
        paid + waiting(instance, evidence, Fraction(fixed, slope), batch / full, theta * slope)
    ) / instance.scale


def excused(kinds: Kinds, corner: Fraction, weight: Fraction, full: int) -> Fraction:
    """The sum over decodes of what batches without prompts need not pay.

    Parameters
    ----------
    kinds : list of (int, int, int)
    corner : Fraction
        Tokens at the knee.
    weight : Fraction
        What a memory that is full counts.
    full : int
        Tokens of KV.
    """
    each, less = (1 + weight) / corner, weight / full
    total = Fraction(0)
    for i, o, c in kinds:
        number = min(o - 1, max(0, math.ceil(each / less) - 1 - i)) if less else o - 1
        total += c * (each * number - less * (number * i + number * (number + 1) // 2))
    return total


def waiting(
    instance: Instance, evidence: Field, corner: Fraction, wait: Fraction, beyond: Fraction
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
    """
    kinds = instance.since()
    full, most = instance.capacity // instance.block * instance.block, instance.batch_tokens
    area = sum(c * (o * i + o * (o - 1) // 2) for i, o, c in kinds)
    refills = evidence["refills"].whole(0, 100)
    prompts = evidence["prompts"].whole(0, 100 - refills)
    length = evidence["batches"].whole(0, -(-area // full))
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
    more = Fraction(2 * instance.p1 if instance.spread else 0)
    narrow = min(width, instance.budget) if dear else instance.budget
    return paid + sum_of_payments(instance.work, instance.prompts, wait, more, narrow, dear or None)
