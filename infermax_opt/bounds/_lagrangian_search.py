"""Search for the prices of the Lagrangian bound by cutting planes.

For a fixed number J of batches the bound is concave in the prices: the minimum over all sets of
paths of a linear function.  The master LP keeps the paths found so far, the shortest paths under
its prices give new ones.  Prices are linear between nodes, which lie close together where memory
fills, so the LP is small whatever J is.  Only the exact evaluation of rounded prices counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infermax_opt.bounds.lagrangian import Kind, Relaxation, retrace

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["PriceSearch"]

#: Nodes per stretch of the horizon; steps of the cutting planes for one J; relative gap at which
#: they end; share of the best prices so far in the next ones to try; largest price, where 1 prices
#: a full memory at the fixed cost of a batch.
NODES, STEPS, TOLERANCE, STAY, DEAREST = 60, 300, 1e-4, 0.6, 8.0


class PriceSearch:
    """Cutting planes for one relaxation and horizon.

    Parameters
    ----------
    relaxation : Relaxation
    horizon : int
        Number of batches that have prices.
    stop : callable
        Asked before each step.
    """

    def __init__(self, relaxation: Relaxation, horizon: int, stop: Callable[[], bool]):
        import highspy
        import numpy as np

        self.relaxation, self.horizon, self.stop = relaxation, horizon, stop
        self.nodes = _nodes(horizon, max(kind.output_tokens for kind in relaxation.kinds))
        self.left, self.weight = _weights(self.nodes, horizon)
        self.unit = relaxation.batch / relaxation.capacity
        self.centre = np.ones(len(self.nodes))
        self.choices = [np.empty((horizon, k.output_tokens + 1), np.int8) for k in relaxation.kinds]
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)
        self.solver.setOptionValue("threads", 1)
        self.solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
        for _ in self.nodes:
            self.solver.addVar(0.0, DEAREST)
        for kind in relaxation.kinds:
            self.solver.addVar(-highspy.kHighsInf, highspy.kHighsInf)
            self.solver.changeColCost(self.solver.getNumCol() - 1, float(kind.count))
        #: Last batch and constant of each row.
        self.rows: list[tuple[int, float]] = []
        for number, kind in enumerate(relaxation.kinds):
            for start in sorted(
                {0, *self.nodes[self.nodes <= relaxation.least - kind.output_tokens].tolist()}
            ):
                self._add_straight(number, kind, start)

    def run(self, batches: int) -> npt.NDArray[np.int64]:
        """Prices that are good for schedules of so many batches, int64 (T,)."""
        import numpy as np

        relaxation, solver = self.relaxation, self.solver
        for row, (end, constant) in enumerate(self.rows):
            solver.changeRowBounds(row, -np.inf, constant if end <= batches else np.inf)
        spent = self._gather(np.arange(self.horizon) < batches)
        count = len(self.nodes)
        solver.changeColsCost(count, np.arange(count, dtype=np.int32), -spent)
        best, kept = -np.inf, self.prices(self.centre)
        target = np.inf
        for step in range(STEPS):
            point = self.centre
            if step > 0:
                solver.run()
                target = solver.getInfo().objective_function_value + batches
                point = np.array(solver.getSolution().col_value[:count])
                point = STAY * self.centre + (1 - STAY) * point
            prices = self.prices(point)
            value = float((relaxation.batch - relaxation.capacity * prices[:batches]).sum())
            for number, kind in enumerate(relaxation.kinds):
                ends = relaxation.paths(kind, prices, self.choices[number])
                value += kind.count * float(ends[batches])
                self._add_path(number, kind, int(np.argmax(ends == ends[batches])), batches)
            value /= relaxation.batch
            if value > best:
                best, kept, self.centre = value, prices, point
            if target - best < TOLERANCE * abs(best) or self.stop():
                break
        return kept

    def prices(self, point: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Whole prices of every batch from those of the nodes."""
        import numpy as np

        following = np.append(point[1:], point[-1])
        values = point[self.left] * (1 - self.weight) + following[self.left] * self.weight
        return np.maximum(0, np.round(values * self.unit)).astype(np.int64)

    def _gather(self, held: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Coefficients of the nodes in the sum of price times what is held."""
        import numpy as np

        count = len(self.nodes)
        row = np.zeros(count + 1)
        row += np.bincount(self.left, held * (1 - self.weight), count + 1)
        row += np.bincount(self.left + 1, held * self.weight, count + 1)
        return row[:count]

    def _add_straight(self, number: int, kind: Kind, start: int) -> None:
        """The path that makes a token in every batch from `start` on."""
        import numpy as np

        held = np.zeros(self.horizon)
        end = start + kind.output_tokens
        held[start:end] = kind.sizes[1:]
        self._add(number, held, float(kind.steps[2:].sum()), end, end)

    def _add_path(self, number: int, kind: Kind, end: int, batches: int) -> None:
        import numpy as np

        blocks = np.empty(self.horizon, np.int64)
        cost = retrace(self.choices[number], end, kind, blocks)
        self._add(number, blocks, cost, end, batches)

    def _add(self, number: int, held: npt.NDArray[Any], cost: float, end: int, batches: int) -> None:
        """The kind's path costs no more than this one, if that ends in time."""
        import numpy as np

        row = self._gather(held) / self.relaxation.capacity
        used = np.flatnonzero(row)
        cost /= self.relaxation.batch
        columns = np.append(used, len(self.nodes) + number).astype(np.int32)
        upper = cost if end <= batches else np.inf
        self.solver.addRow(-np.inf, upper, len(columns), columns, np.append(-row[used], 1.0))
        self.rows.append((end, cost))


def _nodes(horizon: int, longest: int) -> npt.NDArray[np.int64]:
    """Batches at which prices are free: dense for twice the longest output, then even, dense at the end."""
    import numpy as np

    if horizon <= 2 * NODES:
        return np.arange(horizon)
    start, end = min(2 * longest, horizon // 2), min(longest, horizon // 4)
    parts = (
        np.linspace(0, start, NODES),
        np.linspace(start, horizon - 1 - end, NODES // 2),
        np.linspace(horizon - 1 - end, horizon - 1, NODES // 2),
    )
    return np.unique(np.round(np.concatenate(parts)).astype(np.int64))


def _weights(
    nodes: npt.NDArray[np.int64], horizon: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The node at or before each batch, and the weight of the one after it."""
    import numpy as np

    left = np.searchsorted(nodes, np.arange(horizon), side="right") - 1
    width = np.diff(np.append(nodes, nodes[-1] + 1))
    return left, (np.arange(horizon) - nodes[left]) / width[left]
