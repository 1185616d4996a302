"""Proof: backwards, by cheapest paths of memory from the end."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.pieces import FAR, Piece

#: Hold of a request in memory, and the index of the hold at which it leaves.
Part = tuple[int, int]
#: Steps of listing a state.
STATE_STEPS = 60
#: Rounds that prices may have, at most.
MAX_ROUNDS = 10**6


class Ending(NamedTuple):
    """Equal requests that end: where to in each state that has room, how many, from which round on, price."""

    grown: list[int]
    times: int
    earliest: int
    price: int


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
    unit, leave = evidence["unit"].whole(1), evidence["leave"].integers()
    require(leave == sorted(set(leave)) and min(leave, default=-1) >= 0, "leave: does not rise from 0")
    require(max(i for i, _, _ in instance.kinds) - 1 <= leave[-1], "leave: a prompt is longer")
    parts = [(*appearing(i, o, leave), i + o - 1) for i, o, _ in instance.kinds]
    numbers = list_memories(instance, leave, {(hold, of) for hold, of, _ in parts})
    prices = evidence["prices"].integers(len(parts))
    require(all(0 <= price <= MAX_ROUNDS * unit for price in prices), "prices: out of range")
    endings, total = list[tuple[bool, Ending]](), 0
    for (hold, of, peak), price, ((_, o, arrival), times) in zip(
        parts, prices, instance.kinds.items(), strict=True
    ):
        earliest = int(arrival * instance.scale / piece.alpha) + o
        to = grown(instance, numbers, (hold, of), peak)
        endings.append((of < 0, Ending(to, times, earliest, price)))
        total += price * times
    # Those without a part come last: they need the total of all others.
    endings.sort(key=lambda pair: pair[0])
    total += cheapest_path(instance, [some for _, some in endings], shrunk(numbers, leave), unit)
    return instance.mean_latency(Fraction(total * piece.alpha, unit * instance.scale))


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


def appearing(i: int, o: int, leave: list[int]) -> Part:
    """The part with which a request ends; its index is -1 where it has left by then.

    Parameters
    ----------
    i, o : int
        Input and output tokens.
    leave : list of int
        Holds at which requests leave.
    """
    of = next(k for k, hold in enumerate(leave) if hold >= i - 1)
    return (i + o - 1, of) if i + o - 1 > leave[of] else (0, -1)


def list_memories(instance: Instance, leave: list[int], ends: set[Part]) -> dict[tuple[Part, ...], int]:
    """Multisets of parts that fit, by their totals, each with its number.

    Parameters
    ----------
    instance : Instance
    leave : list of int
        Holds at which requests leave.
    ends : set of Part
        With which requests end.
    """
    tops = [max([hold for hold, of in ends if of == k], default=0) for k in range(len(leave))]
    instance.work.spend(sum(max(0, top - low) for low, top in zip(leave, tops, strict=True)))
    parts = sorted((h, k) for k, top in enumerate(tops) for h in range(leave[k] + 1, top + 1))
    found = list[tuple[int, tuple[Part, ...], int]]([(0, (), 0)])
    for total, state, first in found:
        for k in range(first, len(parts)):
            if total + parts[k][0] > instance.capacity:
                break
            instance.work.spend(STATE_STEPS)
            found.append((total + parts[k][0], (*state, parts[k]), k))
    return {state: k for k, (_, state, _) in enumerate(sorted(found))}


def grown(instance: Instance, numbers: dict[tuple[Part, ...], int], part: Part, peak: int) -> list[int]:
    """Numbers of the states with one part more; the first states, as many as have room, have one.

    Parameters
    ----------
    instance : Instance
    numbers : dict
        Numbers of states, by rising totals.
    part : Part
        With index -1 it is not seen, and the state stays.
    peak : int
        What it holds.
    """
    to = list[int]()
    for state, number in numbers.items():
        instance.work.spend(STATE_STEPS)
        if sum(hold for hold, _ in state) + peak > instance.capacity:
            break
        to.append(numbers[tuple(sorted((*state, part)))] if part[1] >= 0 else number)
    return to


def shrunk(numbers: dict[tuple[Part, ...], int], leave: list[int]) -> list[int]:
    """Numbers of the states a round before: parts hold a token less, or have left."""
    return [numbers[tuple([(h - 1, k) for h, k in state if h - 1 > leave[k]])] for state in numbers]


def cheapest_path(instance: Instance, endings: list[Ending], shrunk: list[int], unit: int) -> int:
    """Units of the cheapest path; a request that ends in a round costs what it is late for its price.

    Parameters
    ----------
    instance : Instance
    endings : list of Ending
    shrunk : list of int
        Number of each state a round before.
    unit : int
        Units of a round.
    """
    values: list[Any] = [0] + [FAR] * (len(shrunk) - 1)
    rounds = max(ending.price for ending in endings) // unit
    # All that follows is known to the step, so that too much of it is rejected before it begins.
    instance.work.spend(rounds * (2 * len(endings) + 10 + 3 * len(shrunk) // 5))
    for to, times, earliest, price in endings:
        worth = max(0, (price - 1) // unit - max(earliest, 1) + 1)
        instance.work.spend(worth * times * (10 + 3 * len(to) // 5))
    for time in range(rounds, 0, -1):
        for to, times, earliest, price in endings:
            late = time * unit - price
            if late < 0 and earliest <= time:
                for _ in range(times):
                    for number, value in zip(to, values[: len(to)], strict=True):
                        if value + late < values[number]:
                            values[number] = value + late
        after: list[Any] = [FAR] * len(shrunk)
        for number, value in zip(shrunk, values, strict=True):
            if value < after[number]:
                after[number] = value
        values = after
    return int(min(values))
