"""Proof: hats, by sums of hat inequalities and counts."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from infermax_opt.checking.fields import Field
from infermax_opt.pipelining.checker.instance import MAX_BUFFER, MAX_TOKENS, Instance


def weights(field: Field) -> list[tuple[int, Fraction]]:
    """Heights h, 1 or more, each with a weight of 0 or more."""
    found = []
    for entry in field.items():
        height, weight = entry.items(2)
        found.append((height.whole(1, 2 * MAX_TOKENS * (1 + MAX_BUFFER)), weight.number()))
        if found[-1][1] < 0:
            weight.fail("is below 0")
    return found


def hats(instance: Instance, evidence: Field) -> Fraction:
    """Sums of hat inequalities and counts, each with a weight; what is worth more than its price is added."""
    over, counts = weights(evidence["hats"]), weights(evidence["counts"])
    longest = max(size for size, _ in instance.requests)
    kinds = Counter(instance.requests)
    instance.work.spend(20 * (len(over) + len(counts)) * (len(kinds) + 1))
    most = Fraction(0)
    for height, weight in over:
        most += weight * (max(0, instance.room - height) + hat(height, longest))
    for height, weight in counts:
        most += weight * (instance.room // height)
    for (size, value), number in kinds.items():
        price = sum((weight * hat(height, size) for height, weight in over), Fraction(0))
        price += sum((weight for height, weight in counts if height <= size), Fraction(0))
        most += number * max(Fraction(0), value - price)
    return most


def hat(height: int, size: int) -> int:
    """What a request of that length takes of the hat of that height."""
    return max(0, min(2 * size - height, height))
