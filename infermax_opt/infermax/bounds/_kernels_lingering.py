"""What requests pay at least at prices of time, in floats; see `infermax_opt.infermax.bounds.lingering`.

The functions run as plain Python or compiled.  What they say is checked exactly elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["chosen", "falls", "prompt_price"]

#: More than anything pays.
FAR = 1e300


def prompt_price(work: Any, chunk: Any, chunks: Any, linear: Any, square: Any) -> Any:
    """What a prompt pays at this price of work, and how that rises with it."""
    if square * work <= chunk * chunks * chunks:
        return work * (linear + square / chunks) + chunk * chunks, linear + square / chunks
    root = (chunk * square / work) ** 0.5
    return work * (linear + 2 * root), linear + root


def falls(values: Any) -> Any:
    """For each place, the next one with a smaller value; the number of values where there is none."""
    many = len(values)
    found, open_ = np.full(many, many), np.empty(many, np.int64)
    waiting = 0
    for k in range(many):
        while waiting and values[open_[waiting - 1]] > values[k]:
            waiting -= 1
            found[open_[waiting]] = k
        open_[waiting] = k
        waiting += 1
    return found


def chosen(
    ends: Any, roots: Any, works: Any, kinds: Any, rows: Any, number: Any, chunk: Any, slopes: Any, own: Any
) -> Any:
    """What all requests count at least, and how many delays that took.

    `ends`, `roots`, `works`: of cells, of the latter two one more for the time after them.  `kinds`: count,
    begin, least times of the first token and of the later ones, fewest chunks, work of the prompt but for the
    attention, that attention, its share, how long its window has all of its weight, and any, and the weight
    between.  `rows`: groups of tokens, `number` of each request: least times before and after, sums of a', y,
    g and w.  All times in units of a'.  `slopes` rise by the slopes with r and with the price of work of each
    cell, `own` are those with the end of the window, if nobody paid for it, and with the share, but for what
    others pay.  Long on purpose: one loop.
    """
    cells, most = len(ends), rows.shape[1]
    low, least = np.empty(most + 1, np.int64), np.empty(most + 1, np.int64)
    since, when = np.empty(most + 1), np.empty(most + 1)
    lower, cheaper = falls(roots), falls(works)
    total, steps = 0.0, 0
    for i in range(len(kinds)):
        count, begin, first, later, chunks, linear, square, share, whole, until, weight = kinds[i]
        lone, many, root, each = first + later, number[i] + 1, share**0.5, share * chunk
        fixed = 0.0
        for k in range(many):
            early, late = begin, begin + first
            if k:
                early, late = late + rows[i, k - 1, 0], late + later - rows[i, k - 1, 1]
                fixed += rows[i, k - 1, 2]
            since[k] = late
            low[k] = np.searchsorted(ends, early, side="right")
            for c in range(low[k] + 1, np.searchsorted(ends, late, side="right") + 1):
                if (works[c] < works[low[k]]) if k == 0 else (roots[c] < roots[low[k]]):
                    low[k] = c
        free = prompt_price(works[cells], each, chunks, linear, square)[0] + share * fixed
        paid = prompt_price(works[low[0]], each, chunks, linear, square)[0] + share * fixed
        stays = first + fixed
        for k in range(1, many):
            r = roots[low[k]]
            paid += 2 * r * root * rows[i, k - 1, 3] + r * r * rows[i, k - 1, 5]
            stays += 2 * r * rows[i, k - 1, 4]
        for k in range(many):
            c = lower[low[k]] if k else cheaper[low[k]]
            when[k] = ends[c - 1] - since[k] if c <= cells else FAR
        best, life, chosen_life, longer = FAR, lone, lone, 0.0
        while True:
            steps += 1
            delay = FAR
            for k in range(many):
                delay = min(delay, when[k])
            for one in (life, stays):
                if one != life and (one < life or one > lone + delay):
                    continue
                missing = (1 - weight) * max(0.0, whole - one) + weight * max(0.0, until - one)
                worth = (1 - share) * one + paid + share * (max(0.0, stays - one) - missing)
                if worth < best:
                    best, chosen_life, longer = worth, one, stays - one
                    for k in range(many):
                        least[k] = low[k]
            life = lone + delay
            if delay == FAR:
                break
            missing = (1 - weight) * max(0.0, whole - life) + weight * max(0.0, until - life)
            if (1 - share) * life + free - share * missing >= best:
                break
            for k in range(many):
                if when[k] > delay:
                    continue
                c = low[k]
                low[k] = lower[c] if k else cheaper[c]
                following = lower[low[k]] if k else cheaper[low[k]]
                when[k] = ends[following - 1] - since[k] if following <= cells else FAR
                if k:
                    r, r0 = roots[low[k]], roots[c]
                    paid += 2 * (r - r0) * root * rows[i, k - 1, 3] + (r * r - r0 * r0) * rows[i, k - 1, 5]
                    stays += 2 * (r - r0) * rows[i, k - 1, 4]
                else:
                    paid += prompt_price(works[low[0]], each, chunks, linear, square)[0]
                    paid -= prompt_price(works[c], each, chunks, linear, square)[0]
        total += count * best
        full, rest = max(0.0, whole - chosen_life), max(0.0, until - chosen_life)
        own[i, 0] = -share * rest / (until - whole) if full == 0 and rest > 0 else -share * (full > 0)
        own[i, 1] = fixed - chosen_life + max(0.0, longer) - (1 - weight) * full - weight * rest
        for k in range(many):
            c = least[k]
            if c == cells:
                continue
            r = roots[c]
            if k == 0:
                rise = count * prompt_price(works[c], each, chunks, linear, square)[1]
                slopes[0, c] += rise * 2 * r
                slopes[1, c] += rise
                dear = square * works[c] > each * chunks * chunks
                own[i, 1] += chunk * ((square * works[c] / each) ** 0.5 if dear else chunks)
            else:
                more = share * rows[i, k - 1, 4] if longer > 0 else 0.0
                slopes[0, c] += count * 2 * (root * rows[i, k - 1, 3] + more + r * rows[i, k - 1, 5])
                own[i, 1] += r / root * rows[i, k - 1, 3]
    return total, steps
