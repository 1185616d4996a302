"""Least makespan of jobs on identical machines, P||Cmax: bounds by counting.

All take lengths, longest first, and m machines; all are whole numbers, computed exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

__all__ = ["average", "counting", "longest", "quick"]


def average(lengths: Sequence[int], machines: int) -> int:
    """The work of all jobs, spread evenly."""
    return -(-sum(lengths) // machines)


def longest(lengths: Sequence[int], machines: int) -> int:
    """A job runs on one machine."""
    return lengths[0]


def counting(lengths: Sequence[int], machines: int) -> tuple[int, str]:
    """Of the k m + 1 longest jobs some machine gets k + 1 or more, at least the shortest of these.

    Returns
    -------
    value : int
        0 where there are no more jobs than machines.
    proof : str
        ``pair`` for k = 1, else ``counting``.
    """
    sums = [0, *accumulate(lengths)]
    best, proof = 0, "pair"
    for k in range(1, (len(lengths) - 1) // machines + 1):
        end = k * machines + 1
        value = sums[end] - sums[end - k - 1]
        if value > best:
            best, proof = value, "pair" if k == 1 else "counting"
    return best, proof


def quick(lengths: Sequence[int], machines: int) -> tuple[int, str]:
    """The best of `average`, `longest` and `counting`, and its name."""
    value, proof = average(lengths, machines), "average"
    more = longest(lengths, machines)
    if more > value:
        value, proof = more, "longest"
    more, name = counting(lengths, machines)
    return (more, name) if more > value else (value, proof)
