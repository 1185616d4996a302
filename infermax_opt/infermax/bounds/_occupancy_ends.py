"""What the first and the last batches cost: `infermax_opt.infermax.bounds.occupancy`, *Ends*."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
from infermax_opt.infermax.bounds._occupancy_knots import FirstKnots

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["OccupancyEnds"]

#: States before each of the first batches, together, of which a checker looks at few, and of the last ones,
#: of which it looks at all.
MAX_FIRST, MAX_LAST = 6_000_000, 1_400_000
#: Those at the beginning that a checker looks at, one by one; its steps at knots, where they are too many.
MAX_CHEAP, MAX_STEPS = 650_000, 88_000_000
#: Spacings of knots, the least ones, in a full memory; by what they grow where knots are too many; how often
#: potentials are lowered where lines without the states left out are lower.
SPACINGS, WIDER, REPAIRS = 600, 1.2, 6
#: Entries of the tables that remember how states were reached.
MAX_ENTRIES = 2**26


class OccupancyEnds:
    """The first and the last batches of a graph, as many as help.

    Parameters
    ----------
    graph : OccupancyGraph
        One that tells all numbers of active requests apart.
    shortest, batches : int
        Output tokens of the shortest request, all of them, and batches that any schedule has.

    Attributes
    ----------
    first, last : int
        How many, those before that no request is looked at left out.
    spacing : int
        Tokens between knots at which the first batches are followed; 0 where all states are.
    """

    def __init__(self, graph: OccupancyGraph, shortest: int, batches: int):
        self.graph = graph
        #: Batches before the first token that is looked at.
        self.idle = min(graph.young, shortest - 1)
        last = min(min(o for _, o, _ in graph.kinds) - 1, (batches - self.idle) // 2)
        self.last = _fitting(last, self._at_the_end, MAX_LAST)
        self.first = min(shortest, batches - self.last) - self.idle
        self.spacing = 0
        if self._at_the_start(self.first).has_more(MAX_FIRST):
            self.widen()

    def widen(self) -> None:
        """Follow the first batches at knots, or at fewer of them."""
        spacing = math.ceil(WIDER * self.spacing) if self.spacing else self.graph.capacity // SPACINGS
        self.spacing = FirstKnots(self.graph, self.first, spacing).spacing

    @property
    def _idled(self) -> int:
        """What batches cost at least before a token is looked at for the first time."""
        return self.idle * min(self.graph.plain, self.graph.pure)

    def _before(self, begin: _Window) -> Integers:
        """Distances when a token is looked at for the first time."""
        table = begin.table()
        table[0, 0, 0] = self._idled
        return table

    def confirmed(self, prices: Prices, potential: Integers, least: int) -> tuple[Integers, int] | None:
        """Potentials that a checker has time for, and what a walk costs at least, in units; maybe less.

        None where it would look at too many states: then there are knots from now on, or fewer.  It looks at
        those that cost less than their potential.

        Parameters
        ----------
        prices : Prices
        potential : int64 array
        least : int
            What a walk costs by these potentials.
        """
        import numpy as np

        few = False
        if not self.spacing:
            few = self._cheap_states(prices, potential) <= MAX_CHEAP
        for _ in range(REPAIRS if self.spacing else 0):
            knots, found = FirstKnots(self.graph, self.first, self.spacing), self._unknown()
            table, _, steps = knots.run(self._idled, prices, potential)
            few = steps <= MAX_STEPS
            if not few:
                break
            knots.give(table, prices, found[0])
            # Lines end elsewhere without the states left out, and are lower there now and then.
            few = bool((found[0] >= potential).all())
            if few:
                break
            found[0] = found[0].clip(max=potential)
            settled, _ = self.graph.settle(prices, found, np.full_like(found, -1))
            if settled is None:
                break
            potential = settled[0]
            least = int(self._finished(prices, potential)[1][0, 0, 0])
        if few:
            return potential, least
        self.widen()
        return None

    def _cheap_states(self, prices: Prices, potential: Integers) -> int:
        """States before the first batches, together, that cost less than their potentials."""
        begin = self._at_the_start(self.first)
        known = begin.table()[0]
        for k in range(begin.rows):
            first, last = self.graph.ranges[k]
            low = k * begin.low
            last = min(last, low + begin.width - 1)
            known[k, first - low : last - low + 1] = potential[k, first : last + 1]
        return begin.run(self._before(begin), prices, known)[2]

    def _at_the_start(self, batches: int) -> _Window:
        prompts = self.graph.prompts
        sizes = [(prompts[0], prompts[-1] + done) for done in range(batches + 1)]
        return _Window(self.graph, prompts[0], sizes, prompts, ())

    def _at_the_end(self, batches: int) -> _Window:
        ends = self.graph.ends
        sizes = [(ends[0] - left, ends[-1]) for left in range(batches, -1, -1)]
        return _Window(self.graph, ends[0] - batches, sizes, (), ends)

    def settle(self, prices: Prices) -> tuple[int, Integers | None, Integers]:
        """What a walk costs at least beside what it earns, in units; and potentials that prove it.

        0 and None where a cycle gains, or there is no walk.  Then come the weights of cycles that gain, or
        else those of the cheapest walk: its cost is weights @ (1, *prices).

        Parameters
        ----------
        prices : Prices
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        graph = self.graph
        tables, came = self._unknown(), np.full(graph.shape, -1, np.int64)
        start = self._start(prices, tables[0])
        settled, weights = graph.settle(prices, tables, came)
        if settled is None:
            return 0, None, weights
        finish, ended, last = self._finished(prices, settled[0])
        least, row = int(ended[0, 0, 0]), np.zeros((1, 1 + graph.prices), np.int64)
        if least >= FAR:
            return 0, None, row[:0]
        k, tokens = finish.weigh(last, (0, 0), prices, row[0])
        begin = graph.weigh(came, k * graph.shape[2] + tokens, prices, row[0])
        start(begin, row[0])
        row[0, 0] += self._idled
        if self.spacing:
            # A path that goes by knots costs somewhat less or more than by lines between them.
            row[0, 0] = least - sum(
                int(weight) * price for weight, price in zip(row[0, 1:], prices.all, strict=True)
            )
        return least, settled[0], row

    def _unknown(self) -> Integers:
        """Distances in the whole graph, none of which is known."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        return np.full(self.graph.shape, FAR, np.int64)

    def _finished(self, prices: Prices, potential: Integers) -> tuple[_Window, Integers, Any]:
        """The last batches, distances after them, and the last edge to each state."""
        finish = self._at_the_end(self.last)
        table = finish.table()
        finish.take(potential, table[0])
        return finish, *finish.run(table, prices)[:2]

    def _start(self, prices: Prices, table: Integers) -> Callable[[tuple[int, int], Integers], object]:
        """Write distances after the first batches; the result adds the weights of the path to a state.

        Parameters
        ----------
        prices : Prices
        table : int64 array
        """
        if self.spacing:
            knots = FirstKnots(self.graph, self.first, self.spacing)
            run = knots.run(self._idled, prices)
            knots.give(run[0], prices, table)
            return lambda state, weights: knots.weigh(run, state, prices, weights)
        begin = self._at_the_start(self.first)
        started, steps, _ = begin.run(self._before(begin), prices)
        begin.give(started[0], table)
        return lambda state, weights: begin.weigh(steps, state, prices, weights)


class _Window:
    """Some batches in a row in which active requests have limited sizes.

    Parameters
    ----------
    graph : OccupancyGraph
    low : int
        Tables count tokens from here for each active request.
    sizes : list of (int, int)
        Least and largest size before each batch, and after the last one.
    prompts, ends : tuple of int
        Sizes of requests that may start and finish.
    """

    def __init__(
        self,
        graph: OccupancyGraph,
        low: int,
        sizes: list[tuple[int, int]],
        prompts: tuple[int, ...],
        ends: tuple[int, ...],
    ):
        self.graph, self.low, self.sizes, self.prompts, self.ends = graph, low, sizes, prompts, ends
        least = min(least for least, _ in sizes)
        self.rows = min(graph.most, graph.capacity // max(1, least - 1)) + 1
        self.width = max(max(last) for last in self._lasts()) + 2

    def _lasts(self) -> list[list[int]]:
        """Largest x before each batch by active requests; -1 where so many do not fit."""
        graph = self.graph
        return [
            [
                -1 if k * least > graph.capacity + k
                else min(k * (most - self.low), graph.capacity + k - k * self.low)
                for k in range(self.rows)
            ]
            for least, most in self.sizes
        ]  # fmt: skip

    @functools.cached_property
    def states(self) -> int:
        """States before each batch, and after the last one, together."""
        return sum(
            max(0, last - k * (least - self.low) + 1)
            for (least, _), lasts in zip(self.sizes, self._lasts(), strict=True)
            for k, last in enumerate(lasts)
        )

    def has_more(self, limit: int) -> bool:
        """Whether there are more states, or larger tables, than that."""
        return self.states > limit or len(self.sizes) * 3 * self.rows * self.width > MAX_ENTRIES

    def table(self) -> Integers:
        """Distances, none of which is known."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        return np.full((3, self.rows, self.width), FAR, np.int64)

    def _rows(self, step: int) -> list[tuple[int, int, int]]:
        """Active requests, the first of their tokens in tables of the whole graph, and how many follow."""
        least, most = self.sizes[step]
        found = []
        for k, (first, last) in enumerate(self.graph.ranges[: self.rows]):
            first, last = max(first, k * least), min(last, k * most)
            if first <= last:
                found.append((k, first, last - first + 1))
        return found

    def take(self, whole: Integers, table: Integers) -> None:
        """Write distances of the whole graph before these batches into a table of theirs."""
        for k, first, count in self._rows(0):
            begin = first - k * self.low
            table[k, begin : begin + count] = whole[k, first : first + count]

    def give(self, table: Integers, whole: Integers) -> None:
        """Write distances after these batches into a table of the whole graph."""
        for k, first, count in self._rows(-1):
            begin = first - k * self.low
            whole[k, first : first + count] = table[k, begin : begin + count]

    def run(
        self, table: Integers, prices: Prices, potential: Integers | None = None
    ) -> tuple[Integers, Any, int]:
        """Distances after these batches, the last edge to each state, and how many states are cheap.

        Parameters
        ----------
        table : int64 array
            Distances before.
        prices : Prices
        potential : int64 array, optional
            States are cheap that cost less than this.
        """
        import numpy as np

        graph = self.graph
        if potential is None:
            potential = np.full(table.shape[1:], -1 << 62, np.int64)
        below = np.zeros(len(self.sizes), np.int64)
        came = np.full((len(self.sizes), *table.shape), -1, np.int32)
        lows, highs = np.array(self.sizes, np.int64).T.copy()
        passing = _kernel(graph.is_tiny)
        table = passing(
            table, np.empty_like(table), came, self.low, lows, highs, graph.capacity,
            np.array(self.prompts, np.int64), np.array(self.ends, np.int64), graph.prompts[0],
            graph.ends[-1] - 1, graph.young > 0, graph.evictions, graph.chunked, graph.costs(prices),
            potential, below,
        )  # fmt: skip
        return table, came, int(below.sum())

    def weigh(self, came: Any, state: tuple[int, int], prices: Prices, weights: Integers) -> tuple[int, int]:
        """Add the weights of the path to a state after these batches; return the one that it begins with.

        States are active requests and their tokens.
        """
        import numpy as np

        # Paths are short, and this table has other types than that of the whole graph: it runs uncompiled.
        from infermax_opt.infermax.bounds._kernels_occupancy import weigh

        graph = self.graph
        k, tokens = state
        at = (len(self.sizes) - 1) * 3 * self.rows * self.width + k * self.width + tokens - k * self.low
        at = weigh(
            came, at, 0, self.low, np.array(graph.prompts, np.int64), np.array(graph.ends, np.int64),
            graph.prompts[0], True, graph.costs(prices), weights,
        )  # fmt: skip
        k = at // self.width % self.rows
        return k, at % self.width + k * self.low


def _fitting(most: int, window: Callable[[int], _Window], limit: int) -> int:
    """As many batches as there is room for."""
    while most > 0 and window(most).has_more(limit):
        most -= max(1, most // 16)
    return most


@functools.cache
def _kernel(small: bool = False) -> Callable[..., Any]:
    """Compiled `pass_batches`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_occupancy_ends as plain
    from infermax_opt.infermax.bounds import _kernels_occupancy_steps as edges

    helpers = (edges.shift, edges.lift, edges.drop, edges.finish)
    parts = (plain.bounds, plain.leave, plain.wait, plain.turn_up, plain.come, plain.run)
    found: Callable[..., Any] = compiled(plain.pass_batches, (*helpers, *parts), small=small)
    return found
