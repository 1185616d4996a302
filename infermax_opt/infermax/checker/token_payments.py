"""Least sums of what tokens pay that wait, share a chunk, or lie beyond a knee.

See `infermax_opt.infermax.bounds.token_payments`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate

from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.instance import Instance

#: Tokens of a group up to which what they pay is listed, where all of a chunk pay the same, and where not;
#: those beyond pay no less than the next one.
MAX_LISTED, MAX_SQUARE = 2**20, 2**17


def chunk_payments(instance: Instance, wait: Fraction, width: int, dear: Fraction | None = None) -> Fraction:
    """Ticks that prompts pay at least while they are in chunks, for attention and where they wait.

    Parameters
    ----------
    instance : Instance
    wait : Fraction
        Of a token for each chunk that comes behind it.
    width : int
        Tokens of a chunk beyond which each one is dear.
    dear : Fraction, optional
        None where a chunk cannot have more.
    """
    if not wait or not instance.prompts:
        return Fraction(0)
    more = Fraction(2 * instance.p1 if instance.spread else 0)
    return sum_of_payments(instance.work, instance.prompts, wait, more, width, dear)


def sum_of_payments(
    work: Work,
    groups: Iterable[tuple[int, int]],
    wait: Fraction,
    more: Fraction,
    width: int,
    dear: Fraction | None,
) -> Fraction:
    """Ticks that the tokens of some groups pay, at least.

    Parameters
    ----------
    work : Work
    groups : iterable of (int, int)
        Tokens, and how many groups have so many; at least one.
    wait, more : Fraction
        The c-th token of a chunk that waits for r batches pays wait r + more (c - 1); wait is above 0.
    width : int
        Tokens of a chunk that pay so, at most.
    dear : Fraction or None
        What each other one pays, if there may be any.
    """
    listed = list(groups)
    unit = math.lcm(wait.denominator, more.denominator, 1 if dear is None else dear.denominator)
    most = min(MAX_SQUARE if more else MAX_LISTED, max(size for size, _ in listed))
    pays = least_payments(work, most + 1, int(wait * unit), int(more * unit), width)
    if dear is not None:
        pays = [min(int(dear * unit), each) for each in pays]
    work.spend(most + 10 * len(listed))
    sums, total = [0, *accumulate(pays)], 0
    for size, count in listed:
        total += count * (sums[min(size, most)] + (size - min(size, most)) * pays[most])
    return Fraction(total, unit)


def least_payments(work: Work, most: int, wait: int, more: int, width: int) -> list[int]:
    """So many least ones of wait r + more c for r = 0, 1, ... and c = 0..width-1, rising, and some beyond.

    Parameters
    ----------
    work : Work
    most : int
        How many, at least 1.
    wait, more : int
        The first one is above 0.
    width : int
    """

    def enough(limit: int) -> bool:
        """Whether so many are up to a limit."""
        work.spend(4 * (limit // wait + 1))
        rests = range(limit, -1, -wait)
        return sum(min(width, rest // more + 1) if more else width for rest in rests) >= most

    high = 1
    while not enough(high * wait):
        high *= 2
    low, high = 0, high * wait
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    work.spend(10 * most)
    found: list[int] = []
    for start in range(0, low + 1, wait):
        number = min(width, (low - start) // more + 1 if more else width)
        found += (start + more * c for c in range(number))
    return sorted(found)
