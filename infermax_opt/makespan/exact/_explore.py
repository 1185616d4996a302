"""The exact makespan search: depth first over the bins of requests that are on clients already.

Arrays and bound as in `infermax_opt.makespan.exact._bound`.

*Branching.*  A bin starts a request on each of a set of clients, once the last of these is free (earliest
times; a client that waits for company is one that earlier bins leave out).

*Cut off.*  A client that is free and left out though all that it has left would fit the level paid: to
move its next request into this bin costs nothing and delays nothing; of all best completions of a node
the one that starts requests earliest is never cut.  A bin at the time of the bin before where one stage
for both takes fewer ticks: no such schedule is optimal.

*Table.*  Nodes that are equal but for the past, with times relative to the first client that is free:
such a node is expanded again only with fewer ticks.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.makespan.exact._bound import (
    BINS,
    BOUND,
    COLUMNS,
    ENDED,
    LATER,
    NODE,
    TICKS,
    TIME,
    TOKENS,
    last_end,
    level_row,
    tighten,
)  # fmt: skip

__all__ = ["HELPERS", "explore"]

#: Multiplier of the hash, and the bits of it that are kept: products stay below 2**63.
MIX, MASK = 1000003, 2**40 - 1


def copy_row(row: Any, into: Any) -> None:
    """Copy a row; an assignment of all of it may need memory of its own, which this code has not."""
    for k in range(len(row)):
        into[k] = row[k]


def name_of(data: Any, node: Any, key: Any) -> Any:
    """Write what a node is but for the past into `key`; the round of the first client that is free.

    The name holds per client the set left and when it is free, then the end of clients with nothing left.
    """
    clients = data.clients
    base = -1
    for j in range(clients):
        if node[j] > 0 and (base < 0 or node[clients + j] < base):
            base = node[clients + j]
    end = 0
    for j in range(clients):
        name = node[j]
        time = 0
        if name > 0:
            time = node[clients + j] - base
            end = max(end, node[clients + j] + data.sums[name])
        # Which client it is does not matter: sorted by what they have left.
        k = j
        while k > 0 and key[2 * k - 2] > name:
            key[2 * k], key[2 * k + 1] = key[2 * k - 2], key[2 * k - 1]
            k -= 1
        key[2 * k], key[2 * k + 1] = name, time
    # An end before that of clients with something left does not matter.
    ended = node[2 * clients + ENDED]
    key[2 * clients] = ended - base if ended > end else 0
    return base


def known(data: Any, node: Any, key: Any, table: Any) -> Any:
    """Whether the table holds this node with no more ticks; if not it does from now on."""
    at = 2 * data.clients
    value = node[at + TICKS] + data.decode * name_of(data, node, key)
    code = 0
    for k in range(at + 1):
        code = (code ^ (key[k] & MASK)) * MIX
        code = (code ^ (code >> 25)) & MASK
    row = table[code % len(table)]
    same = True
    for k in range(at + 1):
        if row[k] != key[k]:
            same = False
            break
    # A row of zeros is the name of no node that has something left.
    if same and row[at + 1] <= value:
        return True
    for k in range(at + 1):
        row[k] = key[k]
    row[at + 1] = value
    return False


def free_at(node: Any, clients: Any, chosen: Any) -> Any:
    """The round in which all of the chosen clients are free."""
    time = 0
    for j in range(clients):
        if chosen >> j & 1:
            time = max(time, node[clients + j])
    return time


def end_after(data: Any, node: Any, time: Any) -> Any:
    """Rounds if no client starts anything before a round, and none waits after it."""
    clients = data.clients
    end = node[2 * clients + ENDED]
    for j in range(clients):
        if node[j] > 0:
            end = max(end, max(time, node[clients + j]) + data.sums[node[j]])
    return end


def next_choice(data: Any, node: Any, chosen: Any, pick: Any, fresh: Any) -> Any:
    """Choose a request for each of the chosen clients, other than before; whether there is a choice left.

    `pick` holds the choice of each client; with `fresh` the first one is made.  Of equal requests on a client
    it takes the first.
    """
    clients, twin = data.clients, data.twin
    j = 0
    if not fresh:
        j = clients - 1
        while j >= 0 and chosen >> j & 1 == 0:
            j -= 1
    while 0 <= j < clients:
        if chosen >> j & 1 == 0:
            j += 1
            continue
        i = pick[j] + 1
        while node[j] >> i > 0 and (node[j] >> i & 1 == 0 or node[j] & twin[i] > 0):
            i += 1
        if node[j] >> i > 0:
            pick[j] = i
            j += 1
            continue
        # None is left: back to the client chosen for before.
        pick[j] = -1
        j -= 1
        while j >= 0 and chosen >> j & 1 == 0:
            j -= 1
    return j >= 0


def better_joined(data: Any, node: Any, time: Any, tokens: Any, level: Any) -> Any:
    """Whether one stage with the bin before, at the same time, takes fewer ticks."""
    at = 2 * data.clients
    if time != node[at + TIME]:
        return False
    levels, before = data.levels, node[at + TOKENS]
    both = level_row(tokens + before, levels)
    apart = levels[level, 1] + levels[level_row(before, levels), 1]
    return both >= 0 and levels[both, 1] < apart


def leaves_out(data: Any, node: Any, chosen: Any, time: Any, room: Any) -> Any:
    """Whether a free client is left out though each request that it has left would fit."""
    clients, inputs = data.clients, data.inputs
    for k in range(clients):
        if node[k] > 0 and chosen >> k & 1 == 0 and node[clients + k] <= time:
            fits = True
            i = 0
            while node[k] >> i > 0:
                if node[k] >> i & 1 and inputs[i] > room:
                    fits = False
                    break
                i += 1
            if fits:
                return True
    return False


def level_of(data: Any, node: Any, chosen: Any, time: Any, pick: Any) -> Any:
    """Tokens of the bin that starts the picked requests, and its level; -1 if the bin is cut off."""
    tokens = 0
    for k in range(data.clients):
        if chosen >> k & 1:
            tokens += data.inputs[pick[k]]
    level = level_row(tokens, data.levels)
    if level >= 0 and (
        better_joined(data, node, time, tokens, level)
        or leaves_out(data, node, chosen, time, data.levels[level, 0] - tokens)
    ):
        level = -1
    return tokens, level


def fill_child(
    data: Any, node: Any, chosen: Any, time: Any, pick: Any, cost: Any, later: Any, child: Any
) -> None:
    """Start the picked requests on the chosen clients; `later` is what the node has to pay, by sets."""
    clients = data.clients
    at, count = 2 * clients, len(data.inputs)
    start = at + COLUMNS
    copy_row(node, child)
    rest = later
    for k in range(clients):
        if chosen >> k & 1:
            i = pick[k]
            child[k] = node[k] & ~(1 << i)
            child[clients + k] = time + data.output[i]
            rest += cost[child[k]] - cost[node[k]]
            child[start + i] = node[at + BINS]
            child[start + count + i] = time
            child[start + 2 * count + i] = k
            if child[k] == 0:
                child[at + ENDED] = max(child[at + ENDED], child[clients + k])
        elif node[k] > 0:
            child[clients + k] = max(time, node[clients + k])
    child[at + LATER] = rest
    child[at + TIME] = time
    child[at + BINS] += 1


def expand(data: Any, node: Any, best: Any, cost: Any, pick: Any, stack: Any, top: Any) -> Any:
    """Push all children that may lead below `best`; the new top."""
    clients = data.clients
    at = 2 * clients
    active = 0
    later = 0
    for j in range(clients):
        if node[j] > 0:
            active |= 1 << j
            later += cost[node[j]]
    paid = node[at + TICKS] + node[at + LATER]
    chosen = -active & active
    while chosen > 0:
        time = free_at(node, clients, chosen)
        if paid + data.decode * end_after(data, node, time) < best:
            pick[:] = -1
            more = next_choice(data, node, chosen, pick, True)
            while more:
                tokens, level = level_of(data, node, chosen, time, pick)
                if level >= 0:
                    child = stack[top]
                    fill_child(data, node, chosen, time, pick, cost, later, child)
                    child[at + TICKS] += data.levels[level, 1]
                    child[at + TOKENS] = tokens
                    end = data.decode * last_end(child, clients, data.sums)
                    child[at + BOUND] = child[at + TICKS] + child[at + LATER] + end
                    if child[at + BOUND] < best:
                        top += 1
                more = next_choice(data, node, chosen, pick, False)
        chosen = (chosen - active) & active
    return top


def best_last(rows: Any, column: Any, order: Any, spare: Any) -> None:
    """Sort rows by a column, least last; `order` and `spare`, a row, are working space."""
    # By Shell: `np.argsort` takes seconds to compile.
    count = len(rows)
    for k in range(count):
        order[k] = k
    gap = count // 2
    while gap > 0:
        for k in range(gap, count):
            row = order[k]
            at = k
            while at >= gap and rows[order[at - gap], column] < rows[row, column]:
                order[at] = order[at - gap]
                at -= gap
            order[at] = row
        gap //= 2
    # Row by row along the cycles of the order.
    for k in range(count):
        if order[k] == k:
            continue
        copy_row(rows[k], spare)
        at = k
        while order[at] != k:
            row = order[at]
            copy_row(rows[row], rows[at])
            order[at] = at
            at = row
        copy_row(spare, rows[at])
        order[at] = at


def explore(
    data: Any, stack: Any, state: Any, found: Any, table: Any, scratch: Any, children: Any, steps: Any
) -> Any:
    """Search on from the nodes on the stack, for so many steps.

    `state` holds the number of nodes on the stack, the ticks of the best known, and the nodes
    expanded so far; `found` receives the best one.  `children` is the most that a node has.

    Returns
    -------
    bool
        Whether the stack has to grow first.
    """
    clients = data.clients
    at = 2 * clients
    cost, company, pick, key, node, order = scratch
    for _ in range(steps):
        top = state[0]
        if top == 0:
            return False
        if top + children > len(stack):
            return True
        top -= 1
        state[0] = top
        copy_row(stack[top], node)
        best = state[1]
        if node[at + BOUND] >= best:
            continue
        left = 0
        for j in range(clients):
            left |= node[j]
        if left == 0:
            state[1] = node[at + BOUND]
            copy_row(node, found)
            continue
        if known(data, node, key, table):
            continue
        state[2] += 1
        if not tighten(data, node, best, cost, company):
            continue
        after = expand(data, node, best, cost, pick, stack, top)
        best_last(stack[top:after], at + BOUND, order, node)
        state[0] = after
    return False


HELPERS = (
    *NODE, copy_row, name_of, known, free_at, end_after, next_choice, better_joined, leaves_out, level_of,
    fill_child, expand, best_last,
)  # fmt: skip
"""What `explore` calls, callees first."""
