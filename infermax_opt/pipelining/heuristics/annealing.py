"""Annealing of a schedule on the circle of cells; `infermax_opt.pipelining.heuristics._kernel` moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.pipelining.bounds.kinds import Kinds, coarse_unit
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.heuristics import _kernel as kernel

__all__ = ["Annealing", "annealed", "packed"]

#: Cells that the moves of a short round look at, about: a second.
WORK = 60_000_000
#: Moves of a short round for each request.
MOST_MOVES = 20_000
#: Cells of the reservation at most; where blocks are finer, lengths are rounded up to several.
MOST_CELLS = 2048
#: Temperature at the beginning and at the end, as a share of the mean value of a request.
HEAT = (0.6, 0.02)


@cache
def _anneal() -> Callable[..., float]:
    return compiled(kernel.anneal, [])


class Annealing:
    """Rounds of annealing on an instance.

    Parameters
    ----------
    instance : PipeliningInstance
        Some of its requests are useful.

    Attributes
    ----------
    moves : int
        Of a short round.
    """

    def __init__(self, instance: PipeliningInstance):
        import numpy as np

        self.instance = instance
        self.unit = coarse_unit(instance, MOST_CELLS)
        self.kinds = Kinds.of(instance, self.unit, up=True)
        self.kind_of = {k: d for d, places in enumerate(self.kinds.places) for k in places}
        most = max((len(places) for places in self.kinds.places), default=0)
        self.steps = np.zeros((len(self.kinds.sizes), most + 1))
        for d, some in enumerate(self.kinds.values(instance)):
            self.steps[d, : len(some)] = [float(v) for v in some]
        lengths = sum(len(places) * g for g, places in zip(self.kinds.sizes, self.kinds.places, strict=True))
        each = 6 + lengths // len(instance.useful)
        self.moves = min(WORK // each, MOST_MOVES * len(instance.useful))
        self.mean = float(sum(instance.values[k] for k in instance.useful) / len(instance.useful))

    def run(
        self, start: Pipelining | None, moves: int, seed: int, heat: float = 1.0, halt: Any = None
    ) -> Pipelining:
        """Anneal from a schedule, or from nothing.

        Parameters
        ----------
        start : Pipelining, optional
            A valid one.
        moves, seed : int
        heat : float
            Share of the usual temperature to begin with.
        halt : int64 array, optional
            The round ends soon after another thread sets its one entry.
        """
        import numpy as np

        at = np.zeros(self.kinds.cells, dtype=np.int64)
        counts = np.zeros(len(self.kinds.sizes), dtype=np.int64)
        if start is not None and self.unit == self.instance.block_size:
            self._set(at, counts, start.offsets)
        best = np.zeros_like(at)
        warm = np.array([max(HEAT[0] * heat, HEAT[1]), HEAT[1]]) * self.mean
        if self.kinds.sizes:
            sizes = np.array(self.kinds.sizes, dtype=np.int64)
            plan = np.array([moves, seed % 2**32], dtype=np.int64)
            stop = np.zeros(1, dtype=np.int64) if halt is None else halt
            _anneal()(sizes, self.steps, at, counts, best, warm, plan, stop)
        return self._read(best)

    def _set(self, at: Any, counts: Any, offsets: Mapping[str, int]) -> None:
        """Set the state to a schedule, its offsets rounded down to cells, which keeps it valid."""
        for name, offset in offsets.items():
            d = self.kind_of.get(self.instance.index[name])
            if d is not None:
                at[offset // self.unit] = d + 1
                counts[d] += 1

    def _read(self, at: Any) -> Pipelining:
        """The schedule of a state: the circle is cut where the longest request begins."""
        cells = self.kinds.cells
        begins = [(p, int(d) - 1) for p, d in enumerate(at.tolist()) if d]
        if not begins:
            return Pipelining(self.instance.name, {})
        cut, _ = max(begins, key=lambda some: some[1])
        left = [iter(places) for places in self.kinds.places]
        offsets = {next(left[d]): (p - cut) % cells * self.unit for p, d in begins}
        ids = self.instance.requests
        return Pipelining(self.instance.name, {ids[k].id: offsets[k] for k in sorted(offsets)})


def annealed(instance: PipeliningInstance, start: Pipelining) -> Pipelining:
    """One round from a valid schedule; that schedule itself if it stays the best."""
    if not instance.useful:
        return start
    search = Annealing(instance)
    found = search.run(start, search.moves, 0)
    return max(start, found, key=lambda some: packed(instance, some))


def packed(instance: PipeliningInstance, schedule: Pipelining) -> Fraction:
    """What a schedule selects, of the objective."""
    return sum((instance.values[instance.index[name]] for name in schedule.offsets), Fraction(0))
