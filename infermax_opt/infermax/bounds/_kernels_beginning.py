"""Cheapest lives in the first batches; see `infermax_opt.infermax.bounds.beginning`.

The function runs as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any

__all__ = ["live"]

#: What a request does in a batch: nothing, or a token; stays without one; or is evicted before it.
REST, TOKEN, STAY, LEAVE = range(4)


def live(
    inputs: Any,
    outputs: Any,
    number: Any,
    rest: Any,
    kv: Any,
    worth: Any,
    choices: Any,
    costs: Any,
    held: Any,
) -> Any:
    """What requests of one kind pay in their cheapest life; nothing if that is not positive.

    Long on purpose: there is a branch for each thing that a request may do in a batch, twice.

    Parameters
    ----------
    inputs, outputs, number : int, int, float
    rest : array of float
        What each counts after the first batches, by the tokens made.
    kv : array of float, (T,)
        Price of KV in each of these.
    worth : float
        Of an eviction, for a token; below 0 there are none.
    choices : int8 array, (2, T, outputs + 1)
        Work space: in memory, and out of it.
    costs : float array, (2, outputs + 1)
        Work space.
    held : array of float, (T,)
        What they hold after each batch is added, if they pay.
    """
    inside, outside = costs
    for n in range(min(len(kv), outputs) + 1):
        inside[n] = outside[n] = rest[n]
    for t in range(len(kv) - 1, -1, -1):
        for n in range(min(t + 1, outputs)):
            made = kv[t] * (inputs + n) + inside[n + 1]
            out, choices[1, t, n] = outside[n], REST
            if made < out:
                out, choices[1, t, n] = made, TOKEN
            stay, choices[0, t, n] = made, TOKEN
            if kv[t] * (inputs + n - 1) + inside[n] < stay:
                stay, choices[0, t, n] = kv[t] * (inputs + n - 1) + inside[n], STAY
            if worth >= 0 and worth * (inputs + n - 1) + out < stay:
                stay, choices[0, t, n] = worth * (inputs + n - 1) + out, LEAVE
            inside[n], outside[n] = stay, out
    if outside[0] <= 0:
        return 0.0
    made, there = 0, False
    for t in range(len(kv)):
        if made == outputs:
            break
        if there and choices[0, t, made] == LEAVE:
            there = False
        if choices[0 if there else 1, t, made] == TOKEN:
            held[t] += number * (inputs + made)
            made, there = made + 1, True
        elif there:
            held[t] += number * (inputs + made - 1)
    return number * outside[0]
