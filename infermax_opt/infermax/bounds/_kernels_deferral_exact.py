"""What a request counts of prompts in `deferral`, exactly: plain Python, or compiled where numbers fit.

Arrays are those of prompts that a request may see, in the order of their arrival.  The numbers are whole.
Sums would take up to 80 bits.  They are pairs of an upper part and a lower one of LIMB bits, 0 or more.
"""

from __future__ import annotations

from typing import Any

__all__ = ["LIMB", "PART_BITS", "add", "count", "less", "product", "scaled", "watch"]

#: Bits of the lower part of a sum.
LIMB = 30
MASK = (1 << LIMB) - 1
#: Bits after the point of the part of a prompt that counts though it may come before the first token.
PART_BITS = 16
PART_MASK = (1 << PART_BITS) - 1


def add(one: Any, other: Any, sign: Any) -> Any:
    """One sum and, with a sign, another."""
    low = one[1] + sign * other[1]
    return one[0] + sign * other[0] + (low >> LIMB), low & MASK


def less(one: Any, other: Any) -> Any:
    """Whether one sum is less than another."""
    return one[0] < other[0] or (one[0] == other[0] and one[1] < other[1])


def product(number: Any, factor: Any) -> Any:
    """A number times a factor of few bits, as a sum."""
    low = (number & MASK) * factor
    return (number >> LIMB) * factor + (low >> LIMB), low & MASK


def scaled(one: Any, part: Any) -> Any:
    """A sum without its last PART_BITS bits, times a part of less than one in 2**-PART_BITS."""
    high = one[0] * part
    low = ((high & PART_MASK) << LIMB - PART_BITS) + (one[1] >> PART_BITS) * part
    return (high >> PART_BITS) + (low >> LIMB), low & MASK


def watch(
    shares: Any, before: Any, now: Any, worths: Any, since: Any, there: Any, ages: Any, weights: Any, top: Any
) -> None:
    """Take the share of a request of waits in a cell.

    `shares`: what it has of the wait of each, up to `top`.  `before` and `now`: what of that counts at both
    ends.  `worths`: of a wait in the cell, at weight 1, from prompt `since` on, which may be below 0.
    `there`: how many have come.  `ages`: how many of them have waited for each age, fewer and fewer, and
    `weights` before and after each.
    """
    before[:there] = now[:there]
    age = 0
    enough = top // max(1, weights[0])
    for x in range(min(there, since + len(worths)) - 1, max(since, 0) - 1, -1):
        while age < len(ages) and x < ages[age]:
            age += 1
            enough = top // max(1, weights[age])
        if worths[x - since] > enough:
            shares[x] = top
        else:
            shares[x] = min(top, shares[x] + weights[age] * worths[x - since])
    now[:there] = shares[:there]


def count(
    before: Any, now: Any, works: Any, counts: Any, times: Any, level: Any, part: Any, there: Any, late: Any
) -> Any:
    """Sum what prompts count at both ends of a cell, and what of that is lost at most, as less than 0.

    `works`, `counts`: of each prompt, and how many such there are.  `times`: when they come, after the first
    moment of a first token.  `level`: g.  `part`: 1 - (least g) / g.  `there`: how many have come; the first
    token comes before those from `late` on.
    """
    every = sooner = least = lost = queue = settled = level * 0, level * 0
    for x in range(there):
        if x < late:
            ahead = add(every, product(times[x], level), -1)
            if x == 0 or not less(queue, ahead):
                queue, settled = ahead, add(every, sooner, -1)
        most = level * works[x]
        every = add(every, product(min(now[x], most), counts[x]), 1)
        sooner = add(sooner, product(min(before[x], most), counts[x]), 1)
        if x < late:
            value = add(scaled(add(every, queue, -1), part), every, -1)
            if less(value, least):
                least = value
            value = add(value, settled, 1)
            if less(value, lost):
                lost = value
    return sooner, lost, every, least
