"""What evictions pay of refills in the occupancy bound, as much as may be, and what returns do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["dearer_evictions"]

#: Lines that are tried; by how much, in batches, evictions may pay more than refills cost; most that a line
#: says anywhere; what a cycle has to cost.
TRIES, ABOVE, LARGEST, MARGIN = 30, 0.2, 1e6, 1e-4


def dearer_evictions(
    graph: OccupancyGraph, prices: Prices, tables: Integers, stop: Callable[[], bool] | None = None
) -> tuple[Prices, Integers] | None:
    """Prices at which evictions pay more and returns less, with their potentials; None where there are none.

    All schedules pay the same for an eviction with its return.  But requests evicted in the first batches
    need not return in these, so that they should pay when they leave.

    Parameters
    ----------
    graph : OccupancyGraph
    prices : Prices
    tables : int64 array
        Their potentials, `OccupancyGraph.settle`.
    stop : callable, optional
        Asked often whether to search no longer.
    """
    low, high = graph.prompts[0] + 1, graph.ends[-1] - 1
    if not graph.evictions or low >= high:
        return None
    program = _LineProgram((low, high), graph)
    for _ in range(TRIES):
        if stop is not None and stop():
            break
        line = program.solve()
        if line is None:
            break
        other = replace(prices, out_fixed=line[0], out_size=line[1])
        settled, cycles = graph.settle(other, tables)
        if settled is not None:
            return other, settled
        for row in cycles:
            fixed, slope = int(row[3]), int(row[4])
            known = zip(row[1:], replace(prices, out_fixed=0, out_size=0).all, strict=True)
            program.cut(int(row[0]) + sum(int(weight) * price for weight, price in known), fixed, slope)
    return None


class _LineProgram:
    """The highest line of what evictions pay by size, in the mean: its value at 0 and its slope.

    Parameters
    ----------
    sizes : (int, int)
        The least and the largest.
    graph : OccupancyGraph
    """

    def __init__(self, sizes: tuple[int, int], graph: OccupancyGraph):
        import numpy as np

        from infermax_opt.core.linear import maximizer

        self.batch, self.unit = max(1, graph.plain), float(sizes[1])
        self.solver, self.columns = maximizer(), np.arange(2, dtype=np.int32)
        self.solver.addVars(2, np.full(2, -LARGEST), np.full(2, LARGEST))
        self.solver.changeColsCost(2, self.columns, np.array([1.0, sum(sizes) / 2 / self.unit]))
        for size in sizes:
            most, row = graph.rho * (size - 1) / self.batch + ABOVE, np.array([1.0, size / self.unit])
            self.solver.addRow(-np.inf, most, 2, self.columns, row)

    def cut(self, rest: int, fixed: int, slope: int) -> None:
        """Demand that a cycle does not gain: rest + fixed * value at 0 + slope * slope >= 0, in units.

        Parameters
        ----------
        rest, fixed, slope : int
        """
        import numpy as np

        row = np.array([float(fixed), slope / self.unit])
        size = max(float(np.abs(row).max()), 1.0)
        self.solver.addRow((MARGIN - rest / self.batch) / size, np.inf, 2, self.columns, row / size)

    def solve(self) -> tuple[int, int] | None:
        """Value at 0 and slope in units; None where there is no such line."""
        import highspy

        self.solver.run()
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        fixed, slope = self.solver.getSolution().col_value
        return round(fixed * self.batch), round(slope * self.batch / self.unit)
