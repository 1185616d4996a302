"""Serial generation of start rounds, and annealing on its order; see `planner`.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["CHANCES", "HELPERS", "Requests", "anneal", "generate"]

#: Share of the moves that give a request another place; in the others two change places.
MOVES = 0.6
#: Places that a request moves by on average, and how often it moves anywhere.
NEAR, ANYWHERE = 4.0, 0.2
#: Random numbers that a step takes.
CHANCES = 6
#: More than any sum of latencies.
NO_LIMIT = 2**60


class Requests(NamedTuple):
    """Input and output tokens, arrival in rounds."""

    inputs: Any
    outputs: Any
    arrival: Any


def first_fit(used: Any, start: Any, i: Any, o: Any, capacity: Any) -> Any:
    """First start, from a round on, from which a request fits.

    Where round x is too full, only a start at x + used + i - capacity holds little enough in it, or one
    after x.
    """
    t = o - 1
    while t >= 0:
        x = start + t
        if used[x] + i + t > capacity:
            start = x + min(1, used[x] + i - capacity)
            t = o
        t -= 1
    return start


def add(used: Any, start: Any, i: Any, o: Any, sign: Any) -> None:
    """Add a request to memory, or take it out."""
    for t in range(o):
        used[start + t] += sign * (i + t)


def generate(
    requests: Requests, capacity: Any, order: Any, same: Any, known: Any, limit: Any,
    used: Any, starts: Any,
) -> Any:  # fmt: skip
    """Start all requests in their order, each as soon as it fits; return the sum of latencies.

    `same`: how many of the first
    start as is `known`; `limit`: gives up where the sum would be more; `used`: memory, all zeros
    before and after.
    """
    total = 0
    for k in range(len(order)):
        total += requests.outputs[k]
    placed = 0
    for k in order:
        i, o = requests.inputs[k], requests.outputs[k]
        start = known[k] if placed < same else first_fit(used, requests.arrival[k], i, o, capacity)
        starts[k] = start
        add(used, start, i, o, 1)
        placed += 1
        total += start - requests.arrival[k]
        if total > limit:
            break
    for p in range(placed):
        k = order[p]
        add(used, starts[k], requests.inputs[k], requests.outputs[k], -1)
    return total


def changed(chance: Any, order: Any) -> Any:
    """Change the order, by numbers from 0 to 1; return how many of the first stay as they are."""
    n = len(order)
    a = int(chance[0] * n)
    if chance[2] < ANYWHERE:
        b = int(chance[3] * n)
    else:
        far = 1 + int(-NEAR * np.log(1.0 - chance[3]))
        b = min(n - 1, max(0, a + far if chance[4] < 0.5 else a - far))
    moved = order[a]
    if chance[1] < MOVES:
        step = 1 if b > a else -1
        for p in range(a, b, step):
            order[p] = order[p + step]
    else:
        order[a] = order[b]
    order[b] = moved
    return min(a, b)


def anneal(requests: Requests, capacity: Any, order: Any, used: Any, chances: Any, heat: Any) -> Any:
    """Change the order, a step for each row of chances; return the best sum and its starts.

    `order`: where to start from; where it got to afterwards, in the order of starts.
    """
    n = len(order)
    starts, tried = np.empty(n, np.int64), np.empty(n, np.int64)
    now = generate(requests, capacity, order, 0, starts, NO_LIMIT, used, starts)
    by_start = np.argsort(starts, kind="mergesort")
    value = generate(requests, capacity, by_start, 0, starts, now, used, tried)
    if value <= now:
        now, order[:], starts[:] = value, by_start, tried
    best, best_starts = now, starts.copy()
    new_order = order.copy()
    for step in range(len(chances)):
        same = changed(chances[step], new_order)
        limit = now + int(-heat * np.log(1.0 - chances[step, 5]))
        value = generate(requests, capacity, new_order, same, starts, limit, used, tried)
        if value <= limit:
            now = value
            order[:], starts[:] = new_order, tried
            if now < best:
                best = now
                best_starts[:] = starts
        else:
            new_order[:] = order
    return best, best_starts


HELPERS = (first_fit, add, generate, changed)
"""What `anneal` calls, callees first."""
