"""Tool of the proof by attainment: what a request does that keeps its limits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.infermax.checker.guests import in_chunks
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR, Piece
from infermax_opt.infermax.checker.terms import Promise

#: A line: its value at 0, and its slope.
Line = tuple[int, int]


class Keeper(NamedTuple):
    """A request that keeps its limits: what it does then, and between which ticks; no end is None.

    `works`: the smaller of the two is the work of a later token.  `fixed`, `least`: ticks of a batch that
    makes one, without and with it.
    """

    prompt: int
    later: int
    begin: int
    until: Any
    ready: int
    due: Any
    whole: int
    telescoped: int
    works: tuple[Line, Line]
    fixed: int
    least: int


def least_sum(lines: tuple[Line, Line], low: int, high: int) -> int:
    """Sum over s = low, ..., high of the smaller of two lines.

    Parameters
    ----------
    lines : pair of Line
    low, high : int
    """
    (start, slope), (other, steeper) = sorted(lines, key=lambda line: line[1])
    # From `turn` on the flatter line is not above the other one.
    turn = low if start <= other else high + 1
    if steeper > slope:
        turn = min(high + 1, max(low, -(-(start - other) // (steeper - slope))))

    def total(at: int, rise: int, first: int, end: int) -> int:
        """Sum of a line over a range."""
        return (end - first) * (2 * at + rise * (first + end - 1)) // 2

    return total(other, steeper, low, turn) + total(start, slope, turn, high + 1)


def keeper(instance: Instance, key: tuple[int, int, Fraction, Promise], piece: Piece) -> Keeper | None:
    """What a request does that keeps its limits; None if it never does.

    Parameters
    ----------
    instance : Instance
    key : tuple
        Input and output tokens, arrival in seconds, weight and limits.
    piece : Piece
        Affine piece of the batch time.
    """
    i, o, arrival, (_, *limits) = key
    first, whole, telescoped = prompt_work(instance, i, piece)
    batches, works, fixed = credit_work(instance, i, piece)
    later, least = least_sum(batches, i + 1, i + o - 1), least_sum(batches, i + 1, i + 1)
    ttft, tpot, e2e = (FAR if limit is None else limit * instance.scale for limit in limits)
    span = tpot * (o - 1) if o > 1 else FAR
    if first > ttft or later > span or first + later > e2e:
        return None
    due, date = min(e2e, ttft + span), arrival * instance.scale
    until, begin = min(ttft, due - later), math.floor(date)
    ends = [None if end == FAR else math.ceil(date + end) for end in (until, due)]
    return Keeper(
        i, o - 1, begin, ends[0], begin + first, ends[1], whole, telescoped, works, fixed, least
    )  # fmt: skip


def prompt_work(instance: Instance, i: int, piece: Piece) -> tuple[int, int, int]:
    """Ticks of a prompt alone, at least; its work by tokens, times the budget; attention work apart.

    Parameters
    ----------
    instance : Instance
    i : int
        Input tokens.
    piece : Piece
        Affine piece of the batch time.
    """
    square, linear = instance.p1 * i**2, piece.beta * i
    fewest = -(-i // instance.budget)
    if instance.spread:
        first = linear + in_chunks(piece.alpha + instance.p0, fewest, square, 1, 1)
        whole, apart = linear + instance.p1 * i, 0
    else:
        first = linear + square + fewest * (piece.alpha + instance.p0)
        whole, apart = (linear, square) if instance.chunked else (linear + square, 0)
    return first, whole * instance.budget + (0 if instance.preemption else instance.p0 * i), apart


def credit_work(instance: Instance, i: int, piece: Piece) -> tuple[tuple[Line, Line], tuple[Line, Line], int]:
    """Ticks of a batch that makes a later token, and its work, each the smaller of two lines; fixed costs.

    Parameters
    ----------
    instance : Instance
    i : int
        Input tokens.
    piece : Piece
        Affine piece of the batch time.
    """
    decode, fixed = (piece.beta - instance.d1, instance.d1), piece.alpha + instance.d0
    slow = (fixed + decode[0], decode[1])
    if not instance.preemption:
        return (slow, slow), (decode, decode), fixed
    again = piece.beta + instance.p1
    spared = min(max(0, instance.d0 - instance.p0), again * (i + 1))
    fixed = piece.alpha + min(instance.d0, instance.p0 + spared)
    return (slow, (piece.alpha + instance.p0, again)), (decode, (-spared, again)), fixed
