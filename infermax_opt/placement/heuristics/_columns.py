"""The columns of an instance: exact for plain Python, or within 64 bits for compiled code.

In 64 bits, needs are rounded up and limits down if they would not fit otherwise, so what keeps the rounded
limits keeps the exact ones.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics import _kernel as plain
from infermax_opt.placement.replay._state import Requests, Workers, enter, peak

__all__ = ["Columns"]

#: Sums stay below.
MOST_SUM = 2**62


@functools.cache
def _compiled_fit() -> Any:
    return compiled(plain.fit, plain.HELPERS, allocates=False)


class Columns:
    """Requests of an instance, and workers: those with ongoing requests first, then fresh ones.

    Parameters
    ----------
    instance : PlacementInstance
    compiled : bool
        Whether columns are arrays of 64-bit numbers, for compiled code.

    Attributes
    ----------
    open : list of int
        Numbers of the workers with ongoing requests that may take new ones.
    closed : int
        Workers with ongoing requests that can take none.
    """

    def __init__(self, instance: PlacementInstance, *, compiled: bool):
        self.instance, self.compiled = instance, compiled
        self.limits = limits = Limits.of(instance)
        self.open = [w for w in sorted(limits.ongoing) if self._is_open(w)]
        self.closed = len(limits.ongoing) - len(self.open)
        shares = self._shares()
        own = [held + limits.grows * last for held, last in zip(limits.held, limits.lasts, strict=True)]
        units = [1, 1, 1]
        if compiled:
            sums = (sum(limits.context), sum(limits.prompt), sum(own))
            units = [1 + total // MOST_SUM for total in sums]
        b, c, e = units
        most = limits.most_context // b, limits.most_prompt // c, limits.most_kv // e
        self.most = self.column(map(self._limit, most))
        self.grows = -(-limits.grows // e)
        held = _up(limits.held, e)
        own = [some + self.grows * last for some, last in zip(held, limits.lasts, strict=True)]
        new = [False] * len(own)
        for k in limits.new:
            new[k] = True
        self.requests = Requests(
            context=self.column(_up(limits.context, b)),
            prompt=self.column(_up(limits.prompt, c)),
            held=self.column(held),
            last=self.column(limits.lasts),
            own=self.column(own),
            new=self.column(new, bool),
        )
        self.share = self.column((part for parts in shares for part in parts), float)
        self.room = [self._limit(limits.worker_prompt[w] // c) for w in self.open]

    def _limit(self, value: int) -> int:
        """A limit within 64 bits; no need is below 0, and no sum of needs above `MOST_SUM`."""
        return min(2 * MOST_SUM - 1, max(-1, value)) if self.compiled else value

    def _is_open(self, worker: int) -> bool:
        """Whether the ongoing requests of a worker leave room for one that needs nothing."""
        limits, members = self.limits, self.limits.ongoing[worker]
        return (
            sum(limits.context[k] for k in members) <= limits.most_context
            and limits.worker_prompt[worker] >= 0
            and limits.kv_peak(members) <= limits.most_kv
        )

    def _shares(self) -> list[tuple[float, ...]]:
        """Shares of a fresh worker that each request takes: batch size, weighted context, prompt, KV."""
        limits, worker, slo = self.limits, self.instance.worker, self.instance.slo
        most = limits.most_context, limits.most_prompt, limits.most_kv
        b, c, e = (1 / value if value > 0 else 0.0 for value in most)
        batch = float(worker.decode_request / (slo.atgt - worker.decode_overhead)) if b else 0.0
        return [
            (batch, context * b - batch, prompt * c, (held + limits.grows * last) * e)
            for context, prompt, held, last in zip(
                limits.context, limits.prompt, limits.held, limits.lasts, strict=True
            )
        ]

    def column(self, values: Iterable[Any], kind: type = int) -> Any:
        """A column of whole numbers, or of another kind."""
        if not self.compiled:
            return list(values)
        import numpy as np

        return np.array(list(values), {int: np.int64, float: np.float64, bool: np.bool_}[kind])

    def workers(self, fresh: int) -> Workers:
        """Workers with their ongoing requests, and so many fresh ones."""
        number, many = len(self.open) + fresh, len(self.limits.context)
        context, prompt, start, own, most = (self.column([0] * number) for _ in range(5))
        most_prompt = self.column([*self.room, *([self.most[1]] * fresh)])
        head, worker, after = (self.column([-1] * size) for size in (number, many, many))
        found = Workers(context, prompt, start, own, most, most_prompt, head, worker, after)
        for w, name in enumerate(self.open):
            for k in self.limits.ongoing[name]:
                enter(found, self.requests, k, w)
            found.peak[w] = peak(found, self.requests, self.grows, w, -1, -1)
        return found

    def fit(self, order: Sequence[int], weights: Sequence[float], limit: int) -> list[int] | None:
        """Worker of each request by `_kernel.fit`; None if they take more than `limit` workers.

        Parameters
        ----------
        order : sequence of int
            New requests.
        weights : sequence of float
            Of `PARTS` of the load.
        limit : int
            Workers, those that are closed included.
        """
        workers = self.workers(min(len(order), max(0, limit - self.closed - len(self.open))))
        number = len(workers.head)
        total, load = (self.column([0.0] * size, float) for size in (plain.PARTS * number, number))
        count = (_compiled_fit() if self.compiled else plain.fit)(
            self.requests, workers, self.column(order), self.most, self.grows, self.share,
            total, self.column(weights, float), load, len(self.open), limit - self.closed,
        )  # fmt: skip
        return None if count < 0 else list(workers.worker)

    def part(self, k: int) -> tuple[float, float, float]:
        """Shares of a fresh worker's limits b, c and e that a request takes."""
        batch, length, prompt, kv = self.share[plain.PARTS * k : plain.PARTS * (k + 1)]
        return float(batch + length), float(prompt), float(kv)

    def placement(self, worker: Sequence[int]) -> Placement:
        """The placement in which each new request is on a worker of this order, with its true number."""
        taken = self.limits.ongoing.keys()
        numbers, number = list(self.open), 0
        for _ in range(max((worker[k] for k in self.limits.new), default=-1) + 1 - len(numbers)):
            number += 1
            while number in taken:
                number += 1
            numbers.append(number)
        requests = self.instance.requests
        return Placement(self.instance.name, {requests[k].id: numbers[worker[k]] for k in self.limits.new})


def _up(values: Iterable[int], unit: int) -> list[int]:
    return [-(-value // unit) for value in values]
