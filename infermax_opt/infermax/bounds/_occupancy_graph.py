"""The graph of the occupancy bound: its states, its steps' costs, and the potentials that prices have.

See `infermax_opt.infermax.bounds.occupancy` for what it proves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds.tiny import MOST_SIZES, is_tiny

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from infermax_opt.infermax.bounds._kernels_occupancy import Costs

__all__ = ["MAX_ACTIVE", "OccupancyGraph", "Prices", "kernels"]

#: Most active requests that are told apart.
MAX_ACTIVE = 128
#: Sweeps over all edges after which the search gives up; most cycles that one set of prices gives.
SWEEPS, CYCLES = 2000, 16


@dataclass(frozen=True)
class Prices:
    """Payments and shares of the eviction cost, in units.

    `token` and `size`: a generated token earns token + size * s.  `out_fixed + out_size * s` is
    the share of rho(s) that an eviction pays.  `pairs`: what a batch costs besides for each pair of active
    requests, and who leaves pays back.  `first` and `finish`: what a first token and a finish
    earn besides, for each size of prompts and of finished requests, smallest first.
    """

    token: int
    size: int
    out_fixed: int
    out_size: int
    pairs: int
    first: tuple[int, ...]
    finish: tuple[int, ...]

    @property
    def all(self) -> tuple[int, ...]:
        """All of them, in the order of weights."""
        fixed = (self.token, self.size, self.out_fixed, self.out_size, self.pairs)
        return (*fixed, *self.first, *self.finish)


@dataclass(frozen=True)
class OccupancyGraph:
    """The graph of one instance and piece, possibly at a coarser scale; costs in units.

    `plain`, `mixed`, `pure`: fixed cost of a batch of decodes, with prefills besides, of prefills alone.
    `kinds`: input tokens, output tokens and number of requests, less the first `young` outputs.
    `limit`: most active requests that are told apart, MAX_ACTIVE if None.  `paired`: whether pairs may have a
    price.
    """

    capacity: int
    most: int
    kinds: tuple[tuple[int, int, int], ...]
    plain: int
    mixed: int
    pure: int
    rho: int
    evictions: bool
    chunked: bool
    young: int = 0
    limit: int | None = None
    paired: bool = True

    @functools.cached_property
    def prompts(self) -> tuple[int, ...]:
        return tuple(sorted({i for i, _, _ in self.kinds}))

    @functools.cached_property
    def ends(self) -> tuple[int, ...]:
        return tuple(sorted({i + o for i, o, _ in self.kinds}))

    @functools.cached_property
    def starting(self) -> tuple[int, ...]:
        """Number of requests of each of `prompts`."""
        return tuple(sum(count for i, _, count in self.kinds if i == prompt) for prompt in self.prompts)

    @functools.cached_property
    def ending(self) -> tuple[int, ...]:
        """Number of requests of each of `ends`."""
        return tuple(sum(count for i, o, count in self.kinds if i + o == end) for end in self.ends)

    @functools.cached_property
    def tokens(self) -> int:
        return sum(o * count for _, o, count in self.kinds)

    @functools.cached_property
    def tokens_of_kinds(self) -> int:
        """Output tokens of one request of each kind."""
        return sum(o for _, o, _ in self.kinds)

    @functools.cached_property
    def area(self) -> int:
        """KV sizes of all generated tokens, summed."""
        return sum(count * (i * o + o * (o - 1) // 2) for i, o, count in self.kinds)

    @functools.cached_property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Least and largest U for each number of active requests."""
        shortest, longest = self.prompts[0], self.ends[-1]
        ranges = [(k * shortest, min(k * longest, self.capacity + k)) for k in range(self.rows)]
        if self.wide:
            ranges[-1] = (ranges[-1][0], self.capacity + self.most)
        return tuple(ranges)

    @property
    def scale(self) -> float:
        """What the area alone would earn, each batch at most the capacity, in units."""
        return self.area / self.capacity * max(1, self.plain)

    @property
    def rows(self) -> int:
        return min(self.most, self.limit or MAX_ACTIVE) + 1

    @property
    def wide(self) -> int:
        """Largest number of active requests where the last row stands for several, else 0."""
        return self.most if self.most >= self.rows else 0

    @property
    def slots(self) -> float:
        """Requests of mean size that fit at once."""
        return self.capacity * self.tokens / self.area

    def older(self, young: int) -> OccupancyGraph:
        """The graph of the tokens that requests make when they have `young` or more."""
        kinds = tuple((i + min(young, o - 1), o - min(young, o - 1), c) for i, o, c in self.kinds)
        return replace(
            self,
            most=max(1, min(self.most, self.capacity // min(i for i, _, _ in kinds))),
            kinds=kinds,
            young=young,
        )

    @property
    def states(self) -> int:
        return self.rows * (max(last for _, last in self.ranges) + 1)

    def together(self, k: int, tokens: Any, batches: int) -> Any:
        """Least sum over pairs of k active requests of the tokens of the younger one, after some batches.

        Parameters
        ----------
        k : int
        tokens : int or int64 array
            Of their KV after their next token, together.
        batches : int
            Since the first token that was looked at.
        """
        import numpy as np

        least = k * (k - 1) // 2 + 0 * tokens
        if k == 0 or (self.wide and k == self.rows - 1):
            return least
        most = min(batches, max(o for _, o, _ in self.kinds))
        made = np.maximum(tokens - k * self.prompts[-1], k) - k
        # Who has more tokens than one has all that there may be, as far as they go.
        full, rest = np.divmod(made, max(1, most - 1))
        return least + (most - 1) * (full * (full - 1) // 2) + rest * full

    def coarser(self, scale: int) -> OccupancyGraph:
        """The same graph with `scale` tokens and batches for each one; prices keep their meaning."""
        kinds = tuple((max(1, round(i / scale)), max(1, round(o / scale)), c) for i, o, c in self.kinds)
        capacity = max(round(self.capacity / scale), max(i + o for i, o, _ in kinds))
        return replace(
            self,
            capacity=capacity,
            most=max(1, min(self.most, capacity // min(i for i, _, _ in kinds))),
            kinds=kinds,
            plain=self.plain * scale,
            mixed=self.mixed + self.plain * (scale - 1),
            pure=self.pure + self.plain * (scale - 1),
            rho=self.rho * scale,
        )

    def earned(self, prices: Prices) -> int:
        """All that all requests earn, in units."""
        starts = zip(self.starting, prices.first, strict=True)
        ends = zip(self.ending, prices.finish, strict=True)
        fixed = sum(count * price for count, price in (*starts, *ends))
        return prices.token * self.tokens + prices.size * self.area + fixed

    @property
    def prices(self) -> int:
        """Number of prices."""
        return 5 + len(self.prompts) + len(self.ends)

    def moved(self, other: OccupancyGraph, point: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Scaled prices like those of this graph at another scale."""
        import numpy as np

        scale = self.capacity / other.capacity
        split = 5 + len(other.prompts)
        parts = [point[:5]]
        for mine, theirs, part in (
            (self.prompts, other.prompts, point[5:split]),
            (self.ends, other.ends, point[split:]),
        ):
            parts.append(part[[int(np.abs(np.array(theirs) * scale - size).argmin()) for size in mine]])
        return np.concatenate(parts)

    def tables_like(
        self, other: OccupancyGraph, tables: npt.NDArray[np.int64] | None
    ) -> npt.NDArray[np.int64] | None:
        """Potentials like those of this graph at another scale."""
        import numpy as np

        if tables is None:
            return None
        rows = np.minimum(np.arange(self.rows), other.rows - 1)
        width = max(last for _, last in self.ranges) + 1
        at = np.minimum(np.arange(width) * other.capacity // self.capacity, tables.shape[2] - 1)
        return tables[:, rows][:, :, at]

    def costs(self, prices: Prices) -> Costs:
        """Weights of the edges at these prices."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy import Costs

        return Costs(
            self.plain, self.mixed, self.pure, prices.token, prices.size,
            prices.out_fixed, prices.out_size,
            -self.rho - prices.out_fixed, self.rho - prices.out_size, prices.pairs,
            np.array(prices.first, np.int64), np.array(prices.finish, np.int64),
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of tables of potentials: layers, numbers of active requests, and tokens."""
        return 3, self.rows, max(last for _, last in self.ranges) + 1

    @property
    def is_tiny(self) -> bool:
        """Whether plain Python does; few requests may have long prompts."""
        return is_tiny(self.kinds) and self.states <= MOST_SIZES

    @property
    def checked(self) -> int:
        """Steps that a checker takes, about: each list of potentials is passed by every kind of step."""
        returns = (40 if self.chunked else 20) + (32 if self.paired else 10) if self.evictions else 0
        passes = 6 + returns + 4 * len(self.prompts) + 2 * len(self.ends)
        return passes * sum(last - first + 1 for first, last in self.ranges)

    def settle(
        self,
        prices: Prices,
        start: npt.NDArray[np.int64] | None,
        came: npt.NDArray[np.int64] | None = None,
    ) -> tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64]]:
        """Potentials that prove the prices; or, if none were found, the weights of cycles that gain.

        Their costs at other prices are weights @ (1, *prices), in the order of `Prices.all`.

        Parameters
        ----------
        prices : Prices
        start : int64 array or None
            The nearer to potentials this is, the faster.
        came : int64 array, optional
            Filled with -1; becomes the last edge to each state.  Without it, potentials are from the empty
            state on, with it from where `start` says.

        Returns
        -------
        tables : int64 array or None
            `settle` of the kernels.
        weights : int64 array
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR

        shortest = self.prompts[0]
        tables = np.full(self.shape, FAR, np.int64) if start is None else start.copy()
        if came is None:
            came = np.full(self.shape, -1, np.int64)
            tables[0, 0, 0] = min(0, tables[0, 0, 0])
        first, last = np.array(self.ranges, dtype=np.int64).T.copy()
        costs = self.costs(prices)
        prompts, ends = np.array(self.prompts, np.int64), np.array(self.ends, np.int64)
        cycles = np.zeros(CYCLES, np.int64)
        settle, _ = kernels(self.is_tiny)
        found = settle(
            tables, came, first, last, self.capacity, self.wide, prompts, ends,
            shortest, self.ends[-1] - 1, self.young > 0, self.evictions, self.chunked, costs, SWEEPS, cycles,
        )  # fmt: skip
        weights = np.zeros((max(0, found), 1 + self.prices), np.int64)
        for row, state in zip(weights, cycles, strict=False):
            self.weigh(came, int(state), prices, row)
        return (tables if found == 0 else None), weights

    def weigh(
        self, came: npt.NDArray[np.int64], at: int, prices: Prices, weights: npt.NDArray[np.int64]
    ) -> tuple[int, int]:
        """Add the weights of the cycle through a state, or of the path to it; return where this begins.

        Parameters
        ----------
        came : int64 array
            The last edge to each state, by `settle`.
        at : int
            The state, as an index of the flat table.
        prices : Prices
        weights : int64 array
            `settle`.

        Returns
        -------
        (int, int)
            Active requests and their tokens.
        """
        import numpy as np

        prompts, ends = np.array(self.prompts, np.int64), np.array(self.ends, np.int64)
        _, weigh = kernels(self.is_tiny)
        start = weigh(
            came, at, self.wide, 0, prompts, ends, self.prompts[0], False, self.costs(prices), weights,
        )  # fmt: skip
        _, rows, width = self.shape
        return int(start // width % rows), int(start % width)


@functools.cache
def kernels(small: bool = False) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Compiled `settle` and `weigh`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_occupancy as plain
    from infermax_opt.infermax.bounds import _kernels_occupancy_steps as steps

    helpers = (steps.shift, steps.lift, steps.drop, steps.finish, steps.evict, plain.relax, plain.gains)
    return (
        compiled(plain.settle, helpers, small=small),
        compiled(plain.weigh, (), allocates=False, small=small),
    )
