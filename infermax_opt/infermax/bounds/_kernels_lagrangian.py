"""Compiled loops of the Lagrangian bound: cheapest paths of one kind of requests.

After batch t a request that has n tokens is either held or out (evicted or, for n = 0, not yet
started).  Whole units throughout.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["FAR", "cheapest", "retrace"]

#: Cost of what cannot be reached.
FAR = 1 << 60
ACTIVE, IDLE, ENTERED = 0, 1, 2
DROPPED = 4


def cheapest(
    prices: Any,
    entries: Any,
    tokens: Any,
    sizes: Any,
    steps: Any,
    refills: Any,
    loads: Any,
    evictions: bool,
    ends: Any,
    choices: Any,
    rows: Any,
) -> None:
    """Cheapest path that ends by each batch.

    Long on purpose: the loop over tokens is the whole work of the bound, a few operations each.

    Parameters
    ----------
    prices : int64 array (T,)
        Of a block of KV in each batch.
    entries : int64 array (T,)
        Of each token that was prefilled for a token made in that batch.
    tokens : int64 array (T,)
        Of each later token that is made.
    sizes : int64 array (O + 1,)
        Blocks held in the batch of token n, and while idle after it.
    steps, refills : int64 arrays (O + 1,)
        What making token n costs besides: when held before, and when out.
    loads : int64 array (O + 1,)
        Tokens prefilled for token n, when out before.
    evictions : bool
    ends : int64 array (T + 1,)
        Set to the cost of the cheapest path that ends within so many batches.
    choices : int8 array (T, O + 1), or (0, 0)
        Its first rows are set to how states are reached, unless it is empty.
    rows : int64 array (T,)
        Set to the row of `choices` that holds for each batch.  Batches of one price in a row soon
        change nothing any more; the rest of them is skipped.
    """
    horizon, last = prices.shape[0], sizes.shape[0] - 1
    held = np.full(last + 1, FAR)
    out = np.full(last + 1, FAR)
    out[0] = 0
    ends[0] = FAR
    record = choices.shape[0] > 0
    row = -1
    settled = False
    for t in range(horizon):
        price, entry, token = prices[t], entries[t], tokens[t]
        if settled and price == prices[t - 1] and entry == entries[t - 1] and token == tokens[t - 1]:
            ends[t + 1] = ends[t]
            rows[t] = row
            continue
        row += 1
        rows[t] = row
        settled = True
        end = ends[t]
        for n in range(min(last, t + 1), 0, -1):
            best, choice = FAR, ACTIVE
            if held[n - 1] < FAR:
                best = held[n - 1] + steps[n] + token
            if n < last and held[n] < best:
                best, choice = held[n], IDLE
            entered = out[n - 1] + refills[n] + entry * loads[n]
            if n > 1:
                entered += token
            if entered < best:
                best, choice = entered, ENTERED
            # Whoever leaves is out during this batch: the tokens above have read the old value.
            if evictions and n < last and held[n] < out[n]:
                out[n] = held[n]
                choice |= DROPPED
                settled = False
            best = min(FAR, best + price * sizes[n])
            if n == last:
                end = min(end, best)
            elif best != held[n]:
                held[n] = best
                settled = False
            if record:
                choices[row, n] = choice
        settled = settled and end == ends[t]
        ends[t + 1] = end


def retrace(
    choices: Any, rows: Any, end: int, sizes: Any, steps: Any, refills: Any, loads: Any,
    blocks: Any, entered: Any, made: Any,
) -> int:  # fmt: skip
    """What the path that ends with batch `end` (from 1) pays besides prices.

    Int64 arrays (T,) are set: `blocks` to the blocks it holds in each batch, `entered` to the tokens that
    were prefilled for a token made in it, and `made` to 1 where it makes a later token.
    """
    blocks[:] = 0
    entered[:] = 0
    made[:] = 0
    cost = 0
    t, n, held = end - 1, sizes.shape[0] - 1, True
    while held or n > 0:
        choice = choices[rows[t], n]
        if not held:
            held = choice >= DROPPED
        else:
            choice &= 3
            blocks[t] = sizes[n]
            if choice != IDLE:
                cost += steps[n] if choice == ACTIVE else refills[n]
                made[t] = n > 1
                held = choice == ACTIVE
                if not held:
                    entered[t] = loads[n]
                n -= 1
        t -= 1
    return cost
