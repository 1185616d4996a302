"""The exact makespan search: depth first over the bins of requests that are on clients already.

Arrays and bound as in `infermax_opt.makespan.exact._bound`; ``twin[i]`` is the set of the requests
before i that equal it, the nearest one alone.

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

import numpy as np

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


def known(node: Any, clients: Any, sums: Any, decode: Any, key: Any, table: Any) -> Any:
    """Whether the table holds this node with no more ticks; if not it does from now on."""
    at = 2 * clients
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
            end = max(end, node[clients + j] + sums[name])
        # Which client it is does not matter: sorted by what they have left.
        k = j
        while k > 0 and key[2 * k - 2] > name:
            key[2 * k], key[2 * k + 1] = key[2 * k - 2], key[2 * k - 1]
            k -= 1
        key[2 * k], key[2 * k + 1] = name, time
    # An end before that of clients with something left does not matter.
    key[at] = node[at + ENDED] - base if node[at + ENDED] > end else 0
    value = node[at + TICKS] + decode * base
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


def expand(
    node: Any, clients: Any, inputs: Any, output: Any, twin: Any, sums: Any, levels: Any, decode: Any,
    best: Any, cost: Any, pick: Any, stack: Any, top: Any,
) -> Any:  # fmt: skip
    """Push all children that may lead below `best`; the new top."""
    at = 2 * clients
    start = at + COLUMNS
    count = len(inputs)
    active = 0
    total = 0
    for j in range(clients):
        if node[j] > 0:
            active |= 1 << j
            total += cost[node[j]]
    chosen = -active & active
    while chosen > 0:
        time = 0
        for j in range(clients):
            if chosen >> j & 1:
                time = max(time, node[clients + j])
        end = node[at + ENDED]
        for j in range(clients):
            pick[j] = -1
            if node[j] > 0:
                end = max(end, max(time, node[clients + j]) + sums[node[j]])
        if node[at + TICKS] + node[at + LATER] + decode * end >= best:
            chosen = (chosen - active) & active
            continue
        # All choices of a request for each of the chosen clients: `j` is the one to choose for next.
        j = 0
        while j >= 0:
            if j < clients:
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
                pick[j] = -1
            else:
                tokens = 0
                for k in range(clients):
                    if chosen >> k & 1:
                        tokens += inputs[pick[k]]
                level = level_row(tokens, levels)
                good = level >= 0
                if good and time == node[at + TIME]:
                    before = node[at + TOKENS]
                    both = level_row(tokens + before, levels)
                    apart = levels[level, 1] + levels[level_row(before, levels), 1]
                    good = both < 0 or levels[both, 1] >= apart
                if good:
                    room = levels[level, 0] - tokens
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
                                good = False
                                break
                if good:
                    child = stack[top]
                    child[:] = node
                    rest = total
                    for k in range(clients):
                        if chosen >> k & 1:
                            i = pick[k]
                            child[k] = node[k] & ~(1 << i)
                            child[clients + k] = time + output[i]
                            rest += cost[child[k]] - cost[node[k]]
                            child[start + i] = node[at + BINS]
                            child[start + count + i] = time
                            child[start + 2 * count + i] = k
                            if child[k] == 0:
                                child[at + ENDED] = max(child[at + ENDED], child[clients + k])
                        elif node[k] > 0:
                            child[clients + k] = max(time, node[clients + k])
                    child[at + TICKS] += levels[level, 1]
                    child[at + LATER] = rest
                    child[at + TIME] = time
                    child[at + TOKENS] = tokens
                    child[at + BINS] += 1
                    child[at + BOUND] = child[at + TICKS] + rest + decode * last_end(child, clients, sums)
                    if child[at + BOUND] < best:
                        top += 1
            # Back to the client chosen for before.
            j -= 1
            while j >= 0 and chosen >> j & 1 == 0:
                j -= 1
        chosen = (chosen - active) & active
    return top


def best_last(rows: Any, column: Any, order: Any) -> None:
    """Sort rows by a column, least last; `order` is working space."""
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
    before = rows.copy()
    for k in range(count):
        rows[k] = before[order[k]]


def explore(
    clients: Any, inputs: Any, output: Any, twin: Any, sums: Any, least: Any, levels: Any, decode: Any,
    stack: Any, state: Any, found: Any, table: Any, cost: Any, children: Any, steps: Any,
) -> Any:  # fmt: skip
    """Search on from the nodes on the stack, for so many steps.

    `state` holds the number of nodes on the stack, the ticks of the best known, and the nodes
    expanded so far; `found` receives the best one.  `children` is the most that a node has.

    Returns
    -------
    bool
        Whether the stack has to grow first.
    """
    at = 2 * clients
    key = np.zeros(at + 1, np.int64)
    pick = np.zeros(clients, np.int64)
    company = np.zeros(clients, np.int64)
    node = np.zeros(stack.shape[1], np.int64)
    order = np.zeros(children, np.int64)
    for _ in range(steps):
        top = state[0]
        if top == 0:
            return False
        if top + children > len(stack):
            return True
        top -= 1
        state[0] = top
        node[:] = stack[top]
        best = state[1]
        if node[at + BOUND] >= best:
            continue
        left = 0
        for j in range(clients):
            left |= node[j]
        if left == 0:
            state[1] = node[at + BOUND]
            found[:] = node
            continue
        if known(node, clients, sums, decode, key, table):
            continue
        state[2] += 1
        if not tighten(node, clients, inputs, sums, least, levels, decode, best, cost, company):
            continue
        after = expand(
            node, clients, inputs, output, twin, sums, levels, decode, best, cost, pick, stack, top
        )
        best_last(stack[top:after], at + BOUND, order)
        state[0] = after
    return False


HELPERS = (*NODE, known, expand, best_last)
"""What `explore` calls, callees first."""
