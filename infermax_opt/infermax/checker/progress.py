"""Proof: progress, by what is unfinished on a clock of tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR, Piece

#: Bits after the point of densities.
DENSITY_BITS = 64
#: Steps of checking a token.
TOKEN_STEPS = 60


class Shares(NamedTuple):
    """Equal requests: how many, (presence, work, size, mass) of each token, mass of all."""

    times: int
    tokens: list[tuple[int, int, int, int]]
    mass: int


def progress(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Unfinished requests count in full: busy dates, presence and work that they wait for.

    The number of unfinished requests is integrated over a clock of tokens
    (`infermax_opt.infermax.bounds.progress`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    exponent = evidence["exponent"].whole(0, 256)
    merged: Counter[tuple[int, int]] = Counter()
    for i, o, count in instance.since():
        merged[i, o] += count
    slots = evidence["by_slots"].flag()
    divisor = token_room(instance, slots, min(i for i, _ in merged), merged.total())
    instance.work.spend(TOKEN_STEPS * sum(o for _, o in merged))
    kinds = [
        shares(token_parts(instance, i, o, piece, slots), count, divisor) for (i, o), count in merged.items()
    ]
    kinds.sort(key=lambda kind: kind.mass)
    least = min(token[0] for kind in kinds for token in kind.tokens)
    levels = read_levels(instance, evidence["levels"], kinds, least << 2 * exponent)
    clock, busy, constant = 0, 0, Fraction(0)
    for kind in kinds:
        busy += kind.times * (2 * clock + kind.times * kind.mass)
        clock += kind.times * kind.mass
        before = doubled = 0
        for presence, _, _, mass in kind.tokens:
            doubled, before = doubled + presence * (2 * before + mass), before + mass
        # Rounded down, as sums of fractions with thousands of denominators would not end.
        constant += Fraction(
            (kind.times * doubled << DENSITY_BITS) // max(1, 2 * kind.mass), 1 << DENSITY_BITS
        )
    saved = least_transport(kinds, levels, exponent) - most_transport(kinds, levels, exponent) / divisor
    return instance.mean_latency((Fraction(busy, 2 * divisor) + constant + saved) / instance.scale)


def token_room(instance: Instance, slots: bool, shortest: int, requests: int) -> int:
    """What sizes of the tokens of a batch sum to, at most: KV, or slots.

    Parameters
    ----------
    instance : Instance
    slots : bool
        Whether a token takes one slot, whatever its KV.
    shortest : int
        Tokens of the shortest prompt.
    requests : int
        How many there are.
    """
    if not slots:
        return instance.capacity
    held = -(-shortest // instance.block) * instance.block
    divisor = min(requests, instance.capacity // held, instance.running or instance.capacity)
    require(divisor > 0, "by_slots: no request fits")
    return divisor


def token_parts(
    instance: Instance, i: int, o: int, piece: Piece, slots: bool
) -> Iterator[tuple[int, int, int]]:
    """Presence, work and size of each token of a request.

    Parameters
    ----------
    instance : Instance
    i, o : int
        Input and output tokens.
    piece : Piece
        Affine piece of the batch time.
    slots : bool
        Whether a token takes one slot, whatever its KV.
    """
    alpha, beta, block = piece.alpha, piece.beta, instance.block
    d0, d1, p0, p1 = instance.d0, instance.d1, instance.p0, instance.p1
    yield alpha + p0, beta * i + p1 * (i if instance.spread else i**2), 1 if slots else -(-i // block) * block
    for s in range(i + 1, i + o):
        decode, size = beta + d1 * (s - 1), 1 if slots else -(-s // block) * block
        more = beta * s + p1 * (s if instance.spread else s**2) - decode  # that a refill costs
        if instance.preemption and more < max(0, d0 - p0):
            yield alpha + min(d0, p0), beta + min(d1, beta) * (s - 1), size
        else:
            yield alpha + d0, decode, size


def shares(parts: Iterator[tuple[int, int, int]], count: int, divisor: int) -> Shares:
    """Tokens with their masses: work, and presence for their share of a batch.

    Parameters
    ----------
    parts : iterator of tuple
        Presence, work and size of each token.
    count : int
        Requests that have such tokens.
    divisor : int
        Size of all tokens of a batch, at most.
    """
    tokens = [(a, w, k, divisor * w + a * k) for a, w, k in parts]
    return Shares(count, tokens, sum(mass for *_, mass in tokens))


def read_levels(instance: Instance, given: Field, kinds: list[Shares], least: int) -> list[tuple[int, int]]:
    """Lengths of cells of the clock and levels in them, which fall and stay below what is unfinished.

    Parameters
    ----------
    instance : Instance
    given : Field
        Ends and levels.
    kinds : list of Shares
        By rising mass.
    least : int
        Least presence of a token, in squared units of the levels.
    """
    instance.work.spend(len(given.items()) * (20 + 5 * len(kinds)))
    before, above = 0, FAR
    cells = []
    for cell in given.items():
        end, level = cell.integers(2)
        require(end > before and 0 <= level <= above, "levels: they do not fall, or ends do not rise")
        unfinished, left = Fraction(0), end
        for kind in kinds:
            if kind.mass:
                here = min(left, kind.times * kind.mass)
                left -= here
                unfinished += kind.times - Fraction(here, kind.mass)
        require(level**2 <= least * unfinished, "levels: one is above what is unfinished")
        cells.append((end - before, level))
        before, above = end, level
    return cells


def least_transport(kinds: list[Shares], levels: list[tuple[int, int]], exponent: int) -> Fraction:
    """Twice the least sum of level times sqrt(work * share done), in ticks: the densest come last.

    Parameters
    ----------
    kinds : list of Shares
    levels : list of (int, int)
        Lengths of cells and levels in them.
    exponent : int
        Bits after the point of the levels.
    """
    dense = []
    for kind in kinds:
        before = 0
        for _, work, _, mass in kind.tokens:
            if mass:
                root = math.isqrt((work * (2 * before + mass) << 2 * exponent) // (2 * kind.mass))
                dense.append(((root << DENSITY_BITS) // mass, kind.times * mass))
            before += mass
    dense.sort()
    return Fraction(2 * laid(dense, levels), 1 << (2 * exponent + DENSITY_BITS))


def most_transport(kinds: list[Shares], levels: list[tuple[int, int]], exponent: int) -> Fraction:
    """The largest sum of squared level times size, in ticks times sizes: the densest come first.

    Parameters
    ----------
    kinds : list of Shares
    levels : list of (int, int)
        Lengths of cells and levels in them.
    exponent : int
        Bits after the point of the levels.
    """
    tokens = [(size, mass, kind.times) for kind in kinds for *_, size, mass in kind.tokens if mass]
    dense = [(-(-(size << DENSITY_BITS) // mass), count * mass) for size, mass, count in tokens]
    dense.sort(reverse=True)
    squared = [(length, level**2) for length, level in levels]
    return Fraction(laid(dense, squared), 1 << (2 * exponent + DENSITY_BITS))


def laid(dense: list[tuple[int, int]], cells: list[tuple[int, int]]) -> int:
    """Sum of density * mass * level, with (density, mass) laid one after the other into cells."""
    total, queue, density, left = 0, iter(dense), 0, 0
    for length, level in cells:
        while length:
            if not left:
                density, left = next(queue, (0, length))
            here = min(left, length)
            total += density * here * level
            left, length = left - here, length - here
    return total
