"""Proof: running, by the places that prompts in chunks take among those who may hold KV."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.closed_form import least_presence
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.served import Served


def running(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Work, attention constants, and batches by the number of requests that hold KV.

    See `infermax_opt.infermax.bounds.running`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    kinds, places = instance.since(), instance.running
    if places is None:
        evidence["kind"].fail("there is no limit of those who run")
    instance.work.spend(50 * len(kinds))
    served = Served(instance, kinds, evidence, piece)
    outputs, later = sum(o * c for _, o, c in kinds), sum((o - 1) * c for _, o, c in kinds)
    batches = max(served.prefill, -(-outputs // places))
    holds = not instance.preemption or (piece.beta - instance.d1) * places >= instance.d0
    decoded = [(instance.d0 * later // places, -(-later // places))] if holds else []
    paid = instance.token_work(kinds, piece.beta) + instance.p0 * served.prefill
    paid += least_presence(served, batches, decoded)
    paid += instance.squares(kinds)
    by_places = piece.alpha * outputs
    if instance.chunked:
        by_places += sum(
            count * chunks_in_places(instance, piece, i, places) for i, count in instance.prompts
        )
    return (paid + Fraction(by_places, places)) / instance.scale


def chunks_in_places(instance: Instance, piece: Piece, tokens: int, places: int) -> int:
    """Least that a prompt pays for its chunks but one, and for attention; parts of a tick by places.

    More chunks save ever less, so the first number from which one more does not pay is the best.

    Parameters
    ----------
    instance : Instance
    piece : Piece
        Affine piece of the batch time.
    tokens, places : int
    """
    square = instance.p1 * places if instance.spread else 0
    low, high = -(-tokens // instance.budget), tokens
    instance.work.spend(20 * tokens.bit_length())
    while low < high:
        middle = (low + high) // 2
        saved = least_squares(tokens, middle) - least_squares(tokens, middle + 1)
        low, high = (low, middle) if square * saved <= piece.alpha else (middle + 1, high)
    return piece.alpha * (low - 1) + square * (least_squares(tokens, low) - tokens)


def least_squares(tokens: int, chunks: int) -> int:
    """Least sum of squares of so many chunks."""
    each, more = divmod(tokens, chunks)
    return chunks * each**2 + more * (2 * each + 1)
