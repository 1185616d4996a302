"""Search for prices of memory in the first batches, together with those of the occupancy bound."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds._occupancy_master import FIRST_STEP, NEAR, OccupancyMaster
from infermax_opt.infermax.bounds._occupancy_priced import CheapestLife, MemoryPrices, PricedBatches

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

__all__ = ["Priced", "PricedSearch"]

#: Batches between which prices of memory are lines.
MOMENTS = 20
#: Most times the price of a token of KV, and most worth of an active request and of its tokens, in batches
#: and in such prices; most that evictions are charged, in shares of what refilling the longest request costs.
DEAREST, WORTH, CHARGE = 50.0, 1e4, 4.0
#: Looks for cheaper lives at prices of the linear program; by how much, in batches, they have to be cheaper.
LIVES, CHEAPER = 60, 1e-5
#: Relative precision, cutting planes in all and in a row that gain nothing.
TOLERANCE, STEPS, PATIENCE = 1e-4, 400, 40
#: Share of the way to the point of the linear program that is gone first, and least; failures in a row after
#: which it is halved; by what it grows again.
WAY, LEAST_WAY, FAILURES, LONGER = 0.5, 1e-3, 4, 1.5


class Priced(NamedTuple):
    """Prices, potentials, what all of them earn in units, and what of that the walk costs."""

    prices: Prices
    memory: MemoryPrices
    potential: Integers
    level: float
    least: int


class PricedSearch:
    """Search by cutting planes for the prices of a graph and of memory in its first batches.

    Parameters
    ----------
    graph : OccupancyGraph
    centre : float array
        Scaled prices that are good without those of memory.
    batches : int
        First batches.
    stop : callable
        Asked often whether to search no longer.
    potential : int64 array, optional
        Of the prices, which then stay as they are; only those of memory are sought, which takes little time.
    """

    def __init__(
        self,
        graph: OccupancyGraph,
        centre: Floats,
        batches: int,
        stop: Callable[[], bool],
        potential: Integers | None = None,
    ):
        self.graph, self.centre, self.stop, self.potential = graph, centre, stop, potential
        self.first = PricedBatches(graph, batches)
        self.master = _PricedMaster(self.first, centre, potential is not None)
        self.best: Priced | None = None

    def run(self) -> Priced | None:
        """The best that was found; None where no prices settled."""
        best = self._begin()
        way, failed = WAY, 0
        for _ in range(STEPS):
            if best is None or self.best is None or self.stop() or failed > PATIENCE:
                break
            furthest = self._furthest(self.best.level / self.graph.scale)
            if furthest is None:
                break
            point = best + (furthest - best) * way
            if self._better(point):
                best, failed, way = point, 0, min(WAY, way * LONGER)
                continue
            failed += 1
            if failed % FAILURES == 0:
                way = max(LEAST_WAY, way / 2)
        return self.best

    def _begin(self) -> Floats | None:
        """Prices a little smaller than those without prices of memory, which are the same in all batches."""
        if self.potential is not None:
            point = self.master.level_point(self.centre)
            return point if self._better(point) else None
        less = FIRST_STEP
        while less < 1 and not self.stop():
            point = self.master.level_point(self.master.smaller(less))
            if self._better(point):
                return point
            less *= 2
        return None

    def _furthest(self, level: float) -> Floats | None:
        """Prices of the linear program at which no life is cheaper than it knows."""
        for _ in range(LIVES):
            furthest = self.master.furthest(level, TOLERANCE)
            if furthest is None or self.stop():
                return None
            if not self._cut_lives(furthest)[1]:
                break
        return furthest

    def _cut_lives(self, point: Floats) -> tuple[list[CheapestLife | None], bool]:
        """The cheapest lives; whether the linear program did not know one of them."""
        prices, memory = self.master.of_graph(point), self.master.memory(point)
        lives, news = list(self.first.cheapest(prices, memory)), False
        for kind, life in enumerate(lives):
            if life is not None and -life.cost > self.master.lack(point, kind) + CHEAPER * self.first.batch:
                self.master.cut_life(kind, life)
                news = True
        return lives, news

    def _better(self, point: Floats) -> bool:
        """Whether prices earn more than all before; what that takes is cut either way."""
        master = self.master
        lives, _ = self._cut_lives(point)
        prices, memory = master.of_graph(point), master.memory(point)
        fixed = self.first.fixed(memory, lives)
        if self.potential is None:
            potential, state, weights = self.first.settle(prices, memory, fixed)
        else:
            potential, state, weights = self.first.compared(prices, self.potential, memory, fixed)
        if potential is None:
            for row in weights:
                master.cut_cycle(row)
            return False
        master.cut_way(state, weights[0])
        least = int(potential[0, 0])
        level = float(self.graph.earned(prices) + least)
        if self.best is not None and level <= self.best.level:
            return False
        self.best = Priced(prices, memory, potential, level, least)
        return True


class _PricedMaster(OccupancyMaster):
    """The LP over scaled prices, those of memory and what they leave.

    After the prices come: what the walk costs; prices of memory at some moments; what an active request
    counts after the first batches, and what each of its tokens does; and for each kind, what it may lack: how
    much more it earns than it costs.
    """

    def __init__(self, first: PricedBatches, centre: Floats, stays: bool):
        import numpy as np

        self.first, self.known, self.stays = first, len(centre), stays
        graph, batches = first.graph, first.batches
        super().__init__(graph, centre, NEAR)
        moments = np.unique(np.linspace(0, batches - 1, min(MOMENTS, batches)).round())
        #: Shares of the prices at these moments in that of each batch.
        self.shares = np.array([np.interp(range(batches), moments, one) for one in np.eye(len(moments))]).T
        area = self.scale[1]
        lives = np.full(len(graph.kinds), graph.scale / sum(graph.starting))
        more = [(-WORTH, WORTH, graph.scale), *[(0.0, DEAREST, area)] * len(moments)]
        more += [(0.0 if graph.wide else -WORTH, WORTH, first.batch), (-WORTH, WORTH, area)]
        more += [(0.0, np.inf, lack) for lack in lives]
        low, high, scale = (np.array(some) for some in zip(*more, strict=True))
        self.solver.addVars(len(more), low, high)
        self.scale = np.append(self.scale, scale)
        self.columns = np.arange(len(self.scale), dtype=np.int32)
        self.gain = np.append(self.gain, [1.0, *[0.0] * (len(more) - 1)])
        self.solver.changeColsCost(len(self.scale), self.columns, self.gain)

    def limits(self) -> tuple[Floats, Floats]:
        """Least and largest scaled prices within reach; evictions may be charged in full, or returns."""
        if self.stays:
            return self.centre, self.centre
        low, high = super().limits()
        low[2:4], high[2:4] = -CHARGE, CHARGE
        return low, high

    def level_point(self, prices: Floats) -> Floats:
        """A point at these scaled prices: memory costs in the first batches what it does later."""
        import numpy as np

        point = np.zeros(len(self.scale))
        point[: self.known] = prices
        point[self.known + 1 : self.known + 1 + self.shares.shape[1]] = prices[1]
        return point

    def of_graph(self, point: Floats) -> Prices:
        """Prices of the graph in units."""
        return self.whole(point[: self.known])

    def memory(self, point: Floats) -> MemoryPrices:
        """Prices of memory in units."""
        import numpy as np

        values = (point * self.scale)[self.known + 1 :]
        moments = self.shares.shape[1]
        kv = (self.shares @ values[:moments]).round().astype(np.int64)
        active, size = (int(value) for value in values[moments : moments + 2].round())
        return MemoryPrices(kv, active, size)

    def lack(self, point: Floats, kind: int) -> float:
        """What a request of a kind is known to earn more than it costs, in units."""
        at = self._lacks + kind
        return float(point[at]) * float(self.scale[at])

    @property
    def _lacks(self) -> int:
        """Column of the first kind."""
        return self.known + 1 + int(self.shares.shape[1]) + 2

    def _row(self, weights: Integers) -> Floats:
        """Weights of all columns, of which those of the prices are known."""
        import numpy as np

        row = np.zeros(1 + len(self.scale))
        row[: len(weights)] = weights
        return row

    def cut_cycle(self, weights: Integers) -> None:
        """A cycle must not gain."""
        self.cut(self._row(weights))

    def cut_life(self, kind: int, life: CheapestLife) -> None:
        """A request earns no more than it is known to lack.

        Parameters
        ----------
        kind : int
        life : CheapestLife
        """
        row = self._row(life.weights)
        moments = row[2 + self.known : 2 + self.known + self.shares.shape[1]]
        moments += life.held @ self.shares
        if life.after:
            row[self._lacks - 1 : self._lacks + 1] -= (1, life.after)
        row[1 + self._lacks + kind] = 1
        self.cut(row)

    def cut_way(self, state: tuple[int, int], weights: Integers) -> None:
        """The walk costs no more than the first batches and a way from a state after them.

        Parameters
        ----------
        state : (int, int)
            Active requests and their tokens.
        weights : int64 array
            Of that way.
        """
        import numpy as np

        row, graph = self._row(weights), self.first.graph
        row[0] += self.first.batches * self.first.batch
        row[1 + self.known] = -1
        row[2 + self.known : 2 + self.known + self.shares.shape[1]] = -graph.capacity * self.shares.sum(0)
        row[self._lacks - 1 : self._lacks + 1] = state
        row[1 + self._lacks :] = -np.array([count for *_, count in graph.kinds])
        self.cut(row)
