"""Schedules without proof: side by side, by the paper's rule, and by splitting intervals.

The paper (S3.4) leaves questions open, which are decided so: at level k a host of l tokens has 2^(k-1)
guests, at offsets (2q + 1) l / 2^k; a guest fits if its reserved length, buffer included, is no more than
l / 2^k; hosts are taken in the order of the queue while they fit.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.heuristics.annealing import annealed

__all__ = ["HEURISTICS", "make_schedule", "splitting"]

#: Random subsets of which the best is taken.
SUBSETS = 300
#: Requests in all subsets at most; the first subset is everything.
MOST_TRIED = 300_000
#: Requests times cells up to which the best sum is found exactly.
MOST_SUMS = 2 * 10**7


def _schedule(instance: PipeliningInstance, offsets: Mapping[int, int]) -> Pipelining:
    return Pipelining(instance.name, {instance.requests[k].id: offsets[k] for k in sorted(offsets)})


def apart(instance: PipeliningInstance) -> Pipelining:
    """Each request has tokens of its own: the most valuable ones that fit side by side."""
    chosen = _best_sum(instance) if _sums(instance) <= MOST_SUMS else _dense_first(instance)
    offsets, end = {}, 0
    for k in chosen:
        offsets[k] = end
        end += instance.sizes[k]
    return _schedule(instance, offsets)


def _sums(instance: PipeliningInstance) -> int:
    return len(instance.useful) * (instance.capacity // instance.block_size + 1)


def _best_sum(instance: PipeliningInstance) -> list[int]:
    """The most value within the capacity, by recursion over requests; ties and rounding are of doubles."""
    import numpy as np

    block = instance.block_size
    room = instance.capacity // block
    best = np.zeros(room + 1)
    taken = np.zeros((len(instance.useful), room + 1), dtype=bool)
    for row, k in enumerate(instance.useful):
        size = instance.sizes[k] // block
        new = best[: room + 1 - size] + float(instance.values[k])
        taken[row, size:] = new > best[size:]
        best[size:] = np.maximum(best[size:], new)
    chosen = []
    for row in range(len(instance.useful) - 1, -1, -1):
        if taken[row, room]:
            chosen.append(instance.useful[row])
            room -= instance.sizes[instance.useful[row]] // block
    return chosen


def _dense_first(instance: PipeliningInstance) -> list[int]:
    """Those worth most for each token first, while they fit."""
    room, chosen = instance.room, []
    for k in sorted(instance.useful, key=lambda k: instance.values[k] / instance.sizes[k], reverse=True):
        if instance.sizes[k] <= room:
            chosen.append(k)
            room -= instance.sizes[k]
    return chosen


def dyadic(instance: PipeliningInstance) -> Pipelining:
    """The paper's rule: hosts in queue order, guests at odd multiples of halves, quarters and so on."""
    offsets, end, hosts = dict[int, int](), 0, list[int]()
    for k in instance.useful:
        if end + instance.sizes[k] <= instance.room:
            offsets[k] = end
            hosts.append(k)
            end += instance.sizes[k]
    waiting = sorted((instance.sizes[k], -k) for k in instance.useful if k not in offsets)
    for host in hosts:
        length, parts = instance.sizes[host], 2
        while waiting and waiting[0][0] <= length // parts:
            for odd in range(1, parts, 2):
                below = bisect_left(waiting, (length // parts + 1,)) - 1
                if below < 0:
                    break
                _, guest = waiting.pop(below)
                offsets[-guest] = offsets[host] + odd * length // parts
            parts *= 2
    return _schedule(instance, offsets)


def splitting(instance: PipeliningInstance) -> Pipelining:
    """Longest first, each into the shortest interval of twice its length: the best of random subsets."""
    rng = random.Random(0)
    longest_first = sorted(instance.useful, key=lambda k: (-instance.sizes[k], -instance.values[k], k))
    number = max(1, len(longest_first))
    tries = max(1, min(SUBSETS, MOST_TRIED // number, 2 ** min(number, 20)))
    best, most = dict[int, int](), Fraction(-1)
    for turn in range(tries):
        share = 1.0 if turn == 0 else rng.uniform(0.05, 1.0)
        offsets = split(instance, [k for k in longest_first if share == 1.0 or rng.random() < share])
        worth = sum((instance.values[k] for k in offsets), Fraction(0))
        if worth > most:
            best, most = offsets, worth
    return _schedule(instance, best)


def split(instance: PipeliningInstance, longest_first: Iterable[int]) -> dict[int, int]:
    """Offsets of those of these requests, longest first, that find an interval.

    The longest begins the reservation.  Each further one needs an interval of 2 g, and leaves g before it: of
    all splits into parts of g or more, that one keeps the longest part.
    """
    offsets, free = dict[int, int](), list[tuple[int, int]]()
    for k in longest_first:
        size = instance.sizes[k]
        if not offsets:
            offsets[k], free = 0, [(instance.room, 0)]
            continue
        place = bisect_left(free, (2 * size,))
        if place < len(free):
            length, start = free.pop(place)
            offsets[k] = start + size
            insort(free, (size, start))
            insort(free, (length - size, start + size))
    return offsets


def annealing(instance: PipeliningInstance) -> Pipelining:
    """Requests put in, moved and taken out at random, from the best splitting on."""
    return annealed(instance, splitting(instance))


_MAKERS: Mapping[str, Callable[[PipeliningInstance], Pipelining]] = {
    "apart": apart,
    "dyadic": dyadic,
    "splitting": splitting,
    "annealing": annealing,
}

HEURISTICS: Mapping[str, str] = {
    "apart": "no pipelining: the most valuable requests whose lengths add up to the capacity",
    "dyadic": "the paper's rule: hosts in queue order, guests at halves, quarters, eighths of a host",
    "splitting": f"longest first, each splits the shortest interval that it can; best of {SUBSETS} subsets",
    "annealing": "from that, requests are put in, moved and taken out at random, ever more carefully",
}
"""What each does."""


def make_schedule(instance: PipeliningInstance, name: str) -> Pipelining:
    """Run a heuristic by its name.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in _MAKERS:
        raise InputError(f"{name!r} is no heuristic of pipelining; there are {', '.join(_MAKERS)}")
    return _MAKERS[name](instance)
