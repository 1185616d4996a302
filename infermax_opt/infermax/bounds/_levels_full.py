"""Costs on levels of one token, each batch charged in full: `infermax_opt.infermax.bounds.levels`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.bounds._levels_space import (
    CYCLES,
    MAX_SWEEPS,
    MOST_UNITS,
    SWEEPS,
    LevelPrices,
    LevelSpace,
)
from infermax_opt.infermax.bounds.pieces import BatchCosts, in_units
from infermax_opt.infermax.data.instance import Instance

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["FullGraph"]


@dataclass(frozen=True)
class FullGraph:
    """Costs of all steps in the space of states on levels of one token, in units of 2**-exponent ticks.

    `plain`, `mixed`, `pure`: of batches of decodes, with prefills besides, and of prefills alone; `charge`,
    `late`: of a return, by level, with a token in its batch and without one, FAR where there is none;
    `leaves`: whether requests do so, by level.
    """

    space: LevelSpace
    exponent: int
    plain: int
    mixed: int
    pure: int
    charge: Integers
    late: Integers
    leaves: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, instance: Instance, space: LevelSpace, piece: int, exponent: int) -> FullGraph:
        """The graph of one affine piece."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_levels_full import FAR

        ticks, policy = instance.cost.ticks, instance.policy
        units = functools.partial(in_units, exponent=exponent)
        rho = max(0, ticks.beta[piece] - ticks.d1)
        cost = [min(units(rho * (space.inputs + q - 1)), MOST_UNITS) for q in range(1, space.levels)]
        charge, late = np.full((2, space.levels), FAR, np.int64)
        charge[0] = 0
        if policy.preemption:
            charge[1:] = cost
            if policy.chunked_prefill:
                late[:-1] = cost
        ends = policy.preemption | (np.arange(space.levels) == space.levels - 1)
        plain, mixed, pure = map(units, BatchCosts.of(instance, piece))
        return cls(space, exponent, plain, mixed, pure, charge, late, ends)

    @property
    def block(self) -> int:
        """Most that a batch costs."""
        return self.mixed

    @property
    def idle(self) -> int:
        """Idling earns nothing: it need not pay for prefills."""
        return 0

    @property
    def demands(self) -> Integers:
        """None: whatever levels are worth, each step is one of a schedule."""
        import numpy as np

        return np.empty((0, self.space.levels + 2), np.int64)

    def allowed(self, worth: Integers, _: int) -> LevelPrices:
        """These prices."""
        return LevelPrices(worth, 0)

    def start(self, tables: Integers) -> Integers:
        """Tables to begin with, by those of wider levels: they know nothing of batches without decodes."""
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_levels_full import FAR

        return np.concatenate((tables, np.full_like(tables[:1], FAR)))

    def settle(
        self, prices: LevelPrices, start: Integers | None, stop: Callable[[], bool]
    ) -> tuple[Integers | None, Integers]:
        """Tables of potentials at these prices, by lowering `start`; and cycles that gain, else.

        The cycles come as weights on (1, *worth, idle).  Neither where the search was stopped.
        """
        import numpy as np

        from infermax_opt.infermax.bounds._kernels_levels_full import FAR

        space, levels = self.space, self.space.levels
        tables = np.full((3, len(space.lengths)), FAR, np.int64) if start is None else start.copy()
        tables[0, 0] = min(0, tables[0, 0])
        came, moved = np.full(tables.shape, -1, np.int64), np.zeros(tables.shape, np.int16)
        out = np.array([*prices.out, 0], np.int64)
        soon = np.where(self.charge < FAR, self.charge - out[:-1], FAR)
        later = np.where(self.late < FAR, self.late - out[1:], FAR)
        late = later < soon
        cycles = np.zeros(CYCLES, np.int64)
        settle, weigh = kernels(space.tiny)
        for _ in range(0, MAX_SWEEPS, SWEEPS):
            found = settle(
                tables, came, moved, *space.links, np.minimum(soon, later),
                np.where(self.leaves, out[1:], FAR), self.plain, self.mixed, self.pure, SWEEPS, cycles,
            )  # fmt: skip
            if found >= 0 or stop():
                break
        weights = np.zeros((max(0, found), levels + 2), np.int64)
        steps = np.zeros(3 + 2 * levels, np.int64)
        paid = np.where(late, self.late, np.where(self.charge < FAR, self.charge, 0))
        for row, node in zip(weights, cycles, strict=False):
            weigh(came, moved, node, steps)
            coming, going = steps[3 : 3 + levels], steps[3 + levels :]
            row[0] = int(steps[:3] @ (self.plain, self.mixed, self.pure)) + int(coming @ paid)
            row[1:-1] = (going - coming).cumsum() - going + coming * late
        return (tables if found == 0 else None), weights


@functools.cache
def kernels(small: bool = False) -> tuple[Callable[..., Any], ...]:
    """Compiled `settle` and `weigh`; `small` as in `compiled`."""
    from infermax_opt.infermax.bounds import _kernels_levels_full as plain

    return (
        compiled(plain.settle, (plain.relax, plain.gains), small=small),
        compiled(plain.weigh, (), allocates=False, small=small),
    )
