"""Requests on a given number of workers: annealing of what limits are exceeded by.

All requests are on some worker all the time.  What is minimised is the sum, over workers and limits b, c
or d, and e, of what requests exceed the limit by, as a share of the limit of a fresh worker.  A move takes a
request to another worker, or exchanges two; many begin at a worker that exceeds a limit.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

import math
from typing import Any

from infermax_opt.placement.replay._state import enter, leave, peak

__all__ = ["HELPERS", "SAME", "anneal", "fill", "measure"]

#: Steps between changes of the temperature.
SAME = 256
#: Share of moves that begin at a worker that exceeds a limit, and of moves of one request.
BAD, ALONE = 0.5, 0.3
#: Peak of KV over the sum of the KV that requests end with, roughly.
TOGETHER = 0.8


def measure(workers: Any, bad: Any, place: Any, w: Any, most: Any) -> None:
    """Note whether a worker exceeds a limit.

    `bad`: workers that do, in no order, and at the end how many.  `place`: where a worker is there, or -1.
    """
    number = len(place)
    exceeds = (
        workers.context[w] > most[0]
        or workers.prompt[w] > workers.most_prompt[w]
        or workers.peak[w] > most[2]
    )
    if exceeds and place[w] < 0:
        place[w] = bad[number]
        bad[bad[number]] = w
        bad[number] += 1
    elif place[w] >= 0 and not exceeds:
        bad[number] -= 1
        other = bad[bad[number]]
        bad[place[w]] = other
        place[other] = place[w]
        place[w] = -1


def over(need: Any, most: Any, unit: Any) -> Any:
    """What a need exceeds a limit by, in a unit."""
    return (need - most) * unit if need > most else 0.0


def fill(requests: Any, workers: Any, order: Any, unit: Any) -> None:
    """Put requests, in an order, each on the worker that it fills least, by the limit that it fills most."""
    for k in order:
        best, least = 0, math.inf
        for w in range(len(workers.head)):
            context = (workers.context[w] + requests.context[k]) * unit[0]
            prompt = (workers.prompt[w] + requests.prompt[k]) / max(1.0, workers.most_prompt[w])
            kv = (workers.own[w] + requests.own[k]) * unit[2] * TOGETHER
            load = max(context, max(prompt, kv))
            if load < least:
                best, least = w, load
        enter(workers, requests, k, best)


def below(random: Any, limit: Any) -> Any:
    """A random whole number from 0 to limit - 1."""
    return min(int(random.random() * limit), limit - 1)


def member(requests: Any, workers: Any, w: Any, random: Any) -> Any:
    """A random new request of a worker, or -1."""
    found, seen = -1, 0
    here = workers.head[w]
    while here >= 0:
        if requests.new[here]:
            seen += 1
            if random.random() * seen < 1.0:
                found = here
        here = workers.after[here]
    return found


def anneal(
    requests: Any, workers: Any, bad: Any, place: Any, movable: Any, most: Any, unit: Any, grows: Any,
    steps: Any, first: Any, total: Any, hot: Any, cold: Any, random: Any,
) -> Any:  # fmt: skip
    """Run steps `first` .. `first + steps - 1` of `total`; whether it came to where no limit is exceeded.

    Long on purpose: a step is left as soon as what is known of its rise is too much.

    Parameters
    ----------
    requests, workers : see `infermax_opt.placement.replay._state`
        Updated.
    bad, place : array of int
        Workers above a limit, with their number at the end, and where each of them is there; updated.
    movable : array of int
        New requests.
    most, unit : array
        Limits b, c and e, and one over each.
    grows : int
        KV that a request takes with each iteration.
    steps, first, total : int
    hot, cold : float
        Temperatures, in shares of a limit.
    random : numpy Generator
    """
    number, many = len(place), len(movable)
    temperature = hot
    for step in range(first, first + steps):
        if bad[number] == 0:
            return True
        if step % SAME == 0:
            temperature = hot * (cold / hot) ** (step / total)
        threshold = -temperature * math.log(1.0 - random.random())
        if random.random() < BAD:
            u = bad[below(random, bad[number])]
            a = member(requests, workers, u, random)
            if a < 0:
                continue
        else:
            a = movable[below(random, many)]
            u = workers.worker[a]
        b = -1
        if random.random() < ALONE:
            v = below(random, number)
        else:
            b = movable[below(random, many)]
            v = workers.worker[b]
        if u == v:
            continue
        context, prompt = requests.context[a], requests.prompt[a]
        start, own = requests.held[a], requests.own[a]
        if b >= 0:
            context -= requests.context[b]
            prompt -= requests.prompt[b]
            start -= requests.held[b]
            own -= requests.own[b]
        room, other = workers.most_prompt[u], workers.most_prompt[v]
        rise = (
            over(workers.context[u] - context, most[0], unit[0])
            + over(workers.context[v] + context, most[0], unit[0])
            + over(workers.prompt[u] - prompt, room, unit[1])
            + over(workers.prompt[v] + prompt, other, unit[1])
            - over(workers.context[u], most[0], unit[0])
            - over(workers.context[v], most[0], unit[0])
            - over(workers.prompt[u], room, unit[1])
            - over(workers.prompt[v], other, unit[1])
            - over(workers.peak[u], most[2], unit[2])
            - over(workers.peak[v], most[2], unit[2])
        )
        # KV costs most to find out, so what is known of it comes first.
        known = over(workers.start[u] - start, most[2], unit[2])
        known += over(workers.start[v] + start, most[2], unit[2])
        if rise + known > threshold:
            continue
        left, right = workers.own[u] - own, workers.own[v] + own
        if left > most[2]:
            left = peak(workers, requests, grows, u, a, b)
            rise += over(left, most[2], unit[2])
            if rise > threshold:
                continue
        if right > most[2]:
            right = peak(workers, requests, grows, v, b, a)
            rise += over(right, most[2], unit[2])
            if rise > threshold:
                continue
        leave(workers, requests, a)
        if b >= 0:
            leave(workers, requests, b)
            enter(workers, requests, b, u)
        enter(workers, requests, a, v)
        workers.peak[u] = left
        workers.peak[v] = right
        measure(workers, bad, place, u, most)
        measure(workers, bad, place, v, most)
    return bad[number] == 0


HELPERS = (enter, leave, peak, measure, over, below, member)
"""What `anneal` calls, callees first."""
