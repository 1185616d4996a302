"""Steps of the occupancy graph, each for all tokens at once; see `infermax_opt.infermax.bounds.occupancy`.

The functions run as plain Python or compiled, and return whether a distance fell.  Columns are indexed by the
tokens of so many requests; what is stored with a state is the step that came to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["EDGES", "FAR", "drop", "evict", "finish", "lift", "shift"]

#: Distance of a state that no path has reached.
FAR = 2**60
#: Kinds of edges; what is stored with a state is EDGES * (state it came from) + kind, or -1.
EDGES = 16
ADMIT, FIRST, RETURN, LATE_RETURN, ENTER, LATE_ENTRY, PLAIN, MIXED, PURE, IDLE, FINISH, EVICT = range(12)


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


def finish(
    source: Any, target: Any, first: Any, last: Any, size: Any, pay: Any, pairs: Any, floor: Any, most: Any,
    came: Any, origin: Any,
) -> Any:  # fmt: skip
    """Relax target[U] by source[U + size] - pay - pairs * min(U - floor, most), U in first..last."""
    changed = False
    for u in range(first, min(last, len(source) - 1 - size) + 1):
        if source[u + size] < FAR:
            value = source[u + size] - pay - pairs * min(u - floor, most)
            if value < target[u]:
                target[u] = value
                came[u] = (origin + u + size) * EDGES + FINISH
                changed = True
    return changed


def evict(
    source: Any, target: Any, first: Any, last: Any, low: Any, high: Any, fixed: Any, slope: Any,
    pairs: Any, floor: Any, others: Any, least: Any, came: Any, origin: Any,
) -> Any:  # fmt: skip
    """Relax target[U] by source[U + s] + fixed + slope * s - pairs * min(U - floor, others * (s - least)).

    For s in low..high and U in first..last.  The product is the smaller one up to some s for each U: these
    are passed first, then those above.  Long on purpose: two windows over s move along U together.
    """
    if pairs == 0 or others == 0:
        return drop(source, target, first, last, low, high, fixed, slope, came, origin, EVICT)
    changed = False
    end = len(source) - 1
    queue = np.empty(last - first + high - low + 2, np.int64)
    for large in range(2):
        rise = slope - (0 if large else pairs * others)
        head = tail = 0
        fed = min(end, last + high)
        for u in range(last, first - 1, -1):
            turn = least + (u - floor) // others
            begin, final = (max(low, turn + 1), high) if large else (low, min(high, turn))
            while fed >= u + begin:
                value = source[fed]
                if value < FAR:
                    value += rise * fed
                    while tail > head and source[queue[tail - 1]] + rise * queue[tail - 1] >= value:
                        tail -= 1
                    queue[tail] = fed
                    tail += 1
                fed -= 1
            while tail > head and queue[head] > u + final:
                head += 1
            if tail > head:
                size = queue[head] - u
                value = source[queue[head]] + fixed + slope * size
                value -= pairs * min(u - floor, others * (size - least))
                if value < target[u]:
                    target[u] = value
                    came[u] = (origin + queue[head]) * EDGES + EVICT
                    changed = True
    return changed
