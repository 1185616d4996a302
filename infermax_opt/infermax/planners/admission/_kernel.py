"""The loop of the admission planner: all that run decode in every batch, and who starts when is chosen.

Nobody is paused, and evicted only where that is chosen beforehand: such a request comes in two parts, of
which the second has all tokens of the first in its prompt, and waits like any other.  So the KV of every
later batch is known, and a part is admitted only if it fits until it ends: memory is projected to every
finish to come, where it is largest.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.schedulers._state import held

__all__ = ["HELPERS", "Knobs", "Machine", "Queue", "admission_loop"]

#: Relative error granted to the simulated clock; what arrived within it gets an explicit start.
CLOCK_MARGIN = 1e-7
#: More batches than any schedule has.
FAR = 2**40
#: Columns of what runs: the step after which a request ends, its KV less the steps so far, itself.
END, BASE, WHO = 0, 1, 2


class Machine(NamedTuple):
    """Limits and policy of an instance; `reach`: most tokens that rounding to blocks adds to a request."""

    capacity: Any
    tokens: Any
    prefill: Any
    running: Any
    reach: Any
    hybrid: Any
    chunked: Any
    exact: Any


class Queue(NamedTuple):
    """Columns per request, and two orders: by release, and of all by how soon they should start.

    `release`: when each joins those that wait, at its arrival or later, in `spread_loop`.  `place`: where
    each is in `order`.  `rest`: the second part of a request, or -1; these are behind all requests, and have
    no arrival.
    """

    inputs: Any
    outputs: Any
    arrival: Any
    release: Any
    arriving: Any
    order: Any
    place: Any
    rest: Any


class Knobs(NamedTuple):
    """What the search chooses.

    `cap`: most running requests.  `budget`: most prefill tokens of a batch.  `most`: prompts that a batch
    starts.  `pause`: batches between two that start prompts.  `look`: waiting requests that are tried.
    """

    cap: Any
    budget: Any
    most: Any
    pause: Any
    look: Any


def stays_out(machine: Any, run: Any, count: Any, end: Any, base: Any) -> Any:
    """How many batches at least pass before one more request fits, at every finish to come, until it ends.

    0 if it fits now.  Each batch that it waits, it ends one later, and holds one token less at the finishes
    of the others.
    """
    total = alive = 0
    placed = False
    for k in range(count - 1, -2, -1):
        if not placed and (k < 0 or run[k, END] <= end):
            total += base
            alive += 1
            placed = True
            free = machine.capacity - total - alive * end
            if free < alive * machine.reach and lack(machine, run, count, base, end, free) > 0:
                # Those who are there at its end hold the more, the later that is, until one of them ends.
                return max(1, run[k + 1, END] - end) if k + 1 < count else 1
        if k >= 0:
            total += run[k, BASE]
            alive += 1
            # Beyond its end nothing has changed.
            free = machine.capacity - total - alive * run[k, END]
            if placed and free < alive * machine.reach:
                more = lack(machine, run, count, base, run[k, END], free)
                if more > 0:
                    return more
    return 0


def lack(machine: Any, run: Any, count: Any, base: Any, finish: Any, free: Any) -> Any:
    """Tokens by which one more request holds too many at a finish; 0 or less if it fits.

    `free`: the KV left then, if nothing is rounded to blocks.
    """
    if machine.reach == 0:
        return -free
    block, room = machine.reach + 1, machine.capacity
    for k in range(count):
        if run[k, END] >= finish:
            room -= held(run[k, BASE] + finish, block)
    return base + finish - room // block * block


def batches_until(span: Any, time: Any, more: Any) -> Any:
    """Batches in a span of time: of the first one's time at most, each `more` longer than that before it.

    The last one ends at the end of the span or after it.
    """
    half = time - more / 2
    root = half + (half * half + 2 * more * span) ** 0.5
    return max(1, int(np.ceil(min(2 * span / root, FAR)))) if root > 0 else FAR


def insert(run: Any, count: Any, end: Any, base: Any, who: Any) -> None:
    """Add a request to those that run, which are sorted by their ends."""
    k = count
    while k > 0 and run[k - 1, END] > end:
        run[k, END], run[k, BASE], run[k, WHO] = run[k - 1, END], run[k - 1, BASE], run[k - 1, WHO]
        k -= 1
    run[k, END], run[k, BASE], run[k, WHO] = end, base, who


def part_of(left: Any, room: Any, again: Any) -> Any:
    """Prompt tokens of a chunk; of who was evicted no single one is left, for that would be a decode."""
    chunk = min(left, room)
    return chunk - 1 if again and chunk == left - 1 else chunk


def admission_loop(machine: Any, queue: Any, knobs: Any, cost: Any, most_batches: Any, record: Any) -> Any:
    """Run to the end.

    Long on purpose: numba counts references to every column that is handed to a part, and the parts
    share nearly all of their variables.

    Parameters
    ----------
    machine, queue, knobs : Machine, Queue, Knobs
    cost : Coefficients
        Floats, for the simulated clock.
    most_batches : int
    record : bool
        Whether to list the batches.

    Returns
    -------
    finished : bool
        False after `most_batches`.
    first, last : float arrays
        Times of first and last tokens, in seconds.
    named, chunks : list of int
        Flat columns of prompts and their tokens.
    named_end, decode, repeat, start : list of int
        Per entry: where its prompts end, whether all that run decode, batches, and the request whose
        arrival it awaits, or -1.
    evicted, evicted_end : list of int
        Who is evicted, and per entry where its evictions end.
    passed : list of int
    ends : list of float
        Of every number of batches after which anything changed: that, and when the last of them ends.
    """
    named = [0 for _ in range(0)]
    chunks = [0 for _ in range(0)]
    evicted = [0 for _ in range(0)]
    named_end, decode, repeat, start, evicted_end = [0], [0], [0], [-1], [0]
    passed, ends = [0], [0.0]
    n, all_arrive = len(queue.inputs), len(queue.arriving)
    # Requests whose first part has ended: the next batch evicts them, and they may run again after it.
    leaving, joining = np.zeros(n, np.int64), np.zeros(n, np.int64)
    leave = join = 0
    first, last = np.zeros(n), np.zeros(n)
    line = np.zeros(n, np.int64)  # places in the order of those that wait, rising
    cap = max(1, min(knobs.cap, machine.running, machine.tokens - 1))
    run = np.zeros((min(n, cap) + 1, 3), np.int64)
    count = step = arrived = batches = finished = queued = since = 0
    bases = 0
    partial, cached = -1, 0
    now = 0.0
    least = max(1, min(knobs.budget, machine.prefill, machine.tokens - cap))
    while finished < n:
        while join > 0 or (arrived < all_arrive and queue.arrival[queue.arriving[arrived]] <= now):
            if join > 0:
                join -= 1
                place = queue.place[queue.rest[joining[join]]]
            else:
                place = queue.place[queue.arriving[arrived]]
                arrived += 1
            k = queued
            while k > 0 and line[k - 1] > place:
                line[k] = line[k - 1]
                k -= 1
            line[k] = place
            queued += 1
        if count == 0 and partial < 0 and queued == 0:
            if arrived == all_arrive:
                break  # nobody is there for the batch that would evict
            now = queue.arrival[queue.arriving[arrived]]
            continue
        if batches == most_batches:
            break
        batches += 1
        decoders, kv = count, bases + count * step
        tokens = prefills = work = 0
        newest = -1
        hold = FAR  # batches before anybody who was tried may start
        before = len(named)
        # --- prompts ---
        room = min(knobs.budget, machine.prefill)
        if machine.hybrid:
            room = min(room, machine.tokens - decoders)
        room = min(room, machine.tokens)
        # The step after which first tokens of this batch count; their decodes follow.
        after = step + 1 if machine.hybrid and decoders > 0 else step
        chunk = 0
        if partial >= 0 and room > 0:
            chunk = part_of(queue.inputs[partial] - cached, room, partial >= all_arrive)
        if chunk > 0:
            work += prefill_work(machine.exact, chunk, cached)
            cached += chunk
            tokens += chunk
            room -= chunk
            prefills += 1
            named.append(partial)
            chunks.append(chunk)
            if cached == queue.inputs[partial]:
                base = cached - after
                insert(run, count, after + queue.outputs[partial] - 1, base, partial)
                count += 1
                bases += base
                partial = -1
        alone = count == 0 and partial < 0
        if since < knobs.pause:
            hold = knobs.pause - since
        if partial < 0 and (since >= knobs.pause or alone):
            tried = taken = kept = 0
            while tried < queued and tried < knobs.look and taken < knobs.most and partial < 0:
                i = queue.order[line[tried]]
                line[kept] = line[tried]
                tried += 1
                kept += 1  # unless it is taken
                whole = queue.inputs[i]
                forced = alone and taken == 0
                limit = room
                if forced:
                    limit = min(machine.prefill, machine.tokens) if not machine.chunked else max(room, 1)
                if count >= cap:
                    break
                if limit < 1 or (whole > limit and not machine.chunked):
                    continue
                again = i >= all_arrive
                chunk = part_of(whole, limit, again)
                late = 0
                if chunk < 1 or (again and whole > limit and least < 2):
                    continue
                if whole > limit and machine.hybrid:
                    late = (whole - limit + least - 1) // least
                    if again:
                        late += 1
                end = after + queue.outputs[i] - 1 + late
                out = 0 if forced else stays_out(machine, run, count, end, whole - after)
                if out > 0:
                    hold = min(hold, out)
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
                since = 0
        if decoders == 0 and prefills == 0:
            break  # only who may not be in this batch, or would be left with one token of a prompt
        # --- the batch ---
        if prefills > 0 and not machine.hybrid:
            decoders = kv = 0
        time = batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            tokens + decoders, decoders, kv, prefills, work,
        )  # fmt: skip
        # Until somebody ends, arrives or may start, batches differ by the KV that they read only.
        same, longer = 1, cost.d1 * decoders
        if prefills == 0 and partial < 0 and leave == 0:
            same = min(hold, run[0, END] - step, most_batches - batches + 1)
            if arrived < all_arrive:
                span = queue.arrival[queue.arriving[arrived]] - now
                same = min(same, batches_until(span, time, longer))
            batches += same - 1
        now += same * time + longer * (same * (same - 1) / 2)
        more = len(named) - before
        if record:
            passed.append(batches)
            ends.append(now)
            goes_on = len(repeat) > 1 and more == 0 and leave == 0
            if goes_on and decode[-1] == 1 and named_end[-1] == named_end[-2]:
                repeat[-1] += same
            else:
                for k in range(leave):
                    evicted.append(leaving[k])
                evicted_end.append(len(evicted))
                named_end.append(len(named))
                decode.append(1 if decoders > 0 else 0)
                repeat.append(same)
                start.append(newest)
        if decoders > 0:
            step += same
            since += same
        for k in range(before, before + more):
            i = named[k]
            if i != partial:
                first[i] = now
        for k in range(leave):
            joining[k] = leaving[k]
        join, leave = leave, 0
        gone = 0
        while gone < count and run[gone, END] <= step:
            last[run[gone, WHO]] = now
            if queue.rest[run[gone, WHO]] >= 0:
                leaving[leave] = run[gone, WHO]
                leave += 1
            bases -= run[gone, BASE]
            gone += 1
        if gone > 0:
            finished += gone
            count -= gone
            for k in range(count):
                run[k, END], run[k, BASE] = run[k + gone, END], run[k + gone, BASE]
                run[k, WHO] = run[k + gone, WHO]
        if not record:
            named.clear()
            chunks.clear()
    listed = named, chunks, named_end, decode, repeat, start, evicted, evicted_end, passed, ends
    return finished == n, first, last, *listed


HELPERS = (batch_time, prefill_work, held, lack, stays_out, batches_until, insert, part_of)
"""What `admission_loop` calls, callees first."""
