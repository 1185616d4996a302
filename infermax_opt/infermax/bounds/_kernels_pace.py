"""Cheapest ways of requests at prices of time and of KV, in floats; see `infermax_opt.infermax.bounds.pace`.

The functions run as plain Python or compiled.  What they say is checked exactly elsewhere.

Columns of a stage: sums of e, sqrt(e w) and w; x from, to; the share f of the KV; R in units of e, or 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "course",
    "covering",
    "drift",
    "enough",
    "followed",
    "is_refilled",
    "retraced",
    "slopes",
    "travelled",
]

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


def enough(k: Any, q: Any, root: Any, rent: Any, low: Any, high: Any, share: Any, again: Any) -> Any:
    """L of a stage: x from low to high, the share of the KV, and R in units of e."""
    y = drift(k, q, root, low, high)
    less = max(0.0, y * y - rent * share)
    if less < y * y and again > 0 and is_refilled(k + q * high, root * root + less, again):
        return y * y
    return less


def travelled(
    ends: Any, roots: Any, rents: Any, begin: Any, prompts: Any, stages: Any, own: Any, bases: Any,
    scales: Any, value: Any, where: Any, member: Any,
) -> None:  # fmt: skip
    """Least latency and pay of each request: `value`; and the cell in which it ends so: `where`.

    `ends`, `roots`, `rents`: cells, with r and v; `begin`, `prompts` (work that pays the price of its
    moment), `stages`, `own` (q), `bases` (k of each stage): of requests.  `scales`: of each member, multiples
    of k and q.  `member`: the best one of those whose ways cost more the later they end, and the best one of
    the others; -1 where there is none.  Long on purpose: one loop over cells, members and stages, which hands
    no arrays on.
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
        best, at, cheap = FAR, begin[i], FAR
        for c in range(np.searchsorted(ends, begin[i], side="right"), cells + 1):
            elapsed = at - begin[i]
            if elapsed >= best:
                break
            rising, falling, up, down = elapsed, -FAR, -1, -1
            cheap = min(cheap, roots[c] * roots[c]) if c < cells else 0.0
            prompt = prompts[i] * cheap
            for j in range(members):
                q = scales[j, 1] * own[i]
                least, after = way[j, 0] + prompt, FAR
                for s in range(1, depth):
                    least = min(least, way[j, s])
                if c < cells:
                    run = way[j, 0]
                    for s in range(depth):
                        run = min(run + prompt if s == 1 else run, way[j, s]) if s else run
                        lost = enough(
                            scales[j, 0] * bases[i, s], q, roots[c], rents[c], stages[i, s, LOW],
                            stages[i, s, HIGH], stages[i, s, KV], stages[i, s, AGAIN],
                        )  # fmt: skip
                        way[j, s] = run + (ends[c] - at) * (1 - lost)
                        after = min(after, way[j, s] if s else way[j, s] + prompt)
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
    ends: Any, roots: Any, rents: Any, begin: Any, work: Any, stages: Any, own: Any, bases: Any, scale: Any,
    where: Any, by_cell: Any, by_base: Any,
) -> Any:  # fmt: skip
    """How the value of a way rises with each price, with each k and with q; and with its end.

    `begin`, `work`, `stages`, `own`, `bases`, `where`: of one request; `scale`: of one member.  The way goes
    through the cells before `where`.  `by_cell`: with r and with v of each; `by_base`: with the k of each
    stage, and with q in the last place.  They are set for that way.  Long on purpose: what a stage costs in a
    cell gives four slopes at once.
    """
    depth = len(stages)
    q = scale[1] * own
    first = np.searchsorted(ends, begin, side="right")
    came = np.zeros((max(0, where - first), depth), np.int64)
    lowest = np.zeros(max(1, where - first + 1), np.int64)
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
    cheap, cheapest = FAR, 0
    for c in range(first, min(where + 1, len(ends))):
        run, source = FAR, 0
        if roots[c] < cheap:
            cheap, cheapest = roots[c], c
        lowest[c - first] = cheapest
        prompt = work * cheap * cheap
        for s in range(depth):
            if s == 1:
                run += prompt
            if way[s] < run:
                run, source = way[s], s
            k, low, high = scale[0] * bases[s], stages[s, LOW], stages[s, HIGH]
            y = drift(k, q, roots[c], low, high)
            lost = enough(k, q, roots[c], rents[c], low, high, stages[s, KV], stages[s, AGAIN])
            counts = 1.0 if lost < y * y or rents[c] * stages[s, KV] <= 0 else 0.0
            new = run + (ends[c] - at) * (1 - lost)
            if c == where:
                after = min(after, new if s else new + prompt)
                continue
            way[s] = new
            came[c - first, s] = source
            if lost > 0:
                span, x = ends[c] - at, high if q > roots[c] else low
                slope[c - first, s, 0] = 2 * y * x * span
                slope[c - first, s, 1] = counts * stages[s, KV] * span
                slope[c - first, s, 2] = -2 * y * scale[0] * span
                slope[c - first, s, 3] = -2 * y * x * scale[1] * span
        at = ends[c]
    if where >= len(ends):
        cheap, cheapest = 0.0, -1
    for s in range(depth):
        here = way[s] if s else way[s] + work * cheap * cheap
        if here < least:
            least, last = here, s
    s = last
    sold = cheapest if s == 0 else -1
    for c in range(where - 1, first - 1, -1):
        by_cell[c, 0], by_cell[c, 1] = slope[c - first, s, 0], slope[c - first, s, 1]
        by_base[s] += slope[c - first, s, 2]
        by_base[depth] += slope[c - first, s, 3]
        if s > 0 and came[c - first, s] == 0:
            sold = lowest[c - first]
        s = came[c - first, s]
    if where < len(ends):
        by_cell[where, 0], by_cell[where, 1] = 0.0, 0.0
    if sold >= 0:
        by_cell[sold, 0] += 2 * roots[sold] * work
    return after - least if where < len(ends) else 1.0


