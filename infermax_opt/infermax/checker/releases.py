"""Proofs: the least number of batches, by the KV that lies idle between two releases of it."""

from __future__ import annotations

from collections import Counter
from math import isqrt
from typing import Any

from infermax_opt.checking.errors import require
from infermax_opt.checking.work import Work
from infermax_opt.infermax.checker.pieces import FAR
from infermax_opt.infermax.checker.served import Served

#: Parts of a batch for a full memory in which prices are.
IN_A_BATCH = 1 << 20
#: Most first batches with prices.
MOST_BATCHES = 1 << 16


def most_price(served: Served) -> tuple[int, int]:
    """The largest price lambda of memory that may be, and what a refill of all of it is worth, in parts."""
    worth = served.spare * IN_A_BATCH // served.worth
    top = IN_A_BATCH * max(i + o for i, o, _ in served.kinds)
    return (min(top, worth) if served.instance.preemption else top), worth


def in_batches(served: Served, parts: int) -> int:
    """So many parts of full memories, in batches; evictions may save a part of one."""
    unit = IN_A_BATCH * served.instance.capacity
    return parts // unit if served.instance.preemption else -(-parts // unit)


def kv_releases(served: Served) -> int:
    """Requests share the memory in which each window ends, and waste it in between, or they are left out.

    See `infermax_opt.infermax.bounds.releases`; `cut` is the price of memory there in parts of 2**20.
    """
    instance, unit, evictions = served.instance, IN_A_BATCH, served.instance.preemption
    least, top = min(i for i, _, _ in served.kinds), max(i + o for i, o, _ in served.kinds)
    most, worth = most_price(served)
    price = served.evidence["cut"].whole(0, most)
    horizon: Any = (worth - price) // unit if evictions else FAR
    instance.work.spend(10 * (top - least))
    run, total, up_to = 1, 0, [0]
    for size in range(least, top):
        while run * (run + 1) // 2 * unit <= price * size:
            instance.work.spend(1)
            run += 1
        waste = (run * (run - 1) // 2 * unit + price * size) // run
        total += size * unit + (waste if run <= horizon else horizon * unit)
        up_to.append(total)
    opened = price * instance.capacity
    parts = sum(max(0, up_to[i + o - least] - up_to[i - least] - opened) * c for i, o, c in served.kinds)
    return in_batches(served, parts)


def kv_beginning(served: Served) -> int:
    """The first batches have a price of memory each; what follows them wastes it between releases.

    See `infermax_opt.infermax.bounds.beginning`.
    """
    (most, worth), cut, instance = most_price(served), served.evidence["cut"], served.instance
    price, kv = cut["price"].whole(0, most), cut["kv"].integers()
    require(len(kv) <= MOST_BATCHES and min(kv, default=0) >= 0, "cut: too many prices, or one below 0")
    horizon = (worth - price) // IN_A_BATCH if instance.preemption else None
    total, longest = (len(kv) * IN_A_BATCH - sum(kv)) * instance.capacity, 0
    numbers, tokens = Counter[tuple[int, int]](), Counter[int]()
    for i, o, c in served.kinds:
        numbers[i, o] += c
        tokens[i + o] = max(tokens[i + o], o)
    wasted = {end: least_waste(end, o, price, horizon, instance.work) for end, o in tokens.items()}
    for (i, o), count in numbers.items():
        instance.work.spend(100 + 5 * o + 8 * len(kv) * min(len(kv), o))
        rest, held = [0], 0
        for later in range(1, o + 1):
            held += i + o - later
            rest.append(held * IN_A_BATCH + wasted[i + o][later] - price * instance.capacity)
        life = cheapest_start(i, o, rest[::-1], kv, worth if instance.preemption else None)
        if life > 0:
            total, longest = total + life * count, max(longest, o)
    require(len(kv) <= longest, "cut: more batches than any request has tokens")
    return in_batches(served, total)


def least_waste(end: int, tokens: int, price: int, horizon: int | None, work: Work) -> list[int]:
    """What the last 0, 1, ... tokens of a request waste at least, in whatever runs, in parts.

    Parameters
    ----------
    end : int
        KV size after the last one.
    tokens : int
        Most that are wanted.
    price : int
        Of the last size of each run.
    horizon : int or None
        Tokens of a run after which each wastes no more than the one before.
    work : Work
        Counts the steps.
    """
    most = isqrt(4 * price * end // IN_A_BATCH) + 3  # a longer one is no cheaper than two, see there
    beyond = None
    if horizon is not None and horizon <= most:  # runs may go on, each token at the waste of the one before
        most, beyond = max(1, horizon), horizon
    work.spend(20 + 3 * most + tokens * (10 + 2 * most))
    runs = [g * (g - 1) // 2 * IN_A_BATCH + price * (g - 1) for g in range(1, most + 1)]
    least, going = [0], [price * (end - 1)]
    for j in range(1, tokens + 1):
        ways = [price * (end - j) + run + least[j - g] for g, run in enumerate(runs[:j], 1)]
        if beyond is not None and j >= most:
            ways.append(runs[-1] - price * (most - 1) + going[j - most])
        least.append(min(ways))
        if beyond is not None:
            going.append(min(price * (end - j - 1) + least[j], IN_A_BATCH * beyond + going[-1]))
    return least


def cheapest_start(inputs: int, outputs: int, rest: list[int], kv: list[int], worth: int | None) -> int:
    """What a request pays at least in the first batches, and counts after them.

    Parameters
    ----------
    inputs, outputs : int
    rest : list of int, (outputs + 1,)
        What it counts after them, by the tokens made.
    kv : list of int
        Price of a token of KV in each of them.
    worth : int or None
        Price of evicting a token of KV, if anybody may be evicted.
    """
    inside = outside = rest[: len(kv) + 1]
    for t in range(len(kv) - 1, -1, -1):
        price, before = kv[t], range(inputs - 1, inputs - 1 + min(t + 1, outputs))  # KV before the batch
        token = [price * (size + 1) + after for size, after in zip(before, inside[1:], strict=False)]
        out = list(map(min, token, outside))
        idle = [price * size + after for size, after in zip(before, inside, strict=False)]
        stays = list(map(min, token, idle))
        if worth is not None:
            stays = [min(s, worth * size + after) for s, size, after in zip(stays, before, out, strict=True)]
        inside, outside = [*stays, rest[-1]], [*out, rest[-1]]
    return outside[0]
