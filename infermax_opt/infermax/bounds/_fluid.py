"""Guesses at good prices of time, from simple fluids: for `interaction` and `overload`, right or not."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from infermax_opt.infermax.data.instance import Instance

__all__ = ["Fluid", "busy_prices", "fluid_of"]

#: Part of the horizon after the last arrival, as a multiple of the time before it, at most.
TAIL = 3.0


class Fluid(NamedTuple):
    """Cells of time: their ends in ticks, the sum of sqrt(work) over the tokens of a batch, and batches.

    Roots are of ticks; batches may be parts of one.
    """

    ends: list[int]
    roots: list[float]
    batches: list[float]


def fluid_of(instance: Instance, piece: int, cells: int) -> Fluid:
    """All requests that are there decode together, prompts come first.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    cells : int
        About how many.
    """
    import numpy as np

    ticks = instance.cost.ticks
    alpha, beta = float(ticks.alpha[piece]), float(ticks.beta[piece])
    requests = sorted(instance.requests, key=lambda request: request.arrival)
    arrival = np.array([float(r.arrival) for r in requests]) * instance.cost.ticks_per_second
    prompt = np.array([r.input_tokens for r in requests], dtype=np.float64)
    left = np.array([r.output_tokens for r in requests], dtype=np.float64)
    size = prompt + left / 2
    work = beta + float(ticks.d1) * size
    width = max(1.0, arrival[-1] / cells)
    service = beta * prompt + float(ticks.p1) * prompt * np.minimum(prompt, 512.0)
    queue = 0.0  # work of prompts that waits
    arrived = low = 0
    ends: list[int] = []
    roots: list[float] = []
    batches: list[float] = []
    while low < len(left) and len(ends) < cells * (1 + TAIL):
        now = width * (len(ends) + 1)
        before, arrived = arrived, int(np.searchsorted(arrival, now))
        queue += float(service[before:arrived].sum())
        done = min(queue, 0.9 * width)
        queue -= done
        alive = np.flatnonzero(left[low:arrived] > 0) + low
        # By arrival, as many as fit into memory.
        alive = alive[np.cumsum(size[alive]) <= instance.system.kv_capacity]
        step = alpha + float(ticks.d0) + float(work[alive].sum())
        batches.append((width - done) / max(step, 1e-9))
        left[alive] -= batches[-1]
        while low < arrived and left[low] <= 0:
            low += 1
        ends.append(int(now))
        roots.append(float(np.sqrt(work[alive]).sum()))
    return Fluid(ends, roots, batches)


def busy_prices(requests: Sequence[tuple[float, float, int]], cells: int) -> list[tuple[int, float]]:
    """Price of machine time in each cell: the dual of serving the shortest first, with preemption.

    The sum of mean busy dates, each over its service, is least if the shortest request that is there is
    served, always.  While that serves i the dual price is v_i - (t - a_i) / U_i.  It is 0 when nobody is
    there, it goes on when somebody ends, and v_i is what it was where the service of i went on.

    Parameters
    ----------
    requests : sequence of (float, float, int)
        Arrival and service in ticks, and how many such requests there are.
    cells : int
        How many.

    Returns
    -------
    list of (int, float)
        End of each cell, and the price in its middle.
    """
    segments = _shortest_first(requests)
    width = max(1.0, segments[-1][1] / cells)
    prices = [0.0] * cells
    value: dict[int, float] = {}
    after, price = segments[-1][1], 0.0  # where the next segment begins, and the price there
    for begin, end, who in reversed(segments):
        _, service, _ = requests[who]
        if who not in value:
            value[who] = end / service + (price if end >= after - 1e-6 else 0.0)
        for cell in range(max(0, int(begin / width)), min(cells - 1, int(end / width)) + 1):
            middle = (cell + 0.5) * width
            if begin <= middle < end:
                prices[cell] = max(0.0, value[who] - middle / service)
        after, price = begin, max(0.0, value[who] - begin / service)
    return [(int((cell + 1) * width) + cell, price) for cell, price in enumerate(prices)]


def _shortest_first(requests: Sequence[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    """Begin, end and request of each segment of service, in order."""
    order = sorted((float(arrival), who) for who, (arrival, _, _) in enumerate(requests))
    left = [service * count for _, service, count in requests]
    there: list[tuple[float, int]] = []
    segments: list[tuple[float, float, int]] = []
    now, upcoming = 0.0, 0
    while there or upcoming < len(order):
        if not there:
            now = max(now, order[upcoming][0])
        while upcoming < len(order) and order[upcoming][0] <= now:
            who = order[upcoming][1]
            heapq.heappush(there, (requests[who][1], who))
            upcoming += 1
        who = there[0][1]
        until = order[upcoming][0] if upcoming < len(order) else float("inf")
        end = min(now + left[who], until)
        segments.append((now, end, who))
        left[who] -= end - now
        # What is lost beside the time is served, too: it would never get less.
        if left[who] <= 1e-9 * requests[who][1] or end == now:
            heapq.heappop(there)
        now = end
    return segments
