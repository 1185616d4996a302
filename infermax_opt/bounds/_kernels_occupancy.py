"""Shortest paths in the occupancy graph; see `infermax_opt.bounds.occupancy` for what they prove.

The functions run as plain Python or compiled.  Tables are indexed by [active requests, tokens];
`first` and `last` delimit the tokens that so many requests can hold.  Where `wide` is not 0, the
last row stands for that many requests and fewer, down to its own number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["FAR", "Costs", "drop", "lift", "relax", "settle", "shift"]

#: Distance of a state that no path has reached.
FAR = 2**60


class Costs(NamedTuple):
    """Weights of the edges, in units.

    `plain`, `mixed`, `pure`: a batch without first tokens, with first tokens and decodes, with
    first tokens and no decode.  `token`, `size`: payment of a generated token, and per token of KV
    its request then holds.  `out_fixed + out_size * s`: cost of evicting a request of size s, and
    `in_fixed + in_size * s` of refilling it.
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


def shift(source: Any, target: Any, first: Any, last: Any, by: Any, cost: Any) -> Any:
    """Relax target[U] by source[U - by] + cost, U in first..last."""
    changed = False
    for u in range(max(first, by), min(last, len(source) - 1 + by) + 1):
        value = source[u - by]
        if value < FAR and value + cost < target[u]:
            target[u] = value + cost
            changed = True
    return changed


def lift(source: Any, target: Any, first: Any, last: Any, low: Any, high: Any, fixed: Any, slope: Any) -> Any:
    """Relax target[U] by source[U - s] + fixed + slope * s for s in low..high, U in first..last."""
    changed = False
    queue = np.empty(last - first + high - low + 2, np.int64)
    head = tail = 0
    fed = max(0, first - high)
    for u in range(first, last + 1):
        while fed <= u - low:
            value = source[fed]
            if value < FAR:
                value -= slope * fed
                while tail > head and source[queue[tail - 1]] - slope * queue[tail - 1] >= value:
                    tail -= 1
                queue[tail] = fed
                tail += 1
            fed += 1
        while tail > head and queue[head] < u - high:
            head += 1
        if tail > head:
            value = source[queue[head]] + fixed + slope * (u - queue[head])
            if value < target[u]:
                target[u] = value
                changed = True
    return changed


def drop(source: Any, target: Any, first: Any, last: Any, low: Any, high: Any, fixed: Any, slope: Any) -> Any:
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
                changed = True
    return changed


def relax(
    potential: Any, admitted: Any, pure: Any, first: Any, last: Any, capacity: Any, wide: Any,
    prompts: Any, ends: Any, shortest: Any, longest: Any, evictions: Any, costs: Any,
) -> Any:  # fmt: skip
    """Relax every edge once, by number of requests; return whether a distance fell."""
    changed = False
    most = len(first) - 1
    token, size = costs.token, costs.size
    idle = token + size * shortest
    evictions = evictions and longest > shortest
    for k in range(1, most + 1):
        begin, end = first[k], last[k]
        for other in range(k - 1, k + 1 if wide and k == most else k):
            if evictions:
                changed |= lift(
                    potential[other], potential[k], begin, end,
                    shortest + 1, longest, costs.in_fixed, costs.in_size,
                )  # fmt: skip
                # In a batch without decodes the refilled request makes its token and grows.
                low, high = shortest + 2, longest + 1
                fixed, slope = costs.in_fixed - costs.in_size - token + size, costs.in_size - size
                changed |= lift(pure[other], pure[k], begin, end, low, high, fixed, slope)
                changed |= lift(potential[other], pure[k], begin, end, low, high, fixed, slope)
            for prompt in prompts:
                changed |= shift(potential[other], admitted[k], begin, end, prompt, 0)
                changed |= shift(admitted[other], admitted[k], begin, end, prompt, 0)
                pay = token + size * prompt
                changed |= shift(potential[other], pure[k], begin, end, prompt + 1, -pay)
                changed |= shift(pure[other], pure[k], begin, end, prompt + 1, -pay)
        changed |= shift(pure[k], potential[k], begin, end, 0, costs.pure)
        earned = token * k
        if wide and k == most:
            earned = max(earned, token * wide)
        least = FAR
        for u in range(begin, min(capacity, end - k) + 1):
            value = min(potential[k, u] + costs.plain, admitted[k, u] + costs.mixed)
            value = value - earned - size * u if value < FAR else FAR
            # More than k requests grow by more.
            least = min(least, value) if wide and k == most else value
            if least < potential[k, u + k]:
                potential[k, u + k] = least
                changed = True
        if wide and k == most:
            for u in range(capacity + k + 1, end + 1):
                if least < potential[k, u]:
                    potential[k, u] = least
                    changed = True
        for u in range(end - 1, begin - 1, -1):
            value = potential[k, u + 1]
            if value < FAR and value + idle < potential[k, u]:
                potential[k, u] = value + idle
                changed = True
    for k in range(most, 0, -1):
        for other in range(k if wide and k == most else k - 1, k - 2, -1):
            begin, end = first[other], last[other]
            for end_size in ends:
                changed |= shift(potential[k], potential[other], begin, end, -end_size, 0)
            if evictions:
                changed |= drop(
                    potential[k], potential[other], begin, end,
                    shortest + 1, longest, costs.out_fixed, costs.out_size,
                )  # fmt: skip
    return changed


def settle(
    potential: Any, admitted: Any, pure: Any, first: Any, last: Any, capacity: Any, wide: Any,
    prompts: Any, ends: Any, shortest: Any, longest: Any, evictions: Any, costs: Any, sweeps: Any,
) -> Any:  # fmt: skip
    """Distances from the empty state; False if a cycle gains, or after `sweeps` without rest."""
    for _ in range(sweeps):
        if not relax(
            potential, admitted, pure, first, last, capacity, wide,
            prompts, ends, shortest, longest, evictions, costs,
        ):  # fmt: skip
            return True
        if potential[0, 0] < 0:
            return False
    return False
