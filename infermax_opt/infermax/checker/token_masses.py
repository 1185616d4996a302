"""Tool of the proof by overload: masses of tokens, and what waits for them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.infermax.checker.instance import SIZE_STEPS, Instance
from infermax_opt.infermax.checker.moments import WAIT_BITS
from infermax_opt.infermax.checker.pieces import Piece


class Later(NamedTuple):
    """Later tokens by s: work, size and mass of one; sums of the others up to s.

    `masses`; `early`: presence times the mass before; `own`: presence times mass; `presence`.
    """

    work: list[int]
    size: list[int]
    mass: list[int]
    masses: list[int]
    early: list[int]
    own: list[int]
    presence: list[int]


def later_tokens(instance: Instance, piece: Piece) -> Later:
    """Later tokens by the number of tokens cached after them."""
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(SIZE_STEPS * longest)
    rows, masses = [(0, 0, 0, 0, 0, 0)], 0
    for s in range(1, longest):
        presence, work = piece.alpha + instance.d0, piece.beta + instance.d1 * (s - 1)
        refill = (piece.beta + instance.p1 * (1 if instance.chunked else s)) * s
        cheap = refill - work < max(0, instance.d0 - instance.p0)
        cheap = cheap or (instance.chunked and piece.beta + instance.p1 < instance.d1)
        if instance.preemption and cheap:
            presence = piece.alpha + min(instance.d0, instance.p0)
            work = piece.beta + min(instance.d1, piece.beta) * (s - 1)
        size = s if instance.chunked else -(-s // instance.block) * instance.block
        mass = instance.capacity * work + presence * size
        rows.append((work, size, mass, presence * masses, presence * mass, presence))
        masses += mass
    work_by, size_by, mass_by, early, own, presence_by = (list(column) for column in zip(*rows, strict=True))
    sums = [list(accumulate(column)) for column in (mass_by, early, own, presence_by)]
    return Later(work_by, size_by, mass_by, *sums)


#: Mass of the first token and of all tokens of a request; presence, work and size of the first.
Masses = tuple[int, int, int, int, int]


def masses_of(instance: Instance, i: int, o: int, piece: Piece, later: Later) -> Masses:
    """Mass of the first token, of all, and presence, work and size of the first.

    Parameters
    ----------
    instance : Instance
    i, o : int
        Input and output tokens.
    piece : Piece
        Affine piece of the batch time.
    later : Later
    """
    presence = piece.alpha + instance.p0
    work = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
    size = i if instance.chunked else -(-i // instance.block) * instance.block
    first = instance.capacity * work + presence * size
    return first, first + later.masses[i + o - 1] - later.masses[i], presence, work, size


def presence_waited(i: int, o: int, masses: Masses, later: Later) -> Fraction:
    """Sum of presence times share done over the tokens of a request, in ticks, rounded down.

    Parameters
    ----------
    i, o : int
        Input and output tokens.
    masses : tuple
        As `masses_of` gives.
    later : Later
    """
    (first, whole, presence, _, _), last = masses, i + o - 1
    doubled = presence * first + 2 * (later.early[last] - later.early[i]) + later.own[last] - later.own[i]
    doubled += 2 * (first - later.masses[i]) * (later.presence[last] - later.presence[i])
    return Fraction((doubled << WAIT_BITS) // (2 * whole), 1 << WAIT_BITS)


def token_groups(
    instance: Instance,
    lengths: tuple[int, int],
    masses: Masses,
    later: Later,
    groups: int,
    exponent: int,
) -> Iterator[tuple[int, int, int, int]]:
    """Tokens, least mass and root of one, and largest size, of each group.

    Parameters
    ----------
    instance : Instance
    lengths : tuple
        Input and output tokens.
    masses : tuple
        As `masses_of` gives.
    later : Later
    groups : int
        Groups of later tokens.
    exponent : int
        Bits after the point of roots.
    """
    (i, o), (first, whole, _, work, size) = lengths, masses

    def root(work: int, before: int, own: int) -> int:
        """Root of the work of a token times the share done in its middle."""
        return math.isqrt((work * (2 * before + own) << 2 * exponent) // (2 * whole))

    yield 1, first, root(work, 0, first), size
    last = i + o - 1
    width = max(1, -(-(o - 1) // groups))
    for s in range(i + 1, last + 1, width):
        end, before = min(last, s + width - 1), first + later.masses[s - 1] - later.masses[i]
        yield end - s + 1, later.mass[s], root(later.work[s], before, later.mass[s]), later.size[end]
