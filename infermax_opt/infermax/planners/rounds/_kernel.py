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
    """Input and output tokens, arrival in rounds, the most output tokens.

    `smaller`: a row for each request, those that arrive no later and are no larger: the first `number` of it.
    """

    inputs: Any
    outputs: Any
    arrival: Any
    longest: Any
    smaller: Any
    number: Any


class Placed(NamedTuple):
    """Requests that have a start, by last rounds: that round, the first one, peak, and memory in the last.

    Between last rounds memory only grows, so who fits in these, and in its own, fits in all.
    """

    end: Any
    start: Any
    peak: Any
    memory: Any


class Known(NamedTuple):
    """A start for each request, and the sum of latencies."""

    starts: Any
    total: Any


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
    requests: Requests, capacity: Any, order: Any, places: Any, known: Known, limits: Any,
    placed: Placed, starts: Any, place: Any,
) -> Any:  # fmt: skip
    """Start all requests in their order, each as soon as it fits; return the sum of latencies.

    A request that arrived no sooner and is no smaller than one before it cannot start before that one.

    `known`: what the order gave before it was changed between two `places`; where all start as in it up to
    the second one, the others do, too; `limits`: gives up where the sum would be more, if the others
    started as in it, than the first one allows and the second one, as they may start sooner in the end;
    `placed`, `place`: room for all.
    """
    first, last = places
    total, differs = known.total, False
    for p in range(first, len(order)):
        place[order[p]] = p
    for p in range(len(order)):
        k = order[p]
        i, o, start = requests.inputs[k], requests.outputs[k], requests.arrival[k]
        if p < first:
            start, place[k] = known.starts[k], p
        else:
            for q in range(requests.number[k]):
                j = requests.smaller[k, q]
                if place[j] < p and starts[j] > start:
                    start = starts[j]
            start = first_fit(placed, p, start, i, o, capacity, requests.longest)
            differs = differs or start != known.starts[k]
            total += start - known.starts[k]
        starts[k] = start
        if p >= last and not differs:
            for q in range(p + 1, len(order)):
                starts[order[q]] = known.starts[order[q]]
            break
        if p >= last and total > limits[0] + limits[1]:
            break
        insert(placed, p, start, i, o, requests.longest)
    return total


def changed(chance: Any, order: Any) -> Any:
    """Change the order, by numbers from 0 to 1; return the first and the last place where it has changed."""
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
    return min(a, b), max(a, b)


def anneal(requests: Requests, capacity: Any, order: Any, chances: Any, heat: Any, hope: Any) -> Any:
    """Change the order, a step for each row of chances; return the best sum and its starts.

    `order`: where to start from; where it got to afterwards, in the order of starts; `hope`: rounds by which
    the sum may be too large half-way.
    """
    n = len(order)
    starts, tried, place = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    room = np.empty((4, n), np.int64)
    used = Placed(room[0], room[1], room[2], room[3])
    soonest, all_of_it, none = Known(requests.arrival, requests.outputs.sum()), (0, n - 1), (NO_LIMIT, 0)
    now = generate(requests, capacity, order, all_of_it, soonest, none, used, starts, place)
    by_start = np.argsort(starts, kind="mergesort")
    value = generate(requests, capacity, by_start, all_of_it, soonest, none, used, tried, place)
    if value <= now:
        now, order[:], starts[:] = value, by_start, tried
    best, best_starts = now, starts.copy()
    new_order = order.copy()
    for step in range(len(chances)):
        places = changed(chances[step], new_order)
        limit = now + int(-heat * np.log(1.0 - chances[step, 5]))
        known = Known(starts, now)
        value = generate(requests, capacity, new_order, places, known, (limit, hope), used, tried, place)
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
