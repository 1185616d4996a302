"""Kernel of the replay, to be compiled.  Imports numpy: import this module on use only.

No sum can leave int64: a kernel stops at the first batch beyond a limit, every limit and every
token count is at most 1e9 (`infermax_opt.infermax.data.instance.MAX_TOKENS`), so the largest sum, the
attention work of one batch, is at most C * (2 * M + C) <= 3e18.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.replay._entries import Entries

__all__ = ["HELPERS", "ReplayLimits", "Replayed", "replay_kernel"]

# Columns of `Replayed.features`: the six `BatchFeatures`, KV held, requests running.
TOKENS, DECODES, DECODE_KV, PREFILLS, WORK, BEHIND, KV, RUNNING = range(8)
# Entries of `Replayed.totals`: KV held, requests that hold some, that decode, and that are not
# finished; evictions and refill tokens so far; requests that the batch at hand finishes.
HELD, HOLDING, IN_DECODE, UNFINISHED, EVICTIONS, REFILLS, FINISHED = range(7)


class ReplayLimits(NamedTuple):
    """M, C, P, R_max, tokens per block; what the policy allows; whether attention is "exact"."""

    capacity: int
    tokens: int
    prefill: int
    running: int
    block: int
    hybrid: bool
    chunked: bool
    preemption: bool
    exact: bool


class Replayed(NamedTuple):
    """What has happened so far, a column each; -1 stands for never.

    Per request: tokens `cached` and `generated`; the batches of the `first` token, of the `last` one
    and of the first tokens processed (`touched`); the batch of the latest eviction (`evicted_in`) and
    the entry that named it last (`named_in`).  `decoding` lists the requests in decode, in any order,
    and `place` says where each one stands in it; `done` lists those that the batch finishes.
    `features` has a row per batch.
    """

    cached: Any
    generated: Any
    first: Any
    last: Any
    touched: Any
    evicted_in: Any
    named_in: Any
    decoding: Any
    place: Any
    done: Any
    features: Any
    totals: Any

    @classmethod
    def of(cls, requests: int, batches: int) -> Replayed:
        """Columns for so many requests and batches, at the start."""

        def never() -> Any:
            return np.full(requests, -1)

        def zeros() -> Any:
            return np.zeros(requests, np.int64)

        totals = np.zeros(7, np.int64)
        totals[UNFINISHED] = requests
        return cls(
            cached=zeros(), generated=zeros(), first=never(), last=never(), touched=never(),
            evicted_in=never(), named_in=never(), decoding=zeros(), place=never(), done=zeros(),
            features=np.zeros((batches, 8), np.int64), totals=totals,
        )  # fmt: skip


def leave(now: Any, i: Any, block: Any) -> None:
    """Free the KV of request `i`, which decodes no longer."""
    totals, place, decoding = now.totals, now.place, now.decoding
    totals[HELD] -= -(-now.cached[i] // block) * block
    totals[HOLDING] -= 1
    now.cached[i] = 0
    if place[i] >= 0:
        totals[IN_DECODE] -= 1
        other = decoding[totals[IN_DECODE]]
        decoding[place[i]] = other
        place[other] = place[i]
        place[i] = -1


def evict(now: Any, limits: Any, evicted: Any, j: Any) -> Any:
    """Evict requests before batch `j`; whether the rules allow it."""
    for i in evicted:
        if not limits.preemption or now.cached[i] == 0:
            return False
        leave(now, i, limits.block)
        now.evicted_in[i] = j
    now.totals[EVICTIONS] += len(evicted)
    return True


def decode_unnamed(now: Any, outputs: Any, block: Any, entry: Any, j: Any) -> None:
    """Let every request in decode that the entry does not name make a token."""
    totals, cached, generated = now.totals, now.cached, now.generated
    decoding, named_in, done = now.decoding, now.named_in, now.done
    decodes = decode_kv = more = 0
    finished = totals[FINISHED]
    for k in range(totals[IN_DECODE]):
        i = decoding[k]
        if named_in[i] == entry:
            continue
        m = cached[i]
        decodes += 1
        decode_kv += m
        if m % block == 0:
            more += block
        cached[i] = m + 1
        generated[i] += 1
        if generated[i] == outputs[i]:
            done[finished] = i
            finished += 1
    totals[HELD] += more
    totals[FINISHED] = finished
    row = now.features[j]
    row[TOKENS] = row[DECODES] = decodes
    row[DECODE_KV] = decode_kv


def process_named(now: Any, limits: Any, inputs: Any, outputs: Any, named: Any, chunks: Any, j: Any) -> Any:
    """Let the named requests process their tokens; whether the rules for each of them allow it."""
    totals, cached, generated, place = now.totals, now.cached, now.generated, now.place
    evicted_in, touched, decoding, first, done = (
        now.evicted_in, now.touched, now.decoding, now.first, now.done
    )  # fmt: skip
    block, row = limits.block, now.features[j]
    tokens, decodes, decode_kv = row[TOKENS], row[DECODES], row[DECODE_KV]
    prefills = work = behind = refills = more = begun = 0
    in_decode, finished = totals[IN_DECODE], totals[FINISHED]
    for k in range(len(named)):
        i = named[k]
        c = chunks[k]
        m = cached[i]
        missing = inputs[i] + generated[i] - m
        tokens += c
        if (
            generated[i] == outputs[i] or evicted_in[i] == j or c < 1 or c > missing
            or (c < missing and not limits.chunked) or tokens > limits.tokens
        ):  # fmt: skip
            return False
        if touched[i] < 0:
            touched[i] = j
        if place[i] >= 0:
            decodes += 1
            decode_kv += m
        else:
            prefills += 1
            work += prefill_work(limits.exact, c, m)
            behind += m
            if evicted_in[i] >= 0:
                refills += c
        more += (-(-(m + c) // block) + (-m // block)) * block
        begun += m == 0
        cached[i] = m + c
        if c == missing:
            if generated[i] == 0:
                first[i] = j
            generated[i] += 1
            if generated[i] == outputs[i]:
                done[finished] = i
                finished += 1
        if place[i] < 0 and generated[i] >= 1 and inputs[i] + generated[i] - m - c == 1:
            # It generated its first token, or a refill stopped one token short.
            decoding[in_decode] = i
            place[i] = in_decode
            in_decode += 1
    row[TOKENS], row[DECODES], row[DECODE_KV] = tokens, decodes, decode_kv
    row[PREFILLS], row[WORK], row[BEHIND] = prefills, work, behind
    totals[HELD] += more
    totals[HOLDING] += begun
    totals[REFILLS] += refills
    totals[IN_DECODE], totals[FINISHED] = in_decode, finished
    return True


def within(limits: Any, row: Any) -> Any:
    """Whether a batch keeps the limits."""
    # Decodes process one token each.
    if row[TOKENS] > limits.tokens or row[TOKENS] - row[DECODES] > limits.prefill:
        return False
    if row[KV] > limits.capacity or row[RUNNING] > limits.running:
        return False
    return limits.hybrid or row[DECODES] == 0 or row[PREFILLS] == 0


def finish(now: Any, block: Any, j: Any) -> None:
    """Free the KV of the requests that batch `j` finished."""
    totals = now.totals
    for k in range(totals[FINISHED]):
        i = now.done[k]
        now.last[i] = j
        leave(now, i, block)
    totals[UNFINISHED] -= totals[FINISHED]
    totals[FINISHED] = 0


def replay_kernel(inputs: Any, outputs: Any, entries: Entries, limits: ReplayLimits, now: Replayed) -> bool:
    """Replay a schedule given in columns; stop at the first broken rule.

    Parameters
    ----------
    inputs, outputs : int64 array, per request
    entries : Entries
        Of int64 arrays.
    limits : ReplayLimits
    now : Replayed
        As `Replayed.of` makes it; set to what the schedule does.

    Returns
    -------
    bool
        Whether every rule holds but those on arrivals, which need exact times.
    """
    totals = now.totals
    j = -1
    token_start = evict_start = 0
    for entry in range(len(entries.repeat)):
        named = entries.request[token_start : entries.token_end[entry]]
        chunks = entries.tokens[token_start : entries.token_end[entry]]
        evicted = entries.evicted[evict_start : entries.evict_end[entry]]
        token_start, evict_start = entries.token_end[entry], entries.evict_end[entry]
        for i in named:
            now.named_in[i] = entry
        for again in range(entries.repeat[entry]):
            j += 1
            if again == 0 and not evict(now, limits, evicted, j):
                return False
            if entries.decode_all[entry]:
                # Before the named requests, which may enter decode by this very batch.
                decode_unnamed(now, outputs, limits.block, entry, j)
            if not process_named(now, limits, inputs, outputs, named, chunks, j):
                return False
            row = now.features[j]
            row[KV], row[RUNNING] = totals[HELD], totals[HOLDING]
            if not within(limits, row):
                return False
            finish(now, limits.block, j)
    return bool(totals[UNFINISHED] == 0)


HELPERS = (prefill_work, leave, evict, decode_unnamed, process_named, within, finish)
"""What `replay_kernel` calls, callees first."""
