"""What the first batches cost at prices of memory: see `infermax_opt.infermax.bounds.occupancy`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.bounds._kernels_occupancy_priced import Life

    Integers = npt.NDArray[np.int64]

__all__ = ["MemoryPrices", "PricedBatches"]


@dataclass(frozen=True)
class MemoryPrices:
    """Prices in the first batches, in units.

    `kv`: of a token of KV in each of them.  `active + size * s`: what an active request of size s counts
    after the last one.
    """

    kv: Integers
    active: int
    size: int


@dataclass(frozen=True)
class CheapestLife:
    """The cheapest life of a request of one kind in the first batches.

    `cost`: less what it earns, in units.  `weights`: it costs weights @ (1, *prices), in the order of
    `Prices.all`, and what follows.  `held`: tokens of KV in each batch.  `after`: its size after the last
    one, 0 where it is not active then.
    """

    cost: int
    weights: Integers
    held: Integers
    after: int


class PricedBatches:
    """The first batches of a graph, in which each token of KV has a price.

    Parameters
    ----------
    graph : OccupancyGraph
    batches : int
        How many; no schedule may have fewer.
    """

    def __init__(self, graph: OccupancyGraph, batches: int):
        self.graph, self.batches = graph, batches
        #: What a batch costs at least.
        self.batch = min(graph.plain, graph.pure)
        #: Tokens of each kind that are not looked at.
        self.young = [graph.young if o > 1 else 0 for _, o, _ in graph.kinds]

    def cheapest(self, prices: Prices, memory: MemoryPrices) -> Iterator[CheapestLife | None]:
        """The cheapest life of each kind; None where none costs less than to stay away.

        Parameters
        ----------
        prices : Prices
        memory : MemoryPrices
        """
        import numpy as np

        for kind in range(len(self.graph.kinds)):
            life = self._life(kind, prices, memory)
            room = np.zeros((2, life.outputs + 1), np.int64)
            ways = np.zeros((2, self.batches, life.outputs), np.uint8)
            cost, begin = _kernel(self.graph.is_tiny)(life, memory.kv, *room, ways)
            yield self._followed(life, int(cost), int(begin), ways) if cost < 0 else None

    def _life(self, kind: int, prices: Prices, memory: MemoryPrices) -> Life:
        from infermax_opt.infermax.bounds._kernels_occupancy_priced import Life

        graph, costs = self.graph, self.graph.costs(prices)
        prompt, outputs, _ = graph.kinds[kind]
        first = prices.first[graph.prompts.index(prompt)]
        finish = prices.finish[graph.ends.index(prompt + outputs)]
        evictions = bool(graph.evictions)
        return Life(
            self.young[kind], prompt, outputs, *costs[3:9], first, finish, memory.active, memory.size,
            evictions, evictions and bool(graph.chunked),
        )  # fmt: skip

    def _followed(self, life: Life, cost: int, begin: int, ways: Any) -> CheapestLife:
        """The life that begins in that batch."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_priced import (
            LEAVE,
            RETURN,
            RETURN_WITH_TOKEN,
            TOKEN,
        )

        graph, held, after = self.graph, np.zeros(self.batches, np.int64), life.prompt
        weights = np.zeros(1 + graph.prices, np.int64)
        weights[6 + graph.prompts.index(life.prompt)] = -1
        for t, way, size in self._steps(life, begin, ways):
            if way == LEAVE:
                weights[3:5] += (1, size)
                after = 0
                continue
            if way in (RETURN, RETURN_WITH_TOKEN):
                weights[0] += graph.rho * (size - 1)
                weights[3:5] -= (1, size)
            makes = way in (TOKEN, RETURN_WITH_TOKEN)
            if makes:
                weights[1:3] -= (1, size)
            after = size + 1 if makes else size
            held[t] = after - 1
        if after == life.prompt + life.outputs:
            weights[6 + len(graph.prompts) + graph.ends.index(after)] = -1
            after = 0
        return CheapestLife(cost, weights, held, after)

    def _steps(self, life: Life, begin: int, ways: Any) -> Iterator[tuple[int, int, int]]:
        """Batch, kind and size of each step of a life that takes part in the batch or leaves before it."""
        from infermax_opt.infermax.bounds._kernels_occupancy_priced import IDLE, LEAVE, RETURN, STAY, TOKEN

        yield begin, TOKEN, life.prompt
        t, made, away = begin + 1, 1, False
        while t < self.batches and made < life.outputs:
            way = ways[0 if away else 1, t, made]
            if way != STAY:
                yield t, way, life.prompt + made
            if way == LEAVE:
                away = True  # and may be back in the same batch
                continue
            away = way == STAY
            made += way not in (STAY, RETURN, IDLE)
            t += 1

    def fixed(self, memory: MemoryPrices, lives: list[CheapestLife | None]) -> int:
        """What these batches cost at least, but for what active requests count after them.

        Parameters
        ----------
        memory : MemoryPrices
        lives : list of (CheapestLife or None)
            The cheapest ones.
        """
        earned = sum(
            count * life.cost for life, (*_, count) in zip(lives, self.graph.kinds, strict=True) if life
        )
        return self.batches * self.batch - self.graph.capacity * int(memory.kv.sum()) + earned

    def settle(
        self, prices: Prices, memory: MemoryPrices, fixed: int
    ) -> tuple[Integers | None, tuple[int, int], Integers]:
        """Potentials that are no higher than what the first batches cost.

        Parameters
        ----------
        prices : Prices
        memory : MemoryPrices
        fixed : int
            `fixed`.

        Returns
        -------
        potential : int64 array or None
            None where a cycle gains.
        state : (int, int)
            Active requests and their tokens after the first batches; from there the cheapest way leads to
            none.
        weights : int64 array
            Rows for all cycles that gain, or one for that way.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        graph = self.graph
        tables, came = np.full(graph.shape, FAR, np.int64), np.full(graph.shape, -1, np.int64)
        for k, (first, last) in enumerate(graph.ranges):
            tables[0, k, first : last + 1] = self._after(prices, memory, fixed, k)
        settled, weights = graph.settle(prices, tables, came)
        if settled is None:
            return None, (0, 0), weights
        row = np.zeros((1, 1 + graph.prices), np.int64)
        state = graph.weigh(came, 0, prices, row[0])
        row[0, 5] += graph.together(*state, self.batches)
        return settled[0], state, row

    def _after(self, prices: Prices, memory: MemoryPrices, fixed: int, k: int) -> Integers:
        """What the first batches cost at least, with the pairs of k requests active then, by their tokens."""
        import numpy as np

        first, last = self.graph.ranges[k]
        tokens = np.arange(first, last + 1)
        found: Integers = fixed + memory.active * k + memory.size * tokens
        found += prices.pairs * self.graph.together(k, tokens, self.batches)
        return found

    def compared(
        self, prices: Prices, potential: Integers, memory: MemoryPrices, fixed: int
    ) -> tuple[Integers, tuple[int, int], Integers]:
        """Potentials that are lower or higher by the same everywhere, by `settle`; and what limits them.

        Parameters
        ----------
        prices : Prices
        potential : int64 array
            Some that prove the prices.
        memory : MemoryPrices
        fixed : int
            `fixed`.

        Returns
        -------
        potential : int64 array
        state : (int, int)
            Active requests and their tokens where the potential is what the first batches cost.
        weights : int64 array
            A row for what is left of the walk, none of which depends on prices here.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        graph, least, state = self.graph, FAR, (0, 0)
        for k, (first, last) in enumerate(graph.ranges):
            part = potential[k, first : last + 1]
            spare = self._after(prices, memory, fixed, k) - part
            spare[part >= FAR] = FAR
            at = int(spare.argmin())
            if spare[at] < least:
                least, state = int(spare[at]), (k, first + at)
        row = np.zeros((1, 1 + graph.prices), np.int64)
        row[0, 0] = potential[0, 0] - potential[state] + prices.pairs * graph.together(*state, self.batches)
        return np.where(potential < FAR, potential + least, FAR), state, row


@functools.cache
def _kernel(small: bool = False) -> Callable[..., Any]:
    """Compiled `cheapest_life`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_occupancy_priced as plain

    found: Callable[..., Any] = compiled(plain.cheapest_life, (), allocates=False, small=small)
    return found
