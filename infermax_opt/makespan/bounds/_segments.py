"""Least rounding up of lengths to few distinct ones.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["HELPERS", "next_row"]


def waste(values: Any, count: Any, total: Any, i: Any, j: Any) -> Any:
    """Rounding up values i .. j-1 to the last of them; `count` and `total` are sums before each."""
    return values[j - 1] * (count[j] - count[i]) - (total[j] - total[i])


def next_row(values: Any, count: Any, total: Any, row: Any) -> Any:
    """Least waste of the first j values with one segment more than in `row`, for every j.

    The segment that ends at j begins no earlier than the one that ends before j, as the waste of a
    segment is a Monge array; so halving the range of j halves that of the beginnings.
    """
    n = len(values)
    found = np.empty(n + 1, np.int64)
    found[0] = 0
    # Ranges of j that are open, and of the beginnings to look at there.
    stack = np.empty((2 * n + 2, 4), np.int64)
    stack[0] = 1, n, 0, n - 1
    top = 1
    while top > 0:
        top -= 1
        low, high, first, last = stack[top]
        j = (low + high) // 2
        best, at = row[0] + waste(values, count, total, 0, j), 0
        for i in range(first, min(last, j - 1) + 1):
            some = row[i] + waste(values, count, total, i, j)
            if some < best:
                best, at = some, i
        found[j] = best
        if low < j:
            stack[top] = low, j - 1, first, max(first, at)
            top += 1
        if j < high:
            stack[top] = j + 1, high, max(first, at), last
            top += 1
    return found


HELPERS = (waste,)
"""What `next_row` calls."""
