"""What requests count at least if each makes prompts wait as it likes, in floats; see `deferral`.

The functions run as plain Python or compiled.  What they say is checked exactly elsewhere.  Kinds of requests
stand in the order of their arrival.  Times are in units of a'.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = [
    "chosen", "learn", "least_losses", "share_table", "share_until", "spread_losses", "weight_of",
]  # fmt: skip

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


def share_table(starts: Any, kinds: Any, ready: Any, aged: Any, weights: Any, first: Any, table: Any) -> None:
    """What each second of waiting is worth to a watcher of weight 1, times the cells, from `first` on.

    `ready`: kinds in the order of the first moments at which they may watch.  `aged`: for the same cells as
    in `table`, how many ages each has reached.  `table`: to be filled.
    """
    cells, many = len(starts) - 1, len(kinds)
    ages = weights.shape[1] // PARTS
    there, watching = np.zeros((ages, cells)), 0
    for k in range(many):
        while watching < many and kinds[ready[watching], 1] + kinds[ready[watching], 3] <= kinds[k, 1]:
            i = ready[watching]
            c = np.searchsorted(starts, kinds[i, 1], side="right") - 1
            while c < cells:
                part = weight_of(starts[c], kinds[i, 1], kinds[i, 8])
                if part == PARTS:
                    break
                for age in range(ages):
                    there[age, c] += kinds[i, 0] * weights[i, age * PARTS + part]
                c += 1
            watching += 1
        waits = kinds[k, 2] + kinds[k, 3]
        for x in range(table.shape[1]):
            c = first[k] + x
            table[k, x] = 0.0
            if c < cells:
                all_of_it = there[aged[k, x], c]
                if all_of_it > 0:
                    span = starts[c + 1] - max(starts[c], waits)
                    table[k, x] = (1 - kinds[k, 7]) * span / all_of_it


def least_losses(
    kinds: Any, k0: Any, active: Any, old: Any, now: Any, level: Any, part: Any, earliest: Any, limit: Any,
    found: Any, spots: Any,
) -> None:  # fmt: skip
    """What prompts and the wait for the own one count at both ends of a cell, over all first tokens.

    `old`, `now`: shares of waits at both ends.  `found`: filled with what all prompts count at both ends, and
    the least of what the wait counts less what is lost.  `spots`: filled with, for both ends, how many
    prompts come before that first token, and how many of these are lost as a whole; then with how many in a
    row count in full.
    """
    found[:], spots[:] = 0.0, 0
    queue, kept, settled = FAR, 0.0, 0
    for j in range(active):
        k = k0 + j
        most = level * kinds[k, 5]
        if kinds[k, 1] <= limit:
            ahead = found[1] - level * (kinds[k, 1] - earliest)
            if ahead <= queue:
                queue, kept, settled = ahead, found[1] - found[0], j
        if old[j] >= most and spots[4] == j:
            spots[4] += 1
        found[0] += kinds[k, 0] * min(old[j], most)
        found[1] += kinds[k, 0] * min(now[j], most)
        if kinds[k, 1] <= limit:
            value = part * (found[1] - queue) - found[1]
            if value + kept < found[2]:
                found[2], spots[0], spots[1] = value + kept, j + 1, settled
            if value < found[3]:
                found[3], spots[2], spots[3] = value, j + 1, settled


def share_until(parts: Any, aged: Any, weights: Any, k: Any, first: Any, table: Any, edge: Any) -> Any:
    """What a watcher has of the wait of k up to an edge of cells; nothing up to the end of the first."""
    share = 0.0
    if edge - first[k] >= 2:
        for x in range(min(table.shape[1], edge - first[k])):
            part = parts[first[k] + x]
            if part == PARTS:
                break
            share += weights[aged[k, x] * PARTS + part] * table[k, x]
    return share


def learn(
    starts: Any, kinds: Any, parts: Any, aged: Any, weights: Any, first: Any, table: Any, i: Any, k0: Any,
    k1: Any, root: Any, linear: Any, place: Any, rises: Any, owns: Any, used: Any,
) -> None:  # fmt: skip
    """Add the slopes of what a request counts with weights and shares to `rises`, `owns` and `used`.

    `parts`: of its window, for each cell.  `root`: that of g over that of the least g.  `linear`: what roots
    of g multiply.  `place`: the edge of cells at which it counts least, the end of that cell, how many
    prompts come before its first token, and how many of these are lost as a whole.
    """
    edge, end, before, settled = place
    count, begin, until, start, _, _, fixed, own, _ = kinds[i]
    square, level = root * root, (1 - own) * root * root
    prompts = 0.0
    for j in range(settled, k1 - k0):
        k = k0 + j
        if kinds[k, 1] >= starts[end]:
            break
        most = level * kinds[k, 5]
        for side in range(2 if j < before else 1):
            at, sign = (edge, 1.0) if side == 0 else (end, -1 / square)
            share = share_until(parts, aged, weights[i], k, first, table, at)
            if share >= most:
                prompts += sign * kinds[k, 0] * kinds[k, 5]
                continue
            if share == 0.0:
                continue
            scale = sign * count * kinds[k, 0]
            for x in range(min(table.shape[1], at - first[k])):
                part = parts[first[k] + x]
                if part == PARTS:
                    break
                place_of = aged[k, x] * PARTS + part
                rises[i, place_of] += scale * table[k, x]
                used[k, x] += scale * weights[i, place_of]
    earliest = kinds[k0 + settled, 1] if before > 0 else begin + start
    of_level = prompts + fixed - starts[edge] + linear / level**0.5 + earliest
    owns[i] += count * (earliest - until - start - square * of_level)


def chosen(
    starts: Any, roots: Any, kinds: Any, rows: Any, aged: Any, weights: Any, first: Any, table: Any,
    levels: Any, reach: Any, slopes: Any, rises: Any, owns: Any, used: Any, picked: Any,
) -> Any:  # fmt: skip
    """What all requests count at least, and about how many steps a checker takes for that.

    `starts`: of cells, and of the time after them; `roots` likewise.  `kinds`: count, arrival rounded down
    and up, least time of the first token and of the others, work of the prompt, least of later tokens that
    g multiplies, the share of its own wait that it counts itself, stay.  `rows`: prompt and groups of later
    tokens: least times before and after, roots and works.  `levels`: roots of g over that of the least g, of
    which those within `reach` of `picked` are tried, for each kind and cell; the best replace them.
    `slopes`, `rises`, `owns`, `used` rise by the slopes with r of each cell, with weights, with shares of
    the own wait, and by the weights that count in `table`.  Long on purpose: one loop.
    """
    cells, many = len(starts) - 1, len(kinds)
    begins = kinds[:, 1].copy()
    grades, groups = len(levels), rows.shape[1]
    low, lowest, at = np.empty(groups), np.empty(groups, np.int64), np.zeros(groups, np.int64)
    following = np.empty(groups, np.int64)
    shares, old, now = np.zeros(many), np.zeros(many), np.zeros(many)
    parts = np.zeros(cells + 1, np.int64)
    found, spots = np.zeros(4), np.zeros(5, np.int64)
    best_found, best_spots = np.zeros(4), np.zeros(5, np.int64)
    total, steps = 0.0, 0
    for i in range(many):
        count, begin, until, start, later, _, fixed, own, stay = kinds[i]
        earliest, close = begin + start, begin + stay * PARTS / STAY_PARTS
        k0, k1 = np.searchsorted(begins, earliest), np.searchsorted(begins, close)
        shares[: max(0, k1 - k0)] = 0.0
        now[: max(0, k1 - k0)] = 0.0
        c = np.searchsorted(starts, begin, side="right") - 1
        possible = np.searchsorted(starts, earliest + later, side="right") - 1
        constant = start - own * (until + start)
        lightest = (1 - own) ** 0.5
        active, window = 0, np.searchsorted(starts, close)
        for x in range(c, cells):
            parts[x] = weight_of(starts[x], begin, stay)
            if parts[x] == PARTS:
                parts[x:] = PARTS
                break
        for m in range(groups):
            following[m] = np.searchsorted(starts, begin + rows[i, m, 0], side="right") - 1
        low[:], lowest[:] = FAR, c
        # After the last cell nothing has a price.
        best = (1 - own) * (start + fixed) + own * (starts[cells] - until)
        grade, priced, place = -1, 0.0, (-1, -1, 0, 0)
        while c < cells:
            e = min(cells, c + 1 if c < window else c + WIDEST)
            if e > possible and (1 - own) * (start + fixed) + own * (starts[c] - until) >= best:
                break
            old[:active] = now[:active]
            if c < window:
                while active < k1 - k0 and begins[k0 + active] < starts[e]:
                    old[active] = 0.0
                    active += 1
                steps += 60 + 2 * active
                for j in range(active):
                    x = c - first[k0 + j]
                    if 0 <= x < table.shape[1] and parts[c] < PARTS:
                        shares[j] += weights[i, aged[k0 + j, x] * PARTS + parts[c]] * table[k0 + j, x]
                    now[j] = 0.0 if x <= 0 else shares[j]
            else:
                now[:active] = shares[:active]
            if e <= possible:
                c = e
                continue
            linear, squared, highest = 0.0, 0.0, 0.0
            for m in range(groups):
                while following[m] < e and starts[following[m]] <= starts[e] - rows[i, m, 1]:
                    x = following[m]
                    if roots[x] < low[m]:
                        low[m], lowest[m] = roots[x], x
                    following[m] += 1
                linear += low[m] * rows[i, m, 2]
                squared += low[m] * low[m] * rows[i, m, 3]
                highest = max(highest, low[m])
            around, limit, worth, which, on_left = picked[i, c], starts[e] - later, -FAR, 0, False
            for g in range(max(0, around - reach), min(grades, around + reach + 1)):
                root = lightest * levels[g]
                level, slope = root * root, own + root * root - 1
                least_losses(kinds, k0, active, old, now, level, slope / level, earliest, limit, found, spots)
                one = found[0] + found[2] + (1 - level) * starts[c]
                other = found[1] + found[3] + (1 - level) * starts[e]
                value = min(one, other) + slope * earliest + fixed * level + 2 * root * linear
                if value > worth:
                    worth, which, on_left = value, g, one <= other
                    best_found[:], best_spots[:] = found, spots
            picked[i, c:e] = which
            steps += 40 + 12 * groups + 6 * (active - best_spots[4])
            worth += constant + squared
            if worth < best:
                best, grade, priced, at[:] = worth, which, linear, lowest
                place = (c, e, best_spots[0], best_spots[1])
                if not on_left:
                    place = (e, e, best_spots[2], best_spots[3])
            else:
                root = lightest * levels[which]
                level = root * root
                if level <= 1:
                    steps += 12 * groups
                    bound = until + (best - (1 - own) * (start + fixed)) / own
                    cheapest = highest
                    for x in range(following.min(), np.searchsorted(starts, bound)):
                        cheapest = min(cheapest, roots[x])
                    part = cheapest / highest if highest > 0 else 1.0
                    slope = own + level - 1
                    prompts = min(best_found[1] + best_found[3], slope * (limit - earliest))
                    value = prompts + (1 - level) * starts[e] + slope * earliest + fixed * level
                    if value + constant + part * (2 * root * linear + part * squared) >= best:
                        break
            c = e
        total += count * best
        if grade < 0:
            owns[i] += count * (starts[cells] - until - start - fixed)
            continue
        for m in range(groups):
            x = at[m]
            slopes[x] += count * 2 * (lightest * levels[grade] * rows[i, m, 2] + roots[x] * rows[i, m, 3])
        learn(
            starts, kinds, parts, aged, weights, first, table, i, k0, k1, levels[grade], priced, place,
            rises, owns, used,
        )  # fmt: skip
    return total, steps


def spread_losses(
    starts: Any,
    kinds: Any,
    ready: Any,
    aged: Any,
    weights: Any,
    first: Any,
    table: Any,
    used: Any,
    rises: Any,
    owns: Any,
) -> None:
    """Take from the slopes what a greater weight of one takes from the shares of all others."""
    cells, many = len(starts) - 1, len(kinds)
    ages = weights.shape[1] // PARTS
    losses, k = np.zeros((ages, cells)), many - 1
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
                losses[aged[k, x], c] += gain * table[k, x] / (rest * span)
            k -= 1
        c = np.searchsorted(starts, kinds[i, 1], side="right") - 1
        while c < cells:
            part = weight_of(starts[c], kinds[i, 1], kinds[i, 8])
            if part == PARTS:
                break
            for age in range(ages):
                rises[i, age * PARTS + part] -= kinds[i, 0] * losses[age, c]
            c += 1
