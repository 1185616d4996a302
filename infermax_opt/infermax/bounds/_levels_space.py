"""States on levels, and what steps among them cost: `infermax_opt.infermax.bounds.levels`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds.pieces import in_units
from infermax_opt.infermax.bounds.tiny import is_tiny
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["LevelGraph", "LevelPrices", "LevelSpace", "most_at_once", "states_on_levels"]

#: Sweeps over all steps between two questions whether to stop, and after which prices are given up.
SWEEPS, MAX_SWEEPS = 8, 4000
#: Most cycles that one set of prices gives.
CYCLES = 64
#: More states than are ever listed.
MOST_STATES = 2**40
#: Units that a refill costs at most, so that no sum leaves int64.
MOST_UNITS = 2**40


@dataclass(frozen=True)
class LevelSpace:
    """All states of an instance at looks `width` batches apart, and where steps lead: `link` of the kernels.

    `inputs`, `outputs`, `count`: of the requests, which are all of one kind; `tiny`: whether plain Python
    does.
    """

    inputs: int
    outputs: int
    count: int
    capacity: int
    width: int
    tiny: bool
    members: npt.NDArray[np.int32]
    lengths: Integers
    children: Integers
    links: tuple[npt.NDArray[Any], ...]

    @classmethod
    def of(cls, instance: Instance, width: int) -> LevelSpace:
        """The states of an instance of one kind."""
        import numpy as np

        inputs, outputs, count, most = most_at_once(instance)
        levels, tiny = -(-outputs // width), is_tiny(((inputs, outputs, count),))
        states = states_on_levels(instance, width, MOST_STATES)
        sizes = inputs + width * np.arange(levels) + 1
        members = np.empty((states, most), np.int32)
        lengths, held = np.empty((2, states), np.int64)
        children = np.empty(states + 1, np.int64)
        listed, link, *_ = kernels(tiny)
        capacity, alike = instance.system.kv_capacity, np.zeros(levels, np.int64)
        listed(sizes, alike, np.array([count]), capacity, members, lengths, held, children)
        entries = int(lengths.sum())
        offsets, level = np.empty(states + 1, np.int64), np.empty(entries, np.int16)
        removed, lowered = np.empty((2, entries), np.int32)
        shrunk = np.empty(states, np.int32)
        link(members, lengths, children, width == 1, offsets, level, removed, lowered, shrunk)
        last = int(offsets[-1])
        links = offsets, level[:last].copy(), removed[:last].copy(), lowered[:last].copy(), shrunk
        return cls(inputs, outputs, count, capacity, width, tiny, members, lengths, children, links)

    @property
    def levels(self) -> int:
        """Number of levels."""
        return -(-self.outputs // self.width)

    @property
    def tokens(self) -> Integers:
        """Tokens of each level: of the last, only those that there are."""
        import numpy as np

        found = np.full(self.levels, self.width)
        found[-1] = self.outputs - self.width * (self.levels - 1)
        return found

    def earned(self, prices: LevelPrices) -> int:
        """What all requests earn in all phases, in units."""
        return self.count * int(self.tokens @ prices.worth)

    def rounded(self, coarse: LevelSpace) -> Integers:
        """For each state the one of coarser levels that it is rounded down to."""
        import numpy as np

        *_, rounded = kernels(self.tiny)
        found = np.empty(len(self.lengths), np.int64)
        rounded(self.members, self.lengths, self.width, coarse.width, coarse.members, coarse.children, found)
        return found


def most_at_once(instance: Instance) -> tuple[int, int, int, int]:
    """Input and output tokens of requests of one kind, how many there are, and how many fit at once."""
    kind, system = instance.types[0], instance.system
    count = len(instance.requests)
    most = min(count, system.kv_capacity // kind.input_tokens, system.max_running or count)
    return kind.input_tokens, kind.output_tokens, count, most


def states_on_levels(instance: Instance, width: int, limit: int) -> int:
    """Number of states at looks so many batches apart, or one above the limit."""
    import numpy as np

    inputs, outputs, _, most = most_at_once(instance)
    capacity = instance.system.kv_capacity
    ways = np.zeros((most + 1, capacity + 1))
    ways[0, 0] = 1.0
    for size in range(inputs, min(capacity, inputs + outputs - 1) + 1, width):
        for k in range(1, min(most, capacity // inputs) + 1):
            ways[k, size:] += ways[k - 1, : capacity + 1 - size]
        if ways.sum() > limit:
            return limit + 1
    return int(ways.sum())


@dataclass(frozen=True)
class LevelPrices:
    """Prices in units: what a level is worth, lowest first, and what idling in a batch earns."""

    worth: Integers
    idle: int

    @property
    def out(self) -> list[int]:
        """What a request earns that appears on a level, lowest first: all from there on."""
        return [int(v) for v in self.worth[::-1].cumsum()[::-1]]


@dataclass(frozen=True)
class LevelGraph:
    """Costs of all steps in the space of states, in units of 2**-exponent ticks.

    Levels are of two tokens or more: on those of one, batches are charged in full (`FullGraph`).  `block`,
    `more`: of a block of batches, and beside it if requests appear in one while idling earns nothing;
    `charge`: of a return, by level, FAR where there is none; `leaves`: whether requests do so, by level;
    `idle`: the most that idling in a batch may earn.
    """

    space: LevelSpace
    exponent: int
    block: int
    more: int
    idle: int
    charge: Integers
    leaves: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, instance: Instance, space: LevelSpace, piece: int, exponent: int) -> LevelGraph:
        """The graph of one affine piece."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_levels import FAR

        ticks, width, policy = instance.cost.ticks, space.width, instance.policy
        units = functools.partial(in_units, exponent=exponent)
        least, rho = min(ticks.d0, ticks.p0), max(0, ticks.beta[piece] - ticks.d1)
        sizes = [space.inputs + width * q for q in range(1, space.levels)]
        cost = [min(units(rho * (size - 1)), MOST_UNITS) for size in sizes]
        charge = [0, *(cost if policy.preemption else [FAR] * len(cost))]
        ends = policy.preemption | (np.arange(space.levels) >= space.outputs // width - 1)
        ends[0] = True
        return cls(
            space, exponent, units(width * (ticks.alpha[piece] + least)), units(ticks.p0 - least),
            units(least), np.array(charge, np.int64), ends,
        )  # fmt: skip

    @property
    def demands(self) -> Integers:
        """Weights on (1, *worth, idle), what each row weighs being demanded to be 0 or more."""
        import numpy as np

        rows = np.eye(self.space.levels + 2, dtype=np.int64)[1:-1]
        rows[:, -1] = -self.space.width
        rows[0, [0, -1]] -= self.more, 1
        return rows

    def allowed(self, worth: Integers, idle: int) -> LevelPrices:
        """Prices like these; no level is worth less than what idling through it earns."""
        import numpy as np

        idle, width = min(idle, self.idle), self.space.width
        worth = np.maximum(worth, width * idle)
        worth[0] = max(int(worth[0]), (width + 1) * idle + self.more)
        return LevelPrices(worth, idle)

    def start(self, tables: Integers) -> Integers:
        """Tables to begin with, by those of wider levels."""
        return tables

    def settle(
        self, prices: LevelPrices, start: Integers | None, stop: Callable[[], bool]
    ) -> tuple[Integers | None, Integers]:
        """Tables of potentials at these prices, by lowering `start`; and cycles that gain, else.

        The cycles come as weights on (1, *worth, idle).  Neither where the search was stopped.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_levels import FAR

        space, worth = self.space, prices.worth
        tables = np.full((2, len(space.lengths)), FAR, np.int64) if start is None else start.copy()
        tables[0, 0] = min(0, tables[0, 0])
        came, moved = np.full(tables.shape, -1, np.int64), np.zeros(tables.shape, np.int16)
        out = np.array(prices.out, np.int64)
        appear = np.where(self.charge < FAR, self.charge - out, FAR)
        leave = np.where(self.leaves, out - worth, FAR)
        cycles = np.zeros(CYCLES, np.int64)
        _, _, settle, weigh, _ = kernels(space.tiny)
        for _ in range(0, MAX_SWEEPS, SWEEPS):
            found = settle(
                tables, came, moved, *space.links, appear, leave,
                self.block, self.more + prices.idle, space.width * prices.idle, SWEEPS, cycles,
            )  # fmt: skip
            if found >= 0 or stop():
                break
        levels = space.levels
        weights = np.zeros((max(0, found), levels + 2), np.int64)
        steps = np.zeros(3 + 2 * levels, np.int64)
        for row, node in zip(weights, cycles, strict=False):
            weigh(came, moved, node, *space.links[:3], steps)
            coming, going = steps[3 : 3 + levels], steps[3 + levels :]
            paid = int(coming @ np.where(self.charge < FAR, self.charge, 0))
            row[0] = steps[0] * self.block + steps[1] * self.more + paid
            row[1:-1] = (going - coming).cumsum() - going
            row[-1] = steps[1] - space.width * steps[2]
        return (tables if found == 0 else None), weights


@functools.cache
def kernels(small: bool = False) -> tuple[Callable[..., Any], ...]:
    """Compiled `listed`, `link`, `settle`, `weigh` and `rounded`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_levels as plain
    from infermax_opt.infermax.bounds import _kernels_state_flow as flow

    return (
        compiled(flow.listed, (), small=small),
        compiled(plain.link, (plain.find,), small=small),
        compiled(plain.settle, (plain.relax, plain.gains), small=small),
        compiled(plain.weigh, (), allocates=False, small=small),
        compiled(plain.rounded, (plain.find,), small=small),
    )