def slopes(
    ends: Any, roots: Any, rents: Any, begin: Any, prompts: Any, stages: Any, own: Any, bases: Any,
    scales: Any, count: Any, where: Any, member: Any, slope: Any, steep: Any,
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
        cells = range(np.searchsorted(ends, begin[i], side="right"), min(at + 1, len(ends)))
        rises, falls = 1.0, 0.0  # time itself rises by 1, whatever the prices
        if one >= 0:
            rises = max(0.0, retraced(
                ends, roots, rents, begin[i], prompts[i], stages[i], own[i], bases[i], scales[one],
                at, up, high,
            ))  # fmt: skip
        if two >= 0 and at < len(ends):
            falls = max(0.0, -retraced(
                ends, roots, rents, begin[i], prompts[i], stages[i], own[i], bases[i], scales[two],
                at, down, deep,
            ))  # fmt: skip
        share = falls / (rises + falls) if falls > 0 else 1.0
        for part, (rate, by_cell, by_base) in enumerate(((share, up, high), (1 - share, down, deep))):
            if rate > 0 and (part == 1 or one >= 0):
                for c in cells:
                    slope[c, 0] += count[i] * rate * by_cell[c, 0]
                    slope[c, 1] += count[i] * rate * by_cell[c, 1]
                for s in range(depth + 1):
                    steep[i, s] += count[i] * rate * by_base[s]


def course(
    ends: Any, roots: Any, rents: Any, begin: Any, work: Any, stages: Any, own: Any, bases: Any, scale: Any,
    least: Any,
) -> None:  # fmt: skip
    """Least latency and pay by one member of a request that ends in each of its first cells: `least`.

    The numbers are as in `retraced`.
    """
    depth, cells, first = len(stages), len(ends), np.searchsorted(ends, begin, side="right")
    way, q = np.full(depth, FAR), scale[1] * own
    way[0], at, cheap, late = 0.0, begin, FAR, True
    for s in range(depth):
        k = scale[0] * bases[s]
        way[0] += k * k * stages[s, FIXED] + 2 * k * q * stages[s, ROOTS] + q * q * stages[s, WORKS]
        late = late and drift(k, q, 0.0, stages[s, LOW], stages[s, HIGH]) <= 1
    for c in range(first, first + len(least)):
        cheap = min(cheap, roots[c] * roots[c]) if c < cells else 0.0
        run = way[0] + work * cheap
        here = run
        for s in range(1, depth):
            here = min(here, way[s])
        if c < cells:
            for s in range(depth):
                lost = enough(
                    scale[0] * bases[s], q, roots[c], rents[c], stages[s, LOW], stages[s, HIGH],
                    stages[s, KV], stages[s, AGAIN],
                )  # fmt: skip
                run = min(run, way[s]) if s else run
                way[s] = (run if s else way[0]) + (ends[c] - at) * (1 - lost)
                here = min(here, way[s] if s else way[0] + work * cheap)
            at = ends[c]
        least[c - first] = here if c < cells or late else -FAR


def covering(courses: Any, count: Any, least: Any, until: Any) -> None:
    """Through how many cells each member is followed, so that each of the first has one above `least`.

    There are `count` of them.  `courses`: by member and cell; `until`: by member.  Whoever is followed up to
    the last cell that has none is good for all before it in which it is above: the one that is so in most is
    taken.  If none is, the highest is.
    """
    members = len(courses)
    open_ = np.ones(count, np.bool_)
    for c in range(count - 1, -1, -1):
        if not open_[c]:
            continue
        best, most, high = 0, 0, 0
        for j in range(members):
            if courses[j, c] > courses[high, c]:
                high = j
            if courses[j, c] >= least:
                gain = 0
                for z in range(c + 1):
                    gain += open_[z] and courses[j, z] >= least
                if gain > most:
                    best, most = j, gain
        if most == 0:
            best = high
        until[best] = max(until[best], c + 1)
        open_[c] = False
        for z in range(c + 1):
            if courses[best, z] >= least:
                open_[z] = False


def followed(
    ends: Any, roots: Any, rents: Any, begin: Any, prompts: Any, stages: Any, own: Any, bases: Any,
    scales: Any, value: Any, until: Any,
) -> None:  # fmt: skip
    """Through how many cells each member of each request is to be followed: `until`.

    The rest is as in `travelled`.
    """
    cells = len(ends)
    for i in range(len(begin)):
        first, count = np.searchsorted(ends, begin[i], side="right"), 0
        while count < cells + 1 - first:
            if count > 0 and ends[first + count - 1] - begin[i] >= value[i]:
                break
            count += 1
        courses = np.empty((len(scales), count))
        for j in range(len(scales)):
            course(
                ends, roots, rents, begin[i], prompts[i], stages[i], own[i], bases[i], scales[j], courses[j]
            )
        covering(courses, count, value[i] * (1 - 1e-9), until[i])
