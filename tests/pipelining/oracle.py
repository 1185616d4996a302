"""What is true of small pipelining instances, found without the package: cells, pairs, every selection."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from fractions import Fraction

from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest

AIMS = ("tokens", "area", "count", "value")


def reserved(instance: PipeliningInstance) -> list[int]:
    """Reserved length of each request, by its definition."""
    found = []
    for r in instance.requests:
        size = 0
        while size < r.length + instance.buffer * r.length:
            size += instance.block_size
        found.append(size)
    return found


def worth(instance: PipeliningInstance) -> list[Fraction]:
    """What each request adds to the objective; area by counting cells at each iteration."""
    sizes = reserved(instance)
    return {
        "tokens": [Fraction(g) for g in sizes],
        "area": [Fraction(sum(t + 1 for t in range(g))) for g in sizes],
        "count": [Fraction(1) for _ in sizes],
        "value": [r.value or Fraction(0) for r in instance.requests],
    }[instance.objective]


def collide(placed: Sequence[tuple[int, int]], capacity: int) -> bool:
    """Whether two requests are in one cell at one time, cell by cell; or one leaves the reservation."""
    owners = dict[tuple[int, int], int]()
    for number, (offset, size) in enumerate(placed):
        for cell in range(offset, offset + size):
            if cell >= capacity:
                return True
            for moment in range(cell - offset, size):
                if owners.setdefault((cell, moment), number) != number:
                    return True
    return False


def apart(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Lemma 1 for a pair of offset and length."""
    return abs(first[0] - second[0]) >= min(first[1], second[1])


def placeable(sizes: Sequence[int], capacity: int, placed: tuple[tuple[int, int], ...] = ()) -> bool:
    """Whether requests have valid offsets, every one of them tried."""
    if not sizes:
        return True
    return any(
        all(apart((s, sizes[0]), other) for other in placed)
        and placeable(sizes[1:], capacity, (*placed, (s, sizes[0])))
        for s in range(capacity - sizes[0] + 1)
    )


def best_value(instance: PipeliningInstance) -> Fraction:
    """The most that a valid selection is worth, by every selection and every offset."""
    sizes, values = reserved(instance), worth(instance)
    known = dict[tuple[int, ...], bool]()
    best = Fraction(0)
    for chosen in itertools.product((False, True), repeat=len(sizes)):
        picked = [k for k, some in enumerate(chosen) if some]
        total = sum((values[k] for k in picked), Fraction(0))
        if total <= best:
            continue
        lengths = tuple(sorted((sizes[k] for k in picked), reverse=True))
        if lengths not in known:
            known[lengths] = placeable(lengths, instance.capacity)
        if known[lengths]:
            best = total
    return best


def tiny(seed: int, aim: str, most: int = 6) -> PipeliningInstance:
    """A random instance with up to `most` requests, small enough for `best_value`."""
    rng = random.Random(f"{aim} {seed}")
    block = rng.choice([1, 1, 1, 2])
    capacity = rng.randint(3, 18)
    return PipeliningInstance(
        f"tiny-{seed}",
        tuple(
            PipeliningRequest(
                f"r{k}", rng.randint(1, max(1, capacity * 3 // 4)), value=Fraction(rng.randint(0, 9), 2)
            )
            for k in range(rng.randint(1, most))
        ),
        capacity,
        aim,
        block,
        rng.choice([Fraction(0), Fraction(0), Fraction("0.15")]),
    )


def offsets(instance: PipeliningInstance, schedule: Mapping[str, int]) -> list[tuple[int, int]]:
    """Offset and reserved length of what a schedule selects."""
    sizes = dict(zip([r.id for r in instance.requests], reserved(instance), strict=True))
    return [(s, sizes[name]) for name, s in schedule.items()]
