"""Proof: least price of a mix of machines.

Of each type its windows, and cuts, a weight of each type; then the cheapest whole numbers of machines that
keep all cuts.  The proof stands in `infermax_opt.fleet.bounds.mix`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_INTEGER
from infermax_opt.checking.work import Work
from infermax_opt.fleet.checker.needs import unit_of
from infermax_opt.fleet.checker.question import Question, joint_hash, quantity, read_question, require_schema
from infermax_opt.fleet.checker.windows import NEVER, paid_by

MIX_SCHEMA = "infermax-opt/fleet-mix-bound/1"
#: Most types of machines.
MOST_TYPES = 100
#: Weights of cuts that are multiplied by machines of a mix before the bound is taken from the mixes left.
MOST_WEIGHED = 5 * 10**6
#: Steps of a cut for each request, and of reading and trying it: once, and for each type.
SORTING, WEIGHING, READING_CUT, READING_WEIGHT = 10, 5, 200, 60


class Cut(NamedTuple):
    """Sum of `weights` times the machines of each type is at least `least`."""

    weights: tuple[int, ...]
    least: int


class Cuts(NamedTuple):
    """What a certificate holds, charged: see `charges`."""

    prices: tuple[Fraction, ...]
    cuts: list[Cut]


def charges(given: Field, question: Question) -> tuple[int, list[int | None]]:
    """What a machine of a type has room for, and what each request pays there; None if never in time.

    Parameters
    ----------
    given : Field
        A type of a certificate.
    question : Question
    """
    machine, windows, paid = paid_by(given, question)
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
    keeps all cuts is the cheapest.  Where that takes too long, the bound is that of the next mix.  Prices
    are whole numbers of a common part, so what is asked for is rounded up to one.
    """
    part = lcm(*(price.denominator for price in known.prices))
    prices = [int(price * part) for price in known.prices]
    # What each cut asks for, and of the type that pays it at the least price: price and weight.
    some = []
    for cut in known.cuts:
        rates = [(Fraction(p, w), p, w) for p, w in zip(prices, cut.weights, strict=True) if w]
        require(bool(rates) or not cut.least, "cuts: one has no weights")
        if rates:
            some.append((cut, *min(rates)[1:]))

    def beyond(mix: tuple[int, ...]) -> int:
        most = 0
        for (weights, least), price, weight in some:
            lacking = least - sum(w * n for w, n in zip(weights, mix, strict=True))
            if lacking > 0:
                most = max(most, -(-lacking * price // weight))
        return most

    empty = (0,) * len(prices)
    waiting = [(beyond(empty), 0, empty)]
    weighed = (len(prices) + 1) * (len(some) + 1) * (len(prices) + 4)
    for _ in range(1 + MOST_WEIGHED // weighed):
        value, last, mix = heapq.heappop(waiting)
        if not beyond(mix):
            return Fraction(value, part), mix
        for kind in range(last, len(prices)):
            more = (*mix[:kind], mix[kind] + 1, *mix[kind + 1 :])
            cost = sum(price * n for price, n in zip(prices, more, strict=True))
            heapq.heappush(waiting, (cost + beyond(more), kind, more))
    return Fraction(waiting[0][0], part), None


def read_price(given: Field) -> Fraction:
    """The price of an hour of a machine."""
    price = quantity(given)
    if not 0 < price < MAX_INTEGER or price.denominator > MAX_INTEGER:
        given.fail(f"{shown(given.value)} is not above 0, or has too many digits")
    return price


def price_of(given: Field, work: Work) -> Fraction | str:
    """The price of an hour that a certificate proves, or `NEVER`."""
    require_schema(given, MIX_SCHEMA)
    kinds = given["types"].items()
    require(0 < len(kinds) <= MOST_TYPES, f"types: not 1 to {MOST_TYPES}")
    asked = read_question(given, work)
    prices = tuple(read_price(kind["price"]) for kind in kinds)
    known = joint_hash([*(kind["question"].text() for kind in kinds), *map(str, prices)])
    require(given["question"].value == known, f"question: that of types and prices is {known}")
    charged_kinds = [charges(kind, asked) for kind in kinds]
    rooms, paid = [room for room, _ in charged_kinds], [some for _, some in charged_kinds]
    found = [Cut((1,) * len(kinds), min(1, asked.must))]
    work.spend((READING_CUT + READING_WEIGHT * len(kinds)) * len(given["cuts"].values()))
    given_cuts = given["cuts"].items()
    work.spend(len(asked.requests) * (SORTING + WEIGHING * len(kinds)) * (len(given_cuts) + 1))
    for weights in [[0] * len(kinds), *map(_cut_weights, given_cuts)]:
        require(len(weights) == len(kinds), "cuts: not a weight for each type")
        cut = cut_of(weights, rooms, paid, asked.must)
        if cut is None:
            return NEVER
        found.append(cut)
    return cheapest(Cuts(prices, found))[0]


def _cut_weights(given: Field) -> list[int]:
    return [weight.whole(0, MAX_INTEGER) for weight in given.items()]
