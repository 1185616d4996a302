"""The bound of the exact makespan search, for nodes whose requests are on clients already.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.  Sets of requests are bit
sets.  Arrays:

- `Data`: what is given;
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

from typing import Any, NamedTuple

__all__ = ["BOUND", "COLUMNS", "LATER", "NODE", "TIME", "Data", "Scratch", "rate"]

# Columns of a node after those of clients.
#: Ticks of prefill so far.
TICKS = 0
#: Least ticks of prefill still to come.
LATER = 1
#: Least ticks of a schedule that the node leads to.
BOUND = 2
#: Round of the last bin.
TIME = 3
#: Tokens of the last bin.
TOKENS = 4
#: Bins so far.
BINS = 5
#: Latest end of a client that has nothing left to start.
ENDED = 6
#: How many these columns are.
COLUMNS = 7
#: Sets of all clients up to which windows are compared; beyond, all clients may be companions.
MANY = 1024


class Data(NamedTuple):
    """What the search reads and never changes.

    Attributes
    ----------
    clients : int
    inputs, output : array of int, one per request
        Tokens.
    twin : array of int, one per request
        The nearest request before it that equals it, as a set; 0 if there is none.
    sums, least : array of int, one per set of requests
        Output tokens, and the fewest input tokens of a member.
    levels : array of int, one row per level
        Tokens and ticks.
    decode : int
        Ticks of a round.
    """

    clients: Any
    inputs: Any
    output: Any
    twin: Any
    sums: Any
    least: Any
    levels: Any
    decode: Any


class Scratch(NamedTuple):
    """Working space; nothing in it outlasts a node.

    Attributes
    ----------
    cost : array of int, one per set of requests
        Least ticks of prefill of a set of the node.
    company, pick : array of int, one per client
    key : array of int, two per client and one more
        What names a node.
    node : array of int
        A copy of the node in hand.
    order : array of int, one per child of a node at least
    """

    cost: Any
    company: Any
    pick: Any
    key: Any
    node: Any
    order: Any


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


def windows_compared(node: Any, clients: Any) -> Any:
    """Whether the clients' sets are few enough to compare their windows."""
    subsets = 0
    for j in range(clients):
        size = 1
        left = node[j]
        while left > 0:
            left &= left - 1
            size *= 2
        subsets += size
    return subsets <= MANY


def fewest_beside(data: Any, theirs: Any, end: Any, rounds: Any, first: Any, last: Any) -> Any:
    """Fewest tokens with which a client can share a bin that starts in a window; -1 if it cannot.

    The client has the set `theirs` left and is done in round `end` at the earliest, of `rounds` at most.
    """
    sums, least = data.sums, data.least
    fewest = -1
    lowest = least[theirs]
    some = theirs
    while some > 0:
        start = end - sums[some]
        if start <= last and start + rounds - end >= first:
            if fewest < 0 or least[some] < fewest:
                fewest = least[some]
            if fewest == lowest:
                break
        some = (some - 1) & theirs
    return fewest


def companions(
    data: Any, node: Any, mine: Any, rounds: Any, first: Any, last: Any, compared: Any, company: Any
) -> Any:
    """How many clients can share a bin in a window with client `mine`; their fewest tokens, ascending."""
    clients, sums = data.clients, data.sums
    count = 0
    for other in range(clients):
        theirs = node[other]
        if other == mine or theirs == 0:
            continue
        if compared:
            fewest = fewest_beside(data, theirs, node[clients + other] + sums[theirs], rounds, first, last)
        else:
            fewest = data.least[theirs]
        if fewest >= 0:
            k = count
            while k > 0 and company[k - 1] > fewest:
                company[k] = company[k - 1]
                k -= 1
            company[k] = fewest
            count += 1
    return count


def least_share(tokens: Any, levels: Any, company: Any, count: Any) -> Any:
    """Least share that a request pays of its bin, alone or with the first of so many companions."""
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
        if k == count:
            break
        tokens += company[k]
        k += 1
    return share


def later(data: Any, node: Any, rounds: Any, cost: Any, company: Any) -> Any:
    """Least ticks of prefill to come in schedules of at most so many rounds; all sets' into `cost`."""
    clients, inputs, sums, levels = data.clients, data.inputs, data.sums, data.levels
    compared = windows_compared(node, clients)
    cost[0] = 0
    total = 0
    for j in range(clients):
        mine = node[j]
        end = node[clients + j] + sums[mine]
        part = -mine & mine
        while part > 0:
            first = end - sums[part]
            count = companions(data, node, j, rounds, first, first + rounds - end, compared, company)
            best = -1
            bits = part
            i = 0
            while bits > 0:
                if bits & 1:
                    here = least_share(inputs[i], levels, company, count) + cost[part & ~(1 << i)]
                    if best < 0 or here < best:
                        best = here
                bits >>= 1
                i += 1
            cost[part] = best
            part = (part - mine) & mine
        total += cost[mine]
    return total


def tighten(data: Any, node: Any, best: Any, cost: Any, company: Any) -> Any:
    """Raise what a node has to pay later as far as the bound does; whether it may still lead below `best`."""
    at = 2 * data.clients
    paid = node[at + TICKS]
    end = data.decode * last_end(node, data.clients, data.sums)
    while paid + node[at + LATER] + end < best:
        rounds = (best - 1 - paid - node[at + LATER]) // data.decode
        found = later(data, node, rounds, cost, company)
        if found <= node[at + LATER]:
            node[at + BOUND] = paid + node[at + LATER] + end
            return True
        node[at + LATER] = found
    node[at + BOUND] = best
    return False


def rate(data: Any, nodes: Any, best: Any, cost: Any, company: Any) -> None:
    """Fill in the bounds of nodes; no less than `best` for those that do not lead below it."""
    for k in range(len(nodes)):
        tighten(data, nodes[k], best, cost, company)


NODE = (level_row, last_end, windows_compared, fewest_beside, companions, least_share, later, tighten)
"""What `rate` calls, callees first."""
