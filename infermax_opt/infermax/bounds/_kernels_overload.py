"""What requests pay in `overload` at given prices, in floats: plain Python or compiled.

What they say is checked exactly elsewhere.  Times are in ticks; l and x are given by cell of time, and are 0
in a last one, which is all time after the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["part_costs", "payments"]

#: More than anything costs.
FAR = 1e300


def part_costs(prices: Any, levels: Any, sizes: Any, rates: Any, costs: Any) -> None:
    """Least that parts cost a token of a prompt, by cell and by the share that is done before it.

    `sizes`: tokens of a part.  `rates`: w, p1 and a' of a token of a prompt.  `costs` is filled; its shares
    are evenly from 0 up to less than 1.
    """
    work, attention, presence = rates
    many = costs.shape[1]
    for c in range(len(prices)):
        for k in range(many):
            share = k / many
            slope, cross = (prices[c] + share) * attention, 2 * levels[c] * np.sqrt(work * share)
            least = FAR
            for size in sizes:
                paid = slope * (size - 1) + cross / np.sqrt(size) + presence * share / size
                if paid >= least:
                    break  # it is convex in the root of the size
                least = paid
            costs[c, k] = least


def payments(ends: Any, prices: Any, levels: Any, kinds: Any, groups: Any, costs: Any) -> Any:
    """Sum what all requests pay.

    `kinds`: how many, arrival, U, what the prompt pays in parts besides, and the first group, the first of
    the prompt in parts, and the end of these; later tokens are between.  `groups`: tokens, u, y, k and the
    place of the share, of one token; the whole prompt is first.
    """
    total, cells = 0.0, len(ends)
    for i in range(len(kinds)):
        count, begin, mass, besides = kinds[i, 0], kinds[i, 1], kinds[i, 2], kinds[i, 3]
        first, parts, end = int(kinds[i, 4]), int(kinds[i, 5]), int(kinds[i, 6])
        here = np.searchsorted(ends, begin, side="right")
        whole = later = inside = 0.0
        for g in range(first, end):
            least = FAR
            for c in range(here, cells + 1):
                wait = max(0.0, ends[c - 1] - begin) if c else 0.0
                paid = groups[g, 1] * (wait / mass + prices[c]) - levels[c] ** 2 * groups[g, 3]
                if g < parts:
                    paid += 2 * levels[c] * groups[g, 2]
                else:
                    paid += costs[c, int(groups[g, 4])]
                least = min(least, paid)
                if prices[c] <= 0:
                    break
            if g == first:
                whole = least * groups[g, 0]
            elif g < parts:
                later += least * groups[g, 0]
            else:
                inside += least * groups[g, 0]
        if parts < end:
            whole = max(whole, inside - besides)
        total += count * (whole + later)
    return total
