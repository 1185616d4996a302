"""The bound of the exact makespan search, for nodes whose requests are on clients already.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.  Sets of
requests are bit sets.  Arrays:

- per set: ``sums``, output tokens; ``least``, fewest input tokens of a member; ``cost``, working space;
- per request: ``inputs``, ``output``: tokens;
- ``levels[l]``: tokens and ticks; ``decode``: ticks of a round;
- a node is a row: per client the set left to start and when it is free; then the columns below; then
  per request the bin and the round in which it started, and its client.

*Bound.*  A node that leads to less than the best known has at most so many rounds.  So a client with set
M left starts the first request of M in a window: after what it serves before, plus the idle rounds that it
can afford.  Only clients with a set of theirs whose window overlaps can share that bin, each with at least
the fewest tokens in such sets.  The requests of a bin pay equal shares of it.  So one that has at most k
companions pays at least the least, over fewer of them, of the cheapest stage for it and them over their
number, the ones with the fewest tokens first.  The least sum of shares over all orders on a client is a
shortest path over its sets; clients add up.  A larger bound means fewer rounds and narrower windows, so it
is computed again until it stays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["BOUND", "COLUMNS", "LATER", "NODE", "TIME", "rate"]

#: Columns of a node after those of clients: ticks of prefill, least ticks of prefill still to come, bound,
#: round and tokens of the last bin, bins, latest end of a client that has nothing left to start.
TICKS, LATER, BOUND, TIME, TOKENS, BINS, ENDED, COLUMNS = 0, 1, 2, 3, 4, 5, 6, 7
#: Sets of all clients up to which windows are compared; beyond, all clients may be companions.
MANY = 1024


def level_row(tokens: Any, levels: Any) -> Any:
    """Row of the cheapest level that takes the tokens, -1 if none does."""
    for k in range(len(levels)):
        if levels[k, 0] >= tokens:
            return k
    return -1


def last_end(node: Any, clients: Any, sums: Any) -> Any:
    """Rounds if no client waits any more."""
    end = node[2 * clients + ENDED]
    for j in range(clients):
        if node[j] > 0:
            end = max(end, node[clients + j] + sums[node[j]])
    return end


def later(
    node: Any, clients: Any, inputs: Any, sums: Any, least: Any, levels: Any, rounds: Any,
    cost: Any, company: Any,
) -> Any:  # fmt: skip
    """Least ticks of prefill to come in schedules of at most so many rounds; all sets' into `cost`."""
    subsets = 0
    for j in range(clients):
        size = 1
        left = node[j]
        while left > 0:
            left &= left - 1
            size *= 2
        subsets += size
    cost[0] = 0
    total = 0
    for j in range(clients):
        mine = node[j]
        end = node[clients + j] + sums[mine]
        part = -mine & mine
        while part > 0:
            first = end - sums[part]
            last = first + rounds - end
            # Fewest tokens of companions, in ascending order.
            some_company = 0
            for other in range(clients):
                theirs = node[other]
                if other == j or theirs == 0:
                    continue
                fewest = -1
                if subsets > MANY:
                    fewest = least[theirs]
                else:
                    their_end = node[clients + other] + sums[theirs]
                    lowest = least[theirs]
                    some = theirs
                    while some > 0:
                        start = their_end - sums[some]
                        if start <= last and start + rounds - their_end >= first:
                            if fewest < 0 or least[some] < fewest:
                                fewest = least[some]
                            if fewest == lowest:
                                break
                        some = (some - 1) & theirs
                if fewest >= 0:
                    k = some_company
                    while k > 0 and company[k - 1] > fewest:
                        company[k] = company[k - 1]
                        k -= 1
                    company[k] = fewest
                    some_company += 1
            best = -1
            bits = part
            i = 0
            while bits > 0:
                if bits & 1:
                    tokens = inputs[i]
                    row = 0
                    share = -1
                    k = 0
                    while True:
                        while row < len(levels) and levels[row, 0] < tokens:
                            row += 1
                        if row == len(levels):
                            break
                        if share < 0 or levels[row, 1] // (k + 1) < share:
                            share = levels[row, 1] // (k + 1)
                        if k == some_company:
                            break
                        tokens += company[k]
                        k += 1
                    here = share + cost[part & ~(1 << i)]
                    if best < 0 or here < best:
                        best = here
                bits >>= 1
                i += 1
            cost[part] = best
            part = (part - mine) & mine
        total += cost[mine]
    return total


def tighten(
    node: Any, clients: Any, inputs: Any, sums: Any, least: Any, levels: Any, decode: Any, best: Any,
    cost: Any, company: Any,
) -> Any:  # fmt: skip
    """Raise what a node has to pay later as far as the bound does; whether it may still lead below `best`."""
    at = 2 * clients
    paid = node[at + TICKS]
    end = decode * last_end(node, clients, sums)
    while paid + node[at + LATER] + end < best:
        rounds = (best - 1 - paid - node[at + LATER]) // decode
        found = later(node, clients, inputs, sums, least, levels, rounds, cost, company)
        if found <= node[at + LATER]:
            node[at + BOUND] = paid + node[at + LATER] + end
            return True
        node[at + LATER] = found
    node[at + BOUND] = best
    return False


def rate(
    nodes: Any,
    clients: Any,
    inputs: Any,
    sums: Any,
    least: Any,
    levels: Any,
    decode: Any,
    best: Any,
    cost: Any,
) -> None:
    """Fill in the bounds of nodes; no less than `best` for those that do not lead below it."""
    company = np.zeros(clients, np.int64)
    for k in range(len(nodes)):
        tighten(nodes[k], clients, inputs, sums, least, levels, decode, best, cost, company)


NODE = (level_row, last_end, later, tighten)
"""What `rate` calls, callees first."""
