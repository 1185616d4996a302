"""Checker of lower bounds on the price of a mix of machines: standard library, exact numbers.

    python -m infermax_opt.fleet.mix_checker CERTIFICATE [QUESTION]

A certificate holds the requests, and of each type its machine, its price, and windows with weights as those
of `infermax_opt.fleet.checker`; and cuts, a weight of each type.  The proof stands in
`infermax_opt.fleet.bounds.mix`.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.fleet.checker import (
    NEVER,
    Question,
    main,
    number,
    paid_by,
    question_of,
    require,
    unit_of,
    well_formed,
    whole,
)
from infermax_opt.fleet.hours_checker import joint_hash

__all__ = ["SCHEMA", "Cut", "Cuts", "charges", "cheapest", "check", "cut_of"]

SCHEMA = "infermax-opt/fleet-mix-bound/1"
#: Mixes that are looked at before the bound is taken from those that are left.
MOST_MIXES = 200_000


class Cut(NamedTuple):
    """Sum of `weights` times the machines of each type is at least `least`."""

    weights: tuple[int, ...]
    least: int


class Cuts(NamedTuple):
    """What a certificate holds, charged: see `charges`."""

    prices: tuple[Fraction, ...]
    cuts: list[Cut]


def charges(kind: Any, question: Question) -> tuple[int, list[int | None]]:
    """What a machine of a type has room for, and what each request pays there; None if never in time.

    Parameters
    ----------
    kind : mapping
        A type of a certificate.
    question : Question
    """
    machine, windows, paid = paid_by(kind, question)
    return unit_of(machine) * sum((end - begin) * weight for begin, end, weight, *_ in windows), paid


def cut_of(
    weights: Sequence[int], rooms: Sequence[int], paid: Sequence[Sequence[int | None]], must: int
) -> Cut | None:
    """The cut of these weights; None if fewer requests than must can ever be in time.

    Parameters
    ----------
    weights, rooms : sequence of int
        Of each type.
    paid : sequence of sequence of int or None
        Of each type and request.
    must : int
        Requests that have to be good.
    """
    least = []
    for of_types in zip(*paid, strict=True):
        known = [w * p for w, p in zip(weights, of_types, strict=True) if p is not None]
        if known:
            least.append(min(known))
    if len(least) < must:
        return None
    return Cut(tuple(w * room for w, room in zip(weights, rooms, strict=True)), sum(sorted(least)[:must]))


def cheapest(known: Cuts) -> tuple[Fraction, tuple[int, ...] | None]:
    """Least price of whole numbers of machines that keep all cuts, and one such mix.

    Mixes are taken in the order of what they cost with what cuts ask for beyond them, so the first that
    keeps all cuts is the cheapest.  Where that takes too long, the bound is that of the next mix.
    """
    prices = known.prices
    # The least price at which each cut is paid.
    some = [
        (cut, min((price / w for price, w in zip(prices, cut.weights, strict=True) if w), default=None))
        for cut in known.cuts
    ]
    require(all(rate is not None or not cut.least for cut, rate in some), "cuts: one has no weights")

    def beyond(mix: tuple[int, ...]) -> Fraction:
        most = Fraction(0)
        for (weights, least), rate in some:
            lacking = least - sum(w * n for w, n in zip(weights, mix, strict=True))
            if lacking > 0 and rate is not None:
                most = max(most, lacking * rate)
        return most

    empty = (0,) * len(prices)
    waiting = [(beyond(empty), 0, empty)]
    for _ in range(MOST_MIXES):
        value, last, mix = heapq.heappop(waiting)
        if not beyond(mix):
            return value, mix
        for kind in range(last, len(prices)):
            more = (*mix[:kind], mix[kind] + 1, *mix[kind + 1 :])
            cost = sum((price * n for price, n in zip(prices, more, strict=True)), Fraction(0))
            heapq.heappush(waiting, (cost + beyond(more), kind, more))
    return waiting[0][0], None


def check(certificate: Any) -> Fraction | str:
    """The price of an hour that a certificate proves, or `NEVER`.

    Raises
    ------
    Rejected
        If it is malformed.
    """
    return well_formed(_checked, certificate)


def _checked(certificate: Any) -> Fraction | str:
    require(certificate["schema"] == SCHEMA, "schema: is another one")
    kinds, asked = certificate["types"], question_of(certificate)
    prices = tuple(number(kind["price"], "price") for kind in kinds)
    require(all(price > 0 for price in prices), "price: is not above 0")
    known = joint_hash([*(kind["question"] for kind in kinds), *map(str, prices)])
    require(certificate["question"] == known, f"question: that of types and prices is {known}")
    charged = [charges(kind, asked) for kind in kinds]
    rooms, paid = [room for room, _ in charged], [some for _, some in charged]
    found = [Cut((1,) * len(kinds), min(1, asked.must))]
    for weights in [[0] * len(kinds), *certificate["cuts"]]:
        require(len(weights) == len(kinds), "cuts: not a weight for each type")
        cut = cut_of([whole(weight, 0, "cut") for weight in weights], rooms, paid, asked.must)
        if cut is None:
            return NEVER
        found.append(cut)
    return cheapest(Cuts(prices, found))[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], check, "price"))
