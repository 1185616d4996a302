"""Proof: attainment, by what requests that keep their limits pay for machine time; and ranks by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from fractions import Fraction
from itertools import pairwise

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.cheapest_way import (
    PRICED_STEPS,
    SHARE_BITS,
    Priced,
    cheapest_way,
)
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.keepers import keeper
from infermax_opt.infermax.checker.pieces import Piece

#: Most groups of later tokens.
MAX_GROUPS = 64
#: Steps of checking a request.
PROMISE_STEPS = 300


def attainment(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Weight of missed service levels, and of what is unserved: who keeps all limits pays for machine time.

    See `infermax_opt.infermax.bounds.attainment`.

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    require(len(instance.promised) > 0, "no request has a limit that counts")
    unit, groups = piece.unit * (1 << SHARE_BITS), evidence["groups"].whole(1, MAX_GROUPS)
    require(unit.denominator == 1, "exponent: is below 0")
    cells = read_priced(instance, evidence["cells"])
    owned = [read_shares(some, len(cells.ends)) for some in evidence["shares"].items(len(instance.promised))]
    require_shares(instance, cells, owned)
    total = 0
    for (key, count), own in zip(instance.promised.items(), owned, strict=True):
        instance.work.spend(PROMISE_STEPS)
        weight = math.floor(key[3][0] * unit)
        kept = keeper(instance, key, piece)
        paid = None if kept is None else cheapest_way(instance, kept, cells, own, groups, piece)
        total += count * (weight if paid is None else min(weight, paid))
    spans = zip([0, *cells.ends], cells.ends, cells.prices, strict=False)
    spent = sum((end - start) * price for start, end, price in spans)
    return whole_weights(instance, (total - (spent << SHARE_BITS)) / unit)


def counted(name: str) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof for one metric that counts requests or their tokens."""

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """What the bound by attainment says of it."""
        return attainment(instance.promising({name: Fraction(1)}), evidence, piece)

    return prove


def ranked(percent: int, place: int) -> Callable[[Instance, Field, Piece], Fraction]:
    """Proof that a rank of a latency is above a limit: more requests miss it than may.

    Parameters
    ----------
    percent : int
        Of the rank; 100 is the largest.
    place : int
        Of the latency among the limits of a request: TTFT, TPOT, end-to-end latency.
    """

    def prove(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
        """The limit, for it is below the rank."""
        limit = evidence["limit"].number()
        missed = attainment(promising_all(instance, place, limit), evidence, piece)
        require(missed > instance.above(percent), "no more requests miss the limit than may")
        return limit

    return prove


def promising_all(instance: Instance, place: int, limit: Fraction) -> Instance:
    """The same, where all are promised a limit and count 1.

    Parameters
    ----------
    instance : Instance
    place : int
        Of the latency among the limits of a request: TTFT, TPOT, end-to-end latency.
    limit : Fraction
        Seconds.
    """
    ttft, tpot, e2e = (limit if k == place else None for k in range(3))
    promised, promise = copy(instance), (Fraction(1), ttft, tpot, e2e)
    promised.promised = {(*key, promise): count for key, count in instance.kinds.items()}
    return promised


def whole_weights(instance: Instance, least: Fraction) -> Fraction:
    """The next sum of weights of requests: a multiple of their greatest common divisor."""
    weights = [promise[0] for *_, promise in instance.promised]
    scale = math.lcm(*(weight.denominator for weight in weights))
    grain = Fraction(math.gcd(*(int(weight * scale) for weight in weights)), scale)
    return max(0, math.ceil(least / grain)) * grain


def read_priced(instance: Instance, given: Field) -> Priced:
    """Cells of time whose ends rise, with prices and shares of 0 or more."""
    rows = [cell.integers(5) for cell in given.items()]
    instance.work.spend(PRICED_STEPS * len(rows))
    ends = [row[0] for row in rows]
    require(all(a < b for a, b in pairwise([0, *ends])), "cells: their ends do not rise")
    require(all(min(row[1:]) >= 0 for row in rows), "cells: a price or share is below 0")
    require(instance.running is not None or not any(row[4] for row in rows), "cells: requests are not scarce")
    return Priced(ends, [row[1] for row in rows], [(row[2], row[3], row[4]) for row in rows])


def read_shares(given: Field, cells: int) -> tuple[int, list[int]]:
    """First cell and shares of a request from there on, 0 or more."""
    first, *shares = given.integers()
    require(0 <= first <= first + len(shares) <= max(first, cells), "shares: of no cell")
    require(min(shares, default=0) >= 0, "shares: one is below 0")
    return first, shares


def require_shares(instance: Instance, cells: Priced, owned: list[tuple[int, list[int]]]) -> None:
    """All shares of a cell are at most 1 together.

    Parameters
    ----------
    instance : Instance
    cells : Priced
    owned : list
        Shares of the requests: the first cell, and shares from there on.
    """
    sums = [sum(some) for some in cells.scarce]
    for (first, shares), count in zip(owned, instance.promised.values(), strict=True):
        instance.work.spend(len(shares))
        for cell, share in enumerate(shares, first):
            sums[cell] += count * share
    require(max(sums, default=0) <= 1 << SHARE_BITS, "shares: more than 1 in a cell")
