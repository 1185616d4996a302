"""Which request takes which arc, so that prompts fill the levels of the prefill stages.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

import math
from typing import Any

__all__ = ["HELPERS", "pack"]

#: Steps between changes of the temperature.
SAME = 256


def stage(tokens: Any, capacity: Any, ticks: Any, share: Any) -> Any:
    """Ticks of prefill stages, all but one at the largest level, less a reward for free tokens.

    The reward is a share of the step from the level before, and grows with the square of what is free, so
    that free tokens gather in few stages until one of these needs a level less.
    """
    full, tokens = tokens // capacity[-1], tokens % capacity[-1]
    if tokens == 0:
        return full * ticks[-1]
    low, high = 0, len(capacity) - 1
    while low < high:
        middle = (low + high) // 2
        if capacity[middle] < tokens:
            low = middle + 1
        else:
            high = middle
    under, before = (capacity[low - 1], ticks[low - 1]) if low > 0 else (0, 0.0)
    free = (capacity[low] - tokens) / (capacity[low] - under)
    return full * ticks[-1] + ticks[low] - share * (ticks[low] - before) * free * free


def pack(
    taken: Any, length: Any, node: Any, output: Any, prompt: Any, load: Any, capacity: Any, ticks: Any,
    share: Any, steps: Any, hot: Any, cold: Any, random: Any,
) -> None:  # fmt: skip
    """Exchange the arcs of two requests again and again, so that prefill takes fewer ticks.

    No request takes an arc that is too short for it unless it did before.

    Parameters
    ----------
    taken : array of int
        Arc per request, requests from the longest to the shortest; updated.
    length, node : array of int
        Rounds of each arc, and where it begins.
    output, prompt : array of int
        Tokens per request.
    load : array of int
        Input tokens per node; updated.
    capacity, ticks : array
        Per level.
    share : float
        Of the reward for free tokens; see `stage`.
    steps : int
    hot, cold : float
        Temperatures, in ticks.
    random : numpy Generator
    """
    n = len(taken)
    temperature = hot
    for step in range(steps):
        if step % SAME == 0:
            temperature = hot * (cold / hot) ** (step / steps)
        i = min(int(random.random() * n), n - 1)
        # Requests of about the same length can be exchanged more often.
        reach = 1 + int(random.random() ** 2 * n)
        j = i + (reach if random.random() < 0.5 else -reach)
        if j < 0 or j >= n:
            continue
        a, b = taken[i], taken[j]
        here, there = node[a], node[b]
        if here == there or output[i] > length[b] or output[j] > length[a] or prompt[i] == prompt[j]:
            continue
        more = prompt[j] - prompt[i]
        rise = (
            stage(load[here] + more, capacity, ticks, share) - stage(load[here], capacity, ticks, share)
            + stage(load[there] - more, capacity, ticks, share) - stage(load[there], capacity, ticks, share)
        )  # fmt: skip
        if rise > 0 and rise > -temperature * math.log(1.0 - random.random()):
            continue
        taken[i], taken[j] = b, a
        load[here] += more
        load[there] -= more


HELPERS = (stage,)
"""What `pack` calls."""
