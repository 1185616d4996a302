"""Fillings of machines, generated as needed: a strong lower bound and a way to assignments that meet it.

A filling is a multiset of jobs of total length T or less.  An assignment of makespan T or less covers all
jobs by m fillings; the relaxation covers them by fractions of fillings that add up to m or less.  Its dual
is a worth u per job such that no filling is worth more than 1; any u >= 0 whatsoever proves that T is not
reached if

    sum of u over all jobs  >  m * (largest worth of a filling of length T or less).

The right-hand side comes from a knapsack over all lengths at once, in whole numbers, so a bound holds
whatever the linear programming solver did: HiGHS only suggests u.

Where lengths are many, u is first sought among functions of the length that are linear on each of a few
intervals.  That takes a fraction of the time, and what it proves is a proof like any other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from infermax_opt.makespan.machines import _compiled as kernels

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

__all__ = ["Columns", "manageable"]

#: One, in the whole numbers in which worth is counted.
ONE = 1 << 30
#: Least gain, relative to ONE, for which a filling is added.
GAIN = 1e-7
#: Most fillings added at a time.
BATCH = 200
#: HiGHS's simplex methods: at first and with a new demand the basis is dual feasible, else primal feasible.
DUAL, PRIMAL = 1, 4
#: Most linear programs per step of a dive.
PROGRAMS = 400
#: Most kinds of jobs times load in the knapsack's table.
TABLE = 60_000_000
#: Machines left for which a dive ends in an exact search, and the most jobs placed in it.
TAIL, TAIL_LIMIT = 8, 300_000
#: Share of the machines that a dive fills at a time.
DIVE_SHARE = 5


def manageable(sizes: Sequence[int], copies: Sequence[int], machines: int, load: int) -> bool:
    """Whether the knapsack's table fits into memory, and its numbers into their types."""
    return len(sizes) * load <= TABLE and max(copies) < 1 << 15 and sum(copies) * machines < 1 << 30


