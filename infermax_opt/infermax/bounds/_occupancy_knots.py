"""What the first batches cost between knots: `infermax_opt.infermax.bounds.occupancy`, *Knots*."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["FirstKnots"]

#: Entries of the table that remembers how knots were reached.
MAX_ENTRIES = 2**26


class FirstKnots:
    """Costs of the first batches at some numbers of tokens, and lines between these.

    Parameters
    ----------
    graph : OccupancyGraph
        One that tells all numbers of active requests apart.
    batches : int
        How many.
    spacing : int
        Tokens from knot to knot; more where the tables would be too large.
    """

    def __init__(self, graph: OccupancyGraph, batches: int, spacing: int):
        self.graph, self.batches = graph, batches
        self.rows = min(graph.most, graph.capacity // max(1, graph.prompts[0] - 1)) + 1
        #: Tokens that all requests are behind at most, after the last batch.
        self.behind = (self.rows - 1) * (graph.prompts[-1] + batches - graph.prompts[0])
        least = -(-2 * batches * self.rows * self.behind // MAX_ENTRIES)
        self.spacing = max(1, spacing, least)
        #: What a batch costs at least.
        self.batch = min(graph.plain, graph.pure)

    def run(
        self, before: int, prices: Prices, potential: Integers | None = None
    ) -> tuple[Integers, Any, int]:
        """Costs at the knots after these batches, the last edges to them, and the steps of a check.

        Parameters
        ----------
        before : int
            What the batches before them cost.
        prices : Prices
        potential : int64 array, optional
            States that cost no less are left out, at both ends.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        graph = self.graph
        table = np.full((self.rows, self.behind // self.spacing + 2), FAR, np.int64)
        table[0, 0] = before
        came = np.full((self.batches, 2, *table.shape), -1, np.int32)
        limits = np.full((2, self.rows, graph.shape[2] + self.spacing), FAR, np.int64)
        if potential is not None:
            self._limit(potential, limits[0])
            self._limit(self._allowed(potential, prices), limits[1])
        passing, _ = _kernels(graph.is_tiny)
        steps = passing(
            table, came, self.spacing, graph.capacity, np.array(graph.prompts, np.int64), graph.prompts[0],
            graph.evictions, self.batch, graph.costs(prices), *limits,
        )  # fmt: skip
        return table, came, steps

    def _allowed(self, potential: Integers, prices: Prices) -> Integers:
        """The most that a state in a batch may cost without leading to less than a potential after it."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        graph, rows = self.graph, min(self.rows, self.graph.rows)
        least = np.full(potential.shape, FAR, np.int64)
        first, last = np.array(graph.ranges[:rows], np.int64).T.copy()
        _, allowed = _kernels(graph.is_tiny)
        allowed(
            potential[:rows], least[:rows], first, last, graph.capacity, np.array(graph.prompts, np.int64),
            graph.ends[-1] - 1, graph.evictions, self.batch, graph.costs(prices),
        )  # fmt: skip
        return -least

    def _limit(self, potential: Integers, limits: Integers) -> None:
        """Write the largest of some values, of so many tokens and of up to a spacing fewer."""
        import numpy as np

        limits[:] = -(2**62)
        for k, (first, last) in enumerate(self.graph.ranges[: self.rows]):
            for more in range(self.spacing + 1):
                part = limits[k, first + more : last + more + 1]
                np.maximum(part, potential[k, first : first + len(part)], out=part)

    def give(self, table: Integers, prices: Prices, whole: Integers) -> None:
        """Write what states cost, by the lines between knots, with their pairs, into a table of the graph.

        Parameters
        ----------
        table : int64 array
            Costs at knots.
        prices : Prices
        whole : int64 array
            Changed.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        largest, spacing = self.graph.prompts[-1] + self.batches, self.spacing
        for k, (first, last) in enumerate(self.graph.ranges[: self.rows]):
            last = min(last, k * largest)
            knots, rest = np.divmod(k * largest - np.arange(first, last + 1), spacing)
            inside = knots < table.shape[1]
            low = table[k, np.minimum(knots, table.shape[1] - 1)]
            high = table[k, np.minimum(knots + 1, table.shape[1] - 1)]
            known = inside & (low < FAR) & ((high < FAR) | (rest == 0))
            low, high = np.where(known, low, 0), np.where(known & (rest > 0), high, 0)
            line = (low * (spacing - rest) + high * rest) // spacing
            line += prices.pairs * self.graph.together(k, np.arange(first, last + 1), self.batches)
            whole[k, first : last + 1] = np.where(known, line, FAR)

    def weigh(
        self, run: tuple[Integers, Any, int], state: tuple[int, int], prices: Prices, weights: Integers
    ) -> None:
        """Add the weights of a path that costs about as much as a state after these batches.

        Parameters
        ----------
        run : (int64 array, int array, int)
            `run`.
        state : (int, int)
            Active requests and their tokens.
        prices : Prices
        weights : int64 array
            `settle` of the graph.
        """
        from infermax_opt.infermax.bounds._kernels_occupancy_steps import (
            ADMIT,
            EDGES,
            EVICT,
            FAR,
            RETURN,
        )

        graph, spacing, (table, came, _) = self.graph, self.spacing, run
        weights[5] += graph.together(*state, self.batches)
        k, width = state[0], table.shape[1]
        knot = round((k * (graph.prompts[-1] + self.batches) - state[1]) / spacing)
        while table[k, knot] >= FAR:
            knot += 1
        for done in range(self.batches - 1, -1, -1):
            largest = graph.prompts[-1] + done
            weights[:3] += (self.batch, -k, knot * spacing - k * largest)
            for links in came[done, ::-1]:
                while links[k, knot] >= 0:
                    source, kind = divmod(int(links[k, knot]), EDGES)
                    other, at = divmod(source, width)
                    size = largest - abs(knot - at) * spacing
                    if kind == ADMIT:
                        by = (abs(size - prompt) for prompt in graph.prompts)
                        weights[6 + min(enumerate(by), key=lambda entry: entry[1])[0]] -= 1
                    elif kind == RETURN:
                        weights[0] += graph.rho * (size - 1)
                        weights[3:5] -= (1, size)
                    elif kind == EVICT:
                        weights[3:5] += (1, size)
                    else:
                        idle = (knot - at) * spacing
                        weights[1:3] += (idle, idle * graph.prompts[0])
                    k, knot = other, at


@functools.cache
def _kernels(small: bool = False) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiled `pass_knots` and `allowed`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_occupancy_knots as plain
    from infermax_opt.infermax.bounds import _kernels_occupancy_steps as edges

    helpers = (edges.drop, edges.lift, edges.shift)
    parts = (plain.known, plain.between, plain.lag, plain.wait_long, plain.trim, plain.work)
    return (
        compiled(plain.pass_knots, (*helpers, *parts), small=small),
        compiled(plain.allowed, (edges.drop, edges.shift), small=small),
    )
