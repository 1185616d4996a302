"""A schedule followed batch by batch: what each one holds, and which chunks could be elsewhere.

The functions run as plain Python or compiled; see `infermax_opt.infermax.schedulers._state`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from infermax_opt.infermax.planners.polish._kernel import BatchLoads
from infermax_opt.infermax.replay._entries import Entries
from infermax_opt.infermax.schedulers._state import held

__all__ = ["HELPERS", "Progress", "trace"]


class Progress(NamedTuple):
    """Columns per request, all used up.

    `inputs`, `outputs`, `cached`, `generated`: tokens.  Counted from 1, and 0 for none: `seen`, the
    batch in which it was processed or evicted last; `open`, its latest chunk, if nothing has
    followed; `named`, the entry that named it last; `place`, where it stands among the requests in
    decode, which `decoding` lists.
    """

    inputs: Any
    outputs: Any
    cached: Any
    generated: Any
    seen: Any
    open: Any
    named: Any
    decoding: Any
    place: Any


def leave(now: Any, i: Any, count: Any) -> Any:
    """Take request i out of those in decode; how many are left of `count`."""
    other = now.decoding[count - 1]
    now.decoding[now.place[i] - 1] = other
    now.place[other] = now.place[i]
    now.place[i] = 0
    return count - 1


def follow(now: Any, i: Any, j: Any, latest: Any) -> None:
    """Note that request i is processed or evicted in batch j: its chunk before must come earlier."""
    if now.open[i] > 0:
        latest[now.open[i] - 1] = j - 1
        now.open[i] = 0
    now.seen[i] = j + 1


def trace(entries: Entries, now: Progress, load: BatchLoads, idle: Any, wanted: Any, block: Any) -> Any:
    """Follow a valid schedule.

    Parameters
    ----------
    entries : Entries
    now : Progress
    load : BatchLoads
        Zeros, to be filled.
    idle : column of int
        Zeros, to be filled: requests in decode that a batch leaves out.
    wanted : column of int
        Batches whose decoding requests are listed.
    block : int

    Returns
    -------
    time, request, chunk, after, latest, size, fresh : list of int
        Prefill chunks, as in `Moves`; `latest` is -1 for those that cannot be moved.
    decode_time, decode_request : list of int
    """
    time = [0 for _ in range(0)]
    request = [0 for _ in range(0)]
    chunk = [0 for _ in range(0)]
    after = [0 for _ in range(0)]
    latest = [0 for _ in range(0)]
    size = [0 for _ in range(0)]
    fresh = [0 for _ in range(0)]
    decode_time = [0 for _ in range(0)]
    decode_request = [0 for _ in range(0)]
    j = -1
    kv = running = count = first = first_evicted = 0
    for entry in range(len(entries.repeat)):
        for k in range(first, entries.token_end[entry]):
            now.named[entries.request[k]] = entry + 1
        for again in range(entries.repeat[entry]):
            j += 1
            if again == 0:
                for k in range(first_evicted, entries.evict_end[entry]):
                    i = entries.evicted[k]
                    kv -= held(now.cached[i], block)
                    running -= 1
                    now.cached[i] = 0
                    follow(now, i, j, latest)
                    load.kept[j] = 1
                    if now.place[i] > 0:
                        count = leave(now, i, count)
            before = count
            done = [0 for _ in range(0)]
            for k in range(-before if entries.decode_all[entry] > 0 else 0, entries.token_end[entry] - first):
                # Decoding requests that are not named come first, as named ones may enter decode.
                i = now.decoding[-1 - k] if k < 0 else entries.request[first + k]
                if k < 0 and now.named[i] == entry + 1:
                    continue
                tokens = 1 if k < 0 else entries.tokens[first + k]
                decodes = now.place[i] > 0
                cached = now.cached[i]
                more = held(cached + tokens, block) - held(cached, block)
                seen = now.seen[i] - 1
                follow(now, i, j, latest)
                load.tokens[j] += tokens
                if decodes:
                    load.decodes[j] += 1
                    if wanted[j] > 0:
                        decode_time.append(j)
                        decode_request.append(i)
                else:
                    load.prefill[j] += tokens
                    load.prefills[j] += 1
                kv += more
                running += 1 if cached == 0 else 0
                now.cached[i] = cached + tokens
                if now.cached[i] == now.inputs[i] + now.generated[i]:
                    now.generated[i] += 1
                    if now.generated[i] == now.outputs[i]:
                        done.append(i)
                if decodes:
                    continue
                time.append(j)
                request.append(i)
                chunk.append(tokens)
                after.append(seen)
                latest.append(-1)
                size.append(more)
                fresh.append(1 if cached == 0 else 0)
                if now.generated[i] > 0 and now.cached[i] == now.inputs[i] + now.generated[i] - 1:
                    # It goes on with a decode, if at all.
                    count += 1
                    now.decoding[count - 1] = i
                    now.place[i] = count
                    now.open[i] = len(time) if now.generated[i] < now.outputs[i] else 0
            load.kv[j] = kv
            load.running[j] = running
            idle[j] = before - load.decodes[j]
            for i in done:
                kv -= held(now.cached[i], block)
                running -= 1
                now.cached[i] = 0
                count = leave(now, i, count)
        first = entries.token_end[entry]
        first_evicted = entries.evict_end[entry]
    return time, request, chunk, after, latest, size, fresh, decode_time, decode_request


HELPERS = (held, leave, follow)
"""What `trace` calls, callees first."""
