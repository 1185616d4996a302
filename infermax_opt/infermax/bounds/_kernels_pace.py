"""Cheapest ways of requests at prices of time, in floats; see `infermax_opt.infermax.bounds.pace`.

The functions run as plain Python or compiled.  What they say is checked exactly elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["drift", "retraced", "slopes", "travelled"]

#: More than any way costs.
FAR = 1e300


def drift(k: Any, q: Any, r: Any, low: Any, high: Any) -> Any:
    """The largest root of psi in a stage whose x are from low to high."""
    x = high if q > r else low
    return max(0.0, k + (q - r) * x)


def travelled(
    ends: Any, roots: Any, begin: Any, stages: Any, own: Any, scales: Any, value: Any, where: Any, member: Any
) -> None:
    """Least latency and pay of each request: `value`; and the cell in which it ends so: `where`.

    `ends`, `roots`: cells; `begin`, `stages` (sums of e, sqrt(e w), w; x from, to), `own`: of requests.
    `scales`: k of each member, and q as a multiple of `own`.  `member`: the best one of those whose ways cost
    more the later they end, and the best one of the others; -1 where there is none.  Long on purpose: one
    loop over cells, members and stages, which hands no arrays on.
    """
    cells, members, depth = len(ends), len(scales), stages.shape[1]
    way = np.empty((members, depth))
    reward = np.empty(members)
    for i in range(len(begin)):
        for j in range(members):
            k, q = scales[j, 0], scales[j, 1] * own[i]
            reward[j] = 0.0
            for s in range(depth):
                reward[j] += k * k * stages[i, s, 0] + 2 * k * q * stages[i, s, 1] + q * q * stages[i, s, 2]
                way[j, s] = FAR if s else 0.0
        best, at = FAR, begin[i]
        for c in range(np.searchsorted(ends, begin[i], side="right"), cells + 1):
            elapsed = at - begin[i]
            if elapsed >= best:
                break
            rising, falling, up, down = elapsed, -FAR, -1, -1
            for j in range(members):
                k, q = scales[j, 0], scales[j, 1] * own[i]
                least, after = FAR, FAR
                for s in range(depth):
                    least = min(least, way[j, s])
                if c < cells:
                    run = FAR
                    for s in range(depth):
                        run = min(run, way[j, s])
                        y = drift(k, q, roots[c], stages[i, s, 3], stages[i, s, 4])
                        way[j, s] = run + (ends[c] - at) * (1 - y * y)
                        after = min(after, way[j, s])
                else:
                    for s in range(depth):
                        if drift(k, q, 0.0, stages[i, s, 3], stages[i, s, 4]) > 1:
                            after = -FAR
                if after >= least and least + reward[j] > rising:
                    rising, up = least + reward[j], j
                elif after < least and after + reward[j] > falling:
                    falling, down = after + reward[j], j
            if max(rising, falling) < best:
                best, where[i], member[i, 0], member[i, 1] = max(rising, falling), c, up, down
            if c < cells:
                at = ends[c]
        value[i] = best


def retraced(
    ends: Any, roots: Any, begin: Any, stages: Any, own: Any, scales: Any, where: Any, member: Any, slope: Any
) -> Any:
    """Add to `slope` by how much the value of a way rises with r in each cell; how it rises at its end.

    `begin`, `stages`, `own`, `where`, `member`: of one request and one member; the way goes through the cells
    before `where`.
    """
    depth = len(stages)
    k, q = scales[member, 0], scales[member, 1] * own
    first = np.searchsorted(ends, begin, side="right")
    came = np.zeros((max(0, where - first), depth), np.int64)
    way = np.empty(depth)
    for s in range(depth):
        way[s] = FAR if s else 0.0
    at = begin
    for c in range(first, where):
        run, source = FAR, 0
        for s in range(depth):
            if way[s] < run:
                run, source = way[s], s
            y = drift(k, q, roots[c], stages[s, 3], stages[s, 4])
            way[s] = run + (ends[c] - at) * (1 - y * y)
            came[c - first, s] = source
        at = ends[c]
    s = depth - 1
    for c in range(where - 1, first - 1, -1):
        x = stages[s, 4] if q > roots[c] else stages[s, 3]
        y = drift(k, q, roots[c], stages[s, 3], stages[s, 4])
        slope[c] += 2 * y * x * (ends[c] - (begin if c == first else ends[c - 1]))
        s = came[c - first, s]
    now = roots[where] if where < len(roots) else 0.0
    y = drift(k, q, now, stages[depth - 1, 3], stages[depth - 1, 4])
    return 1 - y * y


def slopes(
    ends: Any, roots: Any, begin: Any, stages: Any, own: Any, scales: Any, count: Any, where: Any,
    member: Any, slope: Any,
) -> None:  # fmt: skip
    """Add to `slope` by how much the value of each request rises with r in each cell, `count` times.

    Where two members meet, one rising and one falling with the end, the least moves with both.
    """
    up, down = np.zeros(len(ends)), np.zeros(len(ends))
    for i in range(len(begin)):
        rises = falls = 0.0
        up[:] = 0.0
        down[:] = 0.0
        if member[i, 0] >= 0:
            rises = retraced(ends, roots, begin[i], stages[i], own[i], scales, where[i], member[i, 0], up)
        if member[i, 1] >= 0 and where[i] < len(ends):
            falls = -retraced(ends, roots, begin[i], stages[i], own[i], scales, where[i], member[i, 1], down)
        share = 1.0
        if member[i, 0] < 0 or rises <= 0:
            share = 0.0
        elif member[i, 1] >= 0 and falls > 0:
            share = falls / (rises + falls)
        for c in range(len(ends)):
            slope[c] += count[i] * (share * up[c] + (1 - share) * down[c])
