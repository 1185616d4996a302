"""Who is given up so that all others keep a limit, on one machine that serves whole prompts as they are due.

Limits of their own and weights: as Moore and Hodgson do without arrivals, whenever a prompt would end too
late, the one since the machine was last idle that takes longest for its weight is given up.  That is no
optimum, but a start for a search.

One limit for all: a table of the least end by how many are given up, the fewest of which are found (Kise,
Ibaraki and Mine 1978; `infermax_opt.infermax.bounds.on_time` has a bound by the same table).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from infermax_opt.infermax.data.objective import rank

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["CLOSE", "fewest", "given_up", "least_limit"]

#: Factor to which the limit of a percentile is found.
CLOSE = 1.0002
#: Entries of the table that are kept for a request: those with fewest given up.
WIDTH = 40
#: Who is given up, the last one first; None is nobody.
Chain = tuple[int, Any] | None


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
    low, high = float(np.sort(work)[len(work) - spare - 1]), float(work.sum())
    order = np.argsort(arrival, kind="stable")
    jobs = list(zip(order.tolist(), arrival[order].tolist(), work[order].tolist(), strict=True))
    best: frozenset[int] = frozenset()
    while high > CLOSE * low:
        # A limit is mostly near the least one.
        middle = min((low + high) / 2, 2 * low) if low > 0 else (low + high) / 2
        out = fewest(jobs, middle, spare)
        if out is None:
            low = middle
        else:
            best, high = out, middle
    return best


def fewest(jobs: Sequence[tuple[int, float, float]], limit: float, most: int) -> frozenset[int] | None:
    """The fewest that are given up so that the others keep a limit; None if they are more than allowed.

    Parameters
    ----------
    jobs : sequence of (int, float, float)
        Number, arrival and time of each, by arrival, in seconds.
    limit : float
        Seconds.
    most : int
    """
    table: dict[int, tuple[float, Chain]] = {0: (0.0, None)}
    for number, arrival, seconds in jobs:
        later: dict[int, tuple[float, Chain]] = {}
        for count, (end, chain) in table.items():  # by rising count, with ends that fall
            done = max(end, arrival) + seconds
            if done <= arrival + limit and (count not in later or done < later[count][0]):
                later[count] = done, chain
            later[count + 1] = end, (number, chain)
        table, least = {}, float("inf")
        for count in sorted(later)[:WIDTH]:
            if count <= most and later[count][0] < least:
                table[count] = later[count]
                least = max(arrival, later[count][0])
        if not table:
            return None
    chain, found = table[min(table)][1], []
    while chain is not None:
        found.append(chain[0])
        chain = chain[1]
    return frozenset(found)
