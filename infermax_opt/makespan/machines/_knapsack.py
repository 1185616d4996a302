"""The best filling of a machine, for every load at once: a bounded knapsack in whole numbers.

The functions run as plain Python or compiled; see `infermax_opt.core.compiled`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["fillings", "most_worth"]

#: Fillings just found with which a new one is compared.
LOOK_BACK = 8


def most_worth(sizes: Any, copies: Any, worth: Any, capacity: Any) -> Any:
    """Largest worth of jobs within each load, and how many of each kind that takes.

    Parameters
    ----------
    sizes, copies, worth : array of int
        Per kind of job its length, how many there are and what one is worth (0 or more).
    capacity : int
        Largest load.

    Returns
    -------
    value : array of int
        Per load 0..capacity, the largest worth of jobs whose lengths add up to that or less, no more of
        each kind than there are.
    taken : array of int16, kinds by loads
        Copies of a kind in a best filling that consists of this kind and those before it.
    """
    kinds = len(sizes)
    value = np.zeros(capacity + 1, np.int64)
    old = np.zeros(capacity + 1, np.int64)
    taken = np.zeros((kinds, capacity + 1), np.int16)
    for i in range(kinds):
        size, gain = sizes[i], worth[i]
        most = min(copies[i], capacity // size)
        if gain <= 0:
            continue
        if most == 1:
            for load in range(capacity, size - 1, -1):
                new = value[load - size] + gain
                if new > value[load]:
                    value[load] = new
                    taken[i, load] = 1
            continue
        old[:] = value
        for load in range(size, capacity + 1):
            best, number = old[load], 0
            for k in range(1, min(most, load // size) + 1):
                new = old[load - k * size] + k * gain
                if new > best:
                    best, number = new, k
            value[load] = best
            taken[i, load] = number
    return value, taken


def fillings(sizes: Any, copies: Any, worth: Any, capacity: Any, taken: Any, value: Any, least: Any) -> Any:
    """Per kind of job a good filling that contains it; those worth more than `least`.

    Parameters
    ----------
    sizes, copies, worth : array of int
    capacity : int
    taken, value : arrays
        From `most_worth`, for this capacity or a larger one.
    least : int

    Returns
    -------
    array of int, fillings by kinds
        Copies.
    """
    kinds = len(sizes)
    found = np.zeros((kinds + 1, kinds), np.int64)
    count = 0
    for first in range(-1, kinds):
        load = capacity
        if first >= 0:
            load -= sizes[first]
            if load < 0 or worth[first] + value[load] <= least:
                continue
        row = found[count]
        row[:] = 0
        if first >= 0:
            row[first] = 1
        total = 0
        for i in range(kinds - 1, -1, -1):
            k = taken[i, load]
            load -= k * sizes[i]
            row[i] = min(row[i] + k, copies[i])
            total += row[i] * worth[i]
        if total <= least:
            continue
        fresh = True
        for q in range(max(0, count - LOOK_BACK), count):
            same = True
            for i in range(kinds):
                if found[q, i] != row[i]:
                    same = False
                    break
            if same:
                fresh = False
                break
        if fresh:
            count += 1
    return found[:count]
