"""Prices for the attainment bound: the dual of a linear program over cells of time.

Every request is served in shares, within its own time; every cell holds a number of batches, and no request makes more
tokens in it than there are batches.  Floats suffice: the bound is true for any prices (`attainment`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.infermax.bounds.attainment import SHARE_BITS, AttainmentProof, Guest, Prices, least_sum
from infermax_opt.infermax.bounds.pieces import quiet_solver

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["best_prices"]

#: Most cells.
CELLS = 1_000
#: Cells that a request counts for besides the time that it has.
MORE = 2
#: Share of all work below which what alpha would charge for a limit is not worth a row in each cell.
WORTHWHILE = 0.03
#: Bits of the largest price.
PRICE_BITS = 40
#: Seconds for the linear program: nothing interrupts it.
SECONDS = 100.0


class _Load(NamedTuple):
    """What a guest does, as floats: work of its prompt and of a later token; use of KV, tokens and requests by both.

    Uses are shares of their limits.
    """

    prompt: float
    token: float
    uses: tuple[tuple[float, float], ...]


class _Rows:
    """A linear program, row by row and column by column."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.most: list[float] = []
        self.entries: list[tuple[int, int, float]] = []
        self.upper: list[float] = []
        self.equal: list[bool] = []

    def column(self, cost: float, most: float) -> int:
        """A column of 0 to `most`."""
        self.cost.append(cost)
        self.most.append(most)
        return len(self.cost) - 1

    def row(self, upper: float, *, equal: bool = False) -> int:
        """A row of at most `upper`, or of just that."""
        self.upper.append(upper)
        self.equal.append(equal)
        return len(self.upper) - 1

    def solved(self) -> Floats:
        """Duals of the rows, 0 or more; all 0 where the solver finds none."""
        import highspy
        import numpy as np

        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        order = np.argsort(columns, kind="stable")
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self.cost), len(self.upper)
        program.col_cost_, program.col_upper_ = -np.array(self.cost), np.array(self.most)
        program.col_lower_ = np.zeros(len(self.cost))
        program.row_upper_ = np.array(self.upper)
        program.row_lower_ = np.where(self.equal, program.row_upper_, -np.inf)
        program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        program.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(len(self.cost) + 1))
        program.a_matrix_.index_ = rows[order]
        program.a_matrix_.value_ = values[order]
        solver = quiet_solver()
        solver.setOptionValue("solver", "ipm")
        solver.setOptionValue("run_crossover", "off")
        solver.setOptionValue("time_limit", SECONDS)
        solver.passModel(program)
        solver.run()
        duals = -np.array(solver.getSolution().row_dual, dtype=float)
        if len(duals) != len(self.upper):
            duals = np.zeros(len(self.upper))
        return np.maximum(0.0, np.nan_to_num(duals, posinf=0.0))


def best_prices(proof: AttainmentProof, pairs: int) -> Prices:
    """Prices of about the best bound.

    Parameters
    ----------
    proof : AttainmentProof
    pairs : int
        Pairs of a request and a cell in its time, about.
    """
    return _Program(proof, pairs).prices()


