"""Proof: pace, by what the batches that a request wants cost it at prices of time."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import REQUEST_STEPS, SIZE_STEPS, Instance
from infermax_opt.infermax.checker.pace_legs import PACE_BITS, Leg, all_legs, leg_sums
from infermax_opt.infermax.checker.pace_ways import (
    Member,
    PaceWay,
    all_rewards,
    largest_offset,
    late_ends,
    pass_time,
)
from infermax_opt.infermax.checker.pieces import Piece

#: Steps of checking a stage of a member in a cell.
STAGE_STEPS = 10
#: Most parts of later tokens.
MAX_PARTS = 1_000
#: A prompt without rewards, whose work pays the least price of its time.
UNPAID = Leg(0, 0, 0, 0, 0, 1, 0, 0)


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
    spot = "spot" in evidence and evidence["spot"].flag()
    followed = followed_members(evidence, len(own), len(members), len(cells))
    spans = (b - a for a, b in pairwise([0, *(end for end, _, _ in cells)]))
    total = -sum(span * (root**2 + rent) for span, (_, root, rent) in zip(spans, cells, strict=True))
    bases = list(evidence["bases"].items(len(own))) if priced else [None] * len(own)
    for (key, count), q, given, chosen in zip(instance.kinds.items(), own, bases, followed, strict=True):
        legs = all_legs(instance, piece, (key[0], key[1]), sums, parts)
        base = [1 << PACE_BITS] * len(legs) if given is None else given.integers(len(legs))
        require(min(base) >= 0, "bases: a number is below 0")
        instance.work.spend(STAGE_STEPS * len(chosen) * len(legs))
        pairs = [
            Member([members[j][0] * k >> PACE_BITS for k in base], q * members[j][1] >> PACE_BITS, until)
            for j, until in chosen
        ]
        date = key[2] * instance.scale
        begin, until = math.floor(date), math.ceil(date)
        ways = at_moments(instance, piece, legs) if spot else (0, legs)
        least = cheapest_end(instance, ways, pairs, cells, begin)
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


def followed_members(evidence: Field, kinds: int, members: int, cells: int) -> list[list[tuple[int, int]]]:
    """Of each kind of requests: members, and at the ends in how many of its cells each counts.

    Parameters
    ----------
    evidence : Field
    kinds, members, cells : int
        How many there are.
    """
    if "followed" not in evidence:
        return [[(j, cells + 1) for j in range(members)]] * kinds
    found = [
        [(j, until) for j, until in (pair.integers(2) for pair in own.items())]
        for own in evidence["followed"].items(kinds)
    ]
    require(all(0 <= j < members for own in found for j, _ in own), "followed: there is no such member")
    return found


def at_moments(instance: Instance, piece: Piece, legs: list[Leg]) -> tuple[int, list[Leg]]:
    """What a prompt pays in batches as long as may be, where time costs 1; and legs without its rewards.

    Parameters
    ----------
    instance : Instance
    piece : Piece
    legs : list of Leg
    """
    work, others = legs[0].works, [UNPAID, *legs[1:]]
    longest = instance.d0 + piece.beta * instance.batch_tokens
    longest += instance.d1 * instance.capacity + instance.p1 * instance.budget
    if not instance.spread or longest == 0:
        return work, others
    return work * (longest + piece.alpha + instance.p0) // longest, others


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
    parts: tuple[int, list[Leg]],
    pairs: list[Member],
    cells: list[tuple[int, int, int]],
    begin: int,
) -> int:
    """Least latency and pay of a request over all ends, in units of 2**-24 ticks.

    Parameters
    ----------
    instance : Instance
    parts : (int, list of Leg)
        Work of the prompt that pays the least price of its time, and legs.
    pairs : list of Member
    cells : list of (int, int, int)
        End, r and v.
    begin : int
        Arrival in ticks, rounded down.
    """
    (prompt, legs), least, at, passed, cheap = parts, None, begin, 0, None
    ways: list[PaceWay] = [(some, all_rewards(legs, some), [0]) for some in pairs]
    for end, root, rent in cells[bisect_right(cells, begin, key=lambda cell: cell[0]) :]:
        value = at - begin << 2 * PACE_BITS
        if least is not None and value >= least:
            break
        ways = [way for way in ways if way[0].until > passed]
        instance.work.spend(STAGE_STEPS * (1 + len(ways) * len(legs)))
        cheap = root**2 if cheap is None else min(cheap, root**2)
        value = max([value, *ends_in_cell(instance, legs, ways, (end - at, root, rent), prompt * cheap)])
        least, at, passed = value if least is None else min(least, value), end, passed + 1
    value = max([at - begin << 2 * PACE_BITS, *late_ends(legs, ways, passed)])
    return value if least is None else min(least, value)


def ends_in_cell(
    instance: Instance, legs: list[Leg], ways: list[PaceWay], cell: tuple[int, int, int], toll: int
) -> Iterator[int]:
    """Least latency and pay by each member of those that end in a cell, which goes by.

    Parameters
    ----------
    instance : Instance
    legs : list of Leg
    ways : list of PaceWay
    cell : (int, int, int)
        Ticks, r and v.
    toll : int
        What the prompt pays.
    """
    span, root, rent = cell
    for some, reward, cost in ways:
        lost = [enough(instance, leg, k, root, rent) for leg, k in some.numbers(legs)]
        yield reward + pass_time(cost, span, lost, toll)
