"""Proof: pace, by what the batches that a request wants cost it at prices of time."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, SIZE_STEPS, Instance
from infermax_opt.infermax.checker.pieces import Piece

#: Bits after the point of r, k, q and x.
PACE_BITS = 12
#: Steps of checking a stage of a member in a cell.
STAGE_STEPS = 10


class Leg(NamedTuple):
    """A prompt, or later tokens: sums of e, sqrt(e w) and w; least and largest x."""

    fixed: int
    roots: int
    works: int
    low: int
    high: int


#: Sums of e, sqrt(e w), w over the tokens up to each number cached, where refills are cheap, and where not.
Sums = tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]


def pace(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Who wants short batches pays for their start.

    See `infermax_opt.infermax.bounds.pace`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    require(piece.alpha + min(instance.d0, instance.p0) > 0, "piece: a batch takes no time")
    cells, members = pace_cells(evidence["cells"]), pace_members(evidence["members"])
    own = evidence["own"].integers(len(instance.kinds))
    require(min(own) >= 0, "own: a number is below 0")
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(2 * SIZE_STEPS * longest + REQUEST_STEPS * len(own))
    sums = (leg_sums(instance, piece, longest, False), leg_sums(instance, piece, longest, True))
    spans = (b - a for a, b in pairwise([0, *(end for end, _ in cells)]))
    total = -sum(span * root**2 for span, (_, root) in zip(spans, cells, strict=True))
    for (key, count), q in zip(instance.kinds.items(), own, strict=True):
        pairs = [(k, q * more >> PACE_BITS) for k, more in members]
        date = key[2] * instance.scale
        begin, until = math.floor(date), math.ceil(date)
        legs = all_legs(instance, piece, (key[0], key[1]), sums)
        least = cheapest_end(instance, legs, pairs, cells, begin)
        total += count * (least - (until - begin << 2 * PACE_BITS))
    return Fraction(total, (instance.scale << 2 * PACE_BITS) * sum(instance.kinds.values()))


def pace_cells(given: Field) -> list[tuple[int, int]]:
    """Ends of cells of time, and r in each."""
    cells = [(end, root) for end, root in (cell.integers(2) for cell in given.items())]
    require(all(a < b for a, b in pairwise([0, *(end for end, _ in cells)])), "cells: their ends do not rise")
    require(all(root >= 0 for _, root in cells), "cells: a root is below 0")
    return cells


def pace_members(given: Field) -> list[tuple[int, int]]:
    """K of each member, and what it multiplies a request's own number with."""
    members = [(k, more) for k, more in (pair.integers(2) for pair in given.items())]
    require(all(min(pair) >= 0 for pair in members), "members: a number is below 0")
    return members


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


def all_legs(instance: Instance, piece: Piece, lengths: tuple[int, int], sums: Sums) -> list[Leg]:
    """The prompt of a request and its later tokens, those of which a refill may be cheaper apart.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    lengths : (int, int)
        Input and output tokens.
    sums : pair of lists
    """
    i, o = lengths
    chunk = piece.alpha + instance.p0
    prompt = piece.beta * i + instance.p1 * (i if instance.spread else i * i)
    root = pace_root(prompt, chunk)
    legs = [Leg(chunk, math.isqrt(chunk * prompt), prompt, root, root + 1)]
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
        if a <= b:
            low, high = (pace_root(w, e) for e, w in (token_of(instance, piece, s, dearer) for s in (a, b)))
            fixed, roots, works = (y - x for x, y in zip(sums[dearer][a - 1], sums[dearer][b], strict=True))
            legs.append(Leg(fixed, roots, works, low, high + 1))
    return legs


def largest_offsets(legs: list[Leg], q: int, root: int) -> list[int]:
    """The largest (q - r) x of each leg, rounded up.

    Parameters
    ----------
    legs : list of Leg
    q, root : int
    """
    return [-((root - q) * (leg.high if q > root else leg.low) >> PACE_BITS) for leg in legs]


def cheapest_end(
    instance: Instance,
    legs: list[Leg],
    pairs: list[tuple[int, int]],
    cells: list[tuple[int, int]],
    begin: int,
) -> int:
    """Least latency and pay of a request over all ends, in units of 2**-24 ticks.

    Parameters
    ----------
    instance : Instance
    legs : list of Leg
    pairs : list of (int, int)
        k and q of each member.
    cells : list of (int, int)
        End and r.
    begin : int
        Arrival in ticks, rounded down.
    """
    least, at = None, begin
    rewards = [all_rewards(legs, k, q) for k, q in pairs]
    #: Least costs of those that are in the first leg, in one of the first two, ...
    costs = [[0] * len(legs) for _ in pairs]
    for end, root in cells[bisect_right(cells, begin, key=lambda cell: cell[0]) :]:
        value = at - begin << 2 * PACE_BITS
        if least is not None and value >= least:
            break
        instance.work.spend(STAGE_STEPS * (1 + len(pairs) * len(legs)))
        offsets = {q: largest_offsets(legs, q, root) for q in {q for _, q in pairs}}
        for (k, q), reward, cost in zip(pairs, rewards, costs, strict=True):
            before = cost[-1]
            pass_time(cost, end - at, k, offsets[q])
            value = max(value, reward + min(before, cost[-1]))
        least, at = value if least is None else min(least, value), end
    value = at - begin << 2 * PACE_BITS
    for (k, q), reward, cost in zip(pairs, rewards, costs, strict=True):
        if k + max(largest_offsets(legs, q, 0)) <= 1 << PACE_BITS:
            value = max(value, reward + cost[-1])
    return value if least is None else min(least, value)


def all_rewards(legs: list[Leg], k: int, q: int) -> int:
    """Sum of e (k + q x)**2 over all that a request does.

    Parameters
    ----------
    legs : list of Leg
    k, q : int
    """
    return sum(k * k * leg.fixed + 2 * k * q * leg.roots + q * q * leg.works for leg in legs)


def pass_time(cost: list[int], span: int, k: int, offsets: list[int]) -> None:
    """Let so many ticks go by in each leg, or in a later one.

    Parameters
    ----------
    cost : list of int
        Least costs of those in one of the first legs; changed in place.
    span : int
    k : int
    offsets : list of int
        The largest (q - r) x of each leg.
    """
    spent = (
        so_far + span * ((1 << 2 * PACE_BITS) - max(0, k + offset) ** 2)
        for so_far, offset in zip(cost, offsets, strict=True)
    )
    cost[:] = accumulate(spent, min)
