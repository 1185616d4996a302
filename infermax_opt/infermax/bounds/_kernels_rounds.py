"""A round of the search for start rounds, backwards in time; see `infermax_opt.infermax.exact.rounds`.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "CUT", "DONE", "HELPERS", "KEPT", "LIMIT", "MADE", "PARTS_BELOW", "TRIED", "WORD", "Costs", "Nodes",
    "Tasks", "advance", "bits_of", "cost_to_go", "least_with", "room",
]  # fmt: skip

#: Entries of the counters of `advance`: nodes kept, how often some had to be dropped, the limit on costs, the
#: node from which all end in this round, or -1, all nodes made, and how often one had room
#: for a request whose end costs less than nothing.
KEPT, CUT, LIMIT, DONE, MADE, TRIED = 0, 1, 2, 3, 4, 5
#: Parts of a node at most, and each is a number below this.
MOST_PARTS, PARTS_BELOW = 16, 2**15
#: Cost of a node that another one replaced.
REPLACED = 2**60
#: Bits of a word in which requests are noted.
WORD = 64


class Tasks(NamedTuple):
    """Columns of the requests: peak, hold at which one has left, cost of ending by rounds, sort, twin, near.

    `twin`: the equal request that ends no sooner, or -1; `near`: the requests, as bits, of which a node still
    knows that they have ended when this one does.
    """

    peak: Any
    leave: Any
    cost: Any
    sort: Any
    twin: Any
    near: Any


def bits_of(those: Any) -> Any:
    """Requests as bits, a row for each row, in as many words as a node has.

    Parameters
    ----------
    those : array of bool, rows by requests
    """
    wide = np.zeros((len(those), -(-those.shape[1] // WORD) * WORD), np.bool_)
    wide[:, : those.shape[1]] = those
    return np.packbits(wide, axis=1, bitorder="little").view(np.uint64)


class Costs(NamedTuple):
    """Least costs in the relaxation, and where its states lead to.

    `ahead`: row r by state, before the appearances of round r; row 0 is zero.  `group`: of each hold at which
    requests leave the row of what that costs in `exits`, or -1 where it costs nothing; `last`, `left`:
    by row the hold at which they leave in the relaxation, and the states without such a part.
    """

    ahead: Any
    shrunk: Any
    grown: Any
    offset: Any
    group: Any
    last: Any
    exits: Any
    left: Any


class Nodes(NamedTuple):
    """Columns of nodes: who has ended, who in this round, parts, their number and total, state, cost, parent.

    A part is its hold times `base` plus the hold at which it leaves; the largest come first, then zeros.
    """

    ended: Any
    fresh: Any
    parts: Any
    number: Any
    total: Any
    state: Any
    cost: Any
    parent: Any


def cost_to_go(links: Any, kinds: Any, exits: Any, ahead: Any) -> None:
    """Fill in `Costs.ahead`; `links`, `kinds` and `exits` as in the bound."""
    states = len(links.shrunk)
    ahead[0] = 0
    for r in range(1, len(ahead)):
        values = ahead[r]
        for a in range(states):
            values[a] = ahead[r - 1, links.shrunk[a]]
        for c in range(len(exits)):
            for j in range(links.ends[c + 1] - 1, links.ends[c] - 1, -1):
                value = values[links.left[j]] + exits[c, r]
                if value < values[links.leaving[j]]:
                    values[links.leaving[j]] = value
        for k in range(len(kinds.sort) - 1, -1, -1):
            cost = kinds.cost[k, r]
            if cost >= 0:
                continue
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            for _ in range(kinds.count[k]):
                for a in range(high - low):
                    value = values[links.grown[low + a]] + cost
                    if value < values[a]:
                        values[a] = value


def least_with(links: Any, kinds: Any, exits: Any, ahead: Any, least: Any) -> None:
    """Fill in what a path costs at least in which a kind appears in a round, less that appearance itself.

    `least`: a row for each kind, a column for each round; the rest as in `cost_to_go`, which comes first.
    """
    states = len(links.shrunk)
    values = np.full(states, REPLACED, np.int64)
    values[0] = 0
    for r in range(len(ahead) - 1, 0, -1):
        for k in range(len(kinds.sort)):
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            best = REPLACED
            for a in range(high - low):
                best = min(best, values[a] + ahead[r, links.grown[low + a]])
            least[k, r] = best
        for k in range(len(kinds.sort)):
            cost = kinds.cost[k, r]
            if cost >= 0:
                continue
            low, high = links.offset[kinds.sort[k]], links.offset[kinds.sort[k] + 1]
            for _ in range(kinds.count[k]):
                for a in range(high - low - 1, -1, -1):
                    b = links.grown[low + a]
                    values[b] = min(values[b], values[a] + cost)
        for c in range(len(exits)):
            for j in range(links.ends[c], links.ends[c + 1]):
                a, b = links.leaving[j], links.left[j]
                values[b] = min(values[b], values[a] + exits[c, r])
        after = np.full(states, REPLACED, np.int64)
        for a in range(states):
            after[links.shrunk[a]] = min(after[links.shrunk[a]], values[a])
        values = after


def room(most: Any, requests: Any) -> Nodes:
    """Room for so many nodes."""
    words = -(-requests // WORD)
    ended, fresh = np.zeros((most, words), np.uint64), np.zeros((most, words), np.uint64)
    return Nodes(ended, fresh, np.zeros((most, MOST_PARTS), np.int16), *np.empty((5, most), np.int64))


def has(ended: Any, node: Any, k: Any) -> Any:
    """Whether a request has ended in a node."""
    return (ended[node, k // WORD] >> np.uint64(k % WORD)) & np.uint64(1) != np.uint64(0)


def add(nodes: Any, a: Any, m: Any, k: Any, tasks: Any, base: Any) -> None:
    """Make node m of node a by a request that ends."""
    for w in range(nodes.ended.shape[1]):
        nodes.ended[m, w] = nodes.ended[a, w] & tasks.near[k, w]
        nodes.fresh[m, w] = nodes.fresh[a, w]
    nodes.ended[m, k // WORD] |= np.uint64(1) << np.uint64(k % WORD)
    nodes.fresh[m, k // WORD] |= np.uint64(1) << np.uint64(k % WORD)
    part = tasks.peak[k] * base + tasks.leave[k]
    count = nodes.number[a]
    j = count
    while j > 0 and nodes.parts[a, j - 1] < part:
        nodes.parts[m, j] = nodes.parts[a, j - 1]
        j -= 1
    nodes.parts[m, j] = part
    while j > 0:
        j -= 1
        nodes.parts[m, j] = nodes.parts[a, j]
    for j in range(count + 1, nodes.parts.shape[1]):
        nodes.parts[m, j] = 0
    nodes.number[m] = count + 1
    nodes.total[m] = nodes.total[a] + tasks.peak[k]


def shrink(nodes: Any, a: Any, base: Any) -> None:
    """Take a token from each part of a node; those that have left are gone."""
    count = total = 0
    for j in range(nodes.number[a]):
        part = nodes.parts[a, j] - base
        if part // base > part % base:
            nodes.parts[a, count] = part
            count += 1
            total += part // base
    for j in range(count, nodes.number[a]):
        nodes.parts[a, j] = 0
    nodes.number[a], nodes.total[a] = count, total


def same(nodes: Any, a: Any, b: Any) -> Any:
    """Whether two nodes have ended the same requests, with the same memory."""
    for w in range(nodes.ended.shape[1]):
        if nodes.ended[a, w] != nodes.ended[b, w]:
            return False
    if nodes.number[a] != nodes.number[b]:
        return False
    j = 0
    while j < nodes.number[a] and nodes.parts[a, j] == nodes.parts[b, j]:
        j += 1
    return j == nodes.number[a]


def place(nodes: Any, a: Any, table: Any) -> Any:
    """Where a node, or one like it, is or belongs in a hash table."""
    prime = np.uint64(1099511628211)
    key = np.uint64(14695981039346656037)
    for j in range(nodes.number[a]):
        key = (key ^ np.uint64(nodes.parts[a, j])) * prime
    for w in range(nodes.ended.shape[1]):
        key = (key ^ nodes.ended[a, w]) * prime
        key ^= key >> np.uint64(29)
    at = np.int64(key & np.uint64(len(table) - 1))
    while table[at] >= 0 and not same(nodes, table[at], a):
        at = (at + 1) % len(table)
    return at


def ended_all(nodes: Any, a: Any, those: Any) -> Any:
    """Whether all of those have ended in a node."""
    w = 0
    while w < len(those) and those[w] & ~nodes.ended[a, w] == np.uint64(0):
        w += 1
    return w == len(those)


def go(nodes: Any, a: Any, costs: Any, r: Any, base: Any) -> Any:
    """The state of a node without the parts that leave after round r; the node pays for these."""
    state = nodes.state[a]
    for j in range(nodes.number[a]):
        hold, c = nodes.parts[a, j] // base, costs.group[nodes.parts[a, j] % base]
        if c >= 0 and hold == costs.last[c] + 1:
            nodes.cost[a] += costs.exits[c, r]
            state = costs.left[c, state]
    return state


def owed(nodes: Any, a: Any, costs: Any, r: Any, base: Any) -> Any:
    """What the parts of a node in round r are still to pay when they leave."""
    total = 0
    for j in range(nodes.number[a]):
        hold, c = nodes.parts[a, j] // base, costs.group[nodes.parts[a, j] % base]
        if c >= 0 and hold > costs.last[c]:
            total += costs.exits[c, r - (hold - costs.last[c] - 1)]
    return total


def advance(
    r: Any, base: Any, capacity: Any, tasks: Any, costs: Any, may: Any, must: Any, every: Any,
    layer: Any, size: Any, pool: Any, following: Any, table: Any, counts: Any, last: Any,
) -> Any:  # fmt: skip
    """Let requests end in round r; what is left, with memory as it is a round before, becomes the layer.

    Long on purpose: parts of it would have to be handed a dozen columns each, in the innermost loop.

    Parameters
    ----------
    r : int
        Round.
    base, capacity : int
        Base of parts; M.
    tasks, costs : Tasks, Costs
    may, must, every : columns
        Whether each request may end in this round; those (as bits) that have to end in it or later; all.
    layer, size : Nodes, int
        Nodes after the round before, and how many; the new ones replace them.
    pool, following, table : Nodes, columns
        Room for nodes, for the request after which to go on from each, and a hash table.
    counts : columns of int
        See `KEPT`.
    last : columns
        Bits of the requests that end in this round, where all end after the node that `DONE` names.
    """
    most, width = len(pool.cost), pool.parts.shape[1]
    requests = len(tasks.peak)
    estimates = np.empty(size, np.int64)
    for a in range(size):
        estimates[a] = layer.cost[a] + costs.ahead[r, layer.state[a]]
    made = tried = 0
    for a in np.argsort(estimates):
        if estimates[a] >= counts[LIMIT] or made == most:
            counts[CUT] += made == most
            break
        first = made
        pool.ended[made], pool.fresh[made], pool.parts[made] = layer.ended[a], 0, layer.parts[a]
        pool.number[made], pool.total[made] = layer.number[a], layer.total[a]
        pool.state[made], pool.cost[made], pool.parent[made] = layer.state[a], layer.cost[a], a
        following[made] = 0
        made += 1
        b = first
        while b < made:
            for k in range(following[b], requests):
                if pool.total[b] + tasks.peak[k] > capacity:
                    continue
                tried += tasks.cost[k, r] < 0
                if not may[k] or has(pool.ended, b, k):
                    continue
                if tasks.twin[k] >= 0 and not has(pool.ended, b, tasks.twin[k]):
                    continue
                state = costs.grown[costs.offset[tasks.sort[k]] + pool.state[b]]
                cost = pool.cost[b] + tasks.cost[k, r]
                if cost + costs.ahead[r, state] >= counts[LIMIT]:
                    continue
                if made == most or pool.number[b] == width:
                    counts[CUT] += 1
                    continue
                add(pool, b, made, k, tasks, base)
                pool.state[made], pool.cost[made], pool.parent[made] = state, cost, a
                following[made] = k + 1
                made += 1
            b += 1
    counts[MADE] += made
    counts[TRIED] += tried
    table[:] = -1
    kept, rank = np.empty(made, np.int64), np.empty(made, np.int64)
    count = 0
    for b in range(made):
        if ended_all(pool, b, every):
            cost = pool.cost[b] + owed(pool, b, costs, r, base)
            if cost < counts[LIMIT]:
                counts[LIMIT], counts[DONE] = cost, pool.parent[b]
                last[:] = pool.fresh[b]
            continue
        pool.state[b] = costs.shrunk[go(pool, b, costs, r, base)]
        estimate = pool.cost[b] + costs.ahead[r - 1, pool.state[b]]
        if estimate >= counts[LIMIT] or not ended_all(pool, b, must):
            continue
        shrink(pool, b, base)
        at = place(pool, b, table)
        if table[at] >= 0:
            if pool.cost[table[at]] <= pool.cost[b]:
                continue
            pool.cost[table[at]] = REPLACED
        table[at] = b
        kept[count], rank[count] = b, estimate
        count += 1
    size = 0
    order = np.argsort(rank[:count])
    for c in order:
        b = kept[c]
        if pool.cost[b] == REPLACED:
            continue
        if size == len(layer.cost):
            counts[CUT] += 1
            break
        layer.ended[size], layer.fresh[size], layer.parts[size] = pool.ended[b], pool.fresh[b], pool.parts[b]
        layer.number[size], layer.total[size] = pool.number[b], pool.total[b]
        layer.state[size], layer.cost[size], layer.parent[size] = pool.state[b], pool.cost[b], pool.parent[b]
        size += 1
    counts[KEPT] = size


HELPERS = (has, add, shrink, same, place, ended_all, go, owed)
"""What `advance` calls, callees first."""
