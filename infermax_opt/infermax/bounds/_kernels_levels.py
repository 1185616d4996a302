"""States on levels, and shortest paths among them; see `infermax_opt.infermax.bounds.levels`.

The functions run as plain Python or compiled.  States are listed as in `_kernels_state_flow`: a row of
`members`, levels in order; those that start with a state's levels and have one more stand together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.bounds._kernels_occupancy import gains
from infermax_opt.infermax.bounds._kernels_occupancy_steps import EDGES, FAR
from infermax_opt.infermax.bounds._kernels_state_flow import find

__all__ = ["FAR", "find", "gains", "link", "relax", "rounded", "settle", "weigh"]

#: Steps: a block, one in which requests appear, one into empty memory; a request appears, or all have; one
#: leaves; one stays on its level.
BLOCK, MIXED, FRESH, APPEAR, JOINED, LEAVE, STAY = range(7)
#: Sweeps between two looks for a cycle that gains.
LOOKS = 4


def link(
    members: Any, lengths: Any, children: Any, stays: Any,
    offsets: Any, level: Any, removed: Any, lowered: Any, shrunk: Any,
) -> None:  # fmt: skip
    """Find where the steps lead.

    Entries offsets[state] .. offsets[state + 1] - 1 are the different levels of a state: `level`, `removed`
    is the state without one request on it, `lowered` that where one is a level lower, -1 from the lowest;
    `shrunk` is the state where all are, but for those on the lowest if these stay there (`stays`); where they
    may not, it is -1 if there are any.
    """
    entry = 0
    row = np.empty(members.shape[1], np.int64)
    for state in range(len(shrunk)):
        offsets[state] = entry
        length = lengths[state]
        for k in range(length):
            x = members[state, k]
            if k > 0 and members[state, k - 1] == x:
                continue
            level[entry] = x
            row[:length] = members[state, :length]
            lowered[entry] = -1
            if x > 0:
                row[k] = x - 1
                lowered[entry] = find(row, length, members, children)
            row[k : length - 1] = members[state, k + 1 : length]
            removed[entry] = find(row, length - 1, members, children)
            entry += 1
        shrunk[state] = -1
        if length > 0 and (members[state, 0] > 0 or stays):
            row[:length] = np.maximum(members[state, :length] - 1, 0)
            shrunk[state] = find(row, length, members, children)
    offsets[len(shrunk)] = entry


def relax(
    tables: Any, came: Any, moved: Any, offsets: Any, level: Any, removed: Any, lowered: Any, shrunk: Any,
    fresh: Any, appear: Any, leave: Any, block: Any, more: Any, stay: Any,
) -> Any:  # fmt: skip
    """Relax every step once; return whether a distance fell.

    Long on purpose: one branch for each kind of step, and a call for each would pass ten columns to
    which numba counts references.
    """
    changed = False
    between, within = tables
    states = len(shrunk)
    for state in range(1, states):
        least, kept = within[state], within[state]
        origin, x = -1, 0
        before = shrunk[state]
        grown = FAR
        if before >= 0 and between[before] < FAR:
            grown = between[before] + block
            if grown + more < least:
                least, origin = grown + more, before * EDGES + MIXED
        for entry in range(offsets[state], offsets[state + 1]):
            other, cost = removed[entry], appear[level[entry]]
            if within[other] + cost < least and within[other] < FAR and cost < FAR:
                least, x = within[other] + cost, level[entry]
                origin = (states + other) * EDGES + APPEAR
        if least < kept:
            within[state], came[1, state], moved[1, state] = least, origin, x
            changed = True
        least, origin = between[state], -1
        if grown < least:
            least, origin = grown, before * EDGES + BLOCK
        if within[state] < least:
            least, origin = within[state], (states + state) * EDGES + JOINED
        if fresh[state] < FAR and between[0] + fresh[state] < least:
            least, origin = between[0] + fresh[state], FRESH
        if origin >= 0:
            between[state], came[0, state] = least, origin
            changed = True
    for state in range(states - 1, 0, -1):
        value = between[state]
        if value == FAR:
            continue
        for entry in range(offsets[state], offsets[state + 1]):
            x, other = level[entry], removed[entry]
            if leave[x] < FAR and value + leave[x] < between[other]:
                between[other] = value + leave[x]
                came[0, other], moved[0, other] = state * EDGES + LEAVE, x
                changed = True
            other = lowered[entry]
            if other >= 0 and value - stay < between[other]:
                between[other] = value - stay
                came[0, other] = state * EDGES + STAY
                changed = True
    return changed


def settle(
    tables: Any, came: Any, moved: Any, offsets: Any, level: Any, removed: Any, lowered: Any, shrunk: Any,
    appear: Any, leave: Any, block: Any, more: Any, stay: Any, sweeps: Any, cycles: Any,
) -> Any:  # fmt: skip
    """Potentials, by lowering those given until no step lowers any.

    `tables`, int64 (2, states): potentials of states at a look, and in a block in which requests appear.
    `came`, `moved`, of that shape: the last step to each, and the level on which a request comes or leaves.
    `appear`, `leave`: costs by level, FAR where that cannot be; `block`, `more`: of a block, and beside it if
    requests appear in one; `stay`: what staying on a level earns.

    Returns
    -------
    int
        0 if they settled, -1 after `sweeps` without rest, or the number of cycles found that gain:
        `cycles` is set to a state on each.
    """
    flat = came.reshape(came.size)
    seen = np.empty(came.size, np.int64)
    fresh = np.empty(len(shrunk), np.int64)
    fresh[0] = block
    for state in range(1, len(shrunk)):
        last = offsets[state + 1] - 1
        before, cost = fresh[removed[last]], appear[level[last]]
        fresh[state] = before + cost if before < FAR and cost < FAR else FAR
    begun = tables[0, 0]
    for sweep in range(sweeps):
        if not relax(
            tables, came, moved, offsets, level, removed, lowered, shrunk,
            fresh, appear, leave, block, more, stay,
        ):  # fmt: skip
            return 0
        if sweep % LOOKS == LOOKS - 1 or tables[0, 0] < begun:
            found = gains(flat, seen, cycles)
            if found > 0:
                return found
    return -1


def weigh(
    came: Any, moved: Any, start: Any, offsets: Any, level: Any, removed: Any, weights: Any
) -> None:  # fmt: skip
    """Count the steps of a cycle: its cost is linear in these.

    `weights`: blocks; blocks in which requests appear; requests that stay on their level; then, by level,
    requests that appear; then those that leave.
    """
    flat, levels = came.reshape(came.size), moved.reshape(moved.size)
    leaving = 3 + (len(weights) - 3) // 2
    weights[:] = 0
    node = start
    while True:
        kind = flat[node] % EDGES
        if kind == APPEAR:
            weights[3 + levels[node]] += 1
        elif kind == LEAVE:
            weights[leaving + levels[node]] += 1
        elif kind == STAY:
            weights[2] += 1
        elif kind != JOINED:
            weights[0] += 1
        if kind == MIXED:
            weights[1] += 1
        elif kind == FRESH:
            state = node
            while state > 0:
                last = offsets[state + 1] - 1
                weights[3 + level[last]] += 1
                state = removed[last]
        node = flat[node] // EDGES
        if node == start:
            return


def rounded(
    members: Any, lengths: Any, width: Any, wider: Any, coarse: Any, children: Any, found: Any
) -> None:  # fmt: skip
    """Find for each state on levels of `width` tokens the one on wider levels that it is rounded down to."""
    row = np.empty(members.shape[1], np.int64)
    for state in range(len(found)):
        length = lengths[state]
        row[:length] = members[state, :length] * width // wider
        found[state] = find(row, length, coarse, children)
