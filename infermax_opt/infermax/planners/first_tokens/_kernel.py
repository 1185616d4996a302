"""The loop of plans for first tokens: prompts by a score; tokens after the first are made where nobody waits.

Whoever has its first token keeps its KV until somebody else needs it.  Who may not be evicted, or could not
be refilled, starts only if all such requests can still end one after the other (`safe`).

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from math import log as logarithm
from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.first_tokens._rest import (
    advance,
    decode,
    decoders,
    next_arrival,
    peak,
    refill,
    refill_time,
    rest,
    shortest_gone,
    steps_until,
)
from infermax_opt.infermax.planners.first_tokens._state import (
    ANY,
    ARRIVAL,
    ARRIVED,
    ARRIVING,
    AWAITED,
    BATCHES,
    DONE,
    FINAL,
    FIRST,
    FIXED,
    HELD,
    INPUTS,
    KV,
    LAST,
    LINE,
    MADE,
    MEM,
    NOW,
    ORDER,
    OUTPUTS,
    PARTIAL,
    PIECE,
    RANKED,
    ROOM,
    SERVED,
    WAITING,
    WEIGHED,
    arrive,
    blocks,
    evict_one,
    join,
    leave,
    note,
    rising,
    safe,
    write,
)

__all__ = ["HELPERS", "Knobs", "first_tokens_loop"]

#: Relative error granted to the simulated clock; what arrived within it gets an explicit start.
CLOCK_MARGIN = 1e-7
#: Places of the numbers of a batch in the making: members, tokens, work; time, weight and last score.
COUNT, TOKENS, WORK = range(3)
TIME, WEIGHT, SCORE = range(3)


class Knobs(NamedTuple):
    """What the search chooses.

    `budget`: most prefill tokens of a batch.  `share`: a prompt joins others if the weight that it delays
    times the delay is at most so often the weight that waits times the time that is saved.  `hold`: so many
    seconds are waited for a second that a request to come is served earlier.  `cut`: a prompt is cut where
    another one arrives if that is served earlier by so many batches at least; negative for never.  `fill`:
    whether a part of a prompt may join others.  `shrink`: how much the score falls with the logarithm of
    what is left of a prompt.  `look`: requests that are tried.
    """

    budget: Any
    share: Any
    hold: Any
    cut: Any
    fill: Any
    shrink: Any
    look: Any


def priced(cost: Any, tokens: Any, prompts: Any, work: Any) -> Any:
    """Time of a batch of prompts."""
    return batch_time(
        cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, tokens, 0, 0, prompts, work
    )  # fmt: skip


def first_partial(queue: Any, state: Any, knobs: Any, count: Any, chunk: Any) -> Any:
    """The prompt begun that comes first, of those that are not in the batch, and its score."""
    best, least = -1, np.inf
    for k in range(count):
        i = state.rows[k, PARTIAL]
        if chunk[i] == 0:
            left = queue.whole[i, INPUTS] - state.rows[i, MEM]
            score = queue.real[i, RANKED] + knobs.shrink * logarithm(left / queue.whole[i, INPUTS])
            if score < least:
                best, least = i, score
    return best, least


def joins(queue: Any, state: Any, knobs: Any, cost: Any, exact: Any, i: Any, tokens: Any, batch: Any) -> Any:
    """Add so many tokens of a prompt to a batch if that is worth it; whether it is.

    Parameters
    ----------
    queue, state, knobs, cost : Queue, State, Knobs, Coefficients
    exact : bool
        Whether attention is.
    i, tokens : int
        Who, and how many.
    batch : pair of arrays
        Numbers of the batch: see `COUNT` and `TIME`.
    """
    whole, parts = batch
    work = prefill_work(exact, tokens, state.rows[i, MEM])
    together = priced(cost, whole[TOKENS] + tokens, whole[COUNT] + 1, whole[WORK] + work)
    if whole[COUNT] > 0 and queue.whole[i, PIECE] == ANY:
        late = together - parts[TIME]
        saved = priced(cost, tokens, 1, work) - late
        others = max(state.clock[WAITING] - parts[WEIGHT], 0.0)
        if late * parts[WEIGHT] > knobs.share * saved * others:
            return False
    whole[COUNT] += 1
    whole[TOKENS] += tokens
    whole[WORK] += work
    parts[TIME] = together
    parts[WEIGHT] += queue.real[i, WEIGHED]
    return True


def choose(limits: Any, queue: Any, state: Any, knobs: Any, cost: Any, batch: Any, chunk: Any) -> None:
    """Fill a batch with prompts by score; new ones join those begun, parts with a size of theirs all.

    Long on purpose: two sorted lists are merged, and each way out leaves them as they are.

    Parameters
    ----------
    limits, queue, state, knobs, cost
    batch : pair of arrays
        Numbers of the batch: see `COUNT` and `TIME`.
    chunk : array
        Tokens of each request in it.
    """
    whole, parts = batch
    hard = min(limits.prefill, limits.tokens)
    room = max(1, min(knobs.budget, hard)) if limits.chunked else hard
    begun, queued = state.number[PARTIAL], state.number[LINE]
    at = kept = tried = 0
    while tried <= knobs.look and whole[TOKENS] < room:
        i, score = first_partial(queue, state, knobs, begun, chunk)
        new = False
        if at < queued:
            other = queue.whole[state.rows[at, LINE], ORDER]
            if i < 0 or queue.real[other, RANKED] < score:
                i, score, new = other, queue.real[other, RANKED], True
        if i < 0 or (whole[COUNT] > 0 and queue.whole[i, LAST]):
            break
        if limits.chunked and whole[COUNT] == 0:
            room = min(room, queue.whole[i, ROOM])
        left, piece = queue.whole[i, INPUTS] - state.rows[i, MEM], queue.whole[i, PIECE]
        tokens = left
        if limits.chunked and (
            whole[COUNT] == 0 or piece < ANY
        ):  # parts of one size: their attention is the least
            tokens = -(-left // -(-left // min(room, piece)))
        tokens = min(tokens, room - whole[TOKENS])
        fits = tokens == left or (limits.chunked and (whole[COUNT] == 0 or knobs.fill or piece < ANY))
        if limits.chunked and not fits:
            break
        if fits and new:
            fits = safe(limits, queue, state, i)
        if not fits:  # who comes after it may fit
            state.rows[kept, LINE] = state.rows[at, LINE]
            kept, at, tried = kept + 1, at + 1, tried + 1
            continue
        if not joins(queue, state, knobs, cost, limits.exact, i, tokens, batch):
            break
        parts[SCORE] = score
        chunk[i] = tokens
        if new:
            state.rows[state.number[PARTIAL], PARTIAL] = i
            state.number[PARTIAL] += 1
            at += 1
    for k in range(at, queued):
        state.rows[kept, LINE] = state.rows[k, LINE]
        kept += 1
    state.number[LINE] = kept


def cut_off(limits: Any, state: Any, cost: Any, room: Any, chunk: Any) -> Any:
    """Cut the only prompt of a batch so that this takes no longer than `room`; its time, or -1.

    Parameters
    ----------
    limits, state, cost
    room : float
        Seconds.
    chunk : array
        Tokens of each request in the batch.
    """
    i = state.rows[0, PARTIAL]
    for k in range(state.number[PARTIAL]):
        if chunk[state.rows[k, PARTIAL]] > 0:
            i = state.rows[k, PARTIAL]
    low, high = 0, chunk[i]
    while low < high:
        middle = (low + high + 1) // 2
        if priced(cost, middle, 1, prefill_work(limits.exact, middle, state.rows[i, MEM])) <= room:
            low = middle
        else:
            high = middle - 1
    if low == 0:
        return -1.0
    chunk[i] = low
    return priced(cost, low, 1, prefill_work(limits.exact, low, state.rows[i, MEM]))


def awaits(limits: Any, queue: Any, state: Any, knobs: Any, cost: Any, batch: Any, chunk: Any) -> Any:
    """Whether the batch is put off until the next arrival; a prompt alone may be cut there instead.

    Parameters
    ----------
    limits, queue, state, knobs, cost, batch, chunk
        As in `choose`.
    """
    whole, parts = batch
    if state.number[ARRIVED] == len(queue.whole):
        return False
    coming = queue.whole[state.number[ARRIVED], ARRIVING]
    now, at = state.clock[NOW], queue.real[coming, ARRIVAL]
    earlier = now + parts[TIME] - at
    if earlier <= 0 or queue.whole[coming, LAST] or queue.real[coming, RANKED] > parts[SCORE]:
        return False
    if parts[WEIGHT] * (at - now) <= knobs.hold * queue.real[coming, WEIGHED] * earlier:
        return True
    if knobs.cut < 0 or not limits.chunked or whole[COUNT] > 1:
        return False
    if earlier * queue.real[coming, WEIGHED] < knobs.cut * (cost.alpha[0] + cost.p0) * state.clock[WAITING]:
        return False
    seconds = cut_off(limits, state, cost, at - now, chunk)
    if seconds < 0:
        return knobs.hold > 0
    parts[TIME] = seconds
    return False


def put_back(queue: Any, state: Any, chunk: Any) -> None:
    """Undo a batch: who has not begun waits again."""
    for k in range(state.number[PARTIAL] - 1, -1, -1):
        i = state.rows[k, PARTIAL]
        chunk[i] = 0
        if state.rows[i, MEM] == 0:
            leave(state, PARTIAL, i)
            join(queue, state, i)


def run_prompts(limits: Any, queue: Any, state: Any, log: Any, seconds: Any, chunk: Any) -> None:
    """Run a batch of prompts, for which those in decode make room.

    Parameters
    ----------
    limits, queue, state, log
    seconds : float
        Time of the batch.
    chunk : array
        Tokens of each request in it; zeros afterwards.
    """
    number = state.number
    need, start, now = 0, number[AWAITED], state.clock[NOW]
    for k in range(number[PARTIAL]):
        i = state.rows[k, PARTIAL]
        need += blocks(limits, state.rows[i, MEM] + chunk[i]) - blocks(limits, state.rows[i, MEM])
    while number[KV] + need > limits.capacity or number[PARTIAL] + number[HELD] > limits.running:
        evict_one(limits, queue, state, log)
    number[KV] += need
    state.clock[NOW] = now + seconds
    for k in range(number[PARTIAL] - 1, -1, -1):
        i = state.rows[k, PARTIAL]
        if chunk[i] == 0:
            continue
        note(log, i, chunk[i])
        arrival = queue.real[i, ARRIVAL]
        close = arrival > now - CLOCK_MARGIN * (1.0 + now) and arrival > 0.0
        if close and (start < 0 or arrival > queue.real[start, ARRIVAL]):
            start = i
        state.rows[i, MEM] += chunk[i]
        chunk[i] = 0
        if state.rows[i, MEM] < queue.whole[i, INPUTS]:
            continue
        state.rows[i, MADE] = 1
        number[SERVED] += 1
        state.clock[WAITING] -= queue.real[i, WEIGHED]
        state.times[i, FIRST] = state.times[i, FINAL] = state.clock[NOW]
        leave(state, PARTIAL, i)
        if queue.whole[i, OUTPUTS] > 1:
            state.rows[number[HELD], HELD] = i
            number[HELD] += 1
        else:
            number[KV] -= blocks(limits, state.rows[i, MEM])
            number[DONE] += 1
    write(log, state, 0, 1, start)


def wait(queue: Any, state: Any) -> None:
    """Move the clock to the next arrival, which the next batch names."""
    state.number[AWAITED] = queue.whole[state.number[ARRIVED], ARRIVING]
    state.clock[NOW] = queue.real[state.number[AWAITED], ARRIVAL]


def first_tokens_loop(
    limits: Any, queue: Any, state: Any, knobs: Any, cost: Any, numbers: Any, chunk: Any, most_batches: Any,
    whole: Any,
) -> Any:  # fmt: skip
    """Run to the end, or until all have their first tokens.

    Parameters
    ----------
    limits, queue, state, knobs : Limits, Queue, State, Knobs
        The state is that of `started`, and the caller's: numba frees arrays of a named tuple that is made in
        compiled code while they are still used.
    cost : Coefficients
        Floats, for the simulated clock.
    numbers : pair of arrays
        Room for the numbers of a batch, whole and real ones: see `COUNT` and `TIME`.
    chunk : array
        Room for the tokens of each request in it; zeros.
    most_batches : int
    whole : bool
        Whether to run until all are finished; else last tokens say nothing.

    Returns
    -------
    finished : bool
        False after `most_batches`.  Times of tokens are in the state.
    log : list of int
        See `_state.write`.
    """
    n = len(queue.whole)
    log = [0 for _ in range(0)]
    counts, times = numbers
    # Where all can be evicted no first token waits for a later one, so these need not be made to judge.
    lazy = not whole and not queue.whole[:, FIXED].any()
    while state.number[DONE if whole else SERVED] < n and state.number[BATCHES] <= most_batches:
        arrive(queue, state)
        crowd = state.number[LINE] + state.number[PARTIAL] > 0
        counts[:] = 0
        times[:] = 0.0
        if crowd:
            choose(limits, queue, state, knobs, cost, numbers, chunk)
        if counts[COUNT] == 0:
            if not rest(limits, queue, state, cost, log, crowd, lazy):
                if state.number[ARRIVED] == n:
                    return False, log
                wait(queue, state)
        elif awaits(limits, queue, state, knobs, cost, numbers, chunk):
            put_back(queue, state, chunk)
            wait(queue, state)
        else:
            run_prompts(limits, queue, state, log, times[TIME], chunk)
    return state.number[BATCHES] <= most_batches, log


HELPERS = (
    batch_time, prefill_work, blocks, note, write, join, arrive, leave, evict_one, rising, safe, priced,
    first_partial, joins, choose, cut_off, awaits, put_back, run_prompts, next_arrival, shortest_gone, peak,
    refill_time, refill, decoders, steps_until, advance, decode, rest, wait,
)  # fmt: skip
