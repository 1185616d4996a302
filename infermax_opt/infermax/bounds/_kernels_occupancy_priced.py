"""Cheapest lives of a request in the first batches at prices of memory.

See *Prices of memory* in `infermax_opt.infermax.bounds.occupancy`.  The function runs as plain Python or
compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["IDLE", "LEAVE", "RETURN", "RETURN_WITH_TOKEN", "STAY", "TOKEN", "Life", "cheapest_life"]

#: What a request does in a batch: it is away, comes back and makes no token, comes back and makes one; while
#: it is active, it is evicted before it, makes no token, makes one.
STAY, RETURN, RETURN_WITH_TOKEN, LEAVE, IDLE, TOKEN = range(6)


class Life(NamedTuple):
    """One kind of requests, and what their steps cost, in units.

    `young`: tokens that are not looked at; `prompt`, `outputs`: with these as a part of the prompt.  `token`,
    `size`, `out_fixed`, `out_size`, `in_fixed`, `in_size`: `_kernels_occupancy.Costs`.  `first`, `finish`:
    what the first token and the finish pay besides.  `active + worth * s`: what a request of size s counts
    after the last batch.  `evictions`, `late`: whether there are evictions, and returns without a token.
    """

    young: Any
    prompt: Any
    outputs: Any
    token: Any
    size: Any
    out_fixed: Any
    out_size: Any
    in_fixed: Any
    in_size: Any
    first: Any
    finish: Any
    active: Any
    worth: Any
    evictions: Any
    late: Any


def cheapest_life(life: Any, kv: Any, inside: Any, outside: Any, ways: Any) -> Any:
    """Least cost of a life that makes a token, less what it earns; and the batch of the first one.

    Long on purpose: its steps share what they cost, and it runs for each batch and number of tokens.

    Parameters
    ----------
    life : Life
    kv : column of int
        Price of a token of KV in each batch.
    inside, outside : columns of int
        Room for a number per token: costs from here on, of requests that are active and that are away.
    ways : uint8 array (2, batches, tokens)
        Becomes what is cheapest in each batch, by tokens made: for who is away, and for who is active.

    Returns
    -------
    (int, int)
        The least cost, and the batch, from 0; -1 where no token can be made.
    """
    batches, outputs = len(kv), life.outputs
    for n in range(1, outputs):
        inside[n] = -life.active - life.worth * (life.prompt + n)
        outside[n] = 0
    inside[outputs] = -life.finish
    least, begin = 0, -1
    for t in range(batches - 1, life.young - 1, -1):
        price = kv[t]
        # Who makes a token in batch t has made one in each batch before, at most.
        for n in range(0, min(outputs, t + 1 - life.young)):
            held = life.prompt + n
            token = inside[n + 1] - life.token + (price - life.size) * held
            if n == 0:
                value = token - life.first
                if begin < 0 or value <= least:
                    least, begin = value, t
                continue
            idle = inside[n] + price * (held - 1)
            back, come = life.in_fixed + life.in_size * held, RETURN_WITH_TOKEN
            if life.late and idle < token:
                back, come = back + idle, RETURN
            else:
                back += token
            ways[0, t, n] = STAY
            if life.evictions and back < outside[n]:
                outside[n], ways[0, t, n] = back, come
            inside[n], ways[1, t, n] = (token, TOKEN) if token <= idle else (idle, IDLE)
            leave = life.out_fixed + life.out_size * held + outside[n]
            if life.evictions and leave < inside[n]:
                inside[n], ways[1, t, n] = leave, LEAVE
    return least, begin
