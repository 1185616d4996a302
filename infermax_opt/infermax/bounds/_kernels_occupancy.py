"""Shortest paths in the occupancy graph; see `infermax_opt.infermax.bounds.occupancy` for what they prove.

The functions run as plain Python or compiled.  Tables are indexed by [active requests, tokens];
`first` and `last` delimit the tokens that so many requests can hold.  Where `wide` is not 0, the
last row stands for that many requests and fewer, down to its own number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.bounds._kernels_occupancy_steps import (
    ADMIT,
    EDGES,
    ENTER,
    EVICT,
    FAR,
    FINISH,
    FIRST,
    IDLE,
    LATE_ENTRY,
    LATE_RETURN,
    MIXED,
    PLAIN,
    PURE,
    RETURN,
    evict,
    finish,
    lift,
    shift,
)

__all__ = ["Costs", "gains", "relax", "settle", "weigh"]

#: Sweeps between two looks for a cycle that gains.
LOOKS = 4


class Costs(NamedTuple):
    """Weights of the edges, in units.

    `plain`, `mixed`, `pure`: a batch of decodes, with prefills besides, of prefills alone.  `token`,
    `size`: payment of a generated token, and per token of KV its request then holds.  `out_fixed +
    out_size * s`: cost of evicting a request of size s, and `in_fixed + in_size * s` of its return.
    `pairs`: cost of a batch for each pair of requests in it, paid back by who leaves the other.  `first`,
    `finish`: columns of what a first token and a finish pay besides, by size of the prompt and of the
    finished request.
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
    pairs: Any
    first: Any
    finish: Any


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
    waited = token + size * shortest
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
        earned -= costs.pairs * (k * (k - 1) // 2)
        idle = waited - costs.pairs * ((wide if wide and k == most else k) - 1)
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
            others = wide - 1 if wide and k == most else other
            for index in range(len(ends)):
                changed |= finish(
                    potential[k], potential[other], begin, end, ends[index], costs.finish[index],
                    costs.pairs, other * shortest, others * (ends[index] - shortest), came[0, other],
                    k * width,
                )  # fmt: skip
            if evictions:
                changed |= evict(
                    potential[k], potential[other], begin, end, shortest + 1, longest,
                    costs.out_fixed, costs.out_size, costs.pairs, other * shortest, others, shortest,
                    came[0, other], k * width,
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
    came: Any, start: Any, wide: Any, low: Any, prompts: Any, ends: Any, shortest: Any, by_size: Any,
    costs: Any, weights: Any,
) -> Any:  # fmt: skip
    """Add the weights of the cycle through a state, or of the path to it; return where this begins.

    Its cost is weights @ (1, token, size, out_fixed, out_size, pairs, *first, *finish).  Tokens are counted
    from `low` for each active request; `by_size`: evictions are paid back by their size alone.

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
        others = wide - 1 if wide and k == rows - 1 else k - 1
        if kind in (ADMIT, FIRST):
            prompt = grown if kind == ADMIT else grown - 1
            weights[6 + np.searchsorted(prompts, prompt)] -= 1
            if kind == FIRST:
                weights[1] -= 1
                weights[2] -= prompt
        elif kind == FINISH:
            weights[6 + len(prompts) + np.searchsorted(ends, -grown)] -= 1
            weights[5] -= min(u + grown - state // width % rows * shortest, others * (-grown - shortest))
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
            weights[5] += k * (k - 1) // 2
        elif kind == IDLE:
            weights[1] += 1
            weights[2] += shortest
            weights[5] -= others
        elif kind == EVICT:
            weights[3] += 1
            weights[4] -= grown
            back = others * (-grown - shortest)
            weights[5] -= back if by_size else min(u + grown - state // width % rows * shortest, back)
        state = source
        if state == start:
            break
    return state
