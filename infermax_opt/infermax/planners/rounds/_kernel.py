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
    """Input and output tokens, arrival in rounds, the most output tokens."""

    inputs: Any
    outputs: Any
    arrival: Any
    longest: Any


class Placed(NamedTuple):
    """Requests that have a start, by last rounds: that round, the first one, peak, and memory in the last.

    Between last rounds memory only grows, so who fits in these, and in its own, fits in all.
    """

    end: Any
    start: Any
    peak: Any
    memory: Any


def held(placed: Placed, count: Any, first: Any, x: Any, longest: Any) -> Any:
    """Memory in round x, by those from `first` on, who end in it or later."""
    used = 0
    for q in range(first, count):
        if placed.end[q] - x >= longest:
            break
        if placed.start[q] <= x:
            used += placed.peak[q] - (placed.end[q] - x)
    return used


def first_fit(placed: Placed, count: Any, start: Any, i: Any, o: Any, capacity: Any, longest: Any) -> Any:
    """First start, from a round on, from which a request fits.

    Where round x is too full, only a start at x + memory + i - capacity holds little enough in it, or one
    after x.
    """
    low = 0
    while True:
        while low < count and placed.end[low] < start:
            low += 1
        end = start + o - 1
        high = low
        while high < count and placed.end[high] < end:
            high += 1
        over = held(placed, count, high, end, longest) + i - capacity
        x = end
        while over + x - start <= 0 and high > low:
            high -= 1
            x = placed.end[high]
            over = placed.memory[high] + i - capacity
        if over + x - start <= 0:
            return start
        start = x + min(1, over)


def insert(placed: Placed, count: Any, start: Any, i: Any, o: Any, longest: Any) -> None:
    """Note a request among those that have a start."""
    end = start + o - 1
    q = count
    while q > 0 and placed.end[q - 1] >= end:
        for column in placed:
            column[q] = column[q - 1]
        q -= 1
    z = q + 1
    while z <= count and placed.end[z] == end:
        placed.memory[z] += i + o - 1
        z += 1
    placed.end[q], placed.start[q], placed.peak[q] = end, start, i + o - 1
    placed.memory[q] = i + o - 1 + held(placed, count + 1, q + 1, end, longest)
    z = q - 1
    while z >= 0 and placed.end[z] >= start:
        placed.memory[z] += i + placed.end[z] - start
        z -= 1


def generate(
    requests: Requests, capacity: Any, order: Any, same: Any, known: Any, limit: Any,
    placed: Placed, starts: Any,
) -> Any:  # fmt: skip
    """Start all requests in their order, each as soon as it fits; return the sum of latencies.

    A request that arrived no sooner and is no smaller than one before it cannot start before that one.

    `same`: how many of the first
    start as is `known`; `limit`: gives up where the sum would be more; `placed`: room for all.
    """
    total = 0
    for k in range(len(order)):
        total += requests.outputs[k]
    for p in range(len(order)):
        k = order[p]
        i, o, start = requests.inputs[k], requests.outputs[k], requests.arrival[k]
        if p < same:
            start = known[k]
        else:
            for q in range(p):
                j = order[q]
                smaller = requests.inputs[j] <= i and requests.outputs[j] <= o
                if starts[j] > start and smaller and requests.arrival[j] <= requests.arrival[k]:
                    start = starts[j]
            start = first_fit(placed, p, start, i, o, capacity, requests.longest)
        starts[k] = start
        total += start - requests.arrival[k]
        if total > limit:
            break
        insert(placed, p, start, i, o, requests.longest)
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


def anneal(requests: Requests, capacity: Any, order: Any, chances: Any, heat: Any) -> Any:
    """Change the order, a step for each row of chances; return the best sum and its starts.

    `order`: where to start from; where it got to afterwards, in the order of starts.
    """
    n = len(order)
    starts, tried = np.empty(n, np.int64), np.empty(n, np.int64)
    room = np.empty((4, n), np.int64)
    used = Placed(room[0], room[1], room[2], room[3])
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


HELPERS = (held, first_fit, insert, generate, changed)
"""What `anneal` calls, callees first."""
