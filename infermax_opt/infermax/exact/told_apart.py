"""What searches share in which requests are told apart: states, shortest batches, how to write them."""

from __future__ import annotations

import time
from fractions import Fraction

from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch
from infermax_opt.infermax.exact.moves import Load, State, load_time
from infermax_opt.infermax.exact.space import Space

__all__ = ["ToldApart"]

#: Rough memory of one label, bytes.
LABEL_BYTES = 1500


class ToldApart:
    """The states of an instance, the kind of each node being a place among its requests.

    Parameters
    ----------
    instance : Instance
    unit : int
        Ticks in a second: a multiple of those of the cost model, in which arrivals are whole.
    limits : EngineLimits

    Attributes
    ----------
    made : int
        Labels so far, which count as memory; by whoever makes them.
    step : int
        No token is made in fewer ticks than this after another one.
    """

    def __init__(self, instance: Instance, unit: int, limits: EngineLimits):
        self.instance, self.unit, self.limits = instance, unit, limits
        self.started, self.made = time.monotonic(), 0
        self.space = Space(instance.told_apart(), watch=self.check)
        self.arrivals = [int(request.arrival * unit) for request in instance.requests]
        self._extra = instance.cost.extra_ticks if instance.pays_extra else None
        self._per_tick = unit // instance.cost.ticks_per_second
        ticks = instance.cost.ticks
        fastest = max(a + b for a, b in zip(ticks.alpha, ticks.beta, strict=True)) + min(ticks.d0, ticks.p0)
        self.step = fastest * self._per_tick

    def check(self, extra: int) -> None:
        """Raise `LimitReached` at a limit; so many partial batches are in memory besides the labels."""
        self.limits.check(self.started, (self.made + extra) * LABEL_BYTES)

    def shortest(self, state: State) -> dict[State, tuple[int, Load]]:
        """Ticks and load of the shortest batch to each other state that one more leads to."""
        best: dict[State, tuple[int, Load]] = {}
        for pattern in self.space.patterns(state):
            for _, targets, load in self.space.batches(pattern, len(state), None):
                child = tuple(sorted(targets))
                took = load_time(self.instance.cost.ticks, self._extra, load) * self._per_tick
                if child != state and (child not in best or took < best[child][0]):
                    best[child] = took, load
        return best

    def batch(self, before: State, after: State, load: Load, start: int | None) -> Batch:
        """The batch between two states, which starts at a tick, or as soon as it can.

        Parameters
        ----------
        before, after : tuple of int
        load : Load
        start : int or None
        """
        groups = self.space.groups(before)
        tokens, evict = {}, []
        for (number, _), (move,) in zip(groups, self.space.find_batch(before, after, load), strict=True):
            name = self.instance.requests[self.space.nodes[number].kind].id
            if move.tokens:
                tokens[name] = move.tokens
            if move.evicts:
                evict.append(name)
        return Batch(tokens, tuple(evict), None if start is None else Fraction(start, self.unit))
