"""Proofs: the least number of batches, by the KV that lies idle between two releases of it."""

from __future__ import annotations

from itertools import accumulate

from infermax_opt.checking.errors import require
from infermax_opt.infermax.checker.served import Served

#: Parts of a batch for a full memory in which prices are.
IN_A_BATCH = 1 << 20
#: Most first batches with prices.
MOST_BATCHES = 1 << 16


class Releases:
    """What each token counts at a price of the memory in which windows end.

    See `infermax_opt.infermax.bounds.releases`.

    `worth`: of a refill of the whole memory; `price`: lambda; both in parts.  `up_to`: what tokens of all
    sizes from `least` on count, below each.
    """

    def __init__(self, served: Served, price: int, worth: int):
        self.served, self.price, self.worth = served, price, worth
        evictions, horizon = served.instance.preemption, (worth - price) // IN_A_BATCH
        self.least, top = min(i for i, _, _ in served.kinds), max(i + o for i, o, _ in served.kinds)
        served.instance.work.spend(10 * (top - self.least))
        run, counted = 1, [0]
        for size in range(self.least, top):
            while run * (run + 1) // 2 * IN_A_BATCH <= price * size:
                served.instance.work.spend(1)
                run += 1
            waste = (run * (run - 1) // 2 * IN_A_BATCH + price * size) // run
            counted.append(
                size * IN_A_BATCH + (waste if not evictions or run <= horizon else horizon * IN_A_BATCH)
            )
        self.up_to = list(accumulate(counted))

    @staticmethod
    def most(served: Served) -> tuple[int, int]:
        """The largest price that may be, and what a refill of the whole memory is worth."""
        worth, top = (
            served.spare * IN_A_BATCH // served.worth,
            IN_A_BATCH * max(i + o for i, o, _ in served.kinds),
        )
        return (min(top, worth) if served.instance.preemption else top), worth

    def rest(self, inputs: int, outputs: int, most: int) -> list[int]:
        """What a request counts that has made no token, one, ... or so many; nothing once it made all.

        Parameters
        ----------
        inputs, outputs : int
            Its tokens.
        most : int
            Tokens that it may have made.
        """
        first, end = inputs - self.least, inputs + outputs - self.least
        opened = self.up_to[end] - self.price * self.served.instance.capacity
        left = [opened - before for before in self.up_to[first : min(end, first + most + 1)]]
        return left + [0] * (most >= outputs)

    def batches(self, parts: int) -> int:
        """So many parts of full memories, in batches; evictions may save a part of one."""
        unit = IN_A_BATCH * self.served.instance.capacity
        return parts // unit if self.served.instance.preemption else -(-parts // unit)


def kv_releases(served: Served) -> int:
    """Requests share the memory in which each window ends, and waste it in between, or they are left out.

    See `infermax_opt.infermax.bounds.releases`; `cut` is the price of memory there in parts of 2**20.
    """
    most, worth = Releases.most(served)
    given = Releases(served, served.evidence["cut"].whole(0, most), worth)
    return given.batches(sum(max(0, given.rest(i, o, 0)[0]) * c for i, o, c in served.kinds))


def kv_beginning(served: Served) -> int:
    """The first batches have a price of memory each; what follows them wastes it between releases.

    See `infermax_opt.infermax.bounds.beginning`.
    """
    (most, worth), cut = Releases.most(served), served.evidence["cut"]
    given, kv = Releases(served, cut["price"].whole(0, most), worth), cut["kv"].integers()
    require(len(kv) <= MOST_BATCHES and min(kv, default=0) >= 0, "cut: too many prices, or one below 0")
    total, longest = sum(IN_A_BATCH - price for price in kv) * served.instance.capacity, 0
    for i, o, c in served.kinds:
        served.instance.work.spend(100 + 8 * len(kv) * min(len(kv), o))
        life = cheapest_start(
            i, o, given.rest(i, o, len(kv)), kv, worth if served.instance.preemption else None
        )
        if life > 0:
            total, longest = total + life * c, max(longest, o)
    require(len(kv) <= longest, "cut: more batches than any request has tokens")
    return given.batches(total)


def cheapest_start(inputs: int, outputs: int, rest: list[int], kv: list[int], worth: int | None) -> int:
    """What a request pays at least in the first batches, and counts after them.

    Parameters
    ----------
    inputs, outputs : int
    rest : list of int
        What it counts after them, by the tokens made.
    kv : list of int
        Price of a token of KV in each of them.
    worth : int or None
        Price of evicting a token of KV, if anybody may be evicted.
    """
    inside = outside = rest
    for t in range(len(kv) - 1, -1, -1):
        price, before = kv[t], range(inputs - 1, inputs - 1 + min(t + 1, outputs))  # KV before the batch
        token = [price * (size + 1) + after for size, after in zip(before, inside[1:], strict=False)]
        out = list(map(min, token, outside))
        idle = [price * size + after for size, after in zip(before, inside, strict=False)]
        stays = list(map(min, token, idle))
        if worth is not None:
            stays = [min(s, worth * size + after) for s, size, after in zip(stays, before, out, strict=True)]
        inside = [*stays, *rest[outputs:]]
        outside = [*out, *rest[outputs:]]
    return outside[0]
