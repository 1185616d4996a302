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
from infermax_opt.infermax.checker.pace_legs import PACE_BITS, Leg, all_legs, leg_sums
from infermax_opt.infermax.checker.pieces import Piece

#: Steps of checking a stage of a member in a cell.
STAGE_STEPS = 10
#: Most parts of later tokens.
MAX_PARTS = 1_000


class Member(NamedTuple):
    """K of each leg of a request, and q."""

    k: list[int]
    q: int


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
    priced = "bases" in evidence
    cells, members = pace_cells(evidence["cells"], priced), pace_members(evidence["members"])
    own, parts = (
        evidence["own"].integers(len(instance.kinds)),
        evidence["parts"].whole(1, MAX_PARTS) if priced else 1,
    )
    require(min(own) >= 0, "own: a number is below 0")
    longest = max(i + o for i, o, _ in instance.kinds)
    instance.work.spend(2 * SIZE_STEPS * longest + (REQUEST_STEPS + SIZE_STEPS * parts) * len(own))
    sums = (leg_sums(instance, piece, longest, False), leg_sums(instance, piece, longest, True))
    spans = (b - a for a, b in pairwise([0, *(end for end, _, _ in cells)]))
    total = -sum(span * (root**2 + rent) for span, (_, root, rent) in zip(spans, cells, strict=True))
    bases = list(evidence["bases"].items(len(own))) if priced else [None] * len(own)
    for (key, count), q, given in zip(instance.kinds.items(), own, bases, strict=True):
        legs = all_legs(instance, piece, (key[0], key[1]), sums, parts)
        base = [1 << PACE_BITS] * len(legs) if given is None else given.integers(len(legs))
        require(min(base) >= 0, "bases: a number is below 0")
        pairs = [
            Member([k * some >> PACE_BITS for some in base], q * more >> PACE_BITS) for k, more in members
        ]
        date = key[2] * instance.scale
        begin, until = math.floor(date), math.ceil(date)
        least = cheapest_end(instance, legs, pairs, cells, begin)
        total += count * (least - (until - begin << 2 * PACE_BITS))
    return Fraction(total, (instance.scale << 2 * PACE_BITS) * sum(instance.kinds.values()))


def pace_cells(given: Field, priced: bool) -> list[tuple[int, int, int]]:
    """Ends of cells of time, and r and v in each.

    Parameters
    ----------
    given : Field
    priced : bool
        Whether v is there; else it is 0.
    """
    cells = [cell.integers(3) if priced else [*cell.integers(2), 0] for cell in given.items()]
    require(
        all(a < b for a, b in pairwise([0, *(cell[0] for cell in cells)])), "cells: their ends do not rise"
    )
    require(all(root >= 0 for _, root, _ in cells), "cells: a root is below 0")
    require(all(rent >= 0 for _, _, rent in cells), "cells: a price of KV is below 0")
    return [(end, root, rent) for end, root, rent in cells]


def pace_members(given: Field) -> list[tuple[int, int]]:
    """What each member multiplies a request's own numbers k and q with."""
    members = [(k, more) for k, more in (pair.integers(2) for pair in given.items())]
    require(all(min(pair) >= 0 for pair in members), "members: a number is below 0")
    return members


def largest_offset(leg: Leg, q: int, root: int) -> int:
    """The largest (q - r) x of a leg, rounded up.

    Parameters
    ----------
    leg : Leg
    q, root : int
    """
    return -((root - q) * (leg.high if q > root else leg.low) >> PACE_BITS)


def enough(instance: Instance, leg: Leg, numbers: tuple[int, int], root: int, rent: int) -> int:
    """L of a leg, rounded up: what a request may lose there of its rewards in a moment.

    Parameters
    ----------
    instance : Instance
    leg : Leg
    numbers : (int, int)
        k of the leg, and q.
    root, rent : int
    """
    k, q = numbers
    psi = max(0, k + largest_offset(leg, q, root)) ** 2
    room = instance.capacity // instance.block * instance.block
    less = max(0, psi - rent * leg.held // room)
    most = k - (-q * leg.high >> PACE_BITS)
    short = leg.again > 0 and (root**2 + less) * leg.again < leg.each * most**2
    return psi if short else less


def cheapest_end(
    instance: Instance,
    legs: list[Leg],
    pairs: list[Member],
    cells: list[tuple[int, int, int]],
    begin: int,
) -> int:
    """Least latency and pay of a request over all ends, in units of 2**-24 ticks.

    Parameters
    ----------
    instance : Instance
    legs : list of Leg
    pairs : list of Member
    cells : list of (int, int, int)
        End, r and v.
    begin : int
        Arrival in ticks, rounded down.
    """
    least, at = None, begin
    rewards = [all_rewards(legs, some) for some in pairs]
    #: Least costs of those that are in the first leg, in one of the first two, ...
    costs = [[0] * len(legs) for _ in pairs]
    for end, root, rent in cells[bisect_right(cells, begin, key=lambda cell: cell[0]) :]:
        value = at - begin << 2 * PACE_BITS
        if least is not None and value >= least:
            break
        instance.work.spend(STAGE_STEPS * (1 + len(pairs) * len(legs)))
        for (k, q), reward, cost in zip(pairs, rewards, costs, strict=True):
            before = cost[-1]
            lost = [enough(instance, leg, (own, q), root, rent) for leg, own in zip(legs, k, strict=True)]
            pass_time(cost, end - at, lost)
            value = max(value, reward + min(before, cost[-1]))
        least, at = value if least is None else min(least, value), end
    value = at - begin << 2 * PACE_BITS
    for (k, q), reward, cost in zip(pairs, rewards, costs, strict=True):
        drifts = (own + largest_offset(leg, q, 0) for leg, own in zip(legs, k, strict=True))
        if max(drifts) <= 1 << PACE_BITS:
            value = max(value, reward + cost[-1])
    return value if least is None else min(least, value)


def all_rewards(legs: list[Leg], member: Member) -> int:
    """Sum of e (k + q x)**2 over all that a request does.

    Parameters
    ----------
    legs : list of Leg
    member : Member
    """
    q = member.q
    return sum(
        k * k * leg.fixed + 2 * k * q * leg.roots + q * q * leg.works
        for leg, k in zip(legs, member.k, strict=True)
    )


def pass_time(cost: list[int], span: int, lost: list[int]) -> None:
    """Let so many ticks go by in each leg, or in a later one.

    Parameters
    ----------
    cost : list of int
        Least costs of those in one of the first legs; changed in place.
    span : int
    lost : list of int
        L of each leg.
    """
    spent = (so_far + span * ((1 << 2 * PACE_BITS) - some) for so_far, some in zip(cost, lost, strict=True))
    cost[:] = accumulate(spent, min)
