"""One batch of Algorithm 1 (InferMax, section 3.1): GetNextBatch and Process.

No batch is empty: whatever runs first finds C and P untouched, fits into M alone (`Instance`
checks that), and evicts what is in its way unless that runs instead.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.schedulers._keys import HELPERS as KEY_HELPERS
from infermax_opt.infermax.schedulers._keys import form_batch
from infermax_opt.infermax.schedulers._state import (
    ADMITTED,
    BATCH_LEFT,
    DEC_HEAD,
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
    PRE_HEAD,
    PRE_TAIL,
    PREFILL_TOKENS,
    PREFILLING,
    PREFILLS,
    RUNNING,
    STEPS,
    TOKENS,
    USED,
    WAIT_HEAD,
    WAITS,
    WORK,
    enqueue,
    enqueue_first,
    evict,
    find_victim,
    held,
    insert,
    reclaimable,
    unlink,
)

__all__ = ["HELPERS", "next_batch", "process"]

_NEVER = 2**62
# What becomes of a waiting request.
ADMIT, RETRY, REFUSE = 0, 1, 2


def next_batch(limits: Any, groups: Any, requests: Any, state: Any, plan: Any) -> None:
    """GetNextBatch of Algorithm 1: fill `plan`, reserving KV in `state`."""
    count, size = state.count, plan.count
    for k in range(len(size)):
        size[k] = 0
    size[DEC_TAIL] = count[IN_DECODE] - 1
    size[PRE_TAIL] = count[IN_PREFILL] - 1
    size[WAIT_HEAD] = state.after[len(state.after) - 1]
    for g in range(len(groups)):
        open_to = groups[g]
        if limits.resume and size[EVICTED] > 0:
            open_to &= ~WAITS
        while open_to:
            source, i = candidate(state, plan, open_to)
            if source == 0:
                break
            if source == DECODES:
                open_to = decode(limits, requests, state, plan, i, open_to)
            else:
                open_to = prefill(limits, requests, state, plan, i, source, open_to)


def candidate(state: Any, plan: Any, open_to: Any) -> Any:
    """First request by key among the heads of the open sources, and its source; 0 if there is none."""
    count, size, phase, key = state.count, plan.count, state.phase, state.key
    source, i, best = 0, -1, _NEVER
    if open_to & DECODES:
        dec, d = state.decoding, size[DEC_HEAD]
        while d < count[IN_DECODE] and phase[dec[d]] != DECODING:
            d += 1
        size[DEC_HEAD] = d
        if d < count[IN_DECODE]:
            source, i, best = DECODES, dec[d], key[dec[d]]
    if open_to & PREFILLS:
        pre, p = state.prefilling, size[PRE_HEAD]
        while p < count[IN_PREFILL] and phase[pre[p]] != PREFILLING:
            p += 1
        size[PRE_HEAD] = p
        if p < count[IN_PREFILL] and key[pre[p]] < best:
            source, i, best = PREFILLS, pre[p], key[pre[p]]
    w = size[WAIT_HEAD]
    if open_to & WAITS and w != len(state.after) - 1 and key[w] < best:
        source, i = WAITS, w
    return source, i


def decode(limits: Any, requests: Any, state: Any, plan: Any, i: Any, open_to: Any) -> Any:
    """Let request `i` decode, or evict somebody so that it can; sources open from now on."""
    count, size = state.count, plan.count
    if size[PARTS] > 0 and not limits.hybrid:
        return open_to & ~DECODES
    if limits.tokens - size[TOKENS] < 1:
        return 0
    need = held(state.cached[i] + 1, limits.block) - state.reserved[i]
    if need > 0:
        if count[USED] + need > limits.capacity:
            # Any victim frees a block, which is all a decode step can need.
            victim = find_victim(requests, state, plan, size[DEC_HEAD] + 1, size[PRE_HEAD])
            if victim < 0 or (limits.ranked and state.key[victim] < state.key[i]):
                victim = i
            evict(state, plan, victim)
            return open_to
        state.reserved[i] += need
        count[USED] += need
    plan.steps[size[STEPS]] = i
    size[STEPS] += 1
    size[TOKENS] += 1
    size[DECODE_KV] += state.cached[i]
    size[DEC_HEAD] += 1
    return open_to


def prefill(limits: Any, requests: Any, state: Any, plan: Any, i: Any, source: Any, open_to: Any) -> Any:
    """Let request `i` prefill as far as the batch has room; sources open from now on.

    Long on purpose: one branch for each rule of GetNextBatch on prefills, in its order.
    """
    size = plan.count
    if size[STEPS] > 0 and not limits.hybrid:
        return open_to & DECODES
    left = limits.tokens - size[TOKENS]
    room = limits.prefill - size[PREFILL_TOKENS]
    cached, target = state.cached[i], requests.inputs[i] + state.generated[i]
    chunk = target - cached
    if limits.chunked or (limits.may_split and target > min(limits.prefill, limits.tokens)):
        chunk = max(1, min(chunk, room, left))
    elif not limits.may_split and size[PARTS] == 0:
        # Longer than the scheduler's P but indivisible: it goes alone, within the machine's P.
        room = limits.most_prefill
    if chunk > left or (chunk > room and not limits.ranked):
        return 0
    if chunk > room and room < 1:
        return open_to & DECODES
    if source == WAITS and chunk <= room:
        answer = admit(limits, requests, state, plan, i, target)
        if answer != ADMIT:
            # Running requests of a merged group go on, or a full cache would stall.
            return open_to if answer == RETRY else open_to & ~WAITS
    elif source == WAITS:
        size[WAIT_HEAD] = state.after[i]
    else:
        size[PRE_HEAD] += 1
    if chunk <= room:
        k = size[PARTS]
        plan.parts[k] = i
        plan.chunks[k] = chunk
        plan.fresh[k] = source == WAITS
        size[PARTS] += 1
        size[TOKENS] += chunk
        size[PREFILL_TOKENS] += chunk
        size[WORK] += prefill_work(limits.exact, chunk, cached)
    return open_to


def admit(limits: Any, requests: Any, state: Any, plan: Any, i: Any, target: Any) -> Any:
    """Give KV to the waiting request `i`; RETRY where another one had to be evicted first."""
    count, size, key = state.count, plan.count, state.key
    if count[RUNNING] >= limits.running:
        return REFUSE
    if requests.protected[i]:
        target = requests.inputs[i] + requests.outputs[i] - 1
    need = held(target, limits.block)
    short = count[USED] + need - limits.capacity
    if short > 0:
        d, p = size[DEC_HEAD], size[PRE_HEAD]
        if limits.ranked and reclaimable(requests, state, d, p, key[i]) >= short:
            evict(state, plan, find_victim(requests, state, plan, d, p))
            return RETRY
        return REFUSE
    size[WAIT_HEAD] = state.after[i]
    unlink(state, i)
    state.phase[i] = ADMITTED
    state.reserved[i] = need
    count[USED] += need
    count[RUNNING] += 1
    if not limits.ranked:
        key[i] = count[NEXT_KEY]
        count[NEXT_KEY] += 1
    if limits.batched:
        count[BATCH_LEFT] -= 1
        form_batch(limits, requests, state)
        size[WAIT_HEAD] = state.after[len(state.after) - 1]
    return ADMIT


def process(limits: Any, requests: Any, state: Any, plan: Any) -> Any:
    """Advance every request of the batch and requeue the evicted ones; return those finished."""
    size = plan.count
    moved = size[EVICTED] + generate(limits, requests, state, plan)
    continue_prefills(limits, requests, state, plan)
    if moved > 0:
        prune_decoding(state)
    if moved > 0 or size[PARTS] > 0:
        prune_prefilling(state)
    finished = settle(state, plan)
    for k in range(size[EVICTED]):
        if limits.resume:
            enqueue_first(state, plan.evicted[k])
        else:
            enqueue(state, plan.evicted[k], limits.ranked)
    return finished


def generate(limits: Any, requests: Any, state: Any, plan: Any) -> Any:
    """Run the decode steps of the batch; how many requests they finish."""
    cached, generated, outputs = state.cached, state.generated, requests.outputs
    finished = 0
    for k in range(plan.count[STEPS]):
        i = plan.steps[k]
        cached[i] += 1
        generated[i] += 1
        state.key[i] -= limits.fall
        if generated[i] == outputs[i]:
            state.phase[i] = DONE
            finished += 1
    return finished


def continue_prefills(limits: Any, requests: Any, state: Any, plan: Any) -> None:
    """Run the prefills of the batch."""
    inputs, phase = requests.inputs, state.phase
    cached, generated = state.cached, state.generated
    for k in range(plan.count[PARTS]):
        i = plan.parts[k]
        cached[i] += plan.chunks[k]
        state.seen[i] = 1
        phase[i] = PREFILLING
        if cached[i] == inputs[i] + generated[i]:
            generated[i] += 1
            state.key[i] -= limits.fall
        if generated[i] == requests.outputs[i]:
            phase[i] = DONE
        elif generated[i] >= 1 and inputs[i] + generated[i] - cached[i] == 1:
            # Also a refill that stopped one token short: that token is a decode step.
            phase[i] = DECODING


def prune_decoding(state: Any) -> None:
    """Take those that decode no longer out of the list of those in decode."""
    kept = 0
    for k in range(state.count[IN_DECODE]):
        i = state.decoding[k]
        if state.phase[i] == DECODING:
            state.decoding[kept] = i
            kept += 1
    state.count[IN_DECODE] = kept


def prune_prefilling(state: Any) -> None:
    """Take those that prefill no longer out of the list; some of them decode now."""
    count = state.count
    kept = 0
    for k in range(count[IN_PREFILL]):
        i = state.prefilling[k]
        if state.phase[i] == PREFILLING:
            state.prefilling[kept] = i
            kept += 1
        elif state.phase[i] == DECODING:
            insert(state.decoding, count[IN_DECODE], state.key, i)
            count[IN_DECODE] += 1
    count[IN_PREFILL] = kept


def settle(state: Any, plan: Any) -> Any:
    """Free the KV of finished requests, list those just admitted; how many are finished."""
    count, steps = state.count, plan.count[STEPS]
    finished = 0
    for k in range(steps + plan.count[PARTS]):
        i = plan.steps[k] if k < steps else plan.parts[k - steps]
        if state.phase[i] == DONE:
            finished += 1
            count[USED] -= state.reserved[i]
            count[RUNNING] -= 1
        elif k >= steps and plan.fresh[k - steps]:
            if state.phase[i] == DECODING:
                insert(state.decoding, count[IN_DECODE], state.key, i)
                count[IN_DECODE] += 1
            else:
                insert(state.prefilling, count[IN_PREFILL], state.key, i)
                count[IN_PREFILL] += 1
    return finished


HELPERS = (
    prefill_work, *KEY_HELPERS, enqueue_first, insert, find_victim, reclaimable, evict,
    candidate, decode, admit, prefill, next_batch,
    generate, continue_prefills, prune_decoding, prune_prefilling, settle, process,
)  # fmt: skip
"""These functions and what they call, callees first."""
