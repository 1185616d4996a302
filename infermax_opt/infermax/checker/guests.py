"""What a request takes alone, and what its tokens pay for at least."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.infermax.checker.instance import SIZE_STEPS, Instance
from infermax_opt.infermax.checker.pieces import Piece

#: Bits after the point of roots.
ROOT_BITS = 12


class Tables(NamedTuple):
    """Sums over later tokens by s: least time alone, price without others, root and work of the rest."""

    alone: list[int]
    fixed: list[int]
    roots: list[int]
    works: list[int]


class Guest(NamedTuple):
    """A request that comes at some time: what it does at least, and in how much time alone."""

    times: int
    begin: int
    until: int
    later: int
    lone: int
    tokens: tuple[int, int, int]
    linear: int
    square: int
    chunks: int


def token_tables(instance: Instance, piece: Piece) -> Tables:
    """What later tokens take and pay, summed up to each number of tokens cached after them."""
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(SIZE_STEPS * longest)
    step, again = piece.alpha + instance.d0, piece.beta + instance.p1
    rows = [(0, 0, 0, 0)]
    for s in range(1, longest):
        work = piece.beta + instance.d1 * (s - 1)
        refill = piece.alpha + instance.p0 + again * s
        spare = refill - step
        if not instance.preemption:
            rows.append((step + work, step, math.isqrt(work << 2 * ROOT_BITS), work))
        elif spare >= 0 and work * step <= spare * (again * s - work):
            # A refill is dearer at every price of time.
            rows.append((min(step + work, refill), step, math.isqrt(work << 2 * ROOT_BITS), work))
        else:
            rows.append((min(step + work, refill), min(step, refill), 0, 0))
    return Tables(*(list(accumulate(column)) for column in zip(*rows, strict=True)))


def guest(
    instance: Instance, key: tuple[int, int, Fraction], count: int, piece: Piece, tables: Tables
) -> Guest:
    """What the requests of one kind take alone, and what they pay for.

    Parameters
    ----------
    instance : Instance
    key : tuple
        Input tokens, output tokens, arrival in seconds.
    count : int
        Such requests.
    piece : Piece
        Affine piece of the batch time.
    tables : Tables
    """
    i, o, arrival = key
    later, *tokens = (column[i + o - 1] - column[i] for column in tables)
    square, chunks = instance.p1 * i * i, -(-i // instance.budget)
    linear, shared = piece.beta * i, square
    if not instance.spread:
        linear, shared = linear + square, 0
    lone = linear + in_chunks(piece.alpha + instance.p0, chunks, shared, 1, 1) + later
    date = arrival * instance.scale
    paid = (tokens[0], tokens[1], tokens[2])
    return Guest(count, math.floor(date), math.ceil(date), later, lone, paid, linear, shared, chunks)


def in_chunks(fixed: int, chunks: int, square: int, work: int, unit: int) -> int:
    """Least of q * fixed + square * (work / unit) / q, for q = chunks or more.

    Parameters
    ----------
    fixed, square : int
        Ticks of each chunk, and of the attention of a prompt in one chunk.
    chunks : int
        The fewest.
    work, unit : int
        Price of attention, in parts of a unit.
    """
    if square * work <= fixed * chunks**2 * unit:
        return chunks * fixed + square * work // (chunks * unit)
    return math.isqrt(4 * fixed * square * work // unit)


def in_groups(i: int, o: int, groups: int) -> list[tuple[int, int]]:
    """Later tokens in groups as equal as can be: tokens cached before the first and after the last of each.

    Parameters
    ----------
    i, o : int
        Input and output tokens.
    groups : int
        At most.
    """
    many = min(groups, o - 1)
    return list(pairwise(i + (o - 1) * k // many for k in range(many + 1))) if many else []
