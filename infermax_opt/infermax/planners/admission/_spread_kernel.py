"""The loop of the admission planner where several prompts are processed side by side, in small chunks.

Attention over a chunk costs the square of its tokens, so that as many tokens of several prompts cost less
than those of one.  As in `_kernel`, all that run decode in every batch, and nobody is evicted.  Each prompt
has equally many tokens in each batch until it is done.  So the KV of every later batch is known here, too.
Nobody is held back by its release while nothing else is there.

The functions run as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.admission._kernel import (
    BASE,
    CLOCK_MARGIN,
    END,
    FAR,
    WHO,
    batches_until,
    insert,
    lack,
    stays_out,
)
from infermax_opt.infermax.schedulers._state import held

__all__ = ["HELPERS", "SpreadKnobs", "spread_loop"]


class SpreadKnobs(NamedTuple):
    """What the search chooses.

    `cap`, `budget`, `look`: as in `_kernel.Knobs`.  `share`: prompt tokens of a request in a batch.
    """

    cap: Any
    budget: Any
    share: Any
    look: Any


def spread_loop(machine: Any, queue: Any, knobs: Any, cost: Any, most_batches: Any, record: Any) -> Any:
    """Run to the end; of a machine with hybrid batches and chunks, and of requests in one part each.

    Long on purpose: as in `admission_loop`, which says what is given and returned.

    Parameters
    ----------
    machine, queue : Machine, Queue
    knobs : SpreadKnobs
    cost : Coefficients
        Floats, for the simulated clock.
    most_batches : int
    record : bool
        Whether to list the batches.
    """
    named = [0 for _ in range(0)]
    chunks = [0 for _ in range(0)]
    evicted = [0 for _ in range(0)]
    named_end, decode, repeat, start, evicted_end = [0], [0], [0], [-1], [0]
    passed, ends = [0], [0.0]
    n = len(queue.inputs)
    first, last = np.zeros(n), np.zeros(n)
    line = np.zeros(n, np.int64)  # places in the order of those that wait, rising
    cap = max(1, min(knobs.cap, machine.running, machine.tokens - 1))
    run = np.zeros((min(n, cap) + 1, 3), np.int64)
    least = max(1, min(knobs.budget, machine.prefill, machine.tokens - cap))
    share = max(1, min(knobs.share, least))
    side = least // share
    begun, cached = np.zeros(side, np.int64), np.zeros(side, np.int64)  # prompts under way
    base = np.zeros(n, np.int64)
    count = step = arrived = batches = finished = queued = prompts = decoders = bases = 0
    now = 0.0
    while finished < n:
        while arrived < n:
            i = queue.arriving[arrived]
            if queue.arrival[i] > now or (queue.release[i] > now and count + queued > 0):
                break
            place = queue.place[i]
            arrived += 1
            k = queued
            while k > 0 and line[k - 1] > place:
                line[k] = line[k - 1]
                k -= 1
            line[k] = place
            queued += 1
        if count == 0 and queued == 0:
            now = queue.arrival[queue.arriving[arrived]]
            continue
        if batches == most_batches:
            break
        batches += 1
        # --- who starts ---
        tried = kept = 0
        newest = -1
        hold = FAR  # batches before anybody who was tried may start
        while tried < queued and tried < knobs.look and prompts < side and count < cap:
            i = queue.order[line[tried]]
            line[kept] = line[tried]
            tried += 1
            kept += 1  # unless it is taken
            after = step + (queue.inputs[i] + share - 1) // share
            end = after + queue.outputs[i] - 1
            out = stays_out(machine, run, count, end, queue.inputs[i] - after)
            if out > 0:
                hold = min(hold, out)
                continue
            kept -= 1
            base[i] = queue.inputs[i] - after
            insert(run, count, end, base[i], i)
            count += 1
            begun[prompts], cached[prompts] = i, 0
            prompts += 1
            arrival = queue.arrival[i]
            close = arrival > now - CLOCK_MARGIN * (1.0 + now) and arrival > 0.0
            if close and (newest < 0 or arrival > queue.arrival[newest]):
                newest = i
        if kept < tried:
            for k in range(tried, queued):
                line[k - tried + kept] = line[k]
            queued -= tried - kept
        # --- the batch ---
        if decoders == 0 and prompts == 0:
            break
        tokens = work = 0
        for k in range(prompts):
            chunk = min(share, queue.inputs[begun[k]] - cached[k])
            work += prefill_work(machine.exact, chunk, cached[k])
            cached[k] += chunk
            tokens += chunk
            named.append(begun[k])
            chunks.append(chunk)
        time = batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1,
            tokens + decoders, decoders, bases + decoders * step, prompts, work,
        )  # fmt: skip
        # As in `admission_loop`.
        same, longer = 1, cost.d1 * decoders
        if prompts == 0:
            same = min(hold, run[0, END] - step, most_batches - batches + 1)
            if arrived < n:
                span = queue.release[queue.arriving[arrived]] - now
                same = min(same, batches_until(span, time, longer))
            batches += same - 1
        now += same * time + longer * (same * (same - 1) / 2)
        if record:
            passed.append(batches)
            ends.append(now)
            if len(repeat) > 1 and prompts == 0 and decode[-1] == 1 and named_end[-1] == named_end[-2]:
                repeat[-1] += same
            else:
                named_end.append(len(named))
                decode.append(1 if decoders > 0 else 0)
                repeat.append(same)
                start.append(newest)
                evicted_end.append(0)
        else:
            named.clear()
            chunks.clear()
        step += same
        left = 0
        for k in range(prompts):
            i = begun[k]
            if cached[k] == queue.inputs[i]:
                first[i] = now
                decoders += 1
                bases += base[i]
            else:
                begun[left], cached[left] = i, cached[k]
                left += 1
        prompts = left
        gone = 0
        while gone < count and run[gone, END] <= step:
            i = run[gone, WHO]
            last[i] = now
            decoders -= 1
            bases -= base[i]
            gone += 1
        if gone > 0:
            finished += gone
            count -= gone
            for k in range(count):
                run[k, END], run[k, BASE] = run[k + gone, END], run[k + gone, BASE]
                run[k, WHO] = run[k + gone, WHO]
    listed = named, chunks, named_end, decode, repeat, start, evicted, evicted_end, passed, ends
    return finished == n, first, last, *listed


HELPERS = (batch_time, prefill_work, held, lack, stays_out, batches_until, insert)
"""What `spread_loop` calls, callees first."""
