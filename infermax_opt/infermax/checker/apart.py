"""Proof: apart, by what prompts and decodes cost that share no batches, or pay for it."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.knee import least_of_decodes
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.served import Served
from infermax_opt.infermax.checker.token_payments import chunk_payments


def batches_apart(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """What tokens of prompts, and decodes, pay at least.

    See `infermax_opt.infermax.bounds.apart`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        The piece of batches with prompts.
    """
    kinds = instance.since()
    instance.work.spend(50 * len(kinds))
    alpha, beta = instance.pieces[evidence["alone"].whole(0, len(instance.pieces) - 1)]
    sigma = Fraction(evidence["share"].whole(0, 1000), 1000)
    require(instance.hybrid or sigma == 1, "share: is not 1000, though no batch has both")
    full = instance.capacity // instance.block * instance.block
    bears_refills(instance, piece, (Fraction(alpha + instance.d0, full), beta))
    apart = together = Fraction(alpha, full), Fraction(beta)
    if instance.hybrid:
        slope = ((1 - sigma) * piece.alpha + instance.e0) / full + instance.e1
        together = slope, Fraction(piece.beta - instance.e1)
    later = sum(c * (o - 1) for _, o, c in kinds)
    read = sum(c * ((o - 1) * i + (o - 1) * (o - 2) // 2) for i, o, c in kinds)
    paid = least_of_decodes(kinds, apart, together) + instance.d1 * read
    paid += Fraction(instance.d0 * (read + later), full)
    prompts = sum(c * i for i, _, c in kinds)
    paid += (piece.beta + sigma * piece.alpha / min(instance.budget, full)) * prompts
    paid += instance.p0 * Served(instance, kinds, evidence, piece).prefill
    paid += instance.squares(kinds)
    paid += chunk_payments(instance, Fraction(instance.p2), instance.budget)
    return paid / instance.scale


def bears_refills(instance: Instance, piece: Piece, decode: tuple[Fraction, int]) -> None:
    """A refill costs no less than a decode pays apart, if there are any.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Of batches with refills.
    decode : (Fraction, int)
        Ticks of a decode by the KV that it leaves, and besides.
    """
    held, beta = decode
    many = [(i, o) for i, o, _ in instance.since() if o > 1]
    if not instance.preemption or not many:
        return
    for h in (min(i for i, _ in many) + 1, max(i + o for i, o in many) - 1):
        least = beta + held * h + instance.d1 * (h - 1)
        require(piece.beta * h >= least, "piece: a refill may cost less than a decode")
