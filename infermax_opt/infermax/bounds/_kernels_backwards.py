"""Cheapest paths of memory backwards in time; see `infermax_opt.infermax.bounds.backwards`.

The functions run as plain Python or compiled.  States are sorted by their total, so those to which a part
can be added come first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["FAR", "Kinds", "Links", "cheapest", "following", "nth", "retrace", "without"]

#: Cost of a state that is not reached; all costs are less in absolute value.
FAR = 2**60


class Links(NamedTuple):
    """Where states lead to.

    `shrunk`: the state a round before; `grown`: with a part of each sort, the sorts one after the other from
    `offset` on (sorts without a part leave the state as it is); `sort`, `less`: of each part of a state
    its sort, or -1 where no request appears with it or there is no such part, and the state without it.
    `leaving`, `left`, `ends`: where parts may leave for a price, class by class up to `ends`: states with
    such a part, by falling totals, and the same without it; `tally`: of each class how many parts of a state
    may leave, and how many have a token less than these.
    """

    shrunk: Any
    grown: Any
    offset: Any
    sort: Any
    less: Any
    leaving: Any
    left: Any
    ends: Any
    tally: Any


class Kinds(NamedTuple):
    """Equal requests: their sort (those without a part come last), number, and what ending in a round costs.

    `cost`: a row for each kind, a column for each round; nobody ends where it is no less than 0.
    """

    sort: Any
    count: Any
    cost: Any


def cheapest(links: Links, kinds: Kinds, exits: Any, rounds: Any, before: Any, source: Any) -> Any:
    """Costs of the states before the first round.

    `exits`: row c by rounds, what it costs that a part leaves; `rounds`: the last one in which anything may
    appear; `before`: row r is filled with costs when round r begins, backwards; `source`: with the states
    after the appearances of round r that lead to each.  Long on purpose: loops over states cost least here.
    """
    states = len(links.shrunk)
    values = np.full(states, FAR, np.int64)
    values[0] = 0
    origin = np.arange(states).astype(np.int32)
    for r in range(rounds, 0, -1):
        before[r] = values
        for k in range(len(kinds.sort)):
            cost = kinds.cost[k, r]
            if cost >= 0:
                continue
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            for _ in range(kinds.count[k]):
                for a in range(high - low - 1, -1, -1):
                    value, b = values[a] + cost, links.grown[low + a]
                    if value < values[b]:
                        values[b] = value
        for c in range(len(exits)):
            if c == 0:
                for a in range(states):
                    origin[a] = a
            price = exits[c, r]
            for j in range(links.ends[c], links.ends[c + 1]):
                a, b = links.leaving[j], links.left[j]
                if values[a] + price < values[b]:
                    values[b] = values[a] + price
                    origin[b] = origin[a]
        after = np.full(states, FAR, np.int64)
        for a in range(states):
            b = links.shrunk[a]
            if values[a] <= after[b]:
                after[b] = values[a]
                source[r, b] = origin[a]
        values = after
    return values


def nth(kinds: Kinds, sort: Any, rank: Any, r: Any) -> Any:
    """Kind of the `rank`-th cheapest request of a sort to end in round r; -1 if there is none."""
    last, at = -FAR, -1
    while True:
        best = -1
        for k in range(len(kinds.sort)):
            cost = kinds.cost[k, r]
            if kinds.sort[k] != sort or cost >= 0 or cost < last or (cost == last and k <= at):
                continue
            if best < 0 or cost < kinds.cost[best, r]:
                best = k
        if best < 0 or rank < kinds.count[best]:
            return best
        rank -= kinds.count[best]
        last, at = kinds.cost[best, r], best


def without(links: Links, kinds: Kinds, r: Any, state: Any, mask: Any, seen: Any) -> Any:
    """The state without the parts of a mask, and the least cost of their appearances in round r.

    `seen`: counts these appearances; if it is empty, nothing is counted.
    """
    paid, last, rank = 0, -1, 0
    for j in range(links.sort.shape[1] - 1, -1, -1):
        if mask >> j & 1 == 1:
            sort = links.sort[state, j]
            rank = rank + 1 if sort == last else 0
            last = sort
            k = nth(kinds, sort, rank, r) if sort >= 0 else -1
            if k < 0:
                return -1, 0
            paid += kinds.cost[k, r]
            if len(seen) > 0:
                seen[k, r] += 1
    for j in range(links.sort.shape[1] - 1, -1, -1):
        if mask >> j & 1 == 1:
            state = links.less[state, j]
    return state, paid


def following(mask: Any) -> Any:
    """The next larger mask with as many bits."""
    lowest = mask & -mask
    carried = mask + lowest
    return carried | ((mask ^ carried) // lowest >> 2)


def retrace(
    links: Links, kinds: Kinds, exits: Any, rounds: Any, before: Any, source: Any, values: Any, left: Any
) -> Any:
    """How often each kind appears in each round of the cheapest path; `left`: how many parts leave.

    Long on purpose, as all of it is about one round of a path.
    """
    seen = np.zeros_like(kinds.cost)
    state = np.argmin(values)
    value = values[state]
    for r in range(1, rounds + 1):
        next_state, state = state, source[r, state]
        for c in range(len(exits)):
            left[c, r] = links.tally[c, 0, state] - links.tally[c, 1, next_state]
            value -= left[c, r] * exits[c, r]
        for k in range(len(kinds.sort)):  # requests without a part: all that fit
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            cost = kinds.cost[k, r]
            if cost < 0 and state < high - low and links.grown[low] == 0:
                value -= kinds.count[k] * cost
                seen[k, r] += kinds.count[k]
        width = 0
        while width < links.less.shape[1] and links.less[state, width] >= 0:
            width += 1
        found = False
        for size in range(width + 1):  # which parts are new: what explains the cost
            mask = 2**size - 1
            while mask < 2**width:
                rest, paid = without(links, kinds, r, state, mask, seen[:0])
                if rest >= 0 and before[r, rest] + paid == value:
                    without(links, kinds, r, state, mask, seen)
                    state, value = rest, before[r, rest]
                    found = True
                    break
                if size == 0:
                    break
                mask = following(mask)
            if found:
                break
    return seen
