"""The search for the prices of `infermax_opt.infermax.bounds.levels`, starting from those on wider levels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds._levels_full import FullGraph
from infermax_opt.infermax.bounds._levels_space import LevelGraph, LevelPrices
from infermax_opt.infermax.bounds.pieces import PriceProgram

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

__all__ = ["LevelSearch"]

#: Steps of the cutting planes, in all and in a row that do not settle.
STEPS, PATIENCE = 600, 100
#: How far the next prices lie from the best ones towards those that no cycle rules out: at first, at least.
STRIDE, SHORTEST = 0.6, 0.02
#: How much less than on wider levels is tried first.
FIRST_STEP = 1e-3


class LevelSearch:
    """Search for prices by cutting planes, from the best ones towards the furthest not ruled out.

    A cycle that gains at some prices is a linear constraint on all prices.  A linear program finds the
    prices that earn most under those found so far; part of the way from the best prices that settled to
    those either settles or gains on new cycles.
    """

    def __init__(self, graph: LevelGraph | FullGraph, stop: Callable[[], bool]):
        self.graph, self.stop = graph, stop
        #: The best prices that settled, and their potentials.
        self.prices: LevelPrices | None = None
        self.tables: Integers | None = None

    def run(self, tolerance: float, before: LevelSearch | None = None) -> None:
        """Find prices and potentials, as good as time allows.

        Parameters
        ----------
        tolerance : float
            Relative distance of what prices earn from the most that they may, at which to stop.
        before : LevelSearch, optional
            On coarser levels.
        """
        graph, master = self.graph, _LevelMaster(self.graph)
        best, level, tables = master.nothing, 0.0, None
        first, less = master.area, FIRST_STEP
        if before is not None and before.prices is not None and before.tables is not None:
            first = master.like(before)
            tables = graph.start(before.tables[:, graph.space.rounded(before.graph.space)])
        stride, failed = STRIDE, 0
        for _ in range(STEPS):
            if self.stop() or failed > PATIENCE:
                return
            target, furthest = master.solve()
            if target - level <= tolerance * target:
                return
            if level == 0 and less < 1:
                point, less = first * (1 - less), 2 * less
            else:
                point = best + stride * (furthest - best)
            prices = master.whole(point)
            settled, weights = graph.settle(prices, tables, self.stop)
            if settled is not None:
                best, level, tables = point, float(point @ master.gain), settled
                self.prices, self.tables = prices, settled
                stride, failed = STRIDE, 0
            elif len(weights):
                stride, failed = max(SHORTEST, stride / 2), failed + 1
                for row in weights:
                    master.cut(row)
            else:
                return


class _LevelMaster(PriceProgram):
    """The LP over scaled prices: of each level and of idling."""

    def __init__(self, graph: LevelGraph | FullGraph):
        import numpy as np

        space, self.graph = graph.space, graph
        sizes = space.inputs + space.width * np.arange(space.levels)
        scale = np.append(graph.block * sizes / space.capacity, max(1.0, graph.idle))
        #: Prices by area, and none.
        self.area, self.nothing = np.append(np.ones(space.levels), 1.0), np.zeros(space.levels + 1)
        gain = np.append(space.tokens, 0.0) * scale
        # Alone in memory a level costs no more than its block, a refill and all others.
        most = np.full(space.levels, float(space.levels * graph.block))
        high = np.append(most, graph.idle) / scale
        low = self.nothing if space.width > 1 else -np.append(most, 0.0) / scale
        super().__init__(gain / gain.sum(), low, high, scale)
        for row in graph.demands:
            self.cut(row)

    def whole(self, point: Floats) -> LevelPrices:
        """Prices in units, as they are allowed."""
        import numpy as np

        rounded = (point * self.scale).round().astype(np.int64)
        return self.graph.allowed(rounded[:-1], int(rounded[-1]))

    def like(self, coarse: LevelSearch) -> Floats:
        """Scaled prices like those on coarser levels."""
        import numpy as np

        assert coarse.prices is not None
        width, other = self.graph.space.width, coarse.graph.space
        ends = np.minimum(np.arange(other.levels + 1) * other.width, other.outputs)
        total = np.append(0, coarse.prices.worth.cumsum())
        mine = np.minimum(np.arange(self.graph.space.levels + 1) * width, other.outputs)
        worth = np.diff(np.interp(mine, ends, total))
        return np.append(worth, coarse.prices.idle) / self.scale
