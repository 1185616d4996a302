"""What runs in the loop of `_kernel`: who waits, who holds KV, who was evicted, and the list of batches.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "ANY", "ARRIVAL", "ARRIVED", "ARRIVING", "AWAITED", "BATCHES", "DONE", "END", "FINAL", "FIRST", "FIXED",
    "GONE", "HELD", "INPUTS", "KV", "LAST", "LINE", "MADE", "MEM", "NOW", "ORDER", "OUTPUTS", "PARTIAL",
    "PIECE", "PLACE", "RANKED", "ROOM", "SERVED", "WAITING", "WEIGHED", "Limits", "Queue", "State", "arrive",
    "blocks", "evict_one", "join", "leave", "note", "rising", "safe", "started", "write",
]  # fmt: skip

#: Columns of `State.rows`; the first four are lists, whose lengths have the same places in `State.number`:
#: who waits, by its place, who is within its prompt, in decode, and evicted.  Then tokens cached and made.
LINE, PARTIAL, HELD, GONE, MEM, MADE = range(6)
#: The other places of `State.number`: KV held, arrivals, first tokens, finished requests, batches, and the
#: request whose arrival the next batch awaits, or -1.
KV, ARRIVED, SERVED, DONE, BATCHES, AWAITED = range(4, 10)
#: Places of `State.clock`: seconds, and the weight of those that wait for a first token.
NOW, WAITING = 0, 1
#: Columns of `State.times`: of the first and of the last token so far.
FIRST, FINAL = 0, 1
#: Columns of `Queue.whole`: lengths, requests by arrival and by score, the place of each in that, whether it
#: is given up and joins no batch of others, and whether it is never evicted; most tokens of a part that
#: shares batches, or `ANY`, and of a batch that begins with it.
INPUTS, OUTPUTS, ARRIVING, ORDER, PLACE, LAST, FIXED, PIECE, ROOM = range(9)
#: Columns of `Queue.real`: arrival, score (less comes first), and weight of a second before the first token.
ARRIVAL, RANKED, WEIGHED = range(3)
#: Stands for no limit.
ANY = 2**40
#: What stands in the log instead of a request at the end of an entry.
END = -1


class Limits(NamedTuple):
    """Limits and policy of an instance; `block`: tokens of a KV block."""

    capacity: Any
    tokens: Any
    prefill: Any
    running: Any
    block: Any
    chunked: Any
    exact: Any


class Queue(NamedTuple):
    """Whole and real numbers of all requests, a column each."""

    whole: Any
    real: Any


class State(NamedTuple):
    """What has happened so far; see the constants.  Few arrays: each is counted wherever it is handed on."""

    rows: Any
    times: Any
    number: Any
    clock: Any


def started(count: int) -> State:
    """The state of so many requests before the first batch."""
    state = State(
        np.zeros((count, MADE + 1), np.int64), np.zeros((count, FINAL + 1)),
        np.zeros(AWAITED + 1, np.int64), np.zeros(WAITING + 1),
    )  # fmt: skip
    state.number[AWAITED] = -1
    return state


def blocks(limits: Any, tokens: Any) -> Any:
    """KV that so many cached tokens hold."""
    return -(-tokens // limits.block) * limits.block


def note(log: Any, one: Any, other: Any) -> None:
    """Add a pair to the log."""
    log.append(one)
    log.append(other)


def write(log: Any, state: Any, everyone: Any, repeat: Any, start: Any) -> None:
    """End an entry of the log.

    The log is a list of pairs: a request and its tokens, 0 if it is evicted; at the end of an entry `END` and
    the number of batches, then whether all decode, and the request whose arrival is awaited, or -1.

    Parameters
    ----------
    log : list
    state : State
    everyone, repeat, start : int
    """
    note(log, END, repeat)
    note(log, everyone, start)
    state.number[BATCHES] += repeat
    state.number[AWAITED] = -1


def arrive(queue: Any, state: Any) -> None:
    """Put those that have arrived into the line."""
    n = len(queue.whole)
    while state.number[ARRIVED] < n:
        i = queue.whole[state.number[ARRIVED], ARRIVING]
        if queue.real[i, ARRIVAL] > state.clock[NOW]:
            break
        join(queue, state, i)
        state.clock[WAITING] += queue.real[i, WEIGHED]
        state.number[ARRIVED] += 1


def join(queue: Any, state: Any, i: Any) -> None:
    """Put a request into the line, which is sorted."""
    k = state.number[LINE]
    while k > 0 and state.rows[k - 1, LINE] > queue.whole[i, PLACE]:
        state.rows[k, LINE] = state.rows[k - 1, LINE]
        k -= 1
    state.rows[k, LINE] = queue.whole[i, PLACE]
    state.number[LINE] += 1


def leave(state: Any, which: Any, i: Any) -> None:
    """Take a request off a list that is in no order."""
    count = state.number[which]
    for k in range(count):
        if state.rows[k, which] == i:
            state.rows[k, which] = state.rows[count - 1, which]
            state.number[which] = count - 1
            return


def evict_one(limits: Any, queue: Any, state: Any, log: Any) -> Any:
    """Evict whoever has most tokens to make, of those in decode; whether there was somebody."""
    best = -1
    for k in range(state.number[HELD]):
        i = state.rows[k, HELD]
        if queue.whole[i, FIXED]:
            continue
        if (
            best < 0
            or queue.whole[i, OUTPUTS] - state.rows[i, MADE]
            > queue.whole[best, OUTPUTS] - state.rows[best, MADE]
        ):
            best = i
    if best < 0:
        return False
    leave(state, HELD, best)
    state.rows[state.number[GONE], GONE] = best
    state.number[GONE] += 1
    state.number[KV] -= blocks(limits, state.rows[best, MEM])
    state.rows[best, MEM] = 0
    note(log, best, 0)
    return True


def rising(values: Any, count: Any) -> Any:
    """Places of the first numbers in rising order; a shell sort, as numba compiles its own for seconds."""
    order = np.zeros(count, np.int64)
    for k in range(count):
        order[k] = k
    gap = count // 2
    while gap > 0:
        for k in range(gap, count):
            one, j = order[k], k
            while j >= gap and (values[order[j - gap]], order[j - gap]) > (values[one], one):
                order[j] = order[j - gap]
                j -= gap
            order[j] = one
        gap //= 2
    return order


def safe(limits: Any, queue: Any, state: Any, new: Any) -> Any:
    """Whether a request can start so that all can end who cannot be evicted (the banker's algorithm).

    Prompts that are begun count as whole.  Whoever can be evicted counts for nothing.
    """
    most = state.number[PARTIAL] + state.number[HELD] + 1
    growth, own = np.zeros(most, np.int64), np.zeros(most, np.int64)
    free, count, stuck = limits.capacity, 0, 0
    for k in range(most):
        if k < state.number[PARTIAL]:
            i = state.rows[k, PARTIAL]
        elif k + 1 == most:
            i = new
        else:
            i = state.rows[k - state.number[PARTIAL], HELD]
            if not queue.whole[i, FIXED]:
                continue
        size = blocks(limits, max(state.rows[i, MEM], queue.whole[i, INPUTS]))
        free -= size
        count += 1
        if queue.whole[i, FIXED]:
            own[stuck] = size
            growth[stuck] = blocks(limits, queue.whole[i, INPUTS] + queue.whole[i, OUTPUTS] - 1) - size
            stuck += 1
    if free < 0 or count > limits.running:
        return False
    order = rising(growth, stuck)
    for at in range(stuck):
        k = order[at]
        if growth[k] > free:
            return False
        free += own[k]
    return True
