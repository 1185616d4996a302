"""Search for the prices of the occupancy bound by cutting planes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.infermax.bounds._occupancy_ends import OccupancyEnds
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds.pieces import PriceProgram

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["OccupancyPrices"]

#: Rows of the smaller graphs on which prices are sought first, and about how many states these have.
ROWS, COARSE = 32, 100_000
#: How far from where the search begins scaled prices may lie: on a graph with a smaller one before it, on one
#: without at first, and at last there.  By what that grows where no better ones are within.
NEAR, FAR_OFF, WIDER = 0.25, 16.0, 4.0
#: Cutting planes in all, and in a row that do not settle; relative precision of what prices earn; how much
#: less than where the search begins is tried first.
STEPS, PATIENCE, DRAFT_TOLERANCE, TOLERANCE, FIRST_STEP = 400, 80, 1e-3, 2e-4, 2e-3
#: Share of the way to the point of the linear program that is gone first, and least; failures in a row after
#: which it is halved; by what it grows again.
WAY, LEAST_WAY, FAILURES, LONGER = 0.5, 1e-4, 4, 1.5
#: First tokens that are tried to be left out, in 128ths of the longest output; and in tokens, where
#: outputs are short.
YOUNG, FEW_YOUNG, SHORT = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16), (1, 2, 3), 32
#: Where a graph promises this share of the best one, it is tried, too.
CLOSE = 0.998
#: The first and the last batches count where the longest output fits into the schedule fewer times than this,
#: and the graph has no more states.
GENERATIONS, MAX_STATES = 60, 400_000


class Draft(NamedTuple):
    """The best scaled prices found on a graph, what they earn in units, and their potentials."""

    graph: OccupancyGraph
    point: npt.NDArray[np.float64]
    level: float
    tables: npt.NDArray[np.int64] | None


class OccupancyPrices:
    """Search for prices by cutting planes.

    A cycle that gains at some prices is a linear constraint on all prices.  A linear program finds the
    prices that earn most under those found so far, within reach of where the search begins; half way from
    the best prices that settled to those either settles or gains on a new cycle.  Where nothing settles any
    more, the way becomes shorter; where nothing within reach earns more, the reach grows.  Without a smaller
    graph the search begins with the area of the KV alone, somewhat less of which always settles.  First on
    graphs of fewer states, for several numbers of young tokens; their prices then bound those to try.  Only
    prices that settle on the graph itself count.
    """

    def __init__(self, graph: OccupancyGraph, stop: Callable[[], bool], counts_ends: bool = True):
        self.whole, self.stop, self.counts_ends = graph, stop, counts_ends
        shortest, longest = (some(o for _, o, _ in graph.kinds) for some in (min, max))
        #: Output tokens of the shortest request, and batches that any schedule has.
        self.least = shortest, max(longest, -(-graph.area // graph.capacity))
        #: The best graph, what prices earn there (units), these prices and their potentials.
        self.graph, self.level = graph, 0.0
        self.prices: Prices | None = None
        self.potential: npt.NDArray[np.int64] | None = None
        #: First and last batches that count besides, and what a walk costs (units) beside what it earns.
        self.ends: tuple[int, int, int] | None = None
        #: Tokens between knots in the first batches; 0 without.
        self.spacing = 0

    def run(self) -> None:
        """Find prices and potentials, as good as time allows."""
        whole = self.whole
        scale = max(1, min(-(-ROWS * whole.capacity // COARSE), whole.ends[-1] // 8))
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
                self.with_ends(self.improve(graph, TOLERANCE, True, draft))

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

        if draft is None:
            centre, tables, most = np.zeros(graph.prices), None, FAR_OFF
            centre[1] = 1.0
        else:
            centre, most = graph.moved(draft.graph, draft.point), NEAR
            tables = graph.tables_like(draft.graph, draft.tables)
        master = _OccupancyMaster(graph, centre, most)
        best, level, less = np.zeros(len(centre)), 0.0, FIRST_STEP
        way, failed = WAY, 0
        for _ in range(STEPS):
            if self.stop() or failed > PATIENCE:
                break
            furthest = master.furthest(level, tolerance)
            if furthest is None:
                break
            point = best + (furthest - best) * way
            if level == 0 and less < 1:
                point = _smaller(centre, less)
                less *= 2
            prices = master.whole(point)
            settled, weights = graph.settle(prices, tables)
            if settled is not None:
                best, level, tables, failed = point, float(point @ master.gain), settled, 0
                way = min(WAY, way * LONGER)
                if counts:
                    self.note(graph, level * graph.scale, prices, settled[0])
                continue
            failed += 1
            for row in weights:
                master.cut(row)
            if failed % FAILURES == 0 or not len(weights):
                way = max(LEAST_WAY, way / 2)
        return Draft(graph, best, level * graph.scale, tables)

    def with_ends(self, draft: Draft) -> None:
        """Find better prices with the ends of the schedule, near those that are best without."""
        import numpy as np

        graph = draft.graph
        if draft.level == 0 or not self.ends_matter(graph):
            return
        ends, centre = OccupancyEnds(graph, *self.least), draft.point
        if ends.spacing:
            centre = self.sketched(ends, centre)
        master, point = _EndsMaster(graph, centre), np.append(centre, 0.0)
        while ends.last > 0:
            point, found = self.improve_ends(ends, master, point)
            if found is None:
                return
            prices, potential, least = found
            confirmed = ends.confirmed(prices, potential, least)
            # What is known of a walk from state to state holds for one from knot to knot: it costs no more.
            if confirmed is not None:
                potential, least = confirmed
                level = float(point[:-1] @ master.gain[:-1]) * graph.scale + least
                self.note(graph, level, prices, potential, (ends.first, ends.last, least), ends.spacing)
                return

    def sketched(self, ends: OccupancyEnds, centre: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scaled prices that are best on a smaller graph, whose ends are walked from state to state."""
        import numpy as np

        graph, scale, small, coarse = ends.graph, 1, ends, ends.graph
        while small.spacing:
            scale *= 2
            if scale > graph.prompts[0] + self.least[0]:
                return centre
            coarse = graph.coarser(scale)
            small = OccupancyEnds(coarse, *(max(1, number // scale) for number in self.least))
            small.last = min(small.last, ends.last // scale)
        start, less = coarse.moved(graph, centre), FIRST_STEP
        master = _EndsMaster(coarse, start)
        while less < 1 and small.settle(master.whole(start))[1] is None:
            start = _smaller(coarse.moved(graph, centre), less)
            less *= 2
        point, found = self.improve_ends(small, master, np.append(start, 0.0))
        return centre if found is None else graph.moved(coarse, point[:-1])

    def improve_ends(
        self, ends: OccupancyEnds, master: _EndsMaster, point: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], tuple[Prices, npt.NDArray[np.int64], int] | None]:
        """Find the best prices with so many first and last batches, from a point on.

        Parameters
        ----------
        ends : OccupancyEnds
        master : _EndsMaster
        point : float array
            Scaled prices, the last one of the walk.

        Returns
        -------
        point : float array
        found : (Prices, int64 array, int) or None
            The prices, their potentials, and what the walk costs; None where nothing settled.
        """
        import numpy as np

        best, level, found = point, 0.0, None
        way, failed = WAY, 0
        for _ in range(STEPS):
            prices, value = master.whole(point[:-1]), 0.0
            least, potential, weights = ends.settle(prices)
            if potential is not None:
                value = float(point[:-1] @ master.gain[:-1]) + least / ends.graph.scale
            for row in weights:
                master.cut(np.append(row, 0 if potential is None else -1))
            if potential is not None and value > level:
                best, level, found = point, value, (prices, potential, least)
                failed, way = 0, min(WAY, way * LONGER)
            else:
                failed += 1
                if failed % FAILURES == 0 or not len(weights):
                    way = max(LEAST_WAY, way / 2)
            furthest = None if self.stop() or failed > PATIENCE else master.furthest(level, TOLERANCE)
            if furthest is None:
                break
            point = best + (furthest - best) * way
        return best, found

    def ends_matter(self, graph: OccupancyGraph) -> bool:
        """Whether the ends are a part of the schedule that counts, and can be walked."""
        longest = max(o for _, o, _ in self.whole.kinds)
        few = self.least[1] < GENERATIONS * longest and graph.states <= MAX_STATES
        return self.counts_ends and few and not graph.wide

    def note(
        self,
        graph: OccupancyGraph,
        level: float,
        prices: Prices,
        potential: npt.NDArray[np.int64],
        ends: tuple[int, int, int] | None = None,
        spacing: int = 0,
    ) -> None:
        """Keep prices that settled on a graph, if they earn more than all before.

        Parameters
        ----------
        graph : OccupancyGraph
        level : float
            What they earn, in units.
        prices : Prices
        potential : int64 array
        ends : (int, int, int), optional
            First and last batches that count besides, and what a walk costs beside what it earns.
        spacing : int
            Tokens between knots in the first batches; 0 without.
        """
        if level > self.level:
            self.graph, self.level, self.prices, self.potential = graph, level, prices, potential
            self.ends, self.spacing = ends, spacing


def _smaller(centre: npt.NDArray[np.float64], less: float) -> npt.NDArray[np.float64]:
    """Prices somewhat smaller than where the search begins."""
    point = centre * (1 - less)
    point[2:4] = centre[2:4]
    return point


class _OccupancyMaster(PriceProgram):
    """The LP over scaled prices: 1 earns as much as the area by `token` or `size`; shares of rho."""

    def __init__(self, graph: OccupancyGraph, centre: npt.NDArray[np.float64], most: float):
        import numpy as np

        self.graph, self.centre = graph, centre
        self.reach, self.most = NEAR, most
        earned, count = graph.scale, sum(graph.starting)
        share = max(1, graph.rho)
        ends = np.full(len(graph.prompts) + len(graph.ends), earned / count)
        scale = np.array(
            [earned / graph.tokens, earned / graph.area, share * graph.ends[-1], float(share), *ends]
        )
        gain = np.array([1.0, 1.0, 0.0, 0.0, *(n / count for n in graph.starting + graph.ending)])
        super().__init__(gain, *self.limits(), scale)
        # Idling must not earn.
        self.cut(np.array([0, 1, graph.prompts[0], *[0] * (len(centre) - 2)]))

    def limits(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Least and largest scaled prices within reach."""
        low, high = self.centre - self.reach, self.centre + self.reach
        low[1] = max(0.0, low[1])
        low[4] = high[4] = 0.0  # as many requests start as finish
        return low, high

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

    def whole(self, point: npt.NDArray[np.float64]) -> Prices:
        """Prices in units; idling does not earn."""
        token, size, out_fixed, out_size, *ends = (int(v) for v in (point * self.scale[: len(point)]).round())
        size = max(0, size)
        token = max(token, -size * self.graph.prompts[0])
        split = len(self.graph.prompts)
        return Prices(token, size, out_fixed, out_size, tuple(ends[:split]), tuple(ends[split:]))


class _EndsMaster(_OccupancyMaster):
    """The LP with another price, the last: what the walk costs beyond what it earns."""

    def __init__(self, graph: OccupancyGraph, centre: npt.NDArray[np.float64]):
        import numpy as np

        super().__init__(graph, centre, NEAR)
        self.solver.addVars(1, np.zeros(1), np.full(1, np.inf))
        self.columns = np.arange(len(self.scale) + 1, dtype=np.int32)
        self.scale, self.gain = np.append(self.scale, graph.scale), np.append(self.gain, 1.0)
        self.solver.changeColsCost(len(self.scale), self.columns, self.gain)
