"""Proof: backwards, by cheapest paths of memory from the end."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.memories import Memories, Part
from infermax_opt.infermax.checker.pieces import FAR, Piece
from infermax_opt.infermax.checker.relaxed_paths import Ending, Leaving, Relaxed
from infermax_opt.infermax.checker.whole_prompts import MAX_UNIT, none_below

#: Steps for a state that a part leaves.
LEFT_STEPS = 1
#: Rounds that prices may have, at most.
MAX_ROUNDS = 10**6


def backwards(instance: Instance, evidence: Field, piece: Piece) -> Fraction:
    """Rounds that each request ends in, by the cheapest path of memory backwards in time.

    A path goes from one multiset of holds to the next (`infermax_opt.infermax.bounds.backwards`).

    Parameters
    ----------
    instance : Instance
    evidence : Field
        What the certificate holds for this proof.
    piece : Piece
        Affine piece of the batch time.
    """
    require_rounds(instance, piece)
    relaxed, unit = relaxed_by(instance, evidence, piece), evidence["unit"].whole(1)
    instance.work.spend(path_steps(relaxed))
    total = sum(map(operator.mul, relaxed.prices, instance.kinds.values()))
    if "limit" in evidence:
        require(unit <= MAX_UNIT, f"unit: is more than {MAX_UNIT}")
        limit, near = evidence["limit"].whole(0), evidence["near"].whole(0)
        none_below(instance, relaxed, limit - total, near)
        total = limit
    else:
        total += cheapest_path(relaxed)
    return instance.mean_latency(Fraction(total * piece.alpha, unit * instance.scale))


def relaxed_by(instance: Instance, evidence: Field, piece: Piece) -> Relaxed:
    """What paths are made of.

    Parameters
    ----------
    instance : Instance
    evidence : Field
    piece : Piece
    """
    unit, leave = evidence["unit"].whole(1), holds_to_leave_at(instance, evidence)
    linked = "exits" in evidence
    prices = priced(evidence["prices"], len(instance.kinds), unit)
    exits = [priced(row, None, unit) for row in evidence["exits"].items(len(leave) - 1)] if linked else []
    groups, parts = list[int](), list[Part]()
    for i, o, _ in instance.kinds:
        groups.append(of := class_of(i, leave))
        parts.append(Part(i + o - 1, -1 if i + o - 1 <= leave[of] else 0 if linked else of))
    memories = Memories(instance, leave[:1] if linked else leave, parts)
    to = {part: memories.grown(part) for part in dict.fromkeys(parts)}
    endings = list[Ending]()
    for part, of, price, kind in zip(parts, groups, prices, instance.kinds, strict=True):
        back = exits[of - 1] if linked and of > 0 and part.group >= 0 else []
        costs = costs_of(instance, kind, price, back, leave[of], piece, unit)
        endings.append(Ending(to[part], instance.kinds[kind], costs))
    without = [k for k, part in enumerate(parts) if part.group < 0]
    leaving = leavings(memories, leave, exits)
    return Relaxed(endings, leaving, memories.shrunk(), without, prices, groups, leave)


def holds_to_leave_at(instance: Instance, evidence: Field) -> list[int]:
    """Of each class, rising."""
    leave = evidence["leave"].integers()
    require(leave == sorted(set(leave)) and min(leave, default=-1) >= 0, "leave: does not rise from 0")
    require(max(i for i, _, _ in instance.kinds) - 1 <= leave[-1], "leave: a prompt is longer")
    return leave


def costs_of(
    instance: Instance, kind: tuple[int, int, Fraction], price: int, back: list[int], leave: int,
    piece: Piece, unit: int,
) -> list[int]:  # fmt: skip
    """What it costs that a request of some kind ends, by rounds (`ending_costs`).

    Parameters
    ----------
    instance : Instance
    kind : tuple[int, int, Fraction]
        I, O and arrival.
    price : int
        Of ending.
    back : list of int
        Prices of leaving that are paid back.
    leave : int
        Hold at which it leaves.
    piece : Piece
    unit : int
        Units of a round.
    """
    i, o, arrival = kind
    earliest = int(arrival * instance.scale / piece.alpha) + o
    return ending_costs(instance, price, back, i + o - 2 - leave, (max(earliest, 1), unit))


def priced(field: Field, length: int | None, unit: int) -> list[int]:
    """Prices, in units.

    Parameters
    ----------
    field : Field
    length : int, optional
        How many there must be.
    unit : int
        Units of a round.
    """
    prices = field.integers(length)
    worth = range(MAX_ROUNDS * unit + 1)
    require(all(price in worth for price in prices), f"{field.path}: out of range")
    return prices


def class_of(i: int, leave: list[int]) -> int:
    """The first hold to leave at that is enough for a prompt."""
    return next(k for k, hold in enumerate(leave) if hold >= i - 1)


def leavings(memories: Memories, leave: list[int], exits: list[list[int]]) -> list[Leaving]:
    """Which parts leave for which prices.

    Parameters
    ----------
    memories : Memories
    leave : list of int
        Holds at which requests leave.
    exits : list of list of int
        What that costs in round 1, 2, ..., for each hold but the first.
    """
    pairs = zip(leave[1:], exits, strict=False)
    return [Leaving(*memories.left(Part(d + 1, 0)), costs) for d, costs in pairs]


def ending_costs(
    instance: Instance, price: int, back: list[int], lag: int, rounds: tuple[int, int]
) -> list[int]:
    """What it costs to end in each round, from 0 on; 0 where that is no gain, or too soon.

    Parameters
    ----------
    instance : Instance
    price : int
        Of ending.
    back : list of int
        Prices of leaving, by rounds from 1 on, that are paid back.
    lag : int
        Rounds from leaving to the end.
    rounds : tuple[int, int]
        First round in which it may end, at least 1, and units of a round.
    """
    earliest, unit = rounds
    last = max((price - 1) // unit, (price + max(back) - 1) // unit if back else 0)
    instance.work.spend(4 * last)
    costs = [0] * (last + 1)
    for time in range(earliest, last + 1):
        at = time - lag - 1
        costs[time] = min(0, time * unit - price - (back[at] if 0 <= at < len(back) else 0))
    while costs and costs[-1] == 0:
        costs.pop()
    return costs


def require_rounds(instance: Instance, piece: Piece) -> None:
    """Batches take alpha, only KV limits them, and nobody is evicted."""
    count = sum(instance.kinds.values())
    costs = [piece.beta, instance.d0, instance.d1, instance.p0, instance.p1]
    require(piece.alpha > 0 and len(instance.pieces) == 1 and not any(costs), "cost: batches are no rounds")
    kept = instance.hybrid and not instance.chunked and not instance.preemption
    require(kept, "policy: requests may stop, or must wait")
    free = instance.budget >= instance.capacity and (instance.running or count) >= count
    require(free and instance.block == 1, "system: more than KV limits batches")
    whole = all((a * instance.scale / piece.alpha).denominator == 1 for *_, a in instance.kinds)
    require(whole, "requests: an arrival is within a round")


def path_steps(relaxed: Relaxed) -> int:
    """Steps of going through all rounds, so that too much of it is rejected before it begins."""
    endings, leaving, shrunk = relaxed[:3]
    rounds = max(0, max(len(ending.costs) for ending in endings) - 1)
    steps = rounds * (2 * len(endings) + 10 + 3 * len(shrunk) // 5)
    steps += sum(rounds * (10 + LEFT_STEPS * len(states)) for states, _, _ in leaving)
    for to, times, costs in endings:
        steps += sum(cost < 0 for cost in costs) * times * (10 + 3 * len(to) // 5)
    return steps


def cheapest_path(relaxed: Relaxed) -> int:
    """Units of the cheapest path; a request that ends in a round costs what it is late for its prices."""
    endings, leaving, shrunk, without = relaxed[:4]
    values: list[Any] = [0] + [FAR] * (len(shrunk) - 1)
    rounds = max(len(ending.costs) for ending in endings) - 1
    # Those without a part come last: they need the total of all others.
    endings = [endings[k] for k in sorted(range(len(endings)), key=lambda k: k in without)]
    for time in range(rounds, 0, -1):
        for to, times, costs in endings:
            if time < len(costs) and costs[time] < 0:
                end(values, to, times, costs[time])
        for some in leaving:
            go(values, some.states, some.left, some.price(time))
        after: list[Any] = [FAR] * len(shrunk)
        for number, value in zip(shrunk, values, strict=True):
            if value < after[number]:
                after[number] = value
        values = after
    return int(min(values))


def end(values: list[Any], to: list[int], times: int, cost: int) -> None:
    """Let up to so many equal requests end, each for a cost.

    Parameters
    ----------
    values : list
        Costs of the states, which are changed.
    to : list of int
        The states with one of them more; the first states have room.
    times, cost : int
        How many, and what each costs.
    """
    for _ in range(times):
        for number, value in zip(to, values[: len(to)], strict=True):
            if value + cost < values[number]:
                values[number] = value + cost


def go(values: list[Any], states: list[int], left: list[int], price: int) -> None:
    """Let parts leave for a price.

    Parameters
    ----------
    values : list
        Costs of the states, which are changed.
    states, left : list of int
        States with such a part, by falling totals, and the same without it.
    price : int
        Of one.
    """
    for state, number in zip(states, left, strict=True):
        if values[state] + price < values[number]:
            values[number] = values[state] + price
