"""Keys that change: those that follow the clock, and the queue of Sorted-F.

Why Algorithm 1 still ends where keys follow the clock: while nobody generates a token, a key changes at most
once, when its request can no longer keep what it was promised.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from math import inf
from typing import Any

from infermax_opt.infermax.schedulers._state import (
    ARRIVED,
    BATCH_LEFT,
    DONE,
    IN_DECODE,
    IN_PREFILL,
    PARTS,
    WAITING,
    enqueue,
    held,
    insert,
    unlink,
)

__all__ = ["HELPERS", "LOST", "dated_key", "form_batch", "note_first_tokens", "rekey"]

#: Level of a request that nobody can save, in microseconds: above all moments that are told apart.
LOST = 2**40
#: Latest moment that is told from later ones, seconds.
FAR = 1.0e6
#: Key that no request has.
MARKED = -1


def level(seconds: Any) -> Any:
    """Microseconds of a moment, from 0 to those of `FAR`."""
    return int(min(max(seconds, 0.0), FAR) * 1.0e6)


def to_come(requests: Any, state: Any, i: Any) -> Any:
    """Tokens that request `i` is thought to generate yet, at least one."""
    return max(requests.predicted[i] - state.generated[i], 1)


def latest_start(requests: Any, state: Any, i: Any) -> Any:
    """Moment at which request `i` has to go on at the latest, were it alone.

    Between two tokens it stays: it counts neither what is cached nor what an eviction costs.
    """
    tokens = state.generated[i]
    if tokens == 0:
        return requests.latest[i]
    step = requests.step[i]
    last = requests.last_due[i] - to_come(requests, state, i) * step
    return min(last, state.first[i] + requests.pace[i] * tokens - step)


def lost(requests: Any, state: Any, i: Any, now: Any) -> Any:
    """Whether request `i` was promised nothing, or can no longer keep it, even if it were alone."""
    if requests.promised[i] == 0:
        return True
    if state.generated[i] == 0:
        return requests.latest[i] < now
    if state.first[i] > requests.first_due[i]:
        return True
    end = now + to_come(requests, state, i) * requests.step[i]
    if end > requests.last_due[i]:
        return True
    steps = requests.predicted[i] - 1
    return steps > 0 and end > state.first[i] + requests.pace[i] * steps


def dated_key(requests: Any, state: Any, i: Any, now: Any) -> Any:
    """Key of request `i` by the clock: who can be saved by the latest start, then the others by arrival."""
    if lost(requests, state, i, now):
        first = LOST + level(requests.arrival[i])
    else:
        first = level(latest_start(requests, state, i))
    return first * len(requests.inputs) + requests.place[i]


def resort(requests: Any, state: Any, column: Any, size: Any, now: Any) -> None:
    """Give the first `size` requests of a column their keys, and sort them again."""
    for k in range(size):
        state.key[column[k]] = dated_key(requests, state, column[k], now)
        insert(column, k, state.key, column[k])


def rekey(requests: Any, state: Any, now: Any) -> None:
    """Give all requests the keys of this moment."""
    resort(requests, state, state.decoding, state.count[IN_DECODE], now)
    resort(requests, state, state.prefilling, state.count[IN_PREFILL], now)
    end = len(state.after) - 1
    i = state.after[end]
    while i != end:
        behind = state.after[i]
        key = dated_key(requests, state, i, now)
        if key != state.key[i]:
            unlink(state, i)
            state.key[i] = key
            enqueue(state, i, 1)
        i = behind


def note_first_tokens(state: Any, plan: Any, now: Any) -> None:
    """Note when those of a batch that ends now generated their first tokens."""
    for k in range(plan.count[PARTS]):
        i = plan.parts[k]
        if state.generated[i] == 1 and state.first[i] < 0.0:
            state.first[i] = now


def form_batch(limits: Any, requests: Any, state: Any) -> None:
    """Put the next batch of Sorted-F to the front of the queue, unless part of the last one is there.

    Its requests come by output tokens.
    """
    count, after, n = state.count, state.after, len(requests.inputs)
    if count[BATCH_LEFT] > 0 or after[n] == n:
        return
    best, size = best_beginning(limits, requests, state)
    mark_beginning(requests, state, best, size)
    ahead, j = n, state.heads[0]
    while count[BATCH_LEFT] < size:
        i = requests.qualities[j]
        j += 1
        if state.key[i] == MARKED:
            state.key[i] = 0
            unlink(state, i)
            behind = after[ahead]
            after[ahead] = i
            state.before[i] = ahead
            after[i] = behind
            state.before[behind] = i
            ahead = i
            count[BATCH_LEFT] += 1


def best_beginning(limits: Any, requests: Any, state: Any) -> Any:
    """Order, and size, of the beginning of the best quality that fits into the KV cache with its peaks.

    The quality is the sum of outputs / square of their number; the least is the best.
    """
    n = len(requests.inputs)
    best, best_size, least = -1, 0, inf
    for t in range(len(state.heads)):
        j = state.heads[t]
        while state.phase[requests.qualities[t * n + j]] == DONE:
            j += 1
        state.heads[t] = j
        size = total = kv = 0
        while j < n and size < limits.running:
            i = requests.qualities[t * n + j]
            j += 1
            if not queued(requests, state, i):
                continue
            kv += held(requests.inputs[i] + requests.outputs[i] - 1, limits.block)
            if kv > limits.capacity:
                break
            size += 1
            total += requests.outputs[i]
            if total / (size * size) < least:
                best, best_size, least = t, size, total / (size * size)
    return best, best_size


def queued(requests: Any, state: Any, i: Any) -> Any:
    """Whether request `i` is in the queue."""
    return state.phase[i] == WAITING and requests.place[i] < state.count[ARRIVED]


def mark_beginning(requests: Any, state: Any, t: Any, size: Any) -> None:
    """Mark the first `size` requests of the queue in an order."""
    marked, j = 0, state.heads[t]
    while marked < size:
        i = requests.qualities[t * len(requests.inputs) + j]
        j += 1
        if queued(requests, state, i):
            state.key[i] = MARKED
            marked += 1


HELPERS = (
    held, enqueue, unlink, insert, level, to_come, latest_start, lost, dated_key, resort, rekey,
    note_first_tokens, queued, best_beginning, mark_beginning, form_batch,
)  # fmt: skip
"""These functions and what they call, callees first."""
