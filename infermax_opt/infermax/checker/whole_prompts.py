"""Proof: backwards, by paths whose requests leave memory at their own prompts, below a limit."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import NamedTuple

from infermax_opt.checking.errors import require
from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.relaxed_paths import Ending, Leaving, Relaxed, costs_ahead, ends

#: Steps for a path that is looked at, and for each kind of request that it has room for.
WAY_STEPS, TRIED_STEPS = 25, 1
#: Units of a round at most, so that costs to go are below 2^63.
MAX_UNIT = 2**10


class Kind(NamedTuple):
    """A kind of requests: its part, the bits that count it, those that are kept when it ends; its ending."""

    part: int
    peak: int
    shift: int
    times: int
    keep: int
    ending: Ending


class Way(NamedTuple):
    """The cheapest one to some memory: parts, their total, who is remembered, state, cost, kinds tried."""

    parts: tuple[int, ...]
    total: int
    remembered: int
    state: int
    cost: int
    tried: int


def none_below(instance: Instance, relaxed: Relaxed, limit: int, near: int) -> None:
    """No path of whole prompts costs less than a limit.

    Parameters
    ----------
    instance : Instance
    relaxed : Relaxed
        By which costs to go are estimated.
    limit : int
        Of the cost of a path, in units.
    near : int
        How many kinds below and above it, by their prices, are remembered when one ends.
    """
    ahead, kinds = costs_ahead(relaxed), remembering(instance, relaxed, near)
    base, out = max(i for i, _, _ in instance.kinds), parts_out(instance, relaxed)
    gone = {i * base + i - 1 for i, _, _ in instance.kinds}
    paths = [Way((), 0, 0, 0, 0, 0)] if ahead[-1][0] < limit else []
    for time in range(len(ahead) - 1, 0, -1):
        some = [kind for kind in kinds if ends(kind.ending, time)]
        ended(instance, paths, some, time, (ahead[time], limit))
        cheapest = dict[tuple[tuple[int, ...], int], Way]()
        for way in paths:
            state, cost = left(way, out, time)
            state = relaxed.shrunk[state]
            if cost + ahead[time - 1][state] < limit:
                parts = tuple([part - base for part in way.parts if part not in gone])
                known = cheapest.get((parts, way.remembered))
                if known is None or cost < known.cost:
                    total = sum([part // base for part in parts])
                    cheapest[parts, way.remembered] = Way(parts, total, way.remembered, state, cost, 0)
        paths = list(cheapest.values())
    require(not paths, "limit: a path costs less")


def parts_out(instance: Instance, relaxed: Relaxed) -> dict[int, tuple[dict[int, int], Leaving]]:
    """Of each part that leaves states for a price, the states without it, by those with it.

    Parameters
    ----------
    instance : Instance
    relaxed : Relaxed
    """
    base = max(i for i, _, _ in instance.kinds)
    without = [dict(zip(some.states, some.left, strict=True)) for some in relaxed.leaving]
    return {
        (relaxed.leave[group] + 1) * base + i - 1: (without[group - 1], relaxed.leaving[group - 1])
        for (i, _, _), group in zip(instance.kinds, relaxed.groups, strict=True)
        if relaxed.leaving and group > 0
    }


def left(way: Way, out: dict[int, tuple[dict[int, int], Leaving]], time: int) -> tuple[int, int]:
    """State and cost of a path when parts have left in a round.

    Parameters
    ----------
    way : Way
    out : dict
        Of `parts_out`.
    time : int
        The round.
    """
    state, cost = way.state, way.cost
    for part in way.parts:
        if part in out:
            without, leaving = out[part]
            cost, state = cost + leaving.price(time), without[state]
    return state, cost


def remembering(instance: Instance, relaxed: Relaxed, near: int) -> list[Kind]:
    """The kinds, with what is remembered when one of them ends.

    Parameters
    ----------
    instance : Instance
    relaxed : Relaxed
    near : int
        As in `none_below`.
    """
    base, prices = max(i for i, _, _ in instance.kinds), relaxed.prices
    masks, shift = list[tuple[int, int]](), 0
    for times in instance.kinds.values():
        masks.append((shift, ((1 << times) - 1) << shift))
        shift += times
    by_price = sorted(range(len(prices)), key=lambda k: (prices[k], k))
    kinds: list[Kind | None] = [None] * len(prices)
    named = list(instance.kinds.items())
    for place, k in enumerate(by_price):
        (i, o, _), times = named[k]
        keep = sum(masks[j][1] for j in by_price[max(0, place - near) : place + near + 1])
        peak = i + o - 1
        kinds[k] = Kind(peak * base + i - 1, peak, masks[k][0], times, keep, relaxed.endings[k])
    return [kind for kind in kinds if kind is not None]


def ended(
    instance: Instance, paths: list[Way], kinds: list[Kind], time: int, bound: tuple[array[int], int]
) -> None:
    """Add the paths in which requests end in a round.

    Parameters
    ----------
    instance : Instance
    paths : list of Way
        Which grows.
    kinds : list of Kind
        Who may end.
    time : int
        The round.
    bound : tuple[array, int]
        Costs to go from the states, and the limit.
    """
    ahead, limit = bound
    capacity = instance.capacity
    some = [
        (j, 1 << kind.shift + kind.times - 1, kind.peak, kind.ending.grown, kind.ending.costs[time], kind)
        for j, kind in enumerate(kinds)
    ]
    # Memory is nearly full in most, so that few of the kinds have to be looked at.
    fitting = dict[int, list[tuple[int, int, int, list[int], int, Kind]]]()
    for parts, total, remembered, state, cost, tried in paths:
        room = capacity - total
        if room not in fitting:
            instance.work.spend(TRIED_STEPS * len(some))
            fitting[room] = [one for one in some if one[2] <= room]
        fits = fitting[room]
        fits = fits[bisect_left(fits, (tried,)) :] if tried else fits
        instance.work.spend(WAY_STEPS + TRIED_STEPS * len(fits))
        for j, full, peak, grown, price, kind in fits:
            if remembered & full:
                continue
            number, value = grown[state], cost + price
            if value + ahead[number] >= limit:
                continue
            one_more = ((remembered >> kind.shift & (1 << kind.times) - 1) << 1 | 1) << kind.shift
            more = tuple(sorted((*parts, kind.part)))
            paths.append(Way(more, total + peak, remembered & kind.keep | one_more, number, value, j))
