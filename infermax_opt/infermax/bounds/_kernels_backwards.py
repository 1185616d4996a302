"""Cheapest paths of memory backwards in time; see `infermax_opt.infermax.bounds.backwards`.

The functions run as plain Python or compiled.  States are sorted by their total, so those to which a part
can be added come first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["FAR", "Kinds", "Links", "cheapest", "nth", "retrace", "without"]

#: Cost of a state that is not reached; all costs are less in absolute value.
FAR = 2**60


class Links(NamedTuple):
    """Where states lead to.

    `shrunk`: the state a round before; `grown`: with a part of each sort, the sorts one after the other from
    `offset` on (sorts without a part leave the state as it is); `sort`, `less`: of each part of a state
    its sort, or -1 where no request appears with it or there is no such part, and the state without it.
    """

    shrunk: Any
    grown: Any
    offset: Any
    sort: Any
    less: Any


class Kinds(NamedTuple):
    """Equal requests: their sort (those without a part come last), number, first round to end in, price.

    Within a sort the dearest come first.
    """

    sort: Any
    count: Any
    earliest: Any
    price: Any


def cheapest(links: Links, kinds: Kinds, rounds: Any, unit: Any, before: Any, source: Any) -> Any:
    """Costs of the states before the first round.

    `rounds`: the last one in which anything may appear; `before`: row r is filled with costs when round r
    begins, backwards; `source`: with the states after the appearances of round r that shrink to each.
    """
    states = len(links.shrunk)
    values = np.full(states, FAR, np.int64)
    values[0] = 0
    for r in range(rounds, 0, -1):
        before[r] = values
        for k in range(len(kinds.sort)):
            cost = r * unit - kinds.price[k]
            if cost >= 0 or r < kinds.earliest[k]:
                continue
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            for _ in range(kinds.count[k]):
                for a in range(high - low - 1, -1, -1):
                    value, b = values[a] + cost, links.grown[low + a]
                    if value < values[b]:
                        values[b] = value
        after = np.full(states, FAR, np.int64)
        for a in range(states):
            b = links.shrunk[a]
            if values[a] <= after[b]:
                after[b] = values[a]
                source[r, b] = a
        values = after
    return values


def nth(kinds: Kinds, sort: Any, rank: Any, r: Any, unit: Any) -> Any:
    """Kind of the `rank`-th dearest request of a sort that can end in round r; -1 if there is none."""
    for k in range(len(kinds.sort)):
        if kinds.sort[k] == sort and r >= kinds.earliest[k] and r * unit < kinds.price[k]:
            if rank < kinds.count[k]:
                return k
            rank -= kinds.count[k]
    return -1


def without(links: Links, kinds: Kinds, unit: Any, r: Any, state: Any, mask: Any, seen: Any) -> Any:
    """The state without the parts of a mask, and the least cost of their appearances in round r.

    `seen`: counts these appearances; if it is empty, nothing is counted.
    """
    paid, last, rank = 0, -1, 0
    for j in range(links.sort.shape[1] - 1, -1, -1):
        if mask >> j & 1 == 1:
            sort = links.sort[state, j]
            rank = rank + 1 if sort == last else 0
            last = sort
            k = nth(kinds, sort, rank, r, unit) if sort >= 0 else -1
            if k < 0:
                return -1, 0
            paid += r * unit - kinds.price[k]
            if len(seen) > 0:
                seen[k] += 1
    for j in range(links.sort.shape[1] - 1, -1, -1):
        if mask >> j & 1 == 1:
            state = links.less[state, j]
    return state, paid


def retrace(links: Links, kinds: Kinds, rounds: Any, unit: Any, before: Any, source: Any, values: Any) -> Any:
    """How often each kind appears on the cheapest path."""
    seen = np.zeros(len(kinds.sort), np.int64)
    state = np.argmin(values)
    value = values[state]
    for r in range(1, rounds + 1):
        state = source[r, state]
        for k in range(len(kinds.sort)):  # requests without a part: all that fit
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            cost = r * unit - kinds.price[k]
            if cost < 0 and r >= kinds.earliest[k] and state < high - low and links.grown[low] == 0:
                value -= kinds.count[k] * cost
                seen[k] += kinds.count[k]
        for mask in range(2 ** links.sort.shape[1]):  # which parts are new: what explains the cost
            rest, paid = without(links, kinds, unit, r, state, mask, seen[:0])
            if rest >= 0 and before[r, rest] + paid == value:
                without(links, kinds, unit, r, state, mask, seen)
                state, value = rest, before[r, rest]
                break
    return seen
