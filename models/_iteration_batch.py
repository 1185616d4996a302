"""What both formulations of the iteration problem have in common: products of decisions, and starts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Load, Ticks
from infermax_opt.iteration.replay.check import check_selection

__all__ = ["Chosen", "Work"]


class Work:
    """Ticks that requests add, by position.

    Attributes
    ----------
    decodes, prefills : list of int
    alone : dict of int to int
        Attention of each request by itself, the first line of a batch apart.
    beside : dict of int to int
        What a decode takes longer in a batch that prefills, too.
    pairs : dict of (int, int) to int
        What two prefills take longer beside each other, where attention is a product.
    contexts, contexts_beside : dict of int to int
        Attention of a decode for each decode of the batch, where it is a product; and what it takes longer
        beside prefills.
    kept : int
        Savable requests that are kept at least.
    """

    def __init__(self, instance: IterationInstance):
        ticks, machine = Ticks.of(instance), instance.machine
        cost, factor, loads = machine.cost, ticks.factor, ticks.loads
        self.ticks, c, (e0, e1, _) = ticks, cost.ticks, cost.extra_ticks
        self.kept = most_kept(ticks).least
        everyone = range(len(loads))
        self.decodes = [k for k in everyone if loads[k][1]]
        self.prefills = [k for k in everyone if loads[k][3]]
        self.pieces = [(factor * alpha, factor * beta) for alpha, beta in zip(c.alpha, c.beta, strict=True)]
        self.fixed = factor * c.d0, factor * c.p0, factor * e0
        self.tokens = [load[0] for load in loads]
        self.host = [load[6] for load in loads]
        self.alone, self.beside = dict[int, int](), dict[int, int]()
        self.contexts, self.contexts_beside = dict[int, int](), dict[int, int]()
        self.pairs = dict[tuple[int, int], int]()
        d1, p1, e1 = factor * c.d1, factor * c.p1, factor * e1
        if machine.product:
            self._multiply(loads, d1, p1, e1)
        else:
            self.alone = {k: d1 * loads[k][2] + p1 * loads[k][4] for k in everyone}
            self.beside = {k: e1 * loads[k][2] for k in self.decodes if e1}

    def _multiply(self, loads: list[Load], d1: int, p1: int, e1: int) -> None:
        """Attention as a product."""
        self.contexts = {k: d1 * loads[k][2] for k in self.decodes}
        self.contexts_beside = {k: e1 * loads[k][2] for k in self.decodes if e1}
        self.alone = {k: p1 * loads[k][4] * loads[k][5] for k in self.prefills}
        for i, j in combinations(self.prefills, 2):
            self.pairs[i, j] = p1 * (loads[i][4] * loads[j][5] + loads[j][4] * loads[i][5])

    @property
    def least_time(self) -> int:
        """Ticks that every batch takes."""
        return int(max(alpha for alpha, _ in self.pieces))

    @property
    def counts(self) -> range:
        """Numbers of decodes that are told apart, where attention is a product."""
        most = min(len(self.decodes), self.ticks.machine.batch)
        return range(1, most + 1) if self.contexts else range(0)


@dataclass(frozen=True)
class Chosen:
    """A valid selection as decisions of a model."""

    batch: frozenset[int]
    kept: frozenset[int]
    time: int
    decodes: int
    prefills: int

    @classmethod
    def of(cls, work: Work, selection: Selection) -> Chosen:
        """Those of a selection.

        Raises
        ------
        ValueError
            If it is not valid, or selects nobody.
        """
        ticks = work.ticks
        checked = check_selection(ticks.instance, selection)
        if not checked.valid:
            raise ValueError(f"the selection is not valid: {checked.violations[0]}")
        if not checked.batch:
            raise ValueError("the model holds batches of one request at least")
        batch = frozenset(checked.batch)
        decodes = len(batch.intersection(work.decodes))
        kept = frozenset(ticks.kept(batch))
        return cls(batch, kept, ticks.time(batch), decodes, len(batch) - decodes)
