"""The linear program of `infermax_opt.infermax.bounds.branching` for a number of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.core.linear import ended_by, quiet_solver, sparse_program
from infermax_opt.infermax.bounds._branching_proof import (
    DECODE,
    DECODES,
    FIRST,
    IDLE,
    LATE,
    MOST,
    PREFILLS,
    RETURN,
    Box,
    Counted,
    Prices,
    Split,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]
    Integers = npt.NDArray[np.int64]

__all__ = ["CountProgram", "Solution"]

#: What it costs to leave all requests unserved, in batches: far more than any schedule, and prices below
#: `MOST`.  A part of it for each is what it costs to break a split by one.
PENALTY = 2.0**15
#: Kind of columns that no box counts: evictions, and requests that are out.
APART = 0


class Solution(NamedTuple):
    """Prices; and what all columns are in the program's solution."""

    prices: Prices
    columns: Floats


class CountProgram:
    """How many requests do what in which batch, in fractions.

    Parameters
    ----------
    counted : Counted
    batches : int
        No fewer than the output tokens of a request.
    stop : callable
        Asked often whether to solve no more.
    """

    def __init__(self, counted: Counted, batches: int, stop: Callable[[], bool]):
        self.counted, self.batches = counted, batches
        self.unit = float(counted.alpha + counted.presence)
        self.columns: list[tuple[int, int, int]] = []  # kind, batch, tokens after it
        self.cost: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self._add_presence()
        self._add_places()
        self._add_moves()
        self._pass(stop)
        self.boxes: dict[Box, int] = {}
        self.bounded: set[int] = set()

    def _column(self, move: tuple[int, int, int], cost: float, rows: Sequence[tuple[int, float]]) -> None:
        number = len(self.columns)
        self.columns.append(move)
        self.cost.append(cost)
        self.entries += [(row, number, value) for row, value in rows]

    def _row(self, low: float, high: float) -> int:
        self.low.append(low)
        self.high.append(high)
        return len(self.low) - 1

    def _add_presence(self) -> None:
        """Rows of KV and prompts, and what each batch does."""
        of, inf = self.counted, float("inf")
        batches = range(self.batches)
        rooms = [of.room // divisor for divisor in of.divisors]
        self.held = [[self._row(-inf, 1.0 if room else 0.0) for _ in batches] for room in rooms]
        self.decoded = [self._row(-inf, 0.0) for _ in batches]
        self.prefilled = [self._row(-inf, 0.0) for _ in batches]
        self.prompts = [self._row(-inf, 0.0) for _ in batches]
        for j in batches:
            some = self._row(1.0, inf if of.hybrid else 1.0)
            share = of.budget / (of.inputs * of.count)
            begun = [(row, -share) for row in self.prompts[j:]]
            begun += [(self.prefilled[j], -1.0), (some, 1.0)]
            self._column((PREFILLS, j + 1, 0), of.p0 / self.unit, begun)
            self._column((DECODES, j + 1, 0), of.d0 / self.unit, [(self.decoded[j], -1.0), (some, 1.0)])

    def _add_places(self) -> None:
        """Rows of requests by batch and tokens: active after it, out in it; as far as these end in time."""
        of, last = self.counted, self.counted.outputs
        self.share = (of.sizes / of.room).tolist()
        self.parts = [((of.sizes // x) / max(1, of.room // x)).tolist() for x in of.divisors]
        self.active: dict[tuple[int, int], int] = {}
        self.out: dict[tuple[int, int], int] = {}
        for j in range(1, self.batches + 1):
            for n in range(1, min(j, last - 1) + 1):
                if last - n <= self.batches - j:
                    self.active[j, n] = self._row(0.0, 0.0)
                if of.evictions and n < j and last - n <= self.batches - j + 1:
                    self.out[j, n] = self._row(0.0, 0.0)
        self.served = self._row(float(of.count), float(of.count))

    def _move(self, kind: int, j: int, n: int, leaves: int, cost: float = 0.0) -> None:
        """A move from one place to n tokens after batch j, where these can end in time.

        Parameters
        ----------
        kind, j, n : int
        leaves : int
            Row of the place.
        cost : float
            In batches.
        """
        after = self.active.get((j, n))
        if after is None and n < self.counted.outputs:
            return
        rows = [(leaves, 1.0 if kind == FIRST else -1.0)]
        rows += [(held[j - 1], part[n - 1]) for held, part in zip(self.held, self.parts, strict=True)]
        if kind != IDLE:
            beside = self.decoded if kind == DECODE else self.prefilled
            rows.append((beside[j - 1], self.share[n - 1]))
        if kind == FIRST:
            rows += [(row, 1.0 / self.counted.count) for row in self.prompts[j - 1 :]]
        if after is not None:
            rows.append((after, 1.0))
        self._column((kind, j, n), cost, rows)

    def _add_moves(self) -> None:
        """All moves of requests, and what it costs to leave some unserved."""
        outputs = self.counted.outputs
        self._column((APART, 0, 0), PENALTY / self.counted.count, [(self.served, 1.0)])
        for j in range(1, self.batches + 1):
            self._move(FIRST, j, 1, self.served)
            for n in range(1, outputs):
                here = self.active.get((j - 1, n))
                if here is not None:
                    self._move(DECODE, j, n + 1, here)
                    self._move(IDLE, j, n, here)
                if (j, n) in self.out:
                    self._add_returns(j, n, here)

    def _add_returns(self, j: int, n: int, here: int | None) -> None:
        """Evictions of requests with n tokens before batch j, and what they may do in it.

        Parameters
        ----------
        j, n : int
        here : int or None
            Row of those that are active.
        """
        of, away = self.counted, self.out[j, n]
        refill = of.rho * (of.inputs + n - 1) / self.unit
        if here is not None:
            self._column((APART, j, n), 0.0, [(here, -1.0), (away, 1.0)])
        self._move(RETURN, j, n + 1, away, refill)
        if of.chunked:
            self._move(LATE, j, n, away, refill)
        stays = self.out.get((j + 1, n))
        if stays is not None:
            self._column((APART, j, n), 0.0, [(away, -1.0), (stays, 1.0)])

    def _pass(self, stop: Callable[[], bool]) -> None:
        """Hand it to the solver."""
        import numpy as np

        self.kind, self.batch, self.tokens = np.array(self.columns, np.int64).T.copy()
        present = (self.kind & (PREFILLS | DECODES)) > 0
        uppers = np.where(present, 1.0, np.inf)
        program = sparse_program(self.cost, uppers, self.low, self.high, zip(*self.entries, strict=True))
        self.solver = quiet_solver()
        self.solver.cbSimplexInterrupt += ended_by(stop)
        self.solver.passModel(program)

    def solve(self, splits: Sequence[Split]) -> Solution | None:
        """Prices under some splits; None where the solver was stopped."""
        import highspy
        import numpy as np

        inf = float("inf")
        wanted: dict[int, tuple[float, float]] = {}
        for box, limit, above in splits:
            row = self.boxes.get(box)
            if row is None:
                row = self._add_box(box)
            low, high = wanted.get(row, (-inf, inf))
            wanted[row] = (max(low, limit), high) if above else (low, min(high, limit))
        for row in self.bounded - set(wanted):
            self.solver.changeRowBounds(row, -inf, inf)
        for row, (low, high) in wanted.items():
            self.solver.changeRowBounds(row, low, high)
        self.bounded = set(wanted)
        self.solver.run()
        if self.solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        solution = self.solver.getSolution()
        duals = np.array(solution.row_dual, dtype=float) * self.unit
        return Solution(self._rounded(duals, splits), np.array(solution.col_value, dtype=float))

    def _add_box(self, box: Box) -> int:
        """A row for what is in a box, which may be broken at a cost."""
        import numpy as np

        inside, penalty = self.inside(box), PENALTY / self.counted.count
        row = self.solver.getNumRow()
        chosen = np.flatnonzero(inside).astype(np.int32)
        self.solver.addRow(-np.inf, np.inf, len(chosen), chosen, np.ones(len(chosen)))
        for sign in (1.0, -1.0):
            self.solver.addCol(penalty, 0.0, np.inf, 1, np.array([row], np.int32), np.array([sign]))
        self.boxes[box] = row
        return int(row)

    def inside(self, box: Box) -> npt.NDArray[np.bool_]:
        """Which columns a box counts."""
        within = (self.kind & box.kinds) > 0
        within &= (self.batch >= box.first) & (self.batch <= box.last)
        batches = (self.kind & (PREFILLS | DECODES)) > 0
        counted: npt.NDArray[np.bool_] = within & (
            batches | ((self.tokens >= box.fewest) & (self.tokens <= box.most))
        )
        return counted

    def _rounded(self, duals: Floats, splits: Sequence[Split]) -> Prices:
        """Whole units, none below 0 and none too large."""
        import numpy as np

        of = self.counted

        def prices(values: Floats, share: float, most: float = 1.0) -> Integers:
            most = MOST // max(share, most)
            return np.rint(np.clip(values / share, 0.0, most)).astype(np.int64)

        paid = self._paid(duals, splits)
        rooms = [float(max(1, of.room // divisor)) for divisor in of.divisors]
        held = [prices(-duals[row], room) for row, room in zip(self.held, rooms, strict=True)]
        return Prices(
            np.array(held),
            prices(-duals[self.decoded], float(of.room)),
            prices(-duals[self.prefilled], float(of.room)),
            prices(-duals[self.prompts], float(of.inputs * of.count), float(of.budget)),
            prices(paid, 1.0),
        )

    def _paid(self, duals: Floats, splits: Sequence[Split]) -> Floats:
        """Prices of splits: of those of one box and side, the tightest has that of their row."""
        import numpy as np

        tightest: dict[tuple[Box, bool], int] = {}
        for k, (box, limit, above) in enumerate(splits):
            other = splits[tightest.setdefault((box, above), k)].limit
            if limit > other if above else limit < other:
                tightest[box, above] = k
        paid = np.zeros(len(splits))
        for (box, above), k in tightest.items():
            dual = float(duals[self.boxes[box]])
            paid[k] = dual if above else -dual
        return paid
