"""Proof: the least number of batches, by the KV that their tokens take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from infermax_opt.checking.errors import require
from infermax_opt.infermax.checker.instance import blocks_up_to
from infermax_opt.infermax.checker.releases import kv_beginning, kv_releases
from infermax_opt.infermax.checker.served import Served


def proofs_by_memory(served: Served) -> dict[str, Callable[[Served], int]]:
    """Arguments about KV, where they are for the instance."""
    proofs: dict[str, Callable[[Served], int]]
    proofs = {"KV age": kv_age, "KV area": kv_area, "KV slots": kv_slots}
    proofs |= {"KV releases": kv_releases, "KV beginning": kv_beginning}
    if len({(i, o) for i, o, _ in served.kinds}) == 1:
        proofs["KV spacing"] = kv_spacing
    return proofs


def kv_age(served: Served) -> int:
    """Tokens by KV size, in ever later batches of a window, waste the KV that those before them take."""
    instance, horizon = served.instance, served.horizon
    steps, room = Counter[int](), instance.capacity * sum(c for _, _, c in served.kinds)
    for i, o, c in served.kinds:
        steps.update({i: c, i + o: -c})
    instance.work.spend(10 * (max(steps) - min(steps)))
    many = volume = waste = 0
    for size in range(min(steps), max(steps)):
        many, position = many + steps[size], volume // room
        late = max(0, many - ((position + 1) * room - volume) // size)
        waste += many * min(position, horizon) + late * (position < horizon)
        volume += many * size
    rounding = 0 if instance.preemption else instance.capacity - 1
    return (volume + waste + rounding) // instance.capacity


def kv_spacing(served: Served) -> int:
    """Equal requests end so far from each other that memory holds those in it; or evictions cost as much.

    See `infermax_opt.infermax.bounds.spacing`; `cut` is its x in parts of 2**16.
    """
    (inputs, outputs, _), count = served.kinds[0], sum(c for _, _, c in served.kinds)
    apart, unit = served.evidence["cut"].whole(0, outputs << 16), 1 << 16
    most = min(count, 1 + (served.instance.capacity - (inputs + outputs - 1)) // inputs)
    served.instance.work.spend(8 * most)
    evictions, saved = served.instance.preemption, apart * served.worth * served.instance.capacity
    require(not evictions or saved <= served.spare * inputs * unit, "cut: evictions may cost less")
    room, last = inputs + outputs - 1 - served.instance.capacity, 1
    for m in range(2, most + 1):
        room += inputs + outputs - min(-(-(m - 1) * apart // unit), outputs)
        if room <= 0:
            require(m * apart <= outputs * unit, "cut: requests may be closer to each other")
            last = m
    alone = -(-inputs // served.instance.budget) + outputs - 1
    parts = max(0, count - last) * apart
    return alone + (parts // unit if evictions else -(-parts // unit))


def tokens_above(served: Served, level: int) -> tuple[int, int]:
    """Generated tokens whose KV takes more than `level` blocks: their number, and their blocks."""
    size, number, volume = served.instance.block, 0, 0
    for i, o, c in served.kinds:
        before, last = min(i + o, max(i, level * size + 1)) - 1, i + o - 1
        number += c * (last - before)
        volume += c * (blocks_up_to(last, size) - blocks_up_to(before, size))
    return number, volume


def kv_slots(served: Served) -> int:
    """A batch makes no more tokens of `cut` blocks or more than fit."""
    capacity = served.instance.capacity // served.instance.block
    cut = served.evidence["cut"].whole(1, capacity)
    return -(-tokens_above(served, cut - 1)[0] // (capacity // cut))


def kv_area(served: Served) -> int:
    """Tokens as items of a bin packing problem: the bound L2 of Martello and Toth, for k = `cut`."""
    capacity = served.instance.capacity // served.instance.block
    cut = served.evidence["cut"].whole(0, capacity // 2)
    huge, huge_volume = tokens_above(served, capacity - cut)
    big = tokens_above(served, capacity // 2)[0]
    others = tokens_above(served, max(0, cut - 1))[1] - huge_volume  # from the cut on: none beside a huge one
    return max(big, huge - (-others // capacity))
