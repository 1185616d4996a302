"""Kernel of the replay, to be compiled.  Imports numpy: import this module on use only.

No sum can leave int64: a kernel stops at the first batch beyond a limit, every limit and every
token count is at most 1e9 (`infermax_opt.infermax.data.instance.MAX_TOKENS`), so the largest sum, the
attention work of one batch, is at most C * (2 * M + C) <= 3e18.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.data.cost import prefill_work

__all__ = ["replay_kernel"]


def replay_kernel(
    inputs: Any, outputs: Any, batches: int,
    token_end: Any, token_request: Any, token_count: Any, evict_end: Any, evict_request: Any,
    decode_all: Any, repeat: Any,
    capacity: int, batch_tokens: int, prefill_tokens: int, max_running: int, block: int,
    hybrid: bool, chunked: bool, preemption: bool, exact: bool,
) -> Any:  # fmt: skip
    """Replay a schedule given in columns; stop at the first broken rule.

    Parameters
    ----------
    inputs, outputs : int64 array, per request
    batches : int
        Batches in all, repetitions counted.
    token_end, evict_end, decode_all, repeat : int64 array, per entry
        Ends of the entry's stretch of the columns below, its flag, its repetitions.
    token_request, token_count, evict_request : int64 array
    capacity, batch_tokens, prefill_tokens, max_running, block : int
        M, C, P, R_max, tokens per block.
    hybrid, chunked, preemption, exact : bool

    Returns
    -------
    valid : bool
        Whether every rule holds but those on arrivals, which need exact times.
    features : int64 array, batches x 7
        The five `BatchFeatures`, KV held, requests running.
    first, last, touched : int64 array, per request
        Batch of the first token, of the last one, and of the first tokens processed; or -1.
    evictions, refill_tokens : int
    """
    n = len(inputs)
    cached = np.zeros(n, np.int64)
    generated = np.zeros(n, np.int64)
    first = np.full(n, -1)
    last = np.full(n, -1)
    touched = np.full(n, -1)
    evicted_in = np.full(n, -1)  # batch of the latest eviction
    named_in = np.full(n, -1)  # entry that named the request last
    decoding = np.empty(n, np.int64)  # requests in decode, in any order
    place = np.full(n, -1)  # where each stands in `decoding`
    done = np.empty(n, np.int64)
    features = np.zeros((batches, 7), np.int64)
    in_decode = held = running = evictions = refill = 0
    unfinished = n
    j = -1
    token_start = evict_start = 0
    for entry in range(len(repeat)):
        for k in range(token_start, token_end[entry]):
            named_in[token_request[k]] = entry
        for again in range(repeat[entry]):
            j += 1
            if again == 0:
                for k in range(evict_start, evict_end[entry]):
                    i = evict_request[k]
                    if not preemption or cached[i] == 0:
                        return False, features, first, last, touched, evictions, refill
                    held -= -(-cached[i] // block) * block
                    running -= 1
                    cached[i] = 0
                    evicted_in[i] = j
                    evictions += 1
                    if place[i] >= 0:
                        in_decode -= 1
                        decoding[place[i]] = decoding[in_decode]
                        place[decoding[in_decode]] = place[i]
                        place[i] = -1
            tokens = decodes = decode_kv = prefills = work = prefilled = finished = 0
            if decode_all[entry]:
                # Before the named requests, which may enter decode by this very batch.
                for k in range(in_decode):
                    i = decoding[k]
                    if named_in[i] == entry:
                        continue
                    m = cached[i]
                    decodes += 1
                    decode_kv += m
                    if m % block == 0:
                        held += block
                    cached[i] = m + 1
                    generated[i] += 1
                    if generated[i] == outputs[i]:
                        done[finished] = i
                        finished += 1
                tokens = decodes
            for k in range(token_start, token_end[entry]):
                i = token_request[k]
                c = token_count[k]
                m = cached[i]
                missing = inputs[i] + generated[i] - m
                if (
                    generated[i] == outputs[i] or evicted_in[i] == j or c < 1 or c > missing
                    or (c < missing and not chunked)
                ):  # fmt: skip
                    return False, features, first, last, touched, evictions, refill
                if touched[i] < 0:
                    touched[i] = j
                tokens += c
                if place[i] >= 0:
                    decodes += 1
                    decode_kv += m
                else:
                    prefills += 1
                    prefilled += c
                    work += prefill_work(exact, c, m)
                    if evicted_in[i] >= 0:
                        refill += c
                if tokens > batch_tokens:
                    return False, features, first, last, touched, evictions, refill
                held += (-(-(m + c) // block) + (-m // block)) * block
                running += m == 0
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
            if (
                tokens > batch_tokens or prefilled > prefill_tokens or held > capacity
                or running > max_running or (decodes > 0 and prefills > 0 and not hybrid)
            ):  # fmt: skip
                return False, features, first, last, touched, evictions, refill
            row = features[j]
            row[0] = tokens
            row[1] = decodes
            row[2] = decode_kv
            row[3] = prefills
            row[4] = work
            row[5] = held
            row[6] = running
            for k in range(finished):
                i = done[k]
                last[i] = j
                held -= -(-cached[i] // block) * block
                running -= 1
                cached[i] = 0
                unfinished -= 1
                in_decode -= 1
                decoding[place[i]] = decoding[in_decode]
                place[decoding[in_decode]] = place[i]
                place[i] = -1
        token_start = token_end[entry]
        evict_start = evict_end[entry]
    return unfinished == 0, features, first, last, touched, evictions, refill
