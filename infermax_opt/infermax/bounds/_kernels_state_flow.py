"""States of requests in memory and shortest paths among them; see `infermax_opt.infermax.bounds.state_flow`.

The functions run as plain Python or compiled.  A state is a row of `members`, elements in order, and
states are listed by size, so that those from which an element was taken come first.  Those that start
with a state's elements and have one more stand together, from `children` of that state on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.bounds._kernels_occupancy import gains
from infermax_opt.infermax.bounds._kernels_occupancy_steps import EDGES, FAR

__all__ = ["ADMIT", "ENTER", "FAR", "LEAVE", "find", "gains", "link", "listed", "relax", "settle", "weigh"]

#: Steps that add or take an element, rows of their costs: into a batch with decodes, into one without,
#: and out of the state.
ADMIT, ENTER, LEAVE = range(3)
#: The other steps: a batch of decodes alone, one that prefills, too, or alone; a request stays idle.
PLAIN, MIXED, PURE, IDLE = range(3, 7)
#: Sweeps between two looks for a cycle that gains.
LOOKS = 4


def listed(
    sizes: Any, kinds: Any, counts: Any, capacity: Any, members: Any, lengths: Any, held: Any, children: Any
) -> Any:
    """List all states in their order; return their number, or -1 where there is no room for all.

    `sizes`, `kinds`: s and kind of each element; `counts`: requests of each kind; `held`: sums of s.
    """
    limit, most = members.shape
    found = 1
    lengths[0] = held[0] = 0
    state = 0
    while state < found:
        children[state] = found
        length = lengths[state]
        for x in range(members[state, length - 1] if length > 0 else 0, len(sizes) if length < most else 0):
            if held[state] + sizes[x] > capacity + length + 1:
                continue
            count = counts[kinds[x]]
            if length >= count and kinds[members[state, length - count]] == kinds[x]:
                continue  # all requests of this kind are there
            if found == limit:
                return -1
            members[found] = members[state]
            members[found, length] = x
            lengths[found] = length + 1
            held[found] = held[state] + sizes[x]
            found += 1
        state += 1
    children[found] = found
    return found


def find(row: Any, length: Any, members: Any, children: Any) -> Any:
    """Number of the state that consists of the first `length` elements of a row."""
    state = 0
    for k in range(length):
        low, high = children[state], children[state + 1] - 1
        while low < high:
            middle = (low + high) // 2
            if members[middle, k] < row[k]:
                low = middle + 1
            else:
                high = middle
        state = low
    return state


def link(
    tokens: Any, ends: Any, capacity: Any, members: Any, lengths: Any, held: Any, children: Any,
    offsets: Any, element: Any, removed: Any, lowered: Any, grown: Any,
) -> None:  # fmt: skip
    """Find where the steps lead.

    `tokens`, `ends`: n and O of each element.  Entries offsets[state] .. offsets[state + 1] - 1 are
    its different elements: `element`, `removed` is the state without one of these, `lowered` that where
    one has a token less, -1 where none may; `grown` is the state after a batch, -1 where there is none.
    """
    entry = 0
    row = np.empty(members.shape[1], np.int64)
    for state in range(len(grown)):
        offsets[state] = entry
        length = lengths[state]
        finished = False
        for k in range(length):
            x = members[state, k]
            finished = finished or tokens[x] == ends[x]
            if k > 0 and members[state, k - 1] == x:
                continue
            element[entry] = x
            row[:length] = members[state, :length]
            lowered[entry] = -1
            if 1 <= tokens[x] < ends[x]:
                row[k] = x - 1
                lowered[entry] = find(row, length, members, children)
            row[k : length - 1] = members[state, k + 1 : length]
            removed[entry] = find(row, length - 1, members, children)
            entry += 1
        grown[state] = -1
        if length > 0 and not finished and held[state] <= capacity:
            row[:length] = members[state, :length] + 1
            grown[state] = find(row, length, members, children)
    offsets[len(grown)] = entry


def relax(
    tables: Any, came: Any, moved: Any, offsets: Any, element: Any, removed: Any, lowered: Any, grown: Any,
    cost: Any, plain: Any, mixed: Any, pure: Any,
) -> Any:  # fmt: skip
    """Relax every step once; return whether a distance fell.

    Long on purpose: one branch for each kind of step, and a call for each would pass ten columns to
    which numba counts references.
    """
    changed = False
    between, admitted, alone = tables
    states = len(grown)
    for state in range(states):
        for entry in range(offsets[state], offsets[state + 1]):
            x, other = element[entry], removed[entry]
            before = between[other]
            if cost[ADMIT, x] < FAR:
                origin, value = other, before
                if admitted[other] < value:
                    origin, value = states + other, admitted[other]
                if value < FAR and value + cost[ADMIT, x] < admitted[state]:
                    admitted[state] = value + cost[ADMIT, x]
                    came[1, state], moved[1, state] = origin * EDGES + ADMIT, x
                    changed = True
            if cost[ENTER, x] < FAR:
                origin, value = other, before
                if alone[other] < value:
                    origin, value = 2 * states + other, alone[other]
                if value < FAR and value + cost[ENTER, x] < alone[state]:
                    alone[state] = value + cost[ENTER, x]
                    came[2, state], moved[2, state] = origin * EDGES + ENTER, x
                    changed = True
        if alone[state] < FAR and alone[state] + pure < between[state]:
            between[state] = alone[state] + pure
            came[0, state] = (2 * states + state) * EDGES + PURE
            changed = True
        target = grown[state]
        if target >= 0:
            if between[state] < FAR and between[state] + plain < between[target]:
                between[target] = between[state] + plain
                came[0, target] = state * EDGES + PLAIN
                changed = True
            if admitted[state] < FAR and admitted[state] + mixed < between[target]:
                between[target] = admitted[state] + mixed
                came[0, target] = (states + state) * EDGES + MIXED
                changed = True
    for state in range(states - 1, -1, -1):
        value = between[state]
        if value == FAR:
            continue
        for entry in range(offsets[state], offsets[state + 1]):
            x, other = element[entry], removed[entry]
            if cost[LEAVE, x] < FAR and value + cost[LEAVE, x] < between[other]:
                between[other] = value + cost[LEAVE, x]
                came[0, other], moved[0, other] = state * EDGES + LEAVE, x
                changed = True
            other = lowered[entry]
            if other >= 0 and value < between[other]:
                between[other] = value
                came[0, other] = state * EDGES + IDLE
                changed = True
    return changed


def settle(
    tables: Any, came: Any, moved: Any, offsets: Any, element: Any, removed: Any, lowered: Any, grown: Any,
    cost: Any, plain: Any, mixed: Any, pure: Any, sweeps: Any, cycles: Any,
) -> Any:  # fmt: skip
    """Potentials, by lowering those given until no step lowers any.

    `tables`, int64 (3, states): potentials of states as they are, in a batch that prefills and
    decodes, and in one without decodes.  `came`, `moved`, of that shape: the last step to each, and the
    element that it adds or takes.  `cost`: of each step that does, by element.

    Returns
    -------
    int
        0 if they settled, -1 after `sweeps` without rest, or the number of cycles found that gain:
        `cycles` is set to a state on each.
    """
    flat = came.reshape(came.size)
    seen = np.empty(came.size, np.int64)
    for sweep in range(sweeps):
        if not relax(
            tables, came, moved, offsets, element, removed, lowered, grown, cost, plain, mixed, pure
        ):
            return 0
        if sweep % LOOKS == LOOKS - 1:
            found = gains(flat, seen, cycles)
            if found > 0:
                return found
    return -1


def weigh(
    came: Any, moved: Any, start: Any, fixed: Any, column: Any, plain: Any, mixed: Any, pure: Any,
    weights: Any,
) -> None:  # fmt: skip
    """Weights of a cycle: its cost is weights @ (1, *prices).

    `fixed`, `column`: what the steps that add or take an element cost besides the price, and which
    price: adding earns it, taking pays it; -1 where there is none.
    """
    flat, elements = came.reshape(came.size), moved.reshape(moved.size)
    weights[:] = 0
    state = start
    while True:
        kind = flat[state] % EDGES
        if kind <= LEAVE:
            x = elements[state]
            weights[0] += fixed[kind, x]
            if column[kind, x] >= 0:
                weights[1 + column[kind, x]] += 1 if kind == LEAVE else -1
        elif kind == PLAIN:
            weights[0] += plain
        elif kind == MIXED:
            weights[0] += mixed
        elif kind == PURE:
            weights[0] += pure
        state = flat[state] // EDGES
        if state == start:
            return
