"""Shortest paths among states on levels of one token, where each batch is charged in full.

See `infermax_opt.infermax.bounds.levels`.  The functions run as plain Python or compiled; states and where
steps lead are those of `_kernels_levels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.bounds._kernels_occupancy import gains
from infermax_opt.infermax.bounds._kernels_occupancy_steps import EDGES, FAR

__all__ = ["FAR", "gains", "relax", "settle", "weigh"]

#: Steps: a batch of decodes alone, one that prefills, too, or alone; a request appears in the second or the
#: third sort, or all have appeared in the second; one leaves; one is idle.
PLAIN, MIXED, PURE, JOIN, ENTER, JOINED, LEAVE, IDLE = range(8)
#: Sweeps between two looks for a cycle that gains.
LOOKS = 4


def relax(
    tables: Any, came: Any, moved: Any, offsets: Any, level: Any, removed: Any, lowered: Any, shrunk: Any,
    appear: Any, leave: Any, plain: Any, mixed: Any, pure: Any,
) -> Any:  # fmt: skip
    """Relax every step once; return whether a distance fell.

    Long on purpose: one branch for each kind of step, and a call for each would pass ten columns to
    which numba counts references.
    """
    changed = False
    between, beside, alone = tables
    states = len(shrunk)
    for state in range(1, states):
        least, single = beside[state], alone[state]
        origin, source, x, y = -1, -1, 0, 0
        before = shrunk[state]
        grown = between[before]
        if grown < FAR and grown + mixed < least:
            least, origin = grown + mixed, before * EDGES + MIXED
        for entry in range(offsets[state], offsets[state + 1]):
            cost, other = appear[level[entry]], removed[entry]
            if cost == FAR:
                continue
            if beside[other] < FAR and beside[other] + cost < least:
                least, x = beside[other] + cost, level[entry]
                origin = (states + other) * EDGES + JOIN
            if between[other] < FAR and between[other] + cost < single:
                single, y = between[other] + cost, level[entry]
                source = other * EDGES + ENTER
            if alone[other] < FAR and alone[other] + cost < single:
                single, y = alone[other] + cost, level[entry]
                source = (2 * states + other) * EDGES + ENTER
        if origin >= 0:
            beside[state], came[1, state], moved[1, state] = least, origin, x
            changed = True
        if source >= 0:
            alone[state], came[2, state], moved[2, state] = single, source, y
            changed = True
        here, origin = between[state], -1
        if grown < FAR and grown + plain < here:
            here, origin = grown + plain, before * EDGES + PLAIN
        if least < here:
            here, origin = least, (states + state) * EDGES + JOINED
        if single < FAR and single + pure < here:
            here, origin = single + pure, (2 * states + state) * EDGES + PURE
        if origin >= 0:
            between[state], came[0, state] = here, origin
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
            if other >= 0 and value < between[other]:
                between[other], came[0, other] = value, state * EDGES + IDLE
                changed = True
    return changed


def settle(
    tables: Any, came: Any, moved: Any, offsets: Any, level: Any, removed: Any, lowered: Any, shrunk: Any,
    appear: Any, leave: Any, plain: Any, mixed: Any, pure: Any, sweeps: Any, cycles: Any,
) -> Any:  # fmt: skip
    """Potentials, by lowering those given until no step lowers any.

    `tables`, int64 (3, states): potentials of states between batches, and while requests appear in a batch
    with decodes, and in one without.  `came`, `moved`, of that shape: the last step to each, and the level
    on which a request comes or leaves.  `appear`, `leave`: costs by level, FAR where that cannot be.

    Returns
    -------
    int
        0 if they settled, -1 after `sweeps` without rest, or the number of cycles found that gain:
        `cycles` is set to a state on each.
    """
    flat = came.reshape(came.size)
    seen = np.empty(came.size, np.int64)
    begun = tables[0, 0]
    for sweep in range(sweeps):
        if not relax(
            tables, came, moved, offsets, level, removed, lowered, shrunk, appear, leave, plain, mixed, pure
        ):
            return 0
        if sweep % LOOKS == LOOKS - 1 or tables[0, 0] < begun:
            found = gains(flat, seen, cycles)
            if found > 0:
                return found
    return -1


def weigh(came: Any, moved: Any, start: Any, weights: Any) -> None:
    """Count the steps of a cycle: its cost is linear in these.

    `weights`: batches of decodes alone, those that prefill, too, or alone; then, by level, requests that
    appear; then those that leave.
    """
    flat, levels = came.reshape(came.size), moved.reshape(moved.size)
    leaving = 3 + (len(weights) - 3) // 2
    weights[:] = 0
    node = start
    while True:
        kind = flat[node] % EDGES
        if kind <= PURE:
            weights[kind] += 1
        elif kind in (JOIN, ENTER):
            weights[3 + levels[node]] += 1
        elif kind == LEAVE:
            weights[leaving + levels[node]] += 1
        node = flat[node] // EDGES
        if node == start:
            return
