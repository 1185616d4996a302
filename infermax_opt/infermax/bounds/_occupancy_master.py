"""The linear programs over prices of the occupancy bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds.pieces import PriceProgram

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["FAR_OFF", "FIRST_STEP", "NEAR", "EndsMaster", "OccupancyMaster"]

#: How far from where the search begins scaled prices may lie: on a graph with a smaller one before it, on one
#: without at first, and at last there.  By what that grows where no better ones are within.
NEAR, FAR_OFF, WIDER = 0.25, 16.0, 4.0
#: How much less than where the search begins is tried first.
FIRST_STEP = 2e-3
#: How much sooner than prices are nothing evictions and returns pay the same.
EVENLY = 10.0


class OccupancyMaster(PriceProgram):
    """The LP over scaled prices: 1 earns as much as the area by `token` or `size`; shares of rho."""

    def __init__(self, graph: OccupancyGraph, centre: npt.NDArray[np.float64], most: float):
        import numpy as np

        self.graph, self.centre = graph, centre
        self.reach, self.most = NEAR, most
        earned, count = graph.scale, sum(graph.starting)
        share = max(1, graph.rho)
        ends = np.full(len(graph.prompts) + len(graph.ends), earned / count)
        scale = np.array(
            [
                earned / graph.tokens,
                earned / graph.area,
                share * graph.ends[-1],
                float(share),
                max(1, graph.plain) / max(1.0, graph.slots * (graph.slots - 1) / 2),
                *ends,
            ]
        )
        gain = np.array([1.0, 1.0, 0.0, 0.0, 0.0, *(n / count for n in graph.starting + graph.ending)])
        super().__init__(gain, *self.limits(), scale)
        # Idling must not earn.
        self.cut(np.array([0, 1, graph.prompts[0], *[0] * (len(centre) - 2)]))

    def limits(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Least and largest scaled prices within reach."""
        low, high = self.centre - self.reach, self.centre + self.reach
        low[1] = max(0.0, low[1])
        low[4], high[4] = (max(0.0, low[4]), high[4]) if self.graph.paired else (0.0, 0.0)
        low[5] = high[5] = 0.0  # as many requests start as finish
        return low, high

    def smaller(self, less: float) -> npt.NDArray[np.float64]:
        """Prices smaller by a share than where the search begins; refills are shared more and more evenly."""
        import numpy as np

        point, even = self.centre * (1 - less), np.array([-0.5 / self.graph.ends[-1], 0.5])
        point[2:4] = self.centre[2:4] + min(1.0, EVENLY * less) * (even - self.centre[2:4])
        return point

    def furthest(self, level: float, tolerance: float) -> npt.NDArray[np.float64] | None:
        """Prices that may earn more than `level`, by more than that share; None where none do."""
        while True:
            target, point = self.solve()
            if target - level > tolerance * target:
                return point
            if self.reach >= self.most:
                return None
            self.reach *= WIDER
            self.solver.changeColsBounds(len(self.columns), self.columns, *self.limits())

    def scaled(self, prices: Prices) -> npt.NDArray[np.float64]:
        """Scaled prices of those in units."""
        import numpy as np

        return np.array(prices.all) / self.scale[: self.graph.prices]

    def whole(self, point: npt.NDArray[np.float64]) -> Prices:
        """Prices in units; idling does not earn."""
        values = (int(value) for value in (point * self.scale[: len(point)]).round())
        token, size, out_fixed, out_size, pairs, *ends = values
        size, pairs = max(0, size), max(0, pairs)
        token = max(token, -size * self.graph.prompts[0])
        split = len(self.graph.prompts)
        return Prices(token, size, out_fixed, out_size, pairs, tuple(ends[:split]), tuple(ends[split:]))


class EndsMaster(OccupancyMaster):
    """The LP with another price, the last: what the walk costs beyond what it earns."""

    def __init__(self, graph: OccupancyGraph, centre: npt.NDArray[np.float64]):
        import numpy as np

        super().__init__(graph, centre, NEAR)
        self.solver.addVars(1, np.zeros(1), np.full(1, np.inf))
        self.columns = np.arange(len(self.scale) + 1, dtype=np.int32)
        self.scale, self.gain = np.append(self.scale, graph.scale), np.append(self.gain, 1.0)
        self.solver.changeColsCost(len(self.scale), self.columns, self.gain)
