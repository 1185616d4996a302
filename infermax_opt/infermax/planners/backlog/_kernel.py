"""The loop of plans in which prompts queue: batch by batch, from the last one to the first.

Backwards a request begins with its last token and sheds one token of KV in each batch.  Once it has made all
later tokens, its prompt is *due*: it waits in a queue, from which each batch takes what it has room for.
What fits once fits for good, as nothing grows.

The last chunk of a prompt (backwards the first) is processed in the batch in which it is due, be it one
token.  So a request never idles with its whole prompt cached, and each batch decodes all that can.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.data.cost import batch_time, prefill_work
from infermax_opt.infermax.planners.plan._kernel import estimate
from infermax_opt.infermax.planners.plan._profile import occupied
from infermax_opt.infermax.schedulers._state import held

__all__ = ["HELPERS", "Chunks", "Columns", "Forecast", "Ways", "backlog_loop"]


class Columns(NamedTuple):
    """Per request: tokens to prefill and to generate, and by how much its prompt exceeds its share.

    The share is that of its KV area in the prompts of all.  `after`: the queue; its last entry is the head.
    `start`: batch of the last token, written by the loop.
    """

    inputs: Any
    outputs: Any
    excess: Any
    after: Any
    start: Any


class Ways(NamedTuple):
    """What distinguishes one plan from another.

    `level`: tokens up to which a batch takes prompts of the queue.  `store`: tokens of prompts in the queue,
    and `share`: share of those beyond that a batch takes on top.  `rate`: tokens of prompts that a batch is
    expected to take, and `speed`: of KV that it is expected to free.  `window`: requests that are compared.
    `patience`: what a batch counts for which a request waits for KV, in batches for which a prompt waits.
    `balance`: what it counts if a request takes the prompts further from their share.
    """

    level: int
    store: float
    share: float
    rate: int
    speed: int
    window: int
    patience: float
    balance: float


class Forecast(NamedTuple):
    """Per batch: prompts due, the first one of them, their tokens, and those that it is expected to take.

    `following`: per request, the next one that is due in the same batch.
    """

    due: Any
    first: Any
    tokens: Any
    busy: Any
    following: Any


class Chunks(NamedTuple):
    """Chunks planned: batch, request and tokens of each; and `left` and `queue`, the prompts that are due."""

    time: Any
    request: Any
    tokens: Any
    left: Any
    queue: Any


def expect(ways: Any, forecast: Any, u: Any, last: Any, queued: Any) -> None:
    """What batches from u on will take of the queue if no other prompt will be due.

    Parameters
    ----------
    ways : Ways
    forecast : Forecast
        Its `busy` is written.
    u : int
    last : int
        Batch in which the last prompt is due.
    queued : int
        Tokens in the queue.
    """
    for s in range(u, len(forecast.busy)):
        if s > u:
            queued += forecast.tokens[s]
        some = min(queued, ways.rate)
        if s > last and some == 0 and forecast.busy[s] == 0:
            break
        queued -= some
        forecast.busy[s] = some


def crowding(ways: Any, forecast: Any, at: Any, tokens: Any) -> Any:
    """Batches for which each token of a prompt waits in the mean, or makes others wait, if others are due.

    Parameters
    ----------
    ways : Ways
    forecast : Forecast
    at : int
        Batch in which it would be due.
    tokens : int
    """
    left, waits = tokens, 0
    for s in range(at, len(forecast.busy)):
        left -= min(left, ways.rate - forecast.busy[s])
        if left == 0:
            break
        waits += left
    alone = (tokens / ways.rate - 1.0) / 2.0
    return waits / tokens - alone


def choose(ways: Any, columns: Any, forecast: Any, u: Any, room: Any, excess: Any) -> Any:
    """Request to start next, and the one ahead of it in the queue: -1 if there is none."""
    n = len(columns.inputs)
    best, best_ahead, least = -1, n, 0.0
    ahead = n
    for _ in range(ways.window):
        i = columns.after[ahead]
        if i == n:
            break
        need = columns.inputs[i] + columns.outputs[i] - 1
        wait = max(0, need - room) // ways.speed
        score = ways.patience * wait + ways.balance * excess * columns.excess[i]
        score += crowding(ways, forecast, u + wait + columns.outputs[i] - 1, columns.inputs[i])
        if best < 0 or score < least:
            best, best_ahead, least = i, ahead, score
        ahead = i
    return best, best_ahead


def enter(columns: Any, forecast: Any, i: Any, at: Any) -> None:
    """Note that the prompt of request i is due in batch `at`."""
    forecast.following[i] = forecast.first[at]
    forecast.first[at] = i
    forecast.due[at] += 1
    forecast.tokens[at] += columns.inputs[i]


def join(columns: Any, chunks: Any, i: Any, tail: Any) -> Any:
    """Put the prompt of request i at the end of the queue; its tokens."""
    tokens = columns.inputs[i]
    chunks.left[i] = tokens
    chunks.queue[tail] = i
    return tokens


def process(
    rules: Any, chunks: Any, u: Any, head: Any, tail: Any, fresh: Any, budget: Any, count: Any
) -> Any:
    """Take tokens of the queue in order, one at least of each of its `fresh` last prompts.

    Returns
    -------
    head : int
        Of the queue.
    count : int
        Chunks planned.
    freed : int
        KV tokens that come free.
    """
    freed = 0
    kept = fresh  # tokens kept for those who need one
    k = head if budget > fresh else tail - fresh
    while k < tail:
        i = chunks.queue[k]
        if k >= tail - fresh:
            kept -= 1
        before = chunks.left[i]
        some = min(before, budget - kept)
        if some > 0:
            chunks.time[count], chunks.request[count], chunks.tokens[count] = u, i, some
            chunks.left[i] = before - some
            count += 1
            budget -= some
            freed += occupied(rules, before) - occupied(rules, before - some)
        k += 1
        if budget == kept and k < tail - fresh:
            k = tail - fresh
    while head < tail and chunks.left[chunks.queue[head]] == 0:
        head += 1
    return head, count, freed


def backlog_loop(
    rules: Any, ways: Any, columns: Any, forecast: Any, chunks: Any, profiles: Any, phases: Any, cost: Any,
    extra: Any, reads: Any, work: Any,
) -> Any:  # fmt: skip
    """Place every request.

    Long on purpose: its parts share a dozen numbers of the batch that they are about.

    Parameters
    ----------
    rules : Rules
    ways : Ways
    columns : Columns
    forecast : Forecast
        All zero, `first` -1.
    chunks : Chunks
    profiles : Profiles
        Its tokens and prefill tokens are written.
    phases : column of int
        As many zeros as a block has tokens: of the requests that decode, how many free a block when.
    cost : Coefficients
        Floats, for the estimate.
    extra : Extra
        What it does not hold.
    reads, work : float
        KV tokens that all decodes read, and attention work of the prompts that does not depend on chunks.

    Returns
    -------
    batches : int
        -1 where the columns might be too short.
    seconds : float
        Estimate of the makespan.
    count : int
        Chunks planned.
    """
    n = len(columns.inputs)
    most = min(rules.running, rules.tokens)
    kv = decoding = queued = head = tail = count = u = last = 0
    placed, chosen, ahead = 0, -1, n
    cached = 0  # tokens that those who decode had before the batch
    excess = beside = 0.0
    while head < n:
        if u >= len(forecast.due):
            return -1, 0.0, count
        fresh = tail
        i = forecast.first[u]
        while i >= 0:
            peak = columns.inputs[i] + columns.outputs[i] - 1
            phases[(peak + columns.start[i] - 1) % rules.block] -= 1
            decoding -= 1
            cached -= columns.inputs[i] - 1
            queued += join(columns, chunks, i, tail)
            tail += 1
            i = forecast.following[i]
        while placed < n and placed - head < most:
            if chosen < 0:
                expect(ways, forecast, u, last, queued)
                chosen, ahead = choose(ways, columns, forecast, u, rules.capacity - kv, excess)
            i = chosen
            peak = columns.inputs[i] + columns.outputs[i] - 1
            at = u + columns.outputs[i] - 1
            if at >= len(forecast.due):
                return -1, 0.0, count
            if kv + occupied(rules, peak) > rules.capacity or forecast.due[at] >= rules.prefill:
                break
            columns.after[ahead] = columns.after[i]
            columns.start[i] = u
            chosen = -1
            placed += 1
            kv += occupied(rules, peak)
            excess += columns.excess[i]
            enter(columns, forecast, i, at)
            last = max(last, at)
            if at > u:
                phases[(peak + u - 1) % rules.block] += 1
                decoding += 1
                cached += peak - 1
            else:
                queued += join(columns, chunks, i, tail)
                tail += 1
        fresh = tail - fresh
        budget = ways.level + int(ways.share * max(0.0, queued - ways.store)) - decoding
        budget = min(queued, rules.prefill, rules.tokens - decoding, max(fresh, budget))
        profiles.tokens[u] = decoding + budget
        profiles.prefill[u] = budget
        kv -= rules.block * phases[u % rules.block]
        if budget > 0:
            if decoding > 0:
                beside += extra.e0 + extra.e1 * cached
            before = count
            head, count, freed = process(rules, chunks, u, head, tail, fresh, budget, count)
            kv -= freed
            for k in range(before, count):
                beside += extra.p2 * chunks.left[chunks.request[k]]
        cached -= decoding
        queued -= budget
        u += 1
    if not rules.exact:
        for k in range(count):
            work += prefill_work(0, chunks.tokens[k], 0)
    return u, estimate(rules, profiles, cost, u, reads, work) + beside, count


HELPERS = (
    held, occupied, batch_time, prefill_work, estimate, expect, crowding, choose, enter, join, process,
)  # fmt: skip
"""What `backlog_loop` calls, callees first."""
