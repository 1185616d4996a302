"""Tokens after the first: made where nobody waits for a first one, or where only that frees KV.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.first_tokens._state import (
    ARRIVAL,
    ARRIVED,
    ARRIVING,
    AWAITED,
    DONE,
    FINAL,
    FIXED,
    GONE,
    HELD,
    INPUTS,
    KV,
    MADE,
    MEM,
    NOW,
    OUTPUTS,
    blocks,
    evict_one,
    leave,
    note,
    rising,
    write,
)

__all__ = [
    "advance", "decode", "decoders", "next_arrival", "peak", "refill", "refill_time", "shortest_gone",
    "steps_until",
]  # fmt: skip


def next_arrival(queue: Any, state: Any) -> Any:
    """When somebody arrives next; never is infinite."""
    if state.number[ARRIVED] == len(queue.whole):
        return np.inf
    return queue.real[queue.whole[state.number[ARRIVED], ARRIVING], ARRIVAL]


def shortest_gone(queue: Any, state: Any) -> Any:
    """The evicted request that has fewest tokens."""
    best = state.rows[0, GONE]
    for k in range(1, state.number[GONE]):
        i = state.rows[k, GONE]
        if queue.whole[i, INPUTS] + state.rows[i, MADE] < queue.whole[best, INPUTS] + state.rows[best, MADE]:
            best = i
    return best


def peak(limits: Any, queue: Any, i: Any) -> Any:
    """Most KV that a request ever holds: its last token is never cached."""
    return blocks(limits, queue.whole[i, INPUTS] + queue.whole[i, OUTPUTS] - 1)


def refill_time(limits: Any, cost: Any, size: Any, most: Any) -> Any:
    """Seconds of a refill alone.

    Parameters
    ----------
    limits, cost
    size, most : int
        Tokens of it, and those of a batch at most.
    """
    seconds = 0.0
    for cached in range(0, size, most):
        tokens = min(most, size - cached)
        decodes = int(cached + 1 == size)  # a chunk of the last token alone is a step of decoding
        seconds += batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            tokens, decodes, cached * decodes, 1 - decodes, prefill_work(limits.exact, tokens, cached),
        )  # fmt: skip
    return seconds


def refill(limits: Any, queue: Any, state: Any, cost: Any, log: Any) -> Any:
    """Refill the shortest evicted request, if all that hold KV can then end; whether it was.

    It is not where somebody would arrive meanwhile.

    Parameters
    ----------
    limits, queue, state, cost, log
    """
    number = state.number
    if number[GONE] == 0 or number[HELD] >= limits.running:
        return False
    best = shortest_gone(queue, state)
    peaks = peak(limits, queue, best)
    for k in range(number[HELD]):
        peaks += peak(limits, queue, state.rows[k, HELD])
    if peaks > limits.capacity:
        return False
    size, most = queue.whole[best, INPUTS] + state.rows[best, MADE], min(limits.prefill, limits.tokens)
    seconds = refill_time(limits, cost, size, most)
    if state.clock[NOW] + seconds > next_arrival(queue, state):
        return False
    for cached in range(0, size, most):
        note(log, best, min(most, size - cached))
        write(log, state, 0, 1, number[AWAITED])
    state.clock[NOW] += seconds
    leave(state, GONE, best)
    state.rows[best, MADE] += 1
    state.times[best, FINAL] = state.clock[NOW]
    if state.rows[best, MADE] == queue.whole[best, OUTPUTS]:
        number[DONE] += 1
    else:
        state.rows[best, MEM] = size
        number[KV] += blocks(limits, size)
        state.rows[number[HELD], HELD] = best
        number[HELD] += 1
    return True


def decoders(limits: Any, queue: Any, state: Any, crowd: Any, chosen: Any) -> Any:
    """Choose who decodes: by the KV that it needs until it ends, as long as that is free; how many.

    Parameters
    ----------
    limits, queue, state
    crowd : bool
        Whether only those decode who cannot be evicted: others wait for KV.
    chosen : array
        Receives them.
    """
    count = state.number[HELD]
    growth = np.zeros(count, np.int64)
    for k in range(count):
        i = state.rows[k, HELD]
        growth[k] = peak(limits, queue, i) - blocks(limits, state.rows[i, MEM])
    free, found = limits.capacity - state.number[KV], 0
    if not crowd and count <= limits.tokens and growth.sum() <= free:
        chosen[:count] = state.rows[:count, HELD]
        return count
    order = rising(growth, count)
    for at in range(count):
        k = order[at]
        i = state.rows[k, HELD]
        if crowd and not queue.whole[i, FIXED]:
            continue
        if growth[k] > free or found == limits.tokens:
            break
        free -= growth[k]
        chosen[found] = i
        found += 1
    return found


def steps_until(state: Any, cost: Any, members: Any, steps: Any, until: Any, crowd: Any) -> Any:
    """Move the clock by steps of decoding, as many as there is time for; how many these are.

    Parameters
    ----------
    state, cost
    members : pair of int
        Who decodes, and the KV that they read in the first step.
    steps : int
        At most.
    until : float
        Seconds at which somebody arrives: no step starts then or later.
    crowd : bool
        Whether one may end later than that.
    """
    count, kv = members
    for made in range(steps):
        seconds = batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, count, count, kv, 0, 0
        )  # fmt: skip
        if state.clock[NOW] >= until or (not crowd and state.clock[NOW] + seconds > until):
            return made
        state.clock[NOW] += seconds
        kv += count
    return steps


def advance(limits: Any, queue: Any, state: Any, i: Any, made: Any) -> None:
    """Count so many tokens that a request has made; it may be done.

    Parameters
    ----------
    limits, queue, state
    i, made : int
    """
    number = state.number
    number[KV] += blocks(limits, state.rows[i, MEM] + made) - blocks(limits, state.rows[i, MEM])
    state.rows[i, MEM] += made
    state.rows[i, MADE] += made
    state.times[i, FINAL] = state.clock[NOW]
    if state.rows[i, MADE] == queue.whole[i, OUTPUTS]:
        number[KV] -= blocks(limits, state.rows[i, MEM])
        number[DONE] += 1
        leave(state, HELD, i)


def decode(limits: Any, queue: Any, state: Any, cost: Any, log: Any, crowd: Any) -> Any:
    """Make tokens until somebody ends or arrives; False if nobody can before the next arrival.

    Parameters
    ----------
    limits, queue, state, cost, log
    crowd : bool
        Whether somebody waits for KV.
    """
    number = state.number
    until = next_arrival(queue, state)
    chosen = np.zeros(number[HELD] + 1, np.int64)
    count = decoders(limits, queue, state, crowd, chosen)
    while count == 0:
        if (until < np.inf and not crowd) or not evict_one(limits, queue, state, log):
            return False
        count = decoders(limits, queue, state, crowd, chosen)
    everyone = count == number[HELD]
    steps, kv = queue.whole[chosen[0], OUTPUTS], 0
    for k in range(count):
        i = chosen[k]
        steps = min(steps, queue.whole[i, OUTPUTS] - state.rows[i, MADE])
        kv += state.rows[i, MEM]
    made = steps_until(state, cost, (count, kv), steps, until, crowd)
    if made == 0:
        return False
    for k in range(count):
        i = chosen[k]
        if not everyone:
            note(log, i, 1)
        advance(limits, queue, state, i, made)
    write(log, state, int(everyone), made, number[AWAITED])
    return True
