"""The loop of plans for service levels: who can still keep all levels is served first, the others not at
all.

As in `_kernel`, nobody is evicted or paused, and the KV of every later batch is known. A batch takes no
longer than all that decode can afford: each has so many tokens left until the moment at which its last one
is due. What is left of that time goes to prompts.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.admission._kernel import BASE, CLOCK_MARGIN, END, WHO, insert, stays_out
from infermax_opt.infermax.planners.admission._kernel import HELPERS as ADMISSION

__all__ = ["HELPERS", "Aims", "LevelKnobs", "levels_loop"]

#: Share of a limit that is left free for the rounding of the clock.
HAIR = 1e-9
#: Batches that a chunk of a prompt may take, as far as its KV is projected: others come first.
LATE = 4


class Aims(NamedTuple):
    """Columns per request: what it must keep, in seconds.

    `first`, `last`: moments by which its first and last tokens are due.  `span`: from the first to the last
    token, at most.  `prompt`: what its prompt takes alone.
    """

    first: Any
    last: Any
    span: Any
    prompt: Any


class LevelKnobs(NamedTuple):
    """What the search chooses.

    `crowd`: share of what a token may take that batches without prompts fill at most.  `budget`: most prefill
    tokens of a batch.  `spare`: factor of the time that a prompt takes alone, for which there must be time.
    `haste`: share of a batch's allowance that is that of all tokens left, not of this batch alone.
    """

    crowd: Any
    budget: Any
    spare: Any
    haste: Any


def longest_chunk(machine: Any, cost: Any, load: Any, cached: Any, most: Any, limit: Any) -> Any:
    """Most tokens of a prompt with which a batch takes no longer than a limit; 0 if there are none.

    Parameters
    ----------
    machine : Machine
    cost : Coefficients
    load : tuple
        Tokens, decodes, KV that these read, prefills and their work in the batch so far.
    cached, most : int
        Tokens of the prompt before, and as many as are wanted.
    limit : float
        Seconds.
    """
    tokens, decoders, kv, prefills, work = load
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        taken = batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            tokens + middle, decoders, kv, prefills + 1,
            work + prefill_work(machine.exact, middle, cached),
        )  # fmt: skip
        if taken <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def levels_loop(machine: Any, queue: Any, aims: Any, knobs: Any, cost: Any, most_batches: Any) -> Any:
    """Run until nobody is left who can keep all levels.

    Long on purpose, as `admission_loop` is.

    Parameters
    ----------
    machine, queue, aims, knobs : Machine, Queue, Aims, LevelKnobs
    cost : Coefficients
        Floats, for the simulated clock.
    most_batches : int

    Returns
    -------
    now : float
        When the last batch ends, in seconds; infinite where the KV does not suffice.
    first, last : float arrays
        Times of first and last tokens, infinite for who is not served.
    named, chunks, named_end, decode, repeat, start
        Batches, as in `admission_loop`.
    """
    named = [0 for _ in range(0)]
    chunks = [0 for _ in range(0)]
    named_end, decode, repeat, start = [0], [0], [0], [-1]
    n = len(queue.inputs)
    first, last = np.full(n, np.inf), np.full(n, np.inf)
    due = np.zeros(n)
    line = np.zeros(n, np.int64)  # places in the order of those that wait, rising
    cap = max(1, min(machine.running, machine.tokens - 1))
    run = np.zeros((min(n, cap) + 1, 3), np.int64)
    count = step = arrived = batches = queued = bases = 0
    partial, cached = -1, 0
    now = 0.0
    while batches < most_batches:
        while arrived < n and queue.arrival[queue.arriving[arrived]] <= now:
            place = queue.place[queue.arriving[arrived]]
            k = queued
            while k > 0 and line[k - 1] > place:
                line[k] = line[k - 1]
                k -= 1
            line[k] = place
            queued += 1
            arrived += 1
        kept = 0
        for k in range(queued):
            i = queue.order[line[k]]
            if now + knobs.spare * aims.prompt[i] <= aims.first[i]:
                line[kept] = line[k]
                kept += 1
        queued = kept
        if count == 0 and partial < 0 and queued == 0:
            if arrived == n:
                break
            now = queue.arrival[queue.arriving[arrived]]
            continue
        batches += 1
        decoders, kv = count, bases + count * step
        # --- what those that decode can afford ---
        limit = np.inf
        least = batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, decoders, decoders, kv, 0, 0
        )
        for k in range(count):
            left = run[k, END] - step
            slack = due[run[k, WHO]] - now
            if machine.hybrid:
                even = slack / left
                alone = slack - (left - 1) * least
                limit = min(limit, even if even > alone else knobs.haste * even + (1 - knobs.haste) * alone)
            else:
                limit = min(limit, slack - left * least)
        limit *= 1 - HAIR
        # --- prompts ---
        tokens = prefills = work = 0
        beside = decoders if machine.hybrid else 0
        reads = kv if machine.hybrid else 0
        newest = -1
        before = len(named)
        room = min(knobs.budget, machine.prefill, machine.tokens - beside)
        after = step + 1 if beside > 0 else step
        if partial >= 0:
            load = (beside + tokens, beside, reads, prefills, work)
            most = min(room, queue.inputs[partial] - cached)
            chunk = longest_chunk(machine, cost, load, cached, most, limit)
            if chunk > 0:
                work += prefill_work(machine.exact, chunk, cached)
                cached += chunk
                tokens += chunk
                room -= chunk
                prefills += 1
                named.append(partial)
                chunks.append(chunk)
                if cached == queue.inputs[partial]:
                    insert(run, count, after + queue.outputs[partial] - 1, cached - after, partial)
                    count += 1
                    bases += cached - after
                    partial, cached = -1, 0
        tried = kept = taken = 0
        while tried < queued and partial < 0 and room > 0 and count < cap:
            i = queue.order[line[tried]]
            line[kept] = line[tried]
            tried += 1
            kept += 1  # unless it is taken
            whole = queue.inputs[i]
            end = after + queue.outputs[i] - 1
            load = (beside + tokens, beside, reads, prefills, work)
            chunk = longest_chunk(machine, cost, load, 0, min(room, whole), limit)
            if chunk == 0 or (chunk < whole and not machine.chunked):
                continue
            late = 0
            if chunk < whole:
                late = LATE * (1 + whole // chunk)
            if count > 0 and stays_out(machine, run, count, end + late, whole - after) > 0:
                continue
            if queue.outputs[i] > 1:
                each = min(aims.span[i], aims.last[i] - now - aims.prompt[i]) / (queue.outputs[i] - 1)
                full = batch_time(
                    cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
                    count + 1, count + 1, bases + count * step + whole + queue.outputs[i], 0, 0,
                )  # fmt: skip
                if count > 0 and full > knobs.crowd * min(each, limit):
                    continue
            kept -= 1
            taken += 1
            tokens += chunk
            room -= chunk
            prefills += 1
            work += prefill_work(machine.exact, chunk, 0)
            named.append(i)
            chunks.append(chunk)
            arrival = queue.arrival[i]
            close = arrival > now - CLOCK_MARGIN * (1.0 + now) and arrival > 0.0
            if close and (newest < 0 or arrival > queue.arrival[newest]):
                newest = i
            if chunk == whole:
                insert(run, count, end, whole - after, i)
                count += 1
                bases += whole - after
            else:
                partial, cached = i, chunk
        if taken > 0:
            for k in range(tried, queued):
                line[k - taken] = line[k]
            queued -= taken
        # --- the batch ---
        if bases + count * after + cached + (count + 1) * machine.reach > machine.capacity and count > 0:
            return np.inf, first, last, named, chunks, named_end, decode, repeat, start
        if prefills > 0 and not machine.hybrid:
            decoders = kv = 0
        if prefills == 0 and decoders == 0:
            # Somebody waits for whom there is no room even alone: nobody serves it in time.
            queued = 0
            continue
        now += batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            tokens + decoders, decoders, kv, prefills, work,
        )  # fmt: skip
        more = len(named) - before
        if len(repeat) > 1 and more == 0 and decode[-1] == 1 and named_end[-1] == named_end[-2]:
            repeat[-1] += 1
        else:
            named_end.append(len(named))
            decode.append(1 if decoders > 0 else 0)
            repeat.append(1)
            start.append(newest)
        if decoders > 0:
            step += 1
        for k in range(before, before + more):
            i = named[k]
            if i != partial:
                first[i] = now
                due[i] = min(aims.last[i], now + aims.span[i])
        gone = 0
        while gone < count and run[gone, END] <= step:
            last[run[gone, WHO]] = now
            bases -= run[gone, BASE]
            gone += 1
        if gone > 0:
            count -= gone
            for k in range(count):
                run[k, END], run[k, BASE] = run[k + gone, END], run[k + gone, BASE]
                run[k, WHO] = run[k + gone, WHO]
    return now, first, last, named, chunks, named_end, decode, repeat, start


HELPERS = (*ADMISSION, longest_chunk)
"""What `levels_loop` calls, callees first."""
