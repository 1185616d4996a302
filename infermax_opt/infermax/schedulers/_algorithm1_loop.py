"""The loop of Algorithm 1 (InferMax, section 3.1): one loop, parameterised by `Limits`.

Why it ends: a batch that decodes generates tokens; a batch without decodes brings some prefill
nearer to its next token, and only a decode (or a request of higher rank) can undo that.  Generated
tokens are never lost.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from math import inf
from typing import Any

from infermax_opt.infermax.data.cost import batch_time
from infermax_opt.infermax.schedulers._algorithm1_batch import HELPERS as BATCH_HELPERS
from infermax_opt.infermax.schedulers._algorithm1_batch import next_batch, process
from infermax_opt.infermax.schedulers._keys import dated_key, form_batch, note_first_tokens, rekey
from infermax_opt.infermax.schedulers._state import (
    ARRIVED,
    BATCH_LEFT,
    DECODE_KV,
    EVICTED,
    EVICTED_DECODES,
    IN_DECODE,
    IN_PREFILL,
    PARTS,
    RUNNING,
    STEPS,
    TOKENS,
    USED,
    WORK,
    enqueue,
    held,
)

__all__ = ["HELPERS", "schedule_loop"]

#: Relative error granted to the simulated clock; what arrived within it gets an explicit start.
CLOCK_MARGIN = 1e-7


def newest(requests: Any, state: Any, plan: Any, now: Any) -> Any:
    """Latest arrival (as a request) that the exact clock might not have passed yet; or -1."""
    latest = -1
    for k in range(plan.count[PARTS]):
        i = plan.parts[k]
        arrival = requests.arrival[i]
        if (
            state.seen[i] == 0
            and arrival > 0.0
            and arrival > now - CLOCK_MARGIN * (1.0 + now)
            and (latest < 0 or requests.place[i] > requests.place[latest])
        ):
            latest = i
    return latest


def settled(limits: Any, state: Any, plan: Any) -> Any:
    """Whether the order of candidates says the same in the next batch as in this one, that only decoded.

    Where keys change, a request that decodes may pass one that does not, which closes or opens the batch
    to those behind: there, everybody has to decode.
    """
    if limits.dated == 0 and limits.fall == 0:
        return True
    n = len(state.after) - 1
    running = state.count[IN_DECODE] + state.count[IN_PREFILL]
    return state.after[n] == n and running == plan.count[STEPS]


def leap(limits: Any, requests: Any, state: Any, plan: Any, most: Any) -> Any:
    """Count how often a batch that only decoded can recur, before a request's last token.

    Recurring, it takes the same C, P and R_max and ever more M, so whoever could not join it
    before still cannot.
    """
    for k in range(plan.count[STEPS]):
        i = plan.steps[k]
        most = min(most, requests.outputs[i] - state.generated[i] - 1)
    while most > 0:
        need = 0
        for k in range(plan.count[STEPS]):
            i = plan.steps[k]
            need += max(0, held(state.cached[i] + most, limits.block) - state.reserved[i])
        if state.count[USED] + need <= limits.capacity:
            break
        most //= 2
    return most


def advance(limits: Any, state: Any, plan: Any, times: Any) -> None:
    """Repeat the decode steps of the batch `times` times."""
    for k in range(plan.count[STEPS]):
        i = plan.steps[k]
        state.cached[i] += times
        state.generated[i] += times
        state.key[i] -= limits.fall * times
        need = max(0, held(state.cached[i], limits.block) - state.reserved[i])
        state.reserved[i] += need
        state.count[USED] += need


def arrive(limits: Any, requests: Any, state: Any, arrived: Any, now: Any) -> Any:
    """Queue what has arrived by now, `arrived` requests having done so before; how many have."""
    before = arrived
    while arrived < len(requests.order) and requests.arrival[requests.order[arrived]] <= now:
        i = requests.order[arrived]
        if limits.dated:
            state.key[i] = dated_key(requests, state, i, now)
        enqueue(state, i, limits.ranked)
        arrived += 1
    if limits.batched:
        state.count[ARRIVED] = arrived
        if arrived > before:
            # Those that the last batch has not admitted compete again.
            state.count[BATCH_LEFT] = 0
        form_batch(limits, requests, state)
    return arrived


def step_time(plan: Any, cost: Any, times: Any) -> Any:
    """Seconds of the batch, its decode steps having been repeated so many times."""
    size = plan.count
    return batch_time(
        cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
        size[TOKENS], size[STEPS], size[DECODE_KV] + times * size[STEPS], size[PARTS], size[WORK],
    )  # fmt: skip


def repeat_steps(
    limits: Any, requests: Any, state: Any, plan: Any, cost: Any, most: Any, arrived: Any, now: Any
) -> Any:
    """Repeat a batch that only decoded, `most` times at most, until somebody arrives.

    How often, and the time then.
    """
    most = leap(limits, requests, state, plan, most)
    upcoming = inf
    if arrived < len(requests.order):
        upcoming = requests.arrival[requests.order[arrived]]
    times = 0
    while times < most and now < upcoming:
        times += 1
        now += step_time(plan, cost, times)
    advance(limits, state, plan, times)
    return times, now


def schedule_loop(limits: Any, groups: Any, requests: Any, state: Any, plan: Any, cost: Any) -> Any:
    """Run Algorithm 1 to the end.

    Long on purpose: it alone grows lists, and in a part that is handed lists numba would count
    references to every column, which takes a quarter of the time.

    Parameters
    ----------
    limits : Limits
    groups : column of int
        Order of GroupRequests: which sources each group draws its candidates from.
    requests, state, plan : Requests, State, Plan
        As built by `infermax_opt.infermax.schedulers.algorithm1`; `state` and `plan` are used up.
    cost : Coefficients
        Floats, for the simulated clock.

    Returns
    -------
    finished : bool
        False after `limits.batches` batches.
    named, chunks, evicted : list of int
        Flat columns of the entries: requests and their tokens, evicted requests.
    named_end, evicted_end, decode_all, repeat, start : list of int
        Per entry, after a dummy first one; `start` is the request whose arrival it awaits, or -1.
    """
    named = [0 for _ in range(0)]
    chunks = [0 for _ in range(0)]
    evicted = [0 for _ in range(0)]
    named_end, evicted_end, decode_all, repeat, start = [0], [0], [0], [0], [-1]
    count, size = state.count, plan.count
    n = len(requests.inputs)
    arrived = batches = 0
    unfinished = n
    now = 0.0
    while unfinished > 0:
        arrived = arrive(limits, requests, state, arrived, now)
        if count[RUNNING] == 0 and state.after[n] == n:
            now = requests.arrival[requests.order[arrived]]
            continue
        if batches == limits.batches:
            break
        batches += 1
        if limits.dated:
            rekey(requests, state, now)
        next_batch(limits, groups, requests, state, plan)
        waits_for = newest(requests, state, plan, now)
        now += step_time(plan, cost, 0)
        alive = count[IN_DECODE] - size[EVICTED_DECODES]
        everyone = 1 if 0 < size[STEPS] == alive else 0
        before = len(named)
        if everyone == 0:
            for k in range(size[STEPS]):
                named.append(plan.steps[k])
                chunks.append(1)
        for k in range(size[PARTS]):
            named.append(plan.parts[k])
            chunks.append(plan.chunks[k])
        for k in range(size[EVICTED]):
            evicted.append(plan.evicted[k])
        more = len(named) - before
        same = (
            len(repeat) > 1 and size[EVICTED] == 0 and waits_for < 0
            and decode_all[-1] == everyone and named_end[-1] - named_end[-2] == more
        )  # fmt: skip
        k = 0
        while same and k < more:
            same = named[before + k] == named[before - more + k]
            same = same and chunks[before + k] == chunks[before - more + k]
            k += 1
        if same:
            for _ in range(more):
                named.pop()
                chunks.pop()
            repeat[-1] += 1
        else:
            named_end.append(len(named))
            evicted_end.append(len(evicted))
            decode_all.append(everyone)
            repeat.append(1)
            start.append(waits_for)
        done = process(limits, requests, state, plan)
        unfinished -= done
        if limits.dated:
            note_first_tokens(state, plan, now)
        if same and more == 0 and done == 0 and settled(limits, state, plan):
            most = limits.batches - batches
            times, now = repeat_steps(limits, requests, state, plan, cost, most, arrived, now)
            repeat[-1] += times
            batches += times
    return unfinished == 0, named, chunks, evicted, named_end, evicted_end, decode_all, repeat, start


HELPERS = (batch_time, *BATCH_HELPERS, newest, settled, leap, advance, arrive, step_time, repeat_steps)
"""What `schedule_loop` calls, callees first."""
