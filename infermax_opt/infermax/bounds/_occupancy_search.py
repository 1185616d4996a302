"""Search for the prices of the occupancy bound by cutting planes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds.pieces import PriceProgram

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["OccupancyPrices"]

#: Rows and states of the smaller graphs on which prices are sought first; how far from 0 the scaled
#: prices there may lie, and those on the graph itself from them.
ROWS, COARSE, FAR_OFF, NEAR = 32, 400_000, 16.0, 0.25
#: Steps of the cutting planes, in all and in a row that do not settle; relative precision of what the
#: prices earn; how much less than on the smaller graph is tried first.
STEPS, PATIENCE, DRAFT_TOLERANCE, TOLERANCE, FIRST_STEP = 400, 60, 1e-3, 3e-4, 2e-3
#: First tokens that are tried to be left out, in 128ths of the longest output; and in tokens, where
#: outputs are short.
YOUNG, FEW_YOUNG, SHORT = (0, 1, 2, 4, 8, 16), (1, 2, 3), 32
#: Where a graph promises this share of the best one, it is tried, too.
CLOSE = 0.99


class Draft(NamedTuple):
    """The best scaled prices found on a graph, what they earn in units, and their potentials."""

    graph: OccupancyGraph
    point: npt.NDArray[np.float64]
    level: float
    tables: npt.NDArray[np.int64] | None


class OccupancyPrices:
    """Search for prices by cutting planes.

    A cycle that gains at some prices is a linear constraint on all prices.  A linear program finds the
    prices that earn most under those found so far; half way from the best prices that settled to those
    either settles or gains on a new cycle.  First on graphs of fewer states, for several numbers of young
    tokens; their prices then bound those to try.  Only prices that settle on the graph itself count.
    """

    def __init__(self, graph: OccupancyGraph, stop: Callable[[], bool]):
        self.whole = graph
        self.stop = stop
        #: The best graph, what prices earn there (units), these prices and their potentials.
        self.graph, self.level = graph, 0.0
        self.prices: Prices | None = None
        self.potential: npt.NDArray[np.int64] | None = None

    def run(self) -> None:
        """Find prices and potentials, as good as time allows."""
        whole = self.whole
        scale = max(1, min(ROWS * whole.capacity // COARSE, whole.ends[-1] // 8))
        longest = max(o for _, o, _ in whole.kinds)
        drafts: list[tuple[OccupancyGraph, Draft]] = []
        # Large numbers first: their graphs are small.
        several = {longest * share // 128 for share in YOUNG}
        several |= {young for young in FEW_YOUNG if young < longest <= SHORT}
        for young in sorted(several, reverse=True):
            levels = [draft.level for _, draft in drafts]
            if young > 0 and len(levels) > 2 and levels[-1] < levels[-2] < levels[-3]:
                continue  # past the best one; none at all is another matter, as it counts first tokens
            graph = whole.older(young) if young > 0 else whole
            coarse = graph.coarser(scale) if scale > 1 else graph
            drafts.append((graph, self.improve(replace(coarse, limit=ROWS), DRAFT_TOLERANCE, scale == 1)))
        drafts.sort(key=lambda entry: -entry[1].level)
        for graph, draft in drafts[:2]:
            if draft.level >= CLOSE * drafts[0][1].level:
                self.improve(graph, TOLERANCE, True, draft)

    def improve(
        self, graph: OccupancyGraph, tolerance: float, counts: bool, draft: Draft | None = None
    ) -> Draft:
        """Find the best prices on a graph, within reach of those of a draft.

        Parameters
        ----------
        graph : OccupancyGraph
        tolerance : float
            Relative gap between the prices and the best ones at which to stop.
        counts : bool
            Whether what settles on this graph proves the prices.
        draft : Draft, optional
            Of a smaller graph.
        """
        import numpy as np

        centre, tables = np.zeros(graph.prices), None
        if draft is not None:
            centre = graph.moved(draft.graph, draft.point)
            tables = graph.tables_like(draft.graph, draft.tables)
        master = _OccupancyMaster(graph, centre, FAR_OFF if draft is None else NEAR)
        best, level, less, failed = np.zeros(len(centre)), 0.0, FIRST_STEP, 0
        for _ in range(STEPS):
            if self.stop() or failed > PATIENCE:
                break
            target, furthest = master.solve()
            if target - level <= tolerance * target:
                break
            point = (best + furthest) / 2
            if level == 0 and less < 1 and centre.any():
                point = _smaller(centre, less)
                less *= 2
            prices = master.whole(point)
            settled, weights = graph.settle(prices, tables)
            if settled is not None:
                best, level, tables, failed = point, float(point @ master.gain), settled, 0
                if counts:
                    self.note(graph, level * graph.scale, prices, settled[0])
            elif len(weights):
                failed += 1
                for row in weights:
                    master.cut(row)
            else:
                break
        return Draft(graph, best, level * graph.scale, tables)

    def note(
        self, graph: OccupancyGraph, level: float, prices: Prices, potential: npt.NDArray[np.int64]
    ) -> None:
        """Keep prices that settled on a graph, if they earn more than all before."""
        if level > self.level:
            self.graph, self.level, self.prices, self.potential = graph, level, prices, potential


def _smaller(centre: npt.NDArray[np.float64], less: float) -> npt.NDArray[np.float64]:
    """Prices somewhat smaller than those of a smaller graph, to begin with."""
    point = centre * (1 - less)
    point[2:4] = centre[2:4]
    return point


class _OccupancyMaster(PriceProgram):
    """The LP over scaled prices: 1 earns as much as the area by `token` or `size`; shares of rho."""

    def __init__(self, graph: OccupancyGraph, centre: npt.NDArray[np.float64], reach: float):
        import numpy as np

        self.graph = graph
        earned, count = graph.scale, sum(graph.starting)
        share = max(1, graph.rho)
        ends = np.full(len(graph.prompts) + len(graph.ends), earned / count)
        scale = np.array(
            [earned / graph.tokens, earned / graph.area, share * graph.ends[-1], float(share), *ends]
        )
        gain = np.array([1.0, 1.0, 0.0, 0.0, *(n / count for n in graph.starting + graph.ending)])
        low, high = centre - reach, centre + reach
        low[1] = max(0.0, low[1])
        low[4] = high[4] = 0.0  # as many requests start as finish
        super().__init__(gain, low, high, scale)
        # Idling must not earn.
        self.cut(np.array([0, 1, graph.prompts[0], *[0] * (len(centre) - 2)]))

    def whole(self, point: npt.NDArray[np.float64]) -> Prices:
        """Prices in units; idling does not earn."""
        token, size, out_fixed, out_size, *ends = (int(v) for v in (point * self.scale).round())
        size = max(0, size)
        token = max(token, -size * self.graph.prompts[0])
        split = len(self.graph.prompts)
        return Prices(token, size, out_fixed, out_size, tuple(ends[:split]), tuple(ends[split:]))
