"""How many requests decode at a time, roughly: a fluid in which all that are there get their tokens evenly.

Only a guess at good prices (`interaction`): no bound depends on it being right.
"""

from __future__ import annotations

from infermax_opt.infermax.data.instance import Instance

__all__ = ["fluid_roots"]

#: Part of the horizon after the last arrival, as a multiple of the time before it, at most.
TAIL = 3.0


def fluid_roots(instance: Instance, piece: int, cells: int) -> tuple[list[int], list[float]]:
    """Cells of time, and the sum of sqrt(work) over the tokens of a batch in each.

    Parameters
    ----------
    instance : Instance
    piece : int
        Affine piece of the batch time.
    cells : int
        About how many.

    Returns
    -------
    ends : list of int
        Ends of the cells, in ticks.
    roots : list of float
        In roots of ticks.
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
        left[alive] -= (width - done) / max(step, 1e-9)
        while low < arrived and left[low] <= 0:
            low += 1
        ends.append(int(now))
        roots.append(float(np.sqrt(work[alive]).sum()))
    return ends, roots
