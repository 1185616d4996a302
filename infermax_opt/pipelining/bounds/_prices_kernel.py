"""Compiled: what an interval can hold at most where requests of every length have a price, and any number."""

from __future__ import annotations

from typing import Any

__all__ = ["fill", "most_held"]


def fill(sizes: Any, prices: Any, worth: Any) -> None:
    """Fill in ``worth[d, x]``: most an interval of x cells holds, of the d shortest lengths.

    Its ends are held by longer requests, or by equal ones.  Where a request of the d-th length is in it, let
    c be the first: before it, a >= g cells hold shorter ones only, and behind it, at least g cells hold any.

    Parameters
    ----------
    sizes, prices : int64 arrays
        Of each length, shortest first.
    worth : int64 array, a row for each number of lengths, a column for each number of cells
    """
    last = worth.shape[1] - 1
    for x in range(last + 1):
        worth[0, x] = 0
    for d in range(1, len(sizes) + 1):
        g, price = sizes[d - 1], prices[d - 1]
        for x in range(last + 1):
            worth[d, x] = worth[d - 1, x]
        if price <= 0:
            continue
        for x in range(2 * g, last + 1):
            best = worth[d, x]
            for a in range(g, x - g + 1):
                value = worth[d - 1, a] + worth[d, x - a] + price
                if value > best:
                    best = value
            worth[d, x] = best


def most_held(sizes: Any, prices: Any, worth: Any) -> int:
    """Fill the table and return the most that the circle holds.

    Its longest request, of any length, goes first, and leaves one interval for those up to its length.

    Parameters
    ----------
    sizes, prices : int64 arrays
    worth : int64 array
        Overwritten.
    """
    fill(sizes, prices, worth)
    best = 0
    for d in range(len(sizes)):
        best = max(best, prices[d] + worth[d + 1, worth.shape[1] - 1])
    return int(best)
