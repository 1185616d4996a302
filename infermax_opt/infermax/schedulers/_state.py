"""State of Algorithm 1: requests, the waiting queue, the running lists, evictions.

Written in the subset of Python that numba compiles, over columns indexed by request: lists when
run as plain Python, int64 arrays when compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "ADMITTED",
    "ARRIVED",
    "BATCH_LEFT",
    "DECODES",
    "DECODE_KV",
    "DECODING",
    "DEC_HEAD",
    "DEC_TAIL",
    "DONE",
    "EVICTED",
    "EVICTED_DECODES",
    "IN_DECODE",
    "IN_PREFILL",
    "NEXT_KEY",
    "PARTS",
    "PLAN_COUNTERS",
    "PREFILLING",
    "PREFILLS",
    "PREFILL_TOKENS",
    "PRE_HEAD",
    "PRE_TAIL",
    "QUEUE_COUNTERS",
    "RUNNING",
    "STEPS",
    "TOKENS",
    "USED",
    "WAITING",
    "WAITS",
    "WAIT_HEAD",
    "WORK",
    "BatchPlan",
    "QueueState",
    "RequestColumns",
    "SchedulerLimits",
    "enqueue",
    "enqueue_first",
    "evict",
    "find_victim",
    "held",
    "insert",
    "reclaimable",
    "unlink",
]

# Where candidates come from; a group is a sum of these.
DECODES, PREFILLS, WAITS = 1, 2, 4
# Phase of a request.
WAITING, ADMITTED, PREFILLING, DECODING, DONE = 0, 1, 2, 3, 4
# Counters in `QueueState.count`.
USED, RUNNING, IN_DECODE, IN_PREFILL, NEXT_KEY = 0, 1, 2, 3, 4
# How many have arrived; how many at the front of the queue are of the batch that Sorted-F formed last.
ARRIVED, BATCH_LEFT = 5, 6
#: Entries of `QueueState.count`.
QUEUE_COUNTERS = 7
# Counters in `BatchPlan.count`: the features of the batch in the order of the cost model, then others.
TOKENS, STEPS, DECODE_KV, PARTS, WORK = 0, 1, 2, 3, 4
PREFILL_TOKENS, EVICTED, EVICTED_DECODES, DEC_TAIL, PRE_TAIL = 5, 6, 7, 8, 9
# Where the lists of those in decode and prefill have been looked at up to, and the waiting one next in turn.
DEC_HEAD, PRE_HEAD, WAIT_HEAD = 10, 11, 12
#: Entries of `BatchPlan.count`.
PLAN_COUNTERS = 13


class SchedulerLimits(NamedTuple):
    """Limits and switches of one run.  Token counts, and 0 or 1 for the switches.

    `prefill` is the scheduler's P, `most_prefill` the machine's; `may_split` says whether the
    instance allows chunks at all, `chunked` whether the scheduler chunks every prompt.  `fall` is what a
    generated token takes off a key; `dated` says whether keys follow the clock, `batched` whether the queue
    is sorted by Sorted-F (see `infermax_opt.infermax.schedulers._keys`); `resume` whether the evicted go on
    before anybody new.
    """

    capacity: int
    tokens: int
    prefill: int
    most_prefill: int
    running: int
    block: int
    batches: int
    hybrid: int
    chunked: int
    may_split: int
    ranked: int
    exact: int
    fall: int
    dated: int
    batched: int
    resume: int


class RequestColumns(NamedTuple):
    """Columns that stay as they are.

    `protected`: reserves its peak and is never evicted.  `arrival`: float seconds.  `order`:
    requests by exact arrival; `place`: where each one stands in it.  The rest is for keys that change, and
    empty where none do: `qualities`, orders of all requests, one behind the other; and for each request, in
    float seconds, `latest` moment to start, `first_due` and `last_due` of its tokens, the `pace` of those
    between, the `step` of a decode; `promised`, 0 or 1, and `predicted` output tokens, 0 where nobody did.
    """

    inputs: Any
    outputs: Any
    protected: Any
    arrival: Any
    order: Any
    place: Any
    qualities: Any
    latest: Any
    first_due: Any
    last_due: Any
    pace: Any
    step: Any
    promised: Any
    predicted: Any


class QueueState(NamedTuple):
    """Columns that change: one entry per request unless noted.

    `key` orders the running requests: admission number, or the rank.  `decoding` and
    `prefilling` list them by key.  `after` and `before` link the waiting queue; their last entry
    is its head and its tail.  `first`: float seconds of the first token, where keys follow the clock.
    `heads`: where each order of `qualities` begins, those before being done.
    """

    cached: Any
    generated: Any
    reserved: Any
    phase: Any
    key: Any
    seen: Any
    decoding: Any
    prefilling: Any
    after: Any
    before: Any
    first: Any
    heads: Any
    count: Any


class BatchPlan(NamedTuple):
    """The batch under construction.

    `steps`: requests that decode; `parts`, `chunks`: requests that prefill, and their tokens;
    `fresh`: whether each of those was admitted by this batch; `evicted`: requests.
    """

    steps: Any
    parts: Any
    chunks: Any
    fresh: Any
    evicted: Any
    count: Any


def held(tokens: Any, block: Any) -> Any:
    """KV tokens that `tokens` cached ones occupy."""
    return -(-tokens // block) * block


def enqueue(state: Any, i: Any, ranked: Any) -> None:
    """Put request `i` into the waiting queue: at the back, or where its rank belongs."""
    after, before, key = state.after, state.before, state.key
    end = len(after) - 1
    behind = end
    if ranked and before[end] != end and key[before[end]] > key[i]:
        behind = after[end]
        while key[behind] < key[i]:
            behind = after[behind]
    ahead = before[behind]
    after[ahead] = i
    before[i] = ahead
    after[i] = behind
    before[behind] = i
    state.phase[i] = WAITING


def enqueue_first(state: Any, i: Any) -> None:
    """Put request `i` in front of the waiting queue."""
    after, before = state.after, state.before
    end = len(after) - 1
    behind = after[end]
    after[end] = i
    before[i] = end
    after[i] = behind
    before[behind] = i
    state.phase[i] = WAITING


def unlink(state: Any, i: Any) -> None:
    """Take request `i` out of the waiting queue."""
    behind, ahead = state.after[i], state.before[i]
    state.after[ahead] = behind
    state.before[behind] = ahead


def insert(column: Any, size: Any, key: Any, i: Any) -> None:
    """Insert request `i` into the first `size` entries of a column sorted by key."""
    k = size
    while k > 0 and key[column[k - 1]] > key[i]:
        column[k] = column[k - 1]
        k -= 1
    column[k] = i


def find_victim(requests: Any, state: Any, plan: Any, d: Any, p: Any) -> Any:
    """Running request of the lowest priority that may be evicted and is not in the batch; or -1.

    Those before `d` in `decoding` and before `p` in `prefilling` were looked at already.  The
    tails only move down while a batch is built, as nothing becomes evictable meanwhile.
    """
    count, protected, phase = plan.count, requests.protected, state.phase
    dec, pre = state.decoding, state.prefilling
    while count[DEC_TAIL] >= d:
        i = dec[count[DEC_TAIL]]
        if phase[i] == DECODING and protected[i] == 0:
            break
        count[DEC_TAIL] -= 1
    while count[PRE_TAIL] >= p:
        i = pre[count[PRE_TAIL]]
        if phase[i] == PREFILLING and protected[i] == 0:
            break
        count[PRE_TAIL] -= 1
    if count[DEC_TAIL] < d:
        return pre[count[PRE_TAIL]] if count[PRE_TAIL] >= p else -1
    if count[PRE_TAIL] < p:
        return dec[count[DEC_TAIL]]
    one, other = dec[count[DEC_TAIL]], pre[count[PRE_TAIL]]
    return one if state.key[one] > state.key[other] else other


def reclaimable(requests: Any, state: Any, d: Any, p: Any, rank: Any) -> Any:
    """KV tokens that evicting every request behind `d` and `p`, and behind `rank`, would free."""
    total = 0
    for k in range(d, state.count[IN_DECODE]):
        i = state.decoding[k]
        if state.key[i] > rank and state.phase[i] == DECODING and requests.protected[i] == 0:
            total += state.reserved[i]
    for k in range(p, state.count[IN_PREFILL]):
        i = state.prefilling[k]
        if state.key[i] > rank and state.phase[i] == PREFILLING and requests.protected[i] == 0:
            total += state.reserved[i]
    return total


def evict(state: Any, plan: Any, i: Any) -> None:
    """Drop the KV of request `i`; it joins the waiting queue once the batch is complete."""
    if state.phase[i] == DECODING:
        plan.count[EVICTED_DECODES] += 1
    state.phase[i] = WAITING
    state.count[USED] -= state.reserved[i]
    state.count[RUNNING] -= 1
    state.cached[i] = 0
    plan.evicted[plan.count[EVICTED]] = i
    plan.count[EVICTED] += 1
