# ruff: noqa: NPY002 - compiled code has the old random numbers only, a state for each thread
"""Compiled: annealing on the circle of cells.

The state is which cells begin a request, and of which length.  A move puts a request somewhere, new or moved
from elsewhere, and takes out whatever it meets; it is kept as Metropolis says.  All requests of a length are
alike but for their values, of which the highest are taken, so the k-th costs or brings ``steps[g, k]``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["anneal"]


def anneal(sizes: Any, steps: Any, at: Any, counts: Any, best: Any, heat: Any, run: Any, halt: Any) -> float:
    """Anneal, and leave the best state found in `best`; return its value.

    Long on purpose: one loop on arrays, so that a move takes a tenth of a microsecond.

    Parameters
    ----------
    sizes : int64 array
        Lengths in cells.
    steps : float array
        ``steps[d, k]`` is what the k-th request of length d adds, 0 beyond the last one.
    at : int64 array
        By cell: 1 + the place in `sizes` of the request that begins there, 0 for none.  Overwritten.
    counts : int64 array
        Requests of each length in that state.  Overwritten.
    best : int64 array
        As `at`.
    heat : float array
        Temperature at the beginning and at the end.
    run : int64 array
        Moves, and the seed.
    halt : int64 array
        It ends soon after another thread sets its one entry.
    """
    moves = run[0]
    np.random.seed(run[1])
    cells, lengths = len(at), len(sizes)
    half = cells // 2 + 1
    where, place, held = np.empty(cells, np.int64), np.empty(cells, np.int64), 0
    hit = np.empty(cells, np.int64)
    now = 0.0
    for p in range(cells):
        best[p] = at[p]
        if at[p] > 0:
            where[held], place[p], held = p, held, held + 1
    for d in range(lengths):
        for k in range(counts[d]):
            now += steps[d, k]
    most, warm = now, heat[0]
    cooling = (heat[1] / heat[0]) ** (1000.0 / moves)
    for move in range(moves):
        if move % 1000 == 0:
            if halt[0] != 0:
                break
            warm *= cooling
        old = -1
        if held > 0 and np.random.random() < 0.5:
            old = where[np.random.randint(held)]
            d = at[old] - 1
            # A few cells away mostly, or anywhere.
            new = old + np.random.randint(-3, 4) if np.random.random() < 0.7 else np.random.randint(cells)
            new %= cells
            if new == old:
                continue
        else:
            d = np.random.randint(lengths)
            if steps[d, counts[d]] <= 0:
                continue
            new = np.random.randint(cells)
            if held > 0 and np.random.random() < 0.6:
                # As close to another one as may be.
                other = where[np.random.randint(held)]
                away = min(sizes[d], sizes[at[other] - 1])
                new = (other + away if np.random.random() < 0.5 else other - away) % cells
        kept = at[old] if old >= 0 else 0
        if old >= 0:
            at[old] = 0
        hits = 0
        for far in range(min(sizes[d], half)):
            left, right = (new - far) % cells, (new + far) % cells
            if at[left] > 0 and sizes[at[left] - 1] > far:
                hit[hits], hits = left, hits + 1
            if right != left and at[right] > 0 and sizes[at[right] - 1] > far:
                hit[hits], hits = right, hits + 1
        gain = 0.0 if old >= 0 else steps[d, counts[d]]
        for k in range(hits):
            e = at[hit[k]] - 1
            counts[e] -= 1
            gain -= steps[e, counts[e]]
        if gain >= 0 or np.random.random() < math.exp(gain / warm):
            for k in range(hits):
                at[hit[k]] = 0
                held -= 1
                where[place[hit[k]]] = where[held]
                place[where[held]] = place[hit[k]]
            if old >= 0:
                where[place[old]], place[new] = new, place[old]
            else:
                where[held], place[new], held = new, held, held + 1
                counts[d] += 1
            at[new] = d + 1
            now += gain
            if now > most + 1e-9:
                most = now
                for p in range(cells):
                    best[p] = at[p]
        else:
            for k in range(hits):
                counts[at[hit[k]] - 1] += 1
            if old >= 0:
                at[old] = kept
    return most
