"""Who is given up so that all others keep a limit, on one machine that serves whole prompts as they are due.

As Moore and Hodgson do without arrivals: whenever a prompt would end too late, the one since the machine was
last idle that takes longest for its weight is given up.  With arrivals or weights that is no optimum, but a
start for a search.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from infermax_opt.infermax.data.objective import rank

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["given_up", "least_limit"]

#: Halvings of the range of limits.
HALVINGS = 30


def given_up(arrival: Floats, work: Floats, due: Floats, weight: Floats) -> frozenset[int]:
    """Requests that are given up, so that the others end when they are due.

    Parameters
    ----------
    arrival, work, due : arrays
        Seconds, per request.
    weight : array
        What each counts, more than 0.
    """
    out: set[int] = set()
    busy: list[tuple[float, int]] = []
    now = 0.0
    for i in np.lexsort((arrival, due)).tolist():
        if arrival[i] >= now:
            now = float(arrival[i])
            busy = []
        now += float(work[i])
        heapq.heappush(busy, (-float(work[i] / weight[i]), i))
        while busy and now > due[i]:
            _, dearest = heapq.heappop(busy)
            now -= float(work[dearest])
            out.add(dearest)
    return frozenset(out)


def least_limit(arrival: Floats, work: Floats, percent: int) -> frozenset[int]:
    """Who is given up for a percentile of the latencies: of all limits that enough requests keep, the least.

    Parameters
    ----------
    arrival, work : arrays
        Seconds, per request.
    percent : int
    """
    spare = len(work) - rank(percent, len(work))
    low, high = 0.0, float(work.sum())
    best: frozenset[int] = frozenset()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        out = given_up(arrival, work, arrival + middle, np.ones(len(work)))
        if len(out) <= spare:
            best, high = out, middle
        else:
            low = middle
    return best
