"""Whether a crowd keeps a limit if several prompts have parts in each batch.

The function runs as plain Python or compiled.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from infermax_opt.infermax.data.cost import batch_time, prefill_work

__all__ = ["HELPERS", "in_time"]


def in_time(
    arrival: Any, inputs: Any, gone: Any, limit: Any, piece: Any, room: Any, cost: Any, exact: Any
) -> Any:  # fmt: skip
    """Whether all prompts that are not given up end within a limit, in batches of parts of all who wait.

    Each batch takes a part of each who waits, in the order of arrivals, while there is room.

    Parameters
    ----------
    arrival, inputs, gone : arrays
        Per request, by arrival: seconds, tokens, and whether it is given up.
    limit : float
        Seconds.
    piece, room : int
        Most tokens of a part, and of a batch.
    cost : Coefficients
    exact : bool
        Whether attention is.
    """
    count = len(arrival)
    left, chunk = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for i in range(count):
        left[i] = 0 if gone[i] else inputs[i]
    now = 0.0
    while left.any():
        parts, tokens, work, coming = 0, 0, 0, np.inf
        for i in range(count):
            chunk[i] = 0
            if left[i] == 0:
                continue
            if arrival[i] > now:
                coming = min(coming, arrival[i])
                continue
            size = min(piece, room)
            chunk[i] = min(-(-left[i] // -(-left[i] // size)), room - tokens)
            if chunk[i] > 0:
                parts += 1
                tokens += chunk[i]
                work += prefill_work(exact, chunk[i], inputs[i] - left[i])
        if parts == 0:
            now = coming
            continue
        now += batch_time(
            cost.alpha, cost.beta, cost.d0, cost.d1, cost.p0, cost.p1, tokens, 0, 0, parts, work
        )  # fmt: skip
        for i in range(count):
            left[i] -= chunk[i]
            if chunk[i] > 0 and left[i] == 0 and now > arrival[i] + limit:
                return False
    return True


HELPERS = (batch_time, prefill_work)
