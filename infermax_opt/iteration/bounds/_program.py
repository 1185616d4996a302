"""The linear relaxation of a node, in floats: prices for `nodes`, which trusts none.

Maximise the value less the time, in units of the ratio.  Each limit may be broken at a high price, so that
there always is a solution; where it is broken, the prices show that the node is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from infermax_opt.core.linear import quiet_solver
from infermax_opt.iteration.bounds.cases import Case, Line
from infermax_opt.iteration.bounds.nodes import PRICES, Node, Ratio

__all__ = ["Program", "Relaxed", "exponent_of"]

#: What it costs to break a limit by one, as a multiple of all value.
PENALTY = 100.0
#: Bits of prices of one unit of value.
BITS = 60


@dataclass(frozen=True)
class Relaxed:
    """A solution: prices in whole numbers, copies of each type, value and ticks, what limits lack."""

    prices: list[int]
    counts: list[float]
    value: float
    time: float
    lacking: float


def exponent_of(ticks: int) -> int:
    """Bits of prices (s of `nodes`), for an instance whose batches take so many ticks at most."""
    return BITS + max(0, ticks.bit_length())


class Program:
    """The relaxation of the nodes of a case, for one ratio."""

    def __init__(self, case: Case, ratio: Ratio, exponent: int):
        self.case, self.ratio, self.exponent = case, ratio, exponent
        kinds = case.kinds
        #: Ticks of a unit of time, which is worth a unit of value.
        self.unit = ratio.q / ratio.p if ratio.p else float(case.tau)
        self.weight = 1.0 if ratio.p else 0.0
        self.penalty = PENALTY * (1 + sum(v * n for v, n in zip(kinds.value, kinds.copies, strict=True)))
        self.kinds = len(kinds.value)
        self.solver = quiet_solver()
        self.solver.setOptionValue("presolve", "off")
        self.low: Sequence[int] | None = None
        self.lines: list[Line] = []

    def solve(self, node: Node) -> Relaxed | None:
        """Solve a node; None where the solver fails."""
        import numpy as np

        moving = self.case.kinds.ticks.machine.product and self.case.prefills
        if self.low is None or (moving and tuple(node.low) != tuple(self.low)):
            self._load(node)
        else:
            index = np.arange(self.kinds, dtype=np.int32)
            self.solver.changeColsBounds(
                self.kinds, index, np.array(node.low, dtype=float), np.array(node.high, dtype=float)
            )
            for row, least, most in zip(self.ends, node.least, node.most, strict=True):
                self.solver.changeRowBounds(row, -math.inf, float(most))
                self.solver.changeRowBounds(row + 1, float(least), math.inf)
        self.solver.run()
        found = self.solver.getSolution()
        if not found.dual_valid or not found.value_valid:
            return None
        return self._read(list(found.col_value), [abs(y) for y in found.row_dual])

    def _load(self, node: Node) -> None:
        """Rows: lines, tau, limits as their prices stand.  Columns: types, time, what each limit lacks."""
        import highspy
        import numpy as np

        case, n, inf = self.case, self.kinds, math.inf
        self.low, self.lines = node.low, case.lines(node.low)
        lines = len(self.lines)
        rows, columns = lines + 1 + PRICES, n + 2 + PRICES
        self.ends = lines + 1, lines + 5, lines + 7
        matrix = np.zeros((rows, columns))
        upper, lower = np.full(rows, inf), np.full(rows, -inf)
        for r, (base, each) in enumerate(self.lines):
            matrix[r, :n] = np.array([w / self.unit for w in each])
            matrix[r, n] = -1.0
            upper[r] = -(base - sum(w * k for w, k in zip(each, node.low, strict=True) if k)) / self.unit
        matrix[lines, n], matrix[lines, n + 1], upper[lines] = 1.0, -1.0, case.tau / self.unit
        for row, each, least, most in zip(self.ends, case.kinds.sums, node.least, node.most, strict=True):
            lack = n + 1 + row - lines
            matrix[row, :n], matrix[row, lack], upper[row] = each, -1.0, most
            matrix[row + 1, :n], matrix[row + 1, lack + 1], lower[row + 1] = each, 1.0, least
        matrix[lines + 3, :n], matrix[lines + 3, n + 4] = case.kinds.blocks, -1.0
        upper[lines + 3] = case.kinds.ticks.machine.blocks
        matrix[lines + 4, sorted(case.calls)] = 1.0
        matrix[lines + 4, n + 5], lower[lines + 4] = 1.0, case.need
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = columns, rows
        cost = np.full(columns, self.penalty)
        cost[:n], cost[n] = [-float(v) for v in case.kinds.value], self.weight
        program.col_cost_ = cost
        program.col_lower_ = np.array([*map(float, node.low), *([0.0] * (columns - n))])
        program.col_upper_ = np.array([*map(float, node.high), *([inf] * (columns - n))])
        program.row_lower_, program.row_upper_ = lower, upper
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        by_column, at = np.nonzero(matrix.T)
        program.a_matrix_.start_ = np.searchsorted(by_column, np.arange(columns + 1)).astype(np.int32)
        program.a_matrix_.index_ = at.astype(np.int32)
        program.a_matrix_.value_ = matrix.T[by_column, at]
        self.solver.passModel(program)

    def _read(self, values: list[float], duals: list[float]) -> Relaxed:
        lines, ratio, one = len(self.lines), self.ratio, 1 << self.exponent
        y = [_whole(dual / self.unit, one) for dual in duals[:lines]]
        short = -(-ratio.p * one // ratio.q) - sum(y)
        if short > 0:
            y[y.index(max(y))] += short
        others = [_whole(dual, one) for dual in duals[lines + 1 :]]
        prices = [*y, *others]
        counts = values[: self.kinds]
        value = sum(v * z for v, z in zip(self.case.kinds.value, counts, strict=True))
        return Relaxed(prices, counts, value, values[self.kinds] * self.unit, sum(values[self.kinds + 1 :]))


def _whole(value: float, one: int) -> int:
    """A price in whole numbers."""
    if not math.isfinite(value):
        return 0
    top, bottom = value.as_integer_ratio()
    return top * one // bottom
