"""Proof: what the parts of a request cost it, for pace."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import Piece

#: Bits after the point of r, k, q and x.
PACE_BITS = 12


class Leg(NamedTuple):
    """A prompt, or later tokens: sums of e, sqrt(e w) and w; least and largest x; e of one, R and KV.

    R is the work of the least refill, KV that of the first token; both are 0 where KV does not count.
    """

    fixed: int
    roots: int
    works: int
    low: int
    high: int
    each: int
    again: int
    held: int


#: Sums of e, sqrt(e w), w over the tokens up to each number cached, where refills are cheap, and where not.
Sums = tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]


def token_of(instance: Instance, piece: Piece, s: int, dear: bool) -> tuple[int, int]:
    """Fixed part e and work w of a later token; where refills are cheap, the least of both ways.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    s : int
        Tokens cached after it.
    dear : bool
        Whether a refill is never the cheaper way to make it.
    """
    decode = piece.beta + instance.d1 * (s - 1)
    if dear:
        return piece.alpha + instance.d0, decode
    return piece.alpha + min(instance.d0, instance.p0), min(decode, (piece.beta + instance.p1) * s)


def leg_sums(instance: Instance, piece: Piece, longest: int, dear: bool) -> list[tuple[int, int, int]]:
    """Sums of e, sqrt(e w) and w over the tokens up to each number cached.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    longest : int
        Up to which, it excluded.
    dear : bool
        Whether a refill is never the cheaper way to make one.
    """
    rows = [(0, 0, 0)]
    for s in range(1, longest):
        fixed, work = token_of(instance, piece, s, dear)
        rows.append((fixed, math.isqrt(fixed * work), work))
    columns = [list(accumulate(column)) for column in zip(*rows, strict=True)]
    return list(zip(*columns, strict=True))


def pace_root(work: int, fixed: int) -> int:
    """The root x of work / fixed, rounded down."""
    return math.isqrt((work << 2 * PACE_BITS) // fixed)


def all_legs(instance: Instance, piece: Piece, lengths: tuple[int, int], sums: Sums, parts: int) -> list[Leg]:
    """The prompt of a request and parts of its later tokens, those of which a refill may be cheaper apart.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    lengths : (int, int)
        Input and output tokens.
    sums : pair of lists
    parts : int
    """
    i, o = lengths
    chunk = piece.alpha + instance.p0
    prompt = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
    root = pace_root(prompt, chunk)
    legs = [Leg(chunk, math.isqrt(chunk * prompt), prompt, root, root + 1, chunk, 0, 0)]
    first, last = i + 1, i + o - 1
    # What a refill works beyond a decode and its fixed part, at s cached tokens: a line.
    slope = piece.beta + instance.p1 - instance.d1
    base = instance.d1 - piece.beta - max(0, instance.d0 - instance.p0)
    dear = first  # from which s on a refill is dearer
    if instance.preemption and slope > 0:
        dear = min(max(first, -(base // slope)), last + 1)
    elif instance.preemption and slope * last + base < 0:
        dear = last + 1
    for a, b, dearer in ((first, dear - 1, False), (dear, last, True)):
        for part in range(parts):
            begin, end = (a + (b - a + 1) * k // parts for k in (part, part + 1))
            if begin < end:
                legs.append(one_leg(instance, piece, (begin, end - 1), sums, dearer))
    return legs


def one_leg(instance: Instance, piece: Piece, ends: tuple[int, int], sums: Sums, dear: bool) -> Leg:
    """Some later tokens.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    ends : (int, int)
        Tokens cached after the first and the last one.
    sums : pair of lists
    dear : bool
        Whether a refill is never the cheaper way to make one; else no KV counts.
    """
    a, b = ends
    low, high = (pace_root(w, e) for e, w in (token_of(instance, piece, s, dear) for s in ends))
    fixed, roots, works = (y - x for x, y in zip(sums[dear][a - 1], sums[dear][b], strict=True))
    each, again, held = token_of(instance, piece, a, dear)[0], 0, 0
    if dear:
        again = (piece.beta + instance.p1) * a if instance.preemption else 0
        # A chunk of a refill may hold less than its share of the blocks.
        held = (
            a if instance.preemption and instance.chunked else math.ceil(a / instance.block) * instance.block
        )
    return Leg(fixed, roots, works, low, high + 1, each, again, held)
