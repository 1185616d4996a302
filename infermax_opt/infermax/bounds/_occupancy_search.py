"""Search for the prices of the occupancy bound by cutting planes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.infermax.bounds._occupancy_ends import OccupancyEnds
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds._occupancy_master import (
    FAR_OFF,
    FIRST_STEP,
    NEAR,
    EndsMaster,
    OccupancyMaster,
)
from infermax_opt.infermax.bounds._occupancy_priced_search import Priced, PricedSearch
from infermax_opt.infermax.bounds._occupancy_shares import dearer_evictions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["OccupancyPrices"]

#: Rows of the smaller graphs on which prices are sought first, at least, and for each request of mean size
#: that fits at once; about how many states these graphs have.
ROWS, ROOM, COARSE = 32, 1.3, 100_000
#: Cutting planes in all, and in a row that do not settle; relative precision of what prices earn.
STEPS, PATIENCE, DRAFT_TOLERANCE, TOLERANCE = 400, 80, 1e-3, 2e-4
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
#: First batches in which memory is priced, in longest outputs; most of these batches times the output tokens
#: of one request of each kind.
PRICED, MAX_LIVES = (0.6, 1.0, 1.6, 3.0), 2_000_000
#: States up to which prices of the graph are sought together with those of memory.
MAX_JOINT = 150_000


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
        self.given = shortest, max(longest, -(-graph.area // graph.capacity))
        #: The best graph, what prices earn there (units), these prices and their potentials.
        self.graph, self.level = graph, 0.0
        self.prices: Prices | None = None
        self.potential: npt.NDArray[np.int64] | None = None
        #: What a walk costs beside what it earns (units), and what proves that.
        self.least = 0
        self.walked: dict[str, Any] = {}

    def run(self) -> None:
        """Find prices and potentials, as good as time allows."""
        whole = self.whole
        rows = max(ROWS, math.ceil(ROOM * whole.slots))
        scale = max(1, min(-(-rows * whole.capacity // COARSE), whole.ends[-1] // 8))
        longest = max(o for _, o, _ in whole.kinds)
        #: Graphs, what they promise, and their drafts.
        drafts: list[tuple[OccupancyGraph, float, Draft]] = []
        # Large numbers first: their graphs are small.
        several = {longest * share // 128 for share in YOUNG}
        several |= {young for young in FEW_YOUNG if young < longest <= SHORT}
        for young in sorted(several, reverse=True):
            promises = [promise for _, promise, _ in drafts]
            if young > 0 and len(promises) > 2 and promises[-1] < promises[-2] < promises[-3]:
                continue  # past the best one; none at all is another matter, as it counts first tokens
            graph = whole.older(young) if young > 0 else whole
            coarse = replace(graph.coarser(scale) if scale > 1 else graph, limit=rows)
            draft = self.improve(coarse, DRAFT_TOLERANCE, scale == 1)
            # Sizes are rounded there, so that only what it earns beside its area can be compared.
            drafts.append((graph, draft.level / coarse.scale * graph.scale, draft))
        drafts.sort(key=lambda entry: -entry[1])
        for graph, promise, draft in drafts[:2]:
            if promise >= CLOSE * drafts[0][1]:
                found = self.improve(graph, TOLERANCE, True, draft)
                if not self.with_ends(found):
                    self.with_memory_prices(found)

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
        master = OccupancyMaster(graph, centre, most)
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
                point = master.smaller(less)
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

    def with_ends(self, draft: Draft) -> bool:
        """Find better prices with the ends of the schedule, near those that are best without.

        Returns
        -------
        bool
            Whether all states of the first batches were followed: prices of memory hardly prove more then.
        """
        import numpy as np

        graph = draft.graph
        if draft.level == 0 or not self.ends_matter(graph):
            return False
        ends, centre = OccupancyEnds(graph, *self.given), draft.point
        if ends.spacing:
            centre = self.sketched(ends, centre)
        master, point = EndsMaster(graph, centre), np.append(centre, 0.0)
        while ends.last > 0:
            point, found = self.improve_ends(ends, master, point)
            if found is None:
                return False
            prices, potential, least = found
            confirmed = ends.confirmed(prices, potential, least)
            # What is known of a walk from state to state holds for one from knot to knot: it costs no more.
            if confirmed is not None:
                potential, least = confirmed
                level = float(point[:-1] @ master.gain[:-1]) * graph.scale + least
                knots = {"knots": ends.spacing} if ends.spacing else {}
                self.note(graph, level, prices, potential, least, {"ends": [ends.first, ends.last], **knots})
                return not knots
        return False

    def with_memory_prices(self, draft: Draft) -> None:
        """Find prices of memory in the first batches, and better ones of the graph with these."""
        graph, most = draft.graph, self.given[1]
        if draft.level == 0 or draft.tables is None or not self.counts_ends:
            return
        longest = max(o for _, o, _ in graph.kinds)
        numbers = sorted({max(1, min(round(share * longest), most)) for share in PRICED})
        master = OccupancyMaster(graph, draft.point, NEAR)
        prices, tables = master.whole(draft.point), draft.tables
        prices, tables = dearer_evictions(graph, prices, tables, self.stop) or (prices, tables)
        point = master.scaled(prices)
        found = {}
        for number in numbers:
            if number * graph.tokens_of_kinds > MAX_LIVES:
                break
            known = PricedSearch(graph, point, number, self.stop, tables[0]).run()
            if known is not None:
                found[number] = known.level
                self.note_priced(graph, known)
        if found and graph.states <= MAX_JOINT:
            better = PricedSearch(graph, point, max(found, key=found.__getitem__), self.stop).run()
            if better is not None:
                self.note_priced(graph, better)

    def note_priced(self, graph: OccupancyGraph, found: Priced) -> None:
        """Keep prices with those of memory, as `note`."""
        memory = found.memory
        evidence = {"kv": memory.kv.tolist(), "active": memory.active, "size": memory.size}
        self.note(graph, found.level, found.prices, found.potential, found.least, {"memory": evidence})

    def sketched(self, ends: OccupancyEnds, centre: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scaled prices that are best on a smaller graph, whose ends are walked from state to state."""
        import numpy as np

        graph, scale, small, coarse = ends.graph, 1, ends, ends.graph
        while small.spacing:
            scale *= 2
            if scale > graph.prompts[0] + self.given[0]:
                return centre
            coarse = graph.coarser(scale)
            small = OccupancyEnds(coarse, *(max(1, number // scale) for number in self.given))
            small.last = min(small.last, ends.last // scale)
        start, less = coarse.moved(graph, centre), FIRST_STEP
        master = EndsMaster(coarse, start)
        while less < 1 and small.settle(master.whole(start))[1] is None:
            start = master.smaller(less)
            less *= 2
        point, found = self.improve_ends(small, master, np.append(start, 0.0))
        return centre if found is None else graph.moved(coarse, point[:-1])

    def improve_ends(
        self, ends: OccupancyEnds, master: EndsMaster, point: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], tuple[Prices, npt.NDArray[np.int64], int] | None]:
        """Find the best prices with so many first and last batches, from a point on.

        Parameters
        ----------
        ends : OccupancyEnds
        master : EndsMaster
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
        few = self.given[1] < GENERATIONS * longest and graph.states <= MAX_STATES
        return self.counts_ends and few and not graph.wide

    def note(
        self,
        graph: OccupancyGraph,
        level: float,
        prices: Prices,
        potential: npt.NDArray[np.int64],
        least: int = 0,
        walked: dict[str, Any] | None = None,
    ) -> None:
        """Keep prices that settled on a graph, if they earn more than all before.

        Parameters
        ----------
        graph : OccupancyGraph
        level : float
            What they earn, in units.
        prices : Prices
        potential : int64 array
        least : int
            What a walk costs beside that, which `level` has.
        walked : dict, optional
            Evidence of it.
        """
        if level > self.level:
            self.graph, self.level, self.prices, self.potential = graph, level, prices, potential
            self.least, self.walked = least, walked or {}
