"""Proof: ramp, by what it costs to fill the memory no faster than tokens are processed."""

from __future__ import annotations

import math
from fractions import Fraction

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.closed_form import least_presence
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.memory_batches import tokens_above
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.served import Served
from infermax_opt.infermax.checker.token_payments import chunk_payments


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
    chunks = "prompts" in evidence
    length = evidence["batches"].whole(0 if chunks else 1, least)
    percent = evidence["prompts"]["percent"].whole(0, 100) if chunks else 0
    batches = max(served.prefill, least)
    share = Fraction(evidence["share"].whole(0, 1000) if "share" in evidence else 1000, 1000)
    tokens = Fraction(sum((i - 1 + o) * c for i, o, c in kinds), instance.batch_tokens)
    alpha = share * piece.alpha  # of a batch that is counted by KV, not by tokens
    paid = (piece.alpha - alpha) * tokens + alpha * Fraction(volume, capacity) + instance.p0 * served.prefill
    paid += least_presence(served, batches) + instance.token_work(kinds, piece.beta)
    paid += instance.squares(kinds) + ramp_terms(instance, piece, alpha, length, 100 - percent)
    if chunks:
        paid += prompts_in_chunks(instance, piece, alpha, evidence["prompts"], percent)
    return paid / instance.scale


def prompts_in_chunks(
    instance: Instance, piece: Piece, waiting: Fraction, given: Field, percent: int
) -> Fraction:
    """What prompts pay for the KV that they hold before their last chunk, for attention, or beyond a knee.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    waiting : Fraction
        Ticks for a batch in which the memory is full of prompts that are not done.
    given : Field
        Names the piece beyond whose knee with the other one tokens cost more; or none, for no such tokens.
    percent : int
        How much of that prompts count.
    """
    full = instance.capacity // instance.block * instance.block
    width = instance.budget
    dear: Fraction | None = None
    if given["knee"].value is None:
        require(percent == 0, "prompts: a share of no knee")
    else:
        alpha, beta = instance.pieces[given["knee"].whole(0, len(instance.pieces) - 1)]
        require(alpha <= piece.alpha and beta > piece.beta, "prompts: the pieces have no knee")
        width = max(1, min(width, math.ceil(Fraction(piece.alpha - alpha, beta - piece.beta))))
        dear = Fraction(percent * (beta - piece.beta), 100)
    return chunk_payments(instance, waiting / full + instance.p2, width, dear)


def ramp_terms(instance: Instance, piece: Piece, waiting: Fraction, length: int, percent: int) -> Fraction:
    """Least cost of not yet full memory and of tokens beyond the piece, in so many batches.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    waiting : Fraction
        Ticks for a batch in which the memory is empty.
    length : int
        Batches, the last of which is the first term.
    percent : int
        How much of what tokens beyond the piece cost counts here.
    """
    most, free = instance.batch_tokens, instance.capacity // instance.block
    full, together = free * instance.block, 0
    for i, count in instance.prompts:
        size = -(-i // instance.block)
        fitting = min(count, free // size)
        together, free = together + fitting, free - fitting * size
    pairs = ((one, other) for one in instance.pieces for other in instance.pieces if one[1] < other[1])
    crossings = [Fraction(one[0] - other[0], other[1] - one[1]) for one, other in pairs]
    corners = [Fraction(0), Fraction(most), *(x for x in crossings if 0 < x < most)]
    above = [max(a + b * x for a, b in instance.pieces) - piece.alpha - piece.beta * x for x in corners]
    missing = waiting * (full - (instance.block - 1) * together) / full
    share = Fraction(percent, 100)
    lines = [(waiting * x / full, share * more) for x, more in zip(corners, above, strict=True)]
    return filling_terms(instance.work, missing, lines, length)


def filling_terms(
    work: Work, missing: Fraction, lines: list[tuple[Fraction, Fraction]], length: int
) -> Fraction:
    """So many terms, each of them what memory that is empty costs less the highest of some lines.

    Parameters
    ----------
    work : Work
    missing : Fraction
        Ticks for a batch in which the memory is empty.
    lines : list of (Fraction, Fraction)
        For some numbers of tokens of a batch, ticks for the memory that they fill, k times in the k-th term,
        and what they cost besides.
    length : int
    """
    work.spend(length * (5 + 20 * len(lines)))
    return sum((missing - max(k * a - b for a, b in lines) for k in range(1, length + 1)), Fraction(0))
