"""Proof: prices of lengths, by the most that a circle holds."""

from __future__ import annotations

from fractions import Fraction
from operator import add

from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.pipelining.checker.instance import MAX_TOKENS, Instance


def prices(instance: Instance, evidence: Field) -> Fraction:
    """The most that any number of requests of each length holds in prices, and what exceeds the prices."""
    unit, scale = evidence["unit"].whole(1, MAX_TOKENS), evidence["scale"].number()
    if scale <= 0:
        evidence["scale"].fail("is not above 0")
    sizes = evidence["sizes"].integers()
    given = evidence["prices"].integers(len(sizes))
    require(all(size > 0 for size in sizes) and sizes == sorted(set(sizes)), "lengths are not in order")
    require(all(price >= 0 for price in given), "a price is below 0")
    by_size = dict(zip(sizes, given, strict=True))
    cells = instance.room // unit
    instance.work.spend(sum(max(0, cells - 2 * size) ** 2 // 4 + cells for size in sizes))
    most = scale * most_held(cells, by_size)
    for size, value in instance.requests:
        most += max(Fraction(0), value - scale * by_size.get(size // unit, 0))
    return most


def most_held(cells: int, by_size: dict[int, int]) -> int:
    """The most that a circle of so many cells holds, lengths in order; the longest on it goes first."""
    worth, best = [0] * (cells + 1), 0
    for size, price in by_size.items():
        before = worth
        worth = before[:]
        for x in range(2 * size, cells + 1) if price else ():
            # The first of this length in x cells: shorter ones before it, any behind it.
            parts = map(add, before[size : x - size + 1], worth[x - size : size - 1 : -1])
            worth[x] = max(before[x], price + max(parts))
        if size <= cells:
            best = max(best, price + worth[cells])
    return best
