"""One batch of Algorithm 1 (InferMax, section 3.1): GetNextBatch and Process.

No batch is empty: whatever runs first finds C and P untouched, fits into M alone (`Instance`
checks that), and evicts what is in its way unless that runs instead.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.schedulers._state import (
    ADMITTED,
    DEC_TAIL,
    DECODE_KV,
    DECODES,
    DECODING,
    DONE,
    EVICTED,
    IN_DECODE,
    IN_PREFILL,
    NEXT_KEY,
    PARTS,
    PRE_TAIL,
    PREFILL_TOKENS,
    PREFILLING,
    PREFILLS,
    RUNNING,
    STEPS,
    TOKENS,
    USED,
    WAITS,
    WORK,
    enqueue,
    evict,
    find_victim,
    held,
    insert,
    reclaimable,
)

__all__ = ["next_batch", "process"]

_NEVER = 2**62


def next_batch(limits: Any, groups: Any, requests: Any, state: Any, plan: Any) -> None:
    """GetNextBatch of Algorithm 1: fill `plan`, reserving KV in `state`."""
    count, size = state.count, plan.count
    phase, key = state.phase, state.key
    dec, pre, after = state.decoding, state.prefilling, state.after
    end = len(after) - 1
    for k in range(len(size)):
        size[k] = 0
    size[DEC_TAIL] = count[IN_DECODE] - 1
    size[PRE_TAIL] = count[IN_PREFILL] - 1
    d = p = 0
    w = after[end]
    for g in range(len(groups)):
        open_to = groups[g]
        while True:
            # Candidate: the first by key among the heads of the sources still open.
            source, i, best = 0, -1, _NEVER
            if open_to & DECODES:
                while d < count[IN_DECODE] and phase[dec[d]] != DECODING:
                    d += 1
                if d < count[IN_DECODE]:
                    source, i, best = DECODES, dec[d], key[dec[d]]
            if open_to & PREFILLS:
                while p < count[IN_PREFILL] and phase[pre[p]] != PREFILLING:
                    p += 1
                if p < count[IN_PREFILL] and key[pre[p]] < best:
                    source, i, best = PREFILLS, pre[p], key[pre[p]]
            if open_to & WAITS and w != end and key[w] < best:
                source, i = WAITS, w
            if source == 0:
                break
            left = limits.tokens - size[TOKENS]
            cached = state.cached[i]
            if source == DECODES:
                if size[PARTS] > 0 and not limits.hybrid:
                    open_to &= ~DECODES
                    continue
                if left < 1:
                    break
                need = held(cached + 1, limits.block) - state.reserved[i]
                if need > 0:
                    if count[USED] + need > limits.capacity:
                        # Any victim frees a block, which is all a decode step can need.
                        victim = find_victim(requests, state, plan, d + 1, p)
                        if victim < 0 or (limits.ranked and key[victim] < best):
                            victim = i
                        evict(state, plan, victim)
                        continue
                    state.reserved[i] += need
                    count[USED] += need
                plan.steps[size[STEPS]] = i
                size[STEPS] += 1
                size[TOKENS] += 1
                size[DECODE_KV] += cached
                d += 1
                continue
            if size[STEPS] > 0 and not limits.hybrid:
                open_to &= DECODES
                continue
            target = requests.inputs[i] + state.generated[i]
            chunk = target - cached
            room = limits.prefill - size[PREFILL_TOKENS]
            if limits.chunked or (limits.may_split and target > min(limits.prefill, limits.tokens)):
                chunk = max(1, min(chunk, room, left))
            elif not limits.may_split and size[PARTS] == 0:
                # Longer than the scheduler's P but indivisible: it goes alone, within the machine's P.
                room = limits.most_prefill
            if chunk > left:
                break
            if chunk > room:
                if not limits.ranked:
                    break
                if room < 1:
                    open_to &= DECODES
                elif source == PREFILLS:
                    p += 1
                else:
                    w = after[w]
                continue
            if source == PREFILLS:
                p += 1
            else:
                need = target
                if requests.protected[i]:
                    need = requests.inputs[i] + requests.outputs[i] - 1
                need = held(need, limits.block)
                short = count[USED] + need - limits.capacity
                if count[RUNNING] >= limits.running:
                    open_to &= ~WAITS
                    continue
                if short > 0:
                    if limits.ranked and reclaimable(requests, state, d, p, key[i]) >= short:
                        evict(state, plan, find_victim(requests, state, plan, d, p))
                    else:
                        # Running requests of a merged group go on, or a full cache would stall.
                        open_to &= ~WAITS
                    continue
                w = after[w]
                ahead = state.before[i]
                after[ahead] = after[i]
                state.before[after[i]] = ahead
                phase[i] = ADMITTED
                state.reserved[i] = need
                count[USED] += need
                count[RUNNING] += 1
                if not limits.ranked:
                    key[i] = count[NEXT_KEY]
                    count[NEXT_KEY] += 1
            k = size[PARTS]
            plan.parts[k] = i
            plan.chunks[k] = chunk
            plan.fresh[k] = source == WAITS
            size[PARTS] += 1
            size[TOKENS] += chunk
            size[PREFILL_TOKENS] += chunk
            size[WORK] += prefill_work(limits.exact, chunk, cached)


def process(limits: Any, requests: Any, state: Any, plan: Any) -> Any:
    """Advance every request of the batch and requeue the evicted ones; return those finished."""
    count, size, phase = state.count, plan.count, state.phase
    inputs, outputs = requests.inputs, requests.outputs
    cached, generated = state.cached, state.generated
    finished = 0
    moved = size[EVICTED]
    for k in range(size[STEPS]):
        i = plan.steps[k]
        cached[i] += 1
        generated[i] += 1
        if generated[i] == outputs[i]:
            phase[i] = DONE
            moved += 1
    for k in range(size[PARTS]):
        i = plan.parts[k]
        cached[i] += plan.chunks[k]
        state.seen[i] = 1
        phase[i] = PREFILLING
        if cached[i] == inputs[i] + generated[i]:
            generated[i] += 1
        if generated[i] == outputs[i]:
            phase[i] = DONE
        elif generated[i] >= 1 and inputs[i] + generated[i] - cached[i] == 1:
            # Also a refill that stopped one token short: that token is a decode step.
            phase[i] = DECODING
    if moved > 0:
        kept = 0
        for k in range(count[IN_DECODE]):
            i = state.decoding[k]
            if phase[i] == DECODING:
                state.decoding[kept] = i
                kept += 1
        count[IN_DECODE] = kept
    if moved > 0 or size[PARTS] > 0:
        kept = 0
        for k in range(count[IN_PREFILL]):
            i = state.prefilling[k]
            if phase[i] == PREFILLING:
                state.prefilling[kept] = i
                kept += 1
            elif phase[i] == DECODING:
                insert(state.decoding, count[IN_DECODE], state.key, i)
                count[IN_DECODE] += 1
        count[IN_PREFILL] = kept
    for k in range(size[STEPS] + size[PARTS]):
        i = plan.steps[k] if k < size[STEPS] else plan.parts[k - size[STEPS]]
        if phase[i] == DONE:
            finished += 1
            count[USED] -= state.reserved[i]
            count[RUNNING] -= 1
        elif k >= size[STEPS] and plan.fresh[k - size[STEPS]]:
            if phase[i] == DECODING:
                insert(state.decoding, count[IN_DECODE], state.key, i)
                count[IN_DECODE] += 1
            else:
                insert(state.prefilling, count[IN_PREFILL], state.key, i)
                count[IN_PREFILL] += 1
    for k in range(size[EVICTED]):
        enqueue(state, plan.evicted[k], limits.ranked)
    return finished