class _Program:
    """The linear program of an instance; times are in cells, tokens in units of what batches cost."""

    def __init__(self, proof: AttainmentProof, pairs: int):
        self.proof, self.system = proof, proof.instance.system
        self.guests = {
            k: guest for k, guest in enumerate(proof.guests) if not guest.lost and guest.until is not None
        }
        last = max((max(g.until or 0, g.due or 0) for g in self.guests.values()), default=0)
        spans = sum(max(g.until or 0, g.due or 0) - g.begin for g in self.guests.values())
        free = max(pairs - MORE * len(self.guests), len(self.guests), 1)
        self.width = max(1, -(-spans // free), -(-last // CELLS))
        self.ends = [self.width * k for k in range(1, -(-last // self.width) + 1)]
        #: Ticks that a batch takes, by which tokens are scaled.
        self.fixed = max((guest.fixed for guest in self.guests.values()), default=0)
        self.unit = float(self.fixed or max([1, *(g.least for g in self.guests.values())]))
        self.loads = {k: self._load(guest) for k, guest in self.guests.items()}
        self.scarce = self._worthwhile()

    def _load(self, guest: Guest) -> _Load:
        system = self.system
        prompt = guest.whole / system.prefill_budget + guest.telescoped
        later = max(1, guest.later)
        kv = guest.prompt / system.kv_capacity, (guest.prompt + (later + 1) / 2) / system.kv_capacity
        tokens = guest.prompt / system.max_batch_tokens, 1 / system.max_batch_tokens
        running = 1 / system.max_running if system.max_running else 0.0
        work = least_sum(*guest.works, guest.prompt + 1, guest.prompt + guest.later) / later
        return _Load(prompt, work, (kv, tokens, (running, running)))

    def _worthwhile(self) -> list[int]:
        """Limits for which alpha may charge something."""
        work, uses = 0.0, [0.0, 0.0, 0.0]
        for k, load in self.loads.items():
            guest = self.guests[k]
            work += guest.count * (load.prompt + guest.later * load.token)
            for kind, (first, each) in enumerate(load.uses):
                uses[kind] += guest.count * (first + guest.later * each)
        least = WORTHWHILE * work
        return [kind for kind, use in enumerate(uses) if self.proof.alpha * use > least]

    def prices(self) -> Prices:
        """Build the program, solve it, and round its duals to prices that are allowed."""
        cells = len(self.ends)
        if cells == 0:
            return Prices(0, [], [], [], [(0, ())] * len(self.proof.guests))
        rows, unit, width = _Rows(), self.unit, self.width
        time = [rows.row(1.0) for _ in range(cells)]
        alpha, rest = self.proof.alpha / unit, (self.fixed - self.proof.alpha) / unit
        free = float("inf")
        batches = [rows.column(0.0, free) for _ in range(cells)]
        decodes = [rows.column(0.0, free) for _ in range(cells)] if self.scarce else batches
        uses = [[rows.row(0.0) for _ in range(cells)] for _ in self.scarce]
        for k in range(cells):
            rows.entries.append((time[k], batches[k], alpha if self.scarce else alpha + rest))
            if self.scarce:
                rows.entries.append((time[k], decodes[k], rest))
                within = rows.row(0.0)
                rows.entries += [(within, decodes[k], 1.0), (within, batches[k], -1.0)]
            rows.entries += [(row[k], batches[k], -1.0) for row in uses]
        owned: dict[int, tuple[int, list[int]]] = {}  # by guest: first cell, and its rows of shares
        heaviest = float(max((guest.weight for guest in self.guests.values()), default=1))
        for number, guest in self.guests.items():
            load, count = self.loads[number], float(guest.count)
            served = rows.column(float(guest.weight) / heaviest, count)
            prompt = rows.row(0.0, equal=True)
            rows.entries.append((prompt, served, -1.0))
            for k in self._cells(guest.begin, guest.until):
                column = rows.column(0.0, free)
                rows.entries += [(prompt, column, 1.0), (time[k], column, load.prompt / width)]
                rows.entries += [
                    (row[k], column, load.uses[kind][0] * unit / width)
                    for kind, row in zip(self.scarce, uses, strict=True)
                ]
            if not guest.later or guest.due is None or not guest.least:
                continue
            tokens = rows.row(0.0, equal=True)
            rows.entries.append((tokens, served, -guest.later * unit / width))
            stretch = self._cells(guest.ready, guest.due)
            own = []
            for k in stretch:
                column = rows.column(0.0, count * unit / guest.least)
                share = rows.row(0.0)
                own.append(share)
                rows.entries += [(tokens, column, 1.0), (time[k], column, load.token / unit)]
                rows.entries += [(share, column, 1.0), (share, decodes[k], -count)]
                rows.entries += [
                    (row[k], column, load.uses[kind][1]) for kind, row in zip(self.scarce, uses, strict=True)
                ]
            owned[number] = stretch.start, own
        return self._rounded(rows.solved() * heaviest, time, uses, owned)

    def _cells(self, begin: int, end: int | None) -> range:
        """Cells that overlap a stretch of time."""
        assert end is not None, "those who may come at any time are left out"
        first = begin // self.width
        return range(first, max(first, min(len(self.ends) - 1, (end - 1) // self.width)) + 1)

    def _rounded(
        self,
        duals: Floats,
        time: list[int],
        uses: list[list[int]],
        owned: dict[int, tuple[int, list[int]]],
    ) -> Prices:
        """Prices and shares in whole units, with shares that are allowed in every cell."""
        import numpy as np

        proof, one = self.proof, 1 << SHARE_BITS
        high = float(max(duals[time])) / self.width
        exponent = min(512, max(0, PRICE_BITS - int(np.floor(np.log2(high))))) if high > 0 else 0
        prices = [int(value / self.width * 2.0**exponent) for value in duals[time]]
        scarce, left = [], []
        for k, row in enumerate(time):
            some = [0, 0, 0]
            for kind, rows in zip(self.scarce, uses, strict=True):
                price = duals[row] * proof.alpha / self.unit
                some[kind] = int(one * min(1.0, duals[rows[k]] / price)) if price > 0 else 0
            some = [part * one // max(one, sum(some)) for part in some]
            scarce.append((some[0], some[1], some[2]))
            left.append(one - sum(some))
        asked = np.zeros(len(time))
        for number, (first, rows) in owned.items():
            asked[first : first + len(rows)] += self.guests[number].count * duals[rows]
        shares: list[tuple[int, tuple[int, ...]]] = [(0, ())] * len(proof.guests)
        for number, (first, rows) in owned.items():
            # Of what is left of f in a cell, in proportion to the duals.
            each = tuple(
                int(left[k] * (1 - 1e-9) * duals[row] / asked[k]) if asked[k] > 0 else 0
                for k, row in enumerate(rows, first)
            )
            shares[number] = first, each
        return Prices(exponent, self.ends, prices, scarce, shares)
