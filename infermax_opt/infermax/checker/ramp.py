"""Proof: ramp, by what it costs to fill the memory no faster than tokens are processed."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.closed_form import Served, least_presence, tokens_above
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import Piece


def ramp(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, attention constants, batches by KV area, and what filling the memory costs besides.

    See `infermax_opt.infermax.bounds.ramp`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds = instance.since()
    instance.work.spend(50 * len(kinds))
    served = Served(instance, kinds, evidence, piece)
    capacity, volume = instance.capacity // instance.block, tokens_above(served, 0)[1]
    require(capacity > 0, "there is no memory")
    least = -(-volume // capacity)
    length = evidence["batches"].whole(1, least)
    batches = max(served.prefill, least)
    paid = Fraction(piece.alpha * volume, capacity) + instance.p0 * served.prefill
    paid += least_presence(served, batches) + instance.token_work(kinds, piece.beta)
    pairs = sum(c * (i if instance.spread else i * i) for i, _, c in kinds)
    return (paid + instance.p1 * pairs + ramp_terms(instance, piece, length)) / instance.scale


def ramp_terms(instance: Instance, piece: Piece, length: int) -> Fraction:
    """Least cost of not yet full memory and of tokens beyond the piece, in so many batches.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    length : int
        Batches, the last of which is the first term.
    """
    most, free = instance.batch_tokens, instance.capacity // instance.block
    full, together = free * instance.block, 0
    for i, _, count in sorted(instance.since()):
        size = -(-i // instance.block)
        fitting = min(count, free // size)
        together, free = together + fitting, free - fitting * size
    pairs = ((one, other) for one in instance.pieces for other in instance.pieces if one[1] < other[1])
    crossings = [Fraction(one[0] - other[0], other[1] - one[1]) for one, other in pairs]
    corners = [Fraction(0), Fraction(most), *(x for x in crossings if 0 < x < most)]
    instance.work.spend(length * (5 + 20 * len(corners)))
    above = [max(a + b * x for a, b in instance.pieces) - piece.alpha - piece.beta * x for x in corners]
    missing = Fraction(piece.alpha * (full - (instance.block - 1) * together), full)
    lines = [(piece.alpha * x / full, more) for x, more in zip(corners, above, strict=True)]
    return sum((missing - max(k * a - b for a, b in lines) for k in range(1, length + 1)), Fraction(0))