class Columns:
    """The covering problem of an instance.

    Parameters
    ----------
    sizes : sequence of int
        Different lengths of jobs, longest first.
    copies : sequence of int
        Jobs per length.
    machines : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.
    """

    def __init__(
        self, sizes: Sequence[int], copies: Sequence[int], machines: int, deadline: float | None
    ) -> None:
        import numpy as np

        self.sizes: Ints = np.array(sizes, np.int64)
        self.copies: Ints = np.array(copies, np.int64)
        self.machines = machines
        self.deadline = deadline
        self.fillings: list[Ints] = []
        self.amounts: npt.NDArray[np.float64] = np.zeros(0)
        self.solver: Any = None
        self.basis: npt.NDArray[np.float64] = np.eye(len(sizes))

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def regroup(self, intervals: int | None) -> None:
        """Make u linear on so many intervals of lengths, or free per length; keep all fillings."""
        import numpy as np

        kinds = len(self.sizes)
        self.basis = np.eye(kinds)
        if intervals is not None and 2 * intervals < kinds:
            ends = np.arange(intervals) * (self.copies.sum() / intervals)
            cuts = [int(c) for c in np.unique(np.searchsorted(np.cumsum(self.copies), ends, side="right"))]
            columns = []
            for a, b in zip(cuts, [*cuts[1:], kinds], strict=True):
                low, high = self.sizes[b - 1], self.sizes[a]
                share = (self.sizes[a:b] - low) / max(1, high - low)
                for part in [share, 1 - share] if high > low else [1 - share]:
                    column = np.zeros(kinds)
                    column[a:b] = part
                    columns.append(column)
            self.basis = np.array(columns).T
        self._load()

    def start(self, load: int) -> None:
        """Begin with the fillings of first-fit decreasing, and those of one kind of job."""
        import numpy as np

        sizes, left = self.sizes.tolist(), self.copies.tolist()
        rows = [*np.diag(np.minimum(load // self.sizes, self.copies))]
        while any(left):
            row, room = [0] * len(sizes), load
            for i, size in enumerate(sizes):
                if left[i] and size <= room:
                    row[i] = min(left[i], room // size)
                    left[i] -= row[i]
                    room -= row[i] * size
            rows.append(np.array(row, np.int64))
        self.fillings = [np.unique(np.array(rows), axis=0)]

    def raise_bound(self, low: int, high: int, rounds: int) -> tuple[int, bool]:
        """Prove that loads are too small, until the relaxation has a solution.

        Parameters
        ----------
        low, high : int
            Makespans below `low` are known to be impossible; at `high` no more is asked.
        rounds : int
            Most linear programs.

        Returns
        -------
        low : int
            No assignment has a smaller makespan.
        met : bool
            Whether the relaxation, as far as the solver can tell, has a solution of that makespan; it is
            in `amounts`.
        """
        import numpy as np

        for _ in range(rounds):
            if low >= high or not self._run():
                break
            objective = self.solver.getInfo().objective_function_value
            solution = self.solver.getSolution()
            self.amounts = np.array(solution.col_value)
            if objective <= self.machines + GAIN:
                return low, True
            worth = np.round(self.basis @ np.array(solution.row_dual) * ONE)
            worth = np.clip(np.nan_to_num(worth), 0, 4 * ONE).astype(np.int64)
            value, taken = kernels.most_worth()(self.sizes, self.copies, worth, high - 1)
            total = int((worth * self.copies).sum())
            possible = np.nonzero(value[low:] * self.machines >= total)[0]
            if not len(possible):
                return high, False
            low += int(possible[0])
            least = ONE + int(ONE * GAIN)
            new = kernels.fillings()(self.sizes, self.copies, worth, low, taken, value, least)
            if not len(new):
                # The best piecewise linear worth: nothing more to gain from it.
                return low, False
            if len(new) > BATCH:
                new = new[np.argsort(-(new @ worth), kind="stable")[:BATCH]]
            self._add(new)
        return low, False

    def dive(self, target: int, high: int, rng: np.random.Generator) -> list[list[int]]:
        """Fill machines by the largest amounts of the relaxation, solve it for the rest, and so on.

        Parameters
        ----------
        target : int
            Most load; raised whenever the relaxation for the rest needs too many machines.
        high : int
            Load that is of no use any more: the rest is spread evenly instead.
        rng : numpy.random.Generator

        Returns
        -------
        list of list of int
            Lengths per machine.
        """
        import numpy as np

        copies, machines = self.copies, self.machines
        left, parts = copies.copy(), []
        try:
            while left.any() and self.machines:
                if self.machines <= TAIL:
                    items = np.repeat(self.sizes, left)
                    where = np.zeros(len(items), np.int64)
                    if kernels.pack()(items, self.machines, target, TAIL_LIMIT, where)[0] == 1:
                        parts += [items[where == b].tolist() for b in range(self.machines)]
                        left, self.machines = np.zeros_like(left), 0
                        break
                self._demand(left)
                target, met = self.raise_bound(target, high, PROGRAMS)
                if not met:
                    break
                left = self._fill_some(left, parts, rng)
            rest = np.repeat(self.sizes, left).tolist()
            parts += [[] for _ in range(self.machines)]
        finally:
            self.machines = machines
            self._demand(copies)
        loads = [sum(part) for part in parts]
        for item in rest:
            k = min(range(machines), key=loads.__getitem__)
            parts[k].append(item)
            loads[k] += item
        return parts

    def _fill_some(self, left: Ints, parts: list[list[int]], rng: np.random.Generator) -> Ints:
        """Fill some machines for good and return what is left."""
        import numpy as np

        patterns = np.concatenate(self.fillings)
        used = np.nonzero(self.amounts > 1e-6)[0]
        order = used[np.argsort(-(self.amounts[used] + 0.2 * rng.random(len(used))), kind="stable")]
        quota = max(1, self.machines // DIVE_SHARE)
        done = 0
        for c in order:
            whole = math.floor(self.amounts[c] + 1e-6)
            if not whole and done >= quota:
                continue
            for _ in range(max(1, whole)):
                row = np.minimum(patterns[c], left)
                changed = row.sum() < patterns[c].sum()
                if not self.machines or not row.any() or (changed and done):
                    break
                left = left - row
                parts.append(np.repeat(self.sizes, row).tolist())
                self.machines -= 1
                done += 1
        return left

    def _load(self) -> None:
        import highspy
        import numpy as np

        solver = self.solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("simplex_strategy", DUAL)
        rows = self.basis.shape[1]
        infinite = np.full(rows, highspy.kHighsInf)
        nothing = np.zeros(0, np.int32)
        demand = self.copies @ self.basis
        solver.addRows(rows, demand, infinite, 0, np.zeros(rows, np.int32), nothing, np.zeros(0))
        old, self.fillings = self.fillings, []
        for part in old:
            self._add(part)

    def _add(self, new: Ints) -> None:
        import highspy
        import numpy as np

        matrix = new @ self.basis
        which, rows = np.nonzero(matrix)
        start = np.searchsorted(which, np.arange(len(new))).astype(np.int32)
        ones, ends = np.ones(len(new)), np.full(len(new), highspy.kHighsInf)
        values = matrix[which, rows].astype(float)
        self.solver.addCols(
            len(new), ones, 0 * ones, ends, len(rows), start, rows.astype(np.int32), values
        )  # fmt: skip
        self.fillings.append(new)

    def _demand(self, copies: Ints) -> None:
        """Cover so many jobs per length instead."""
        import highspy
        import numpy as np

        self.copies = copies
        self.solver.setOptionValue("simplex_strategy", DUAL)
        kinds = len(copies)
        infinite = np.full(kinds, highspy.kHighsInf)
        self.solver.changeRowsBounds(kinds, np.arange(kinds, dtype=np.int32), copies.astype(float), infinite)

    def _run(self) -> bool:
        """Solve the linear program; whether it was solved before the deadline."""
        import highspy

        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            if left <= 0:
                return False
            self.solver.setOptionValue("time_limit", self.solver.getRunTime() + left)
        self.solver.run()
        self.solver.setOptionValue("simplex_strategy", PRIMAL)
        return bool(self.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal)
