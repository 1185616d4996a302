"""What requests count at least if each makes prompts wait as it likes, in floats; see `deferral`.

The functions run as plain Python or compiled.  What they say is checked exactly elsewhere.  Kinds of requests
stand in the order of their arrival.  Times are in units of a'.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["chosen", "edge_values", "share_table", "spread_losses", "weight_of"]

#: More than anything counts.
FAR = 1e300
#: Cells after a window that count as one.
WIDEST = 8
#: Parts of a window of which each has a weight, and those that make up the stay.
PARTS, STAY_PARTS = 15, 10


def weight_of(start: Any, begin: Any, stay: Any) -> Any:
    """The part of the window of a request in which a cell starts; PARTS if it starts after all of them."""
    if start <= begin:
        return 0
    return min(PARTS, int((start - begin) * STAY_PARTS / stay))


def share_table(starts: Any, kinds: Any, ready: Any, weights: Any, first: Any, table: Any) -> None:
    """What each second of waiting is worth to a watcher of weight 1, times the cells, from `first` on.

    `ready`: kinds in the order of the first moments at which they may watch.  `table`: to be filled.
    """
    cells, many = len(starts) - 1, len(kinds)
    there, watching = np.zeros(cells), 0
    for k in range(many):
        while watching < many and kinds[ready[watching], 1] + kinds[ready[watching], 3] <= kinds[k, 1]:
            i = ready[watching]
            c = np.searchsorted(starts, kinds[i, 1], side="right") - 1
            while c < cells:
                part = weight_of(starts[c], kinds[i, 1], kinds[i, 8])
                if part == PARTS:
                    break
                there[c] += kinds[i, 0] * weights[i, part]
                c += 1
            watching += 1
        waits = kinds[k, 2] + kinds[k, 3]
        for x in range(table.shape[1]):
            c = first[k] + x
            table[k, x] = 0.0
            if c < cells and there[c] > 0:
                span = starts[c + 1] - max(starts[c], waits)
                table[k, x] = (1 - kinds[k, 7]) * span / there[c]


def edge_values(
    kinds: Any, k0: Any, active: Any, shares: Any, fresh: Any, levels: Any, i: Any, limit: Any,
    low: Any, high: Any, values: Any, whose: Any,
) -> None:  # fmt: skip
    """Least of what prompts and the wait for the own one count, over all first tokens.

    `fresh`: prompts that have no share yet.  For each level from `low` to `high` `values` are filled, and
    `whose` with the last prompt before the first token, -1 for none.
    """
    for e in range(low, high):
        level = levels[e] * levels[e]
        slope, total = kinds[i, 7] + level - 1, 0.0
        values[e], whose[e] = slope * (kinds[i, 1] + kinds[i, 3]), -1
        for k in range(k0, k0 + active):
            if not fresh[k - k0]:
                total += kinds[k, 0] * min(shares[k - k0], level * kinds[k, 5])
            if kinds[k, 1] <= limit:
                value = slope * kinds[k, 1] - total
                if value < values[e]:
                    values[e], whose[e] = value, k - k0
        values[e] += total


def chosen(
    starts: Any, roots: Any, kinds: Any, rows: Any, weights: Any, first: Any, table: Any, levels: Any,
    reach: Any, slopes: Any, rises: Any, owns: Any, used: Any, picked: Any,
) -> Any:  # fmt: skip
    """What all requests count at least, and about how many steps a checker takes for that.

    `starts`: of cells, and of the time after them; `roots` likewise.  `kinds`: count, arrival rounded down
    and up, least time of the first token and of the others, work of the prompt, least of later tokens that
    g multiplies, the share of its own wait that it counts itself, stay.  `rows`: prompt and groups of later
    tokens: least times before and after, roots and works.  `levels`: roots of g, of which those within
    `reach` of `picked` are tried, for each kind and cell; the best replace them.  `slopes`, `rises`, `owns`,
    `used` rise by the slopes with r of each cell, with weights, with shares of the own wait, and by the
    weights that count in `table`.  Long on purpose: one loop.
    """
    cells, many = len(starts) - 1, len(kinds)
    begins = kinds[:, 1].copy()
    grades = len(levels)
    left, right = np.zeros(grades), np.zeros(grades)
    by_left, by_right = np.zeros(grades, np.int64), np.zeros(grades, np.int64)
    groups = rows.shape[1]
    low, lowest, at = np.empty(groups), np.empty(groups, np.int64), np.zeros(groups, np.int64)
    following = np.empty(groups, np.int64)
    shares, fresh = np.zeros(many), np.zeros(many, np.bool_)
    total, steps = 0.0, 0
    for i in range(many):
        count, begin, until, start, later, _, fixed, own, stay = kinds[i]
        close = begin + stay * PARTS / STAY_PARTS
        k0, k1 = np.searchsorted(begins, begin + start), np.searchsorted(begins, close)
        shares[: max(0, k1 - k0)] = 0.0
        c = np.searchsorted(starts, begin, side="right") - 1
        possible = np.searchsorted(starts, begin + start + later, side="right") - 1
        constant = start - own * (until + start)
        least = 0
        while levels[least] * levels[least] < 1 - own:
            least += 1
        for x in range(cells):
            picked[i, x] = max(picked[i, x], least)
        active, window = 0, np.searchsorted(starts, close)
        for m in range(groups):
            following[m] = np.searchsorted(starts, begin + rows[i, m, 0], side="right") - 1
        low[:], lowest[:] = FAR, c
        best, edge, grade, last = FAR, -1, 0, -1
        edge_values(kinds, k0, active, shares, fresh, levels, i, begin, least, grades, left, by_left)
        while c < cells:
            e = min(cells, c + 1 if c < window else c + WIDEST)
            linear, squared = 0.0, 0.0
            for m in range(groups):
                while following[m] < e and starts[following[m]] <= starts[e] - rows[i, m, 1]:
                    x = following[m]
                    if roots[x] < low[m]:
                        low[m], lowest[m] = roots[x], x
                    following[m] += 1
                if low[m] < FAR:
                    linear += low[m] * rows[i, m, 2]
                    squared += low[m] * low[m] * rows[i, m, 3]
            is_possible = e > possible
            if is_possible and (1 - own) * (start + fixed) + own * (starts[c] - until) >= best:
                break
            then = e + 1 if e < window else e + WIDEST
            limit = starts[min(cells, then)] - later
            around, ahead = picked[i, c], picked[i, min(e, cells - 1)]
            steps += 50 + 13 * groups
            if c < window:
                steps += active
                part = weight_of(starts[c], begin, stay)
                while active < k1 - k0 and begins[k0 + active] < starts[e]:
                    active += 1
                for j in range(active):
                    x = c - first[k0 + j]
                    fresh[j] = x <= 0
                    if 0 <= x < table.shape[1] and part < PARTS:
                        shares[j] += weights[i, part] * table[k0 + j, x]
            elif c == window:
                fresh[:active] = False
            if then > possible:
                edge_values(
                    kinds, k0, active, shares, fresh, levels, i, limit,
                    max(least, min(around, ahead) - reach), min(grades, max(around, ahead) + reach + 1),
                    right, by_right,
                )  # fmt: skip
                steps += 2 * active if around == ahead else 4 * active
            if is_possible:
                worth, which, where, to = -FAR, 0, False, -1
                for g in range(max(least, around - reach), min(grades, around + reach + 1)):
                    level = levels[g] * levels[g]
                    one, other = left[g] + (1 - level) * starts[c], right[g] + (1 - level) * starts[e]
                    value = min(one, other) + constant + fixed * level + 2 * levels[g] * linear + squared
                    if value > worth:
                        worth, which, where = value, g, one <= other
                        to = by_left[g] if where else by_right[g]
                picked[i, c:e] = which
                if worth < best:
                    best, grade, edge, last = worth, which, c if where else e, to
                    at[:] = lowest
            left[:], by_left[:] = right, by_right
            c = e
        late = (1 - own) * (start + fixed) + own * (starts[cells] - until)
        if c == cells and late < best:
            best, edge = late, -1
            owns[i] += count * (starts[cells] - until - start - fixed)
        total += count * best
        if edge < 0:
            continue
        g = levels[grade]
        for m in range(groups):
            x = at[m]
            slopes[x] += count * 2 * (g * rows[i, m, 2] + roots[x] * rows[i, m, 3])
        first_token = begin + start if last < 0 else begins[k0 + last]
        owns[i] += count * (first_token - until - start)
        for j in range(last + 1, k1 - k0):
            k = k0 + j
            if begins[k] >= starts[edge]:
                break
            if first[k] >= edge - 1:
                continue
            share = 0.0
            for x in range(min(table.shape[1], edge - first[k])):
                part = weight_of(starts[first[k] + x], begin, stay)
                if part < PARTS:
                    share += weights[i, part] * table[k, x]
            if share >= g * g * kinds[k, 5]:
                continue
            for x in range(min(table.shape[1], edge - first[k])):
                part = weight_of(starts[first[k] + x], begin, stay)
                if part < PARTS:
                    rises[i, part] += count * kinds[k, 0] * table[k, x]
                    used[k, x] += count * kinds[k, 0] * weights[i, part]
    return total, steps


def spread_losses(
    starts: Any,
    kinds: Any,
    ready: Any,
    weights: Any,
    first: Any,
    table: Any,
    used: Any,
    rises: Any,
    owns: Any,
) -> None:
    """Take from the slopes what a greater weight of one takes from the shares of all others."""
    cells, many = len(starts) - 1, len(kinds)
    losses, k = np.zeros(cells), many - 1
    for place in range(many - 1, -1, -1):
        i = ready[place]
        while k >= 0 and kinds[k, 1] >= kinds[i, 1] + kinds[i, 3]:
            waits, rest = kinds[k, 2] + kinds[k, 3], 1 - kinds[k, 7]
            for x in range(table.shape[1]):
                c = first[k] + x
                if c >= cells or used[k, x] == 0:
                    continue
                gain = used[k, x] * table[k, x]
                owns[k] -= gain / rest
                span = starts[c + 1] - max(starts[c], waits)
                losses[c] += gain * table[k, x] / (rest * span)
            k -= 1
        c = np.searchsorted(starts, kinds[i, 1], side="right") - 1
        while c < cells:
            part = weight_of(starts[c], kinds[i, 1], kinds[i, 8])
            if part == PARTS:
                break
            rises[i, part] -= kinds[i, 0] * losses[c]
            c += 1
