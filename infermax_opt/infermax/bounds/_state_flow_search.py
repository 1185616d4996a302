"""States of an instance, and the search for the prices of `infermax_opt.infermax.bounds.state_flow`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds.pieces import BITS, BatchCosts, PriceProgram, in_units
from infermax_opt.infermax.bounds.tiny import is_tiny
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

__all__ = ["FlowGraph", "FlowSearch", "FlowSpace"]

#: States, requests at once and prices beyond which the bound is not tried.
MAX_STATES, MAX_ACTIVE, MAX_PRICES = 60_000, 64, 400
#: Sweeps over all steps between two questions whether to stop, and after which the search gives up.
SWEEPS, MAX_SWEEPS = 40, 4000
#: Most cycles that one set of prices gives.
CYCLES = 16
#: Steps of the cutting planes, in all and in a row that do not settle; relative precision of what the
#: prices earn; share by which the first prices stay below those by area, which settle but for rounding.
STEPS, PATIENCE, TOLERANCE, BELOW = 600, 100, 1e-5, 1e-6


@dataclass(frozen=True)
class FlowSpace:
    """All states of an instance, and where steps lead from each: `link` of the kernels.

    `kinds`: input tokens, output tokens and number of the requests of each kind; `kind`, `tokens`: of
    each element.
    """

    kinds: tuple[tuple[int, int, int], ...]
    capacity: int
    most: int
    kind: Integers
    tokens: Integers
    offsets: Integers
    element: Integers
    removed: Integers
    lowered: Integers
    grown: Integers

    @classmethod
    def of(cls, instance: Instance) -> FlowSpace | None:
        """The states of an instance; None where they are too many."""
        import numpy as np

        numbers: dict[tuple[int, int], int] = {}
        for entry in instance.types:
            key = entry.input_tokens, entry.output_tokens
            numbers[key] = numbers.get(key, 0) + len(entry.members)
        kinds = tuple((i, o, count) for (i, o), count in sorted(numbers.items()))
        capacity = instance.system.kv_capacity
        most = min(len(instance.requests), capacity // kinds[0][0])
        if instance.system.max_running is not None:
            most = min(most, instance.system.max_running)
        outputs = sum(o for _, o, _ in kinds)
        prices = outputs if instance.policy.preemption else len(kinds)
        if most > MAX_ACTIVE or prices > MAX_PRICES or outputs >= MAX_STATES:
            return None
        elements = [(k, n) for k, (_, o, _) in enumerate(kinds) for n in range(o + 1)]
        kind, tokens = np.array(elements, np.int64).T.copy()
        inputs, ends, counts = np.array(kinds, np.int64).T.copy()
        members = np.empty((MAX_STATES, most), np.int32)
        lengths, held = np.empty((2, MAX_STATES), np.int64)
        children = np.empty(MAX_STATES + 1, np.int64)
        listed, link, *_ = kernels(is_tiny(kinds))
        states = listed(inputs[kind] + tokens, kind, counts, capacity, members, lengths, held, children)
        if states < 0:
            return None
        offsets, grown = np.empty(states + 1, np.int64), np.empty(states, np.int64)
        entries = np.empty((3, int(lengths[:states].sum())), np.int64)
        link(tokens, ends[kind], capacity, members, lengths, held, children, offsets, *entries, grown)
        element, removed, lowered = entries[:, : offsets[-1]].copy()
        return cls(kinds, capacity, most, kind, tokens, offsets, element, removed, lowered, grown)


@dataclass(frozen=True)
class FlowGraph:
    """Costs of all steps in the space of states, in units of 2**-exponent ticks.

    `plain`, `mixed`, `pure`: batches of decodes, with prefills besides, and of prefills alone.
    `fixed`, `column`: `weigh` of the kernels, for requests that make a token in the batch which they
    come into, and for those that do not.  Prices: one for each kind's first tokens, then, with
    evictions, one for each number of tokens of each kind.
    """

    space: FlowSpace
    exponent: int
    plain: int
    mixed: int
    pure: int
    rho: int
    evictions: bool
    fixed: Integers
    column: Integers

    @classmethod
    def of(cls, instance: Instance, space: FlowSpace, piece: int) -> FlowGraph | None:
        """The graph of one affine piece; None where batches cost nothing."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_state_flow import ADMIT, ENTER, FAR, LEAVE

        ticks, evictions = instance.cost.ticks, instance.policy.preemption
        beta, costs = ticks.beta[piece], BatchCosts.of(instance, piece)
        if costs.mixed == 0:
            return None
        exponent = BITS - costs.mixed.bit_length()
        units = functools.partial(in_units, exponent=exponent)
        # A smaller rho proves no more than the real one, and no sum leaves int64.
        rho = min(units(max(0, beta - ticks.d1)), 2**52 // (space.capacity + space.most + 1))
        fixed = np.full((2, 3, len(space.kind)), FAR, np.int64)
        column = np.full(fixed.shape, -1, np.int64)
        # Late or not, into which batch, and what n is there beside the tokens that the request has.
        comes = [(0, ADMIT, 0), (0, ENTER, 1)]
        if instance.policy.chunked_prefill:
            comes += [(1, ADMIT, -1), (1, ENTER, 0)]
        price = len(space.kinds)
        for x, (kind, n) in enumerate(zip(space.kind.tolist(), space.tokens.tolist(), strict=True)):
            i, o, _ = space.kinds[kind]
            if n <= 1:
                move = ENTER if n else ADMIT
                fixed[0, move, x], column[0, move, x] = 0, kind
            if evictions and 1 <= n < o:
                for late, move, more in comes:
                    fixed[late, move, x + more], column[late, move, x + more] = rho * (i + n - 1), price
                fixed[0, LEAVE, x], column[0, LEAVE, x] = 0, price
                price += 1
            if n == o:
                fixed[0, LEAVE, x] = 0
        plain, mixed, pure = map(units, costs)
        return cls(space, exponent, plain, mixed, pure, rho, evictions, fixed, column)

    @property
    def prices(self) -> int:
        """Number of prices."""
        return int(self.column.max()) + 1

    def earned(self, prices: Integers) -> int:
        """All that all first tokens earn, in units."""
        return sum(count * int(price) for (_, _, count), price in zip(self.space.kinds, prices, strict=False))

    def out(self, prices: Integers) -> list[list[int]]:
        """What evictions cost, for each kind and number of tokens from 1 on."""
        rest = iter(prices[len(self.space.kinds) :].tolist())
        return [[next(rest) if self.evictions else 0 for _ in range(o - 1)] for _, o, _ in self.space.kinds]

    def settle(
        self, prices: Integers, start: Integers | None, stop: Callable[[], bool]
    ) -> tuple[Integers | None, Integers]:
        """Tables of potentials at these prices, by lowering `start`; and cycles that gain, else.

        The cycles come as weights on (1, *prices).  Neither where the search was stopped.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_state_flow import FAR, LEAVE

        space = self.space
        tables = np.full((3, len(space.grown)), FAR, np.int64) if start is None else start.copy()
        tables[0, 0] = min(0, tables[0, 0])
        came, moved = np.full((2, *tables.shape), -1, np.int64)
        sign = np.where(np.arange(3) == LEAVE, 1, -1)[:, None]
        paid = sign * np.append(prices, 0)[self.column]
        costs = np.where(self.fixed < FAR, self.fixed + paid, FAR)
        late = costs[1] < costs[0]
        cost, fixed, column = (np.where(late, both[1], both[0]) for both in (costs, self.fixed, self.column))
        cycles = np.zeros(CYCLES, np.int64)
        _, _, settle, weigh = kernels(is_tiny(space.kinds))
        for _ in range(0, MAX_SWEEPS, SWEEPS):
            found = settle(
                tables, came, moved, space.offsets, space.element, space.removed, space.lowered, space.grown,
                cost, self.plain, self.mixed, self.pure, SWEEPS, cycles,
            )  # fmt: skip
            if found >= 0 or stop():
                break
        weights = np.zeros((max(0, found), 1 + len(prices)), np.int64)
        for row, state in zip(weights, cycles, strict=False):
            weigh(came, moved, state, fixed, column, self.plain, self.mixed, self.pure, row)
        return (tables if found == 0 else None), weights


@functools.cache
def kernels(small: bool = False) -> tuple[Callable[..., Any], ...]:
    """Compiled `listed`, `link`, `settle` and `weigh`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_state_flow as plain

    return (
        compiled(plain.listed, (), small=small),
        compiled(plain.link, (plain.find,), small=small),
        compiled(plain.settle, (plain.relax, plain.gains), small=small),
        compiled(plain.weigh, (), allocates=False, small=small),
    )


class FlowSearch:
    """Search for prices by cutting planes, half way between the best and the furthest not ruled out.

    A cycle that gains at some prices is a linear constraint on all prices.  A linear program finds the
    prices that earn most under those found so far; half way from the best prices that settled to those
    either settles or gains on a new cycle.
    """

    def __init__(self, graph: FlowGraph, stop: Callable[[], bool]):
        self.graph, self.stop = graph, stop
        #: The best prices that settled, and their potentials.
        self.prices: Integers | None = None
        self.potential: Integers | None = None

    def run(self) -> None:
        """Find prices and potentials, as good as time allows."""
        import numpy as np

        graph, master = self.graph, _FlowMaster(self.graph)
        point = master.area * (1 - BELOW)
        best, level, tables, failed = np.zeros(len(point)), 0.0, None, 0
        for _ in range(STEPS):
            if self.stop() or failed > PATIENCE:
                return
            prices = (point * master.scale).round().astype(np.int64)
            settled, weights = graph.settle(prices, tables, self.stop)
            if settled is not None:
                best, level, tables, failed = point, float(point @ master.gain), settled, 0
                self.prices, self.potential = prices, settled[0]
            elif len(weights):
                failed += 1
                for row in weights:
                    master.cut(row)
            else:
                return
            target, furthest = master.solve()
            if target - level <= TOLERANCE * target:
                return
            point = (best + furthest) / 2


class _FlowMaster(PriceProgram):
    """The LP over scaled prices."""

    def __init__(self, graph: FlowGraph):
        import numpy as np

        space, most = graph.space, max(1, graph.mixed)
        least = min(graph.plain, graph.mixed, graph.pure)
        scales, areas, lows, highs = [], [], [], []
        for i, o, _ in space.kinds:
            area = i * o + o * (o - 1) // 2
            share = max(area / space.capacity, o / space.most) * most
            scales.append(share)
            areas.append(least * area / space.capacity)
            # Alone in memory a request costs no more; and none need cost less than nothing.
            lows.append(0.0)
            highs.append(o * most)
        for k, (i, o, _) in enumerate(space.kinds * graph.evictions):
            for n in range(1, o):
                left = (o - n) * i + (o * (o - 1) - n * (n - 1)) // 2
                scales.append(scales[k])
                areas.append(least * left / space.capacity)
                # To get so far alone and be evicted, or to be refilled and end alone, must not gain.
                lows.append(-n * most)
                highs.append((o - n) * most + min(graph.rho * (i + n - 1), o * most))
        scale = np.array(scales)
        #: Prices by area.
        self.area = np.array(areas) / scale
        # As a share of what 1 for each kind earns.
        gain = np.zeros(len(scales))
        counts = np.array([count for _, _, count in space.kinds])
        gain[: len(counts)] = counts * scale[: len(counts)]
        super().__init__(gain / gain.sum(), np.array(lows) / scale, np.array(highs) / scale, scale)
