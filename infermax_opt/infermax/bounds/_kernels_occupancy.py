"""Shortest paths in the occupancy graph; see `infermax_opt.infermax.bounds.occupancy` for what they prove.

The functions run as plain Python or compiled.  Tables are indexed by [active requests, tokens];
`first` and `last` delimit the tokens that so many requests can hold.  Where `wide` is not 0, the
last row stands for that many requests and fewer, down to its own number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["FAR", "Costs", "drop", "gains", "lift", "relax", "settle", "shift", "weigh"]

#: Distance of a state that no path has reached.
FAR = 2**60
#: Sweeps between two looks for a cycle that gains.
LOOKS = 4
#: Kinds of edges; what is stored with a state is EDGES * (state it came from) + kind, or -1.
EDGES = 16
ADMIT, FIRST, RETURN, LATE_RETURN, ENTER, LATE_ENTRY, PLAIN, MIXED, PURE, IDLE, FINISH, EVICT = range(12)


class Costs(NamedTuple):
    """Weights of the edges, in units.

    `plain`, `mixed`, `pure`: a batch of decodes, with prefills besides, of prefills alone.  `token`,
    `size`: payment of a generated token, and per token of KV its request then holds.  `out_fixed +
    out_size * s`: cost of evicting a request of size s, and `in_fixed + in_size * s` of its return.
    `first`, `finish`: columns of what a first token and a finish pay besides, by size of the prompt and
    of the finished request.
    """

    plain: Any
    mixed: Any
    pure: Any
    token: Any
    size: Any
    out_fixed: Any
    out_size: Any
    in_fixed: Any
    in_size: Any
    first: Any
    finish: Any


def shift(
    source: Any, target: Any, first: Any, last: Any, by: Any, cost: Any, came: Any, origin: Any, kind: Any
) -> Any:
    """Relax target[U] by source[U - by] + cost, U in first..last."""
    changed = False
    for u in range(max(first, by), min(last, len(source) - 1 + by) + 1):
        value = source[u - by]
        if value < FAR and value + cost < target[u]:
            target[u] = value + cost
            came[u] = (origin + u - by) * EDGES + kind
            changed = True
    return changed


def lift(
    between: Any, layer: Any, target: Any, first: Any, last: Any, low: Any, high: Any, fixed: Any, slope: Any,
    came: Any, at: Any, at_layer: Any, kind: Any,
) -> Any:  # fmt: skip
    """Relax target[U] by the lower source at U - s, plus fixed + slope * s, s in low..high, U in first..last.

    Sources: `between` batches, from state `at` on, and the `layer` of a batch, from `at_layer` on.
    """
    changed = False
    queue = np.empty(last - first + high - low + 2, np.int64)
    head = tail = 0
    fed = max(0, first - high)
    for u in range(first, last + 1):
        while fed <= u - low:
            value = min(between[fed], layer[fed])
            if value < FAR:
                value -= slope * fed
                while tail > head:
                    known = queue[tail - 1]
                    if min(between[known], layer[known]) - slope * known < value:
                        break
                    tail -= 1
                queue[tail] = fed
                tail += 1
            fed += 1
        while tail > head and queue[head] < u - high:
            head += 1
        if tail > head:
            used = queue[head]
            value = min(between[used], layer[used]) + fixed + slope * (u - used)
            if value < target[u]:
                target[u] = value
                came[u] = ((at if between[used] <= layer[used] else at_layer) + used) * EDGES + kind
                changed = True
    return changed


def drop(
    source: Any, target: Any, first: Any, last: Any, low: Any, high: Any, fixed: Any, slope: Any,
    came: Any, origin: Any, kind: Any,
) -> Any:  # fmt: skip
    """Relax target[U] by source[U + s] + fixed + slope * s for s in low..high, U in first..last."""
    changed = False
    end = len(source) - 1
    queue = np.empty(last - first + high - low + 2, np.int64)
    head = tail = 0
    fed = min(end, last + high)
    for u in range(last, first - 1, -1):
        while fed >= u + low:
            value = source[fed]
            if value < FAR:
                value += slope * fed
                while tail > head and source[queue[tail - 1]] + slope * queue[tail - 1] >= value:
                    tail -= 1
                queue[tail] = fed
                tail += 1
            fed -= 1
        while tail > head and queue[head] > u + high:
            head += 1
        if tail > head:
            value = source[queue[head]] + fixed + slope * (queue[head] - u)
            if value < target[u]:
                target[u] = value
                came[u] = (origin + queue[head]) * EDGES + kind
                changed = True
    return changed


def relax(
    tables: Any, came: Any, first: Any, last: Any, capacity: Any, wide: Any,
    prompts: Any, ends: Any, shortest: Any, longest: Any, young: Any, evictions: Any, chunked: Any,
    costs: Any,
) -> Any:  # fmt: skip
    """Relax every edge once, by number of requests; return whether a distance fell.

    Long on purpose: what it shares with its parts are a dozen offsets and columns, and numba, which
    counts references to columns where a kernel makes arrays, would do so for each number of requests.
    """
    changed = False
    most = len(first) - 1
    potential, admitted, pure = tables
    rows, width = potential.shape
    token, size = costs.token, costs.size
    idle = token + size * shortest
    evictions = evictions and longest > shortest
    for k in range(1, most + 1):
        begin, end = first[k], last[k]
        for other in range(k - 1, k + 1 if wide and k == most else k):
            at = other * width
            at_admitted, at_pure = (rows + other) * width, (2 * rows + other) * width
            if evictions:
                low, high, fixed, slope = shortest + 1, longest, costs.in_fixed, costs.in_size
                changed |= lift(
                    potential[other], admitted[other], admitted[k], begin, end,
                    low, high, fixed, slope, came[1, k], at, at_admitted, RETURN,
                )  # fmt: skip
                # In a batch without decodes a request that makes its token grows.
                changed |= lift(
                    potential[other], pure[other], pure[k], begin, end,
                    low + 1, high + 1, fixed - slope - token + size, slope - size,
                    came[2, k], at, at_pure, ENTER,
                )  # fmt: skip
            if evictions and chunked:
                changed |= lift(
                    potential[other], admitted[other], admitted[k], begin, end,
                    low - 1, high - 1, fixed + slope + token, slope + size,
                    came[1, k], at, at_admitted, LATE_RETURN,
                )  # fmt: skip
                changed |= lift(
                    potential[other], pure[other], pure[k], begin, end,
                    low, high, fixed, slope, came[2, k], at, at_pure, LATE_ENTRY,
                )  # fmt: skip
            for index in range(len(prompts)):
                by, pay = prompts[index], costs.first[index]
                joined, layer = (potential[k], 0) if young else (admitted[k], 1)
                changed |= shift(potential[other], joined, begin, end, by, -pay, came[layer, k], at, ADMIT)
                if not young:
                    changed |= shift(
                        admitted[other], joined, begin, end, by, -pay, came[1, k], at_admitted, ADMIT
                    )
                pay += token + size * by
                by += 1
                changed |= shift(potential[other], pure[k], begin, end, by, -pay, came[2, k], at, FIRST)
                changed |= shift(pure[other], pure[k], begin, end, by, -pay, came[2, k], at_pure, FIRST)
        changed |= shift(
            pure[k], potential[k], begin, end, 0, costs.pure, came[0, k], (2 * rows + k) * width, PURE
        )
        earned = token * k
        if wide and k == most:
            earned = max(earned, token * wide)
        least, origin = FAR, 0
        for u in range(begin, min(capacity, end - k) + 1):
            value, where = potential[k, u] + costs.plain, (k * width + u) * EDGES + PLAIN
            if admitted[k, u] + costs.mixed < value:
                value = admitted[k, u] + costs.mixed
                where = ((rows + k) * width + u) * EDGES + MIXED
            value = value - earned - size * u if value < FAR else FAR
            # More than k requests grow by more.
            if value < least or not (wide and k == most):
                least, origin = value, where
            if least < potential[k, u + k]:
                potential[k, u + k] = least
                came[0, k, u + k] = origin
                changed = True
        if wide and k == most:
            for u in range(capacity + k + 1, end + 1):
                if least < potential[k, u]:
                    potential[k, u] = least
                    came[0, k, u] = origin
                    changed = True
        for u in range(end - 1, begin - 1, -1):
            value = potential[k, u + 1]
            if value < FAR and value + idle < potential[k, u]:
                potential[k, u] = value + idle
                came[0, k, u] = (k * width + u + 1) * EDGES + IDLE
                changed = True
    for k in range(most, 0, -1):
        for other in range(k if wide and k == most else k - 1, k - 2, -1):
            begin, end = first[other], last[other]
            for index in range(len(ends)):
                by, pay = -ends[index], costs.finish[index]
                changed |= shift(
                    potential[k], potential[other], begin, end, by, -pay, came[0, other], k * width, FINISH
                )
            if evictions:
                changed |= drop(
                    potential[k], potential[other], begin, end, shortest + 1, longest,
                    costs.out_fixed, costs.out_size, came[0, other], k * width, EVICT,
                )  # fmt: skip
    return changed


def gains(came: Any, seen: Any, cycles: Any) -> Any:
    """Set `cycles` to one state on each cycle of the edges that distances came by; return how many.

    Such cycles gain.
    """
    found = 0
    seen[:] = -1
    for start in range(seen.shape[0]):
        state = start
        while state >= 0 and seen[state] < 0:
            seen[state] = start
            state = came[state] // EDGES if came[state] >= 0 else -1
        if state >= 0 and seen[state] == start:
            cycles[found] = state
            found += 1
            if found == len(cycles):
                break
    return found


def settle(
    tables: Any, came: Any, first: Any, last: Any, capacity: Any, wide: Any,
    prompts: Any, ends: Any, shortest: Any, longest: Any, young: Any, evictions: Any, chunked: Any,
    costs: Any, sweeps: Any, cycles: Any,
) -> Any:  # fmt: skip
    """Potentials, by lowering those given until no edge lowers any.

    `tables`, int64 (3, rows, width): potentials of states as they are, in a batch that prefills and
    decodes, and in one without decodes.  `came`, of that shape: the last edge to each.  `young`: whether
    first tokens may be decodes of requests that were not looked at before.

    Returns
    -------
    int
        0 if they settled, -1 after `sweeps` without rest, or the number of cycles found that gain:
        `cycles` is set to a state on each.
    """
    flat = came.reshape(came.size)
    seen = np.empty(came.size, np.int64)
    begun = tables[0, 0, 0]
    for sweep in range(sweeps):
        if not relax(
            tables, came, first, last, capacity, wide,
            prompts, ends, shortest, longest, young, evictions, chunked, costs,
        ):  # fmt: skip
            return 0
        if sweep % LOOKS == LOOKS - 1 or tables[0, 0, 0] < begun:
            found = gains(flat, seen, cycles)
            if found > 0:
                return found
    return -1


def weigh(
    came: Any, start: Any, wide: Any, low: Any, prompts: Any, ends: Any, shortest: Any, costs: Any,
    weights: Any,
) -> Any:  # fmt: skip
    """Add the weights of the cycle through a state, or of the path to it; return where this begins.

    Its cost is weights @ (1, token, size, out_fixed, out_size, *first, *finish).  Tokens are counted from
    `low` for each active request.

    `rho` is what refilling costs more per token: costs.in_size + costs.out_size.  Long on purpose:
    one branch for each kind of edge.
    """
    rows, width = came.shape[-2:]
    flat = came.reshape(came.size)
    rho = costs.in_size + costs.out_size
    state = start
    while flat[state] >= 0:
        edge = np.int64(flat[state])
        source, kind = edge // EDGES, edge % EDGES
        k = source // width % rows
        u = source % width + k * low
        grown = state % width + state // width % rows * low - u
        if kind in (ADMIT, FIRST):
            prompt = grown if kind == ADMIT else grown - 1
            weights[5 + np.searchsorted(prompts, prompt)] -= 1
            if kind == FIRST:
                weights[1] -= 1
                weights[2] -= prompt
        elif kind == FINISH:
            weights[5 + len(prompts) + np.searchsorted(ends, -grown)] -= 1
        elif kind == PURE:
            weights[0] += costs.pure
        elif kind in (RETURN, LATE_RETURN, ENTER, LATE_ENTRY):
            size = grown + (1 if kind == LATE_RETURN else -1 if kind == ENTER else 0)
            weights[0] += rho * (size - 1)
            weights[3] -= 1
            weights[4] -= size
            if kind == ENTER:
                weights[1] -= 1
                weights[2] -= size
            elif kind == LATE_RETURN:
                weights[1] += 1
                weights[2] += size - 1
        elif kind in (PLAIN, MIXED):
            weights[0] += costs.plain if kind == PLAIN else costs.mixed
            weights[1] -= wide if wide and k == rows - 1 and costs.token > 0 else k
            weights[2] -= u
        elif kind == IDLE:
            weights[1] += 1
            weights[2] += shortest
        elif kind == EVICT:
            weights[3] += 1
            weights[4] -= grown
        state = source
        if state == start:
            break
    return state
