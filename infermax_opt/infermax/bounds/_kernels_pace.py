"""Cheapest ways of requests at prices of time and of KV, in floats; see `infermax_opt.infermax.bounds.pace`.

The functions run as plain Python or compiled.  What they say is checked exactly elsewhere.

Columns of a stage: sums of e, sqrt(e w) and w; x from, to; the share f of the KV; R in units of e, or 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["drift", "is_refilled", "retraced", "slopes", "travelled"]

#: More than any way costs.
FAR = 1e300
#: Columns of a stage.
FIXED, ROOTS, WORKS, LOW, HIGH, KV, AGAIN = range(7)


def drift(k: Any, q: Any, r: Any, low: Any, high: Any) -> Any:
    """The largest root of psi in a stage whose x are from low to high."""
    x = high if q > r else low
    return max(0.0, k + (q - r) * x)


def is_refilled(most: Any, paid: Any, again: Any) -> Any:
    """Whether a refill in short batches may pay less than the reward at most**2, so that no KV counts."""
    return paid * again < most * most


def travelled(
    ends: Any, roots: Any, rents: Any, begin: Any, stages: Any, own: Any, bases: Any, scales: Any, value: Any,
    where: Any, member: Any,
) -> None:  # fmt: skip
    """Least latency and pay of each request: `value`; and the cell in which it ends so: `where`.

    `ends`, `roots`, `rents`: cells, with r and v; `begin`, `stages`, `own` (q), `bases` (k of each stage): of
    requests.  `scales`: of each member, multiples of k and q.  `member`: the best one of those whose ways
    cost more the later they end, and the best one of the others; -1 where there is none.  Long on purpose:
    one loop over cells, members and stages, which hands no arrays on.
    """
    cells, members, depth = len(ends), len(scales), stages.shape[1]
    way = np.empty((members, depth))
    reward = np.empty(members)
    for i in range(len(begin)):
        for j in range(members):
            q = scales[j, 1] * own[i]
            reward[j] = 0.0
            for s in range(depth):
                k = scales[j, 0] * bases[i, s]
                reward[j] += k * k * stages[i, s, FIXED] + 2 * k * q * stages[i, s, ROOTS]
                reward[j] += q * q * stages[i, s, WORKS]
                way[j, s] = FAR if s else 0.0
        best, at = FAR, begin[i]
        for c in range(np.searchsorted(ends, begin[i], side="right"), cells + 1):
            elapsed = at - begin[i]
            if elapsed >= best:
                break
            rising, falling, up, down = elapsed, -FAR, -1, -1
            for j in range(members):
                q = scales[j, 1] * own[i]
                least, after = FAR, FAR
                for s in range(depth):
                    least = min(least, way[j, s])
                if c < cells:
                    run = FAR
                    for s in range(depth):
                        run = min(run, way[j, s])
                        k = scales[j, 0] * bases[i, s]
                        y = drift(k, q, roots[c], stages[i, s, LOW], stages[i, s, HIGH])
                        enough = max(0.0, y * y - rents[c] * stages[i, s, KV])
                        paid, again = roots[c] * roots[c] + enough, stages[i, s, AGAIN]
                        most = k + q * stages[i, s, HIGH]
                        if enough < y * y and again > 0 and is_refilled(most, paid, again):
                            enough = y * y
                        way[j, s] = run + (ends[c] - at) * (1 - enough)
                        after = min(after, way[j, s])
                else:
                    for s in range(depth):
                        if (
                            drift(scales[j, 0] * bases[i, s], q, 0.0, stages[i, s, LOW], stages[i, s, HIGH])
                            > 1
                        ):
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
    ends: Any, roots: Any, rents: Any, begin: Any, stages: Any, own: Any, bases: Any, scale: Any, where: Any,
    by_cell: Any, by_base: Any,
) -> Any:  # fmt: skip
    """How the value of a way rises with each price, with each k and with q; and with its end.

    `begin`, `stages`, `own`, `bases`, `where`: of one request; `scale`: of one member.  The way goes through
    the cells before `where`.  `by_cell`: with r and with v of each; `by_base`: with the k of each stage, and
    with q in the last place.  They are set for that way.  Long on purpose: what a stage costs in a cell gives
    four slopes at once.
    """
    depth = len(stages)
    q = scale[1] * own
    first = np.searchsorted(ends, begin, side="right")
    came = np.zeros((max(0, where - first), depth), np.int64)
    way, slope = np.empty(depth), np.zeros((max(0, where - first), depth, 4))
    by_base[depth] = 0.0
    for s in range(depth):
        k = scale[0] * bases[s]
        way[s] = FAR if s else 0.0
        by_base[s] = 2 * scale[0] * (k * stages[s, FIXED] + q * stages[s, ROOTS])
        by_base[depth] += 2 * scale[1] * (k * stages[s, ROOTS] + q * stages[s, WORKS])
    at = begin
    # Beyond the end of the way, to see how it goes on.
    last, least, after = 0, FAR, FAR
    for c in range(first, min(where + 1, len(ends))):
        run, source = FAR, 0
        for s in range(depth):
            if way[s] < run:
                run, source = way[s], s
            k, low, high = scale[0] * bases[s], stages[s, LOW], stages[s, HIGH]
            y = drift(k, q, roots[c], low, high)
            enough, counts = max(0.0, y * y - rents[c] * stages[s, KV]), 1.0
            paid, again = roots[c] * roots[c] + enough, stages[s, AGAIN]
            if enough < y * y and again > 0 and is_refilled(k + q * high, paid, again):
                enough, counts = y * y, 0.0
            new = run + (ends[c] - at) * (1 - enough)
            if c == where:
                after = min(after, new)
                continue
            way[s] = new
            came[c - first, s] = source
            if enough > 0:
                span, x = ends[c] - at, high if q > roots[c] else low
                slope[c - first, s, 0] = 2 * y * x * span
                slope[c - first, s, 1] = counts * stages[s, KV] * span
                slope[c - first, s, 2] = -2 * y * scale[0] * span
                slope[c - first, s, 3] = -2 * y * x * scale[1] * span
        at = ends[c]
    for s in range(depth):
        if way[s] < least:
            least, last = way[s], s
    s = last
    for c in range(where - 1, first - 1, -1):
        by_cell[c, 0], by_cell[c, 1] = slope[c - first, s, 0], slope[c - first, s, 1]
        by_base[s] += slope[c - first, s, 2]
        by_base[depth] += slope[c - first, s, 3]
        s = came[c - first, s]
    return after - least if where < len(ends) else 1.0


def slopes(
    ends: Any, roots: Any, rents: Any, begin: Any, stages: Any, own: Any, bases: Any, scales: Any, count: Any,
    where: Any, member: Any, slope: Any, steep: Any,
) -> None:  # fmt: skip
    """How the bound rises with r and v of each cell, `slope`, and with k and q of each request, `steep`.

    All are added, `count` times each.  Where two members meet, one rising and one falling with the end, the
    least moves with both.
    """
    depth = stages.shape[1]
    up, down = np.zeros((len(ends), 2)), np.zeros((len(ends), 2))
    high, deep = np.zeros(depth + 1), np.zeros(depth + 1)
    for i in range(len(begin)):
        at, one, two = where[i], member[i, 0], member[i, 1]
        cells = range(np.searchsorted(ends, begin[i], side="right"), at)
        rises, falls = 1.0, 0.0  # time itself rises by 1, whatever the prices
        if one >= 0:
            rises = max(0.0, retraced(
                ends, roots, rents, begin[i], stages[i], own[i], bases[i], scales[one], at, up, high
            ))  # fmt: skip
        if two >= 0 and at < len(ends):
            falls = max(0.0, -retraced(
                ends, roots, rents, begin[i], stages[i], own[i], bases[i], scales[two], at, down, deep
            ))  # fmt: skip
        share = falls / (rises + falls) if falls > 0 else 1.0
        for part, (rate, by_cell, by_base) in enumerate(((share, up, high), (1 - share, down, deep))):
            if rate > 0 and (part == 1 or one >= 0):
                for c in cells:
                    slope[c, 0] += count[i] * rate * by_cell[c, 0]
                    slope[c, 1] += count[i] * rate * by_cell[c, 1]
                for s in range(depth + 1):
                    steep[i, s] += count[i] * rate * by_base[s]
