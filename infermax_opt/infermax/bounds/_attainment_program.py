"""Prices for the attainment bound: the dual of a linear program over cells of time.

Every request is served in shares, within its own time; every cell holds a number of batches, and no request
makes more tokens in it than there are batches. Floats suffice: the bound is true for any prices
(`attainment`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from infermax_opt.core.linear import INTERIOR, ended_by, quiet_solver, sparse_program
from infermax_opt.infermax.bounds._attainment_proof import (
    SHARE_BITS,
    AttainmentProof,
    Guest,
    Prices,
    least_sum,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["FREE", "MORE", "AttainmentProgram", "Load"]

T = TypeVar("T")

#: Guests with much time up to which all are told apart; each of them counts in many cells.
GROUPS = 36
#: Weights by which those with time in the same cells are told apart.
WEIGHTS = 6
#: Fewest cells for the sake of these.
FEWEST = 8
#: Most cells.
CELLS = 1_000
#: Cells that a request counts for besides the time that it has.
MORE = 2
#: Share of all work below which what alpha would charge for a limit is not worth a row in each cell.
WORTHWHILE = 0.1
#: Bits of the largest price.
PRICE_BITS = 40
#: Share by which shares stay below what is allowed.
HAIR = 1e-9
#: No limit of a column.
FREE = float("inf")
#: Seconds for the linear program, where nobody stops it.
SECONDS = 100.0


def _grouped(guests: Sequence[tuple[int, Guest]], pairs: int) -> dict[int, Guest]:
    """Guests with time in the same cells, and with about the same weight of a token, counted as one of them.

    Parameters
    ----------
    guests : sequence of (int, Guest)
        With their numbers.
    pairs : int
        Most pairs of such a group and a cell in its time, where there are `FEWEST` cells or more.
    """
    last = max(guest.end for _, guest in guests)
    cells = CELLS
    while True:
        width = max(1, -(-last // cells))
        found: dict[int, Guest] = {}
        count = 0
        for (begin, end), some in _by_cells(guests, width).items():
            some.sort(key=lambda pair: float(pair[1].weight) / (pair[1].prompt + pair[1].later))
            for group in _cut(some, WEIGHTS):
                number, guest = group[len(group) // 2]
                found[number] = replace(guest, count=sum(one.count for _, one in group))
                count += end - begin + 1
        if count <= pairs or cells <= FEWEST:
            return found
        cells //= 2


def _by_cells(
    guests: Sequence[tuple[int, Guest]], width: int
) -> dict[tuple[int, int], list[tuple[int, Guest]]]:
    """Guests by the first and the last cell of their time."""
    found: dict[tuple[int, int], list[tuple[int, Guest]]] = {}
    for number, guest in guests:
        key = guest.begin // width, max(guest.begin, guest.end - 1) // width
        found.setdefault(key, []).append((number, guest))
    return found


def _cut(items: Sequence[T], parts: int) -> Iterator[Sequence[T]]:
    """Stretches of about the same length."""
    size = -(-len(items) // parts)
    return (items[k : k + size] for k in range(0, len(items), size))


class Load(NamedTuple):
    """What a guest does, as floats: work of its prompt and of a later token, and what both use.

    Uses are shares of the limits of KV, tokens and requests.
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

    def solved(self, stop: Callable[[], bool] | None) -> Floats:
        """Duals of the rows, 0 or more; those so far where it is stopped, all 0 where there are none."""
        import highspy
        import numpy as np

        upper = np.array(self.upper)
        program = sparse_program(
            -np.array(self.cost),
            self.most,
            np.where(self.equal, upper, -np.inf),
            upper,
            zip(*self.entries, strict=True),
        )
        solver = quiet_solver(**INTERIOR, time_limit=SECONDS)
        solver.cbIpmInterrupt += ended_by(stop or (lambda: False))
        if solver.passModel(program) == highspy.HighsStatus.kError:
            return np.zeros(len(self.upper))
        solver.run()
        duals = -np.array(solver.getSolution().row_dual, dtype=float)
        if len(duals) != len(self.upper):
            duals = np.zeros(len(self.upper))
        found: Floats = np.maximum(0.0, np.nan_to_num(duals, posinf=0.0))
        return found


class AttainmentProgram:
    """The linear program of an instance; times are in cells, tokens in units of what batches cost.

    Parameters
    ----------
    proof : AttainmentProof
    pairs : int
        Pairs of a request and a cell in its time, about.
    machines : int
        So many have the time of each cell, all at one price.
    ends : list of int, optional
        Where cells end, in ticks; default: all alike, as many as `pairs` says.
    """

    def __init__(self, proof: AttainmentProof, pairs: int, machines: int = 1, ends: list[int] | None = None):
        self.proof, self.system, self.machines = proof, proof.instance.system, machines
        self.guests = self._counted(pairs)
        #: A unit of time, and ends of the cells.
        self.width, self.ends = self._cut(pairs)
        self.ends = ends or self.ends
        self.fixed = max((guest.fixed for guest in self.guests.values()), default=0)
        #: Ticks that a batch takes, by which tokens are scaled.
        self.unit = float(self.fixed or max([1, *(g.least for g in self.guests.values())]))
        self.loads = {k: self._load(guest) for k, guest in self.guests.items()}
        self.scarce = self._worthwhile()
        self.rows = _Rows()
        #: By guest: its first cell, and the row of its share in each.
        self.owned: dict[int, tuple[int, list[int]]] = {}

    def _counted(self, pairs: int) -> dict[int, Guest]:
        """Guests that may be good by their numbers, those who count for some others once for all of them."""
        kept = {k: g for k, g in enumerate(self.proof.guests) if not g.lost and g.until is not None}
        patient = [(k, guest) for k, guest in kept.items() if guest.patient]
        if len(patient) <= GROUPS:
            return kept
        return {k: guest for k, guest in kept.items() if not guest.patient} | _grouped(patient, pairs)

    @property
    def grid(self) -> tuple[int, dict[int, Guest]]:
        """What the program depends on beside its proof: width of the cells, and who counts as one."""
        return self.width, self.guests

    def _cut(self, pairs: int) -> tuple[int, list[int]]:
        """Width and ends of the cells."""
        times = [(g.begin, g.end) for g in self.guests.values()]
        last, stay = max((end for _, end in times), default=0), sum(end - begin for begin, end in times)
        free = max(pairs - MORE * len(times), len(times), 1)
        width = max(1, -(-stay // free), -(-last // CELLS))
        return width, [width * k for k in range(1, -(-last // width) + 1)]

    def _load(self, guest: Guest) -> Load:
        system = self.system
        prompt = guest.whole / system.prefill_budget + guest.telescoped
        later = max(1, guest.later)
        kv = guest.prompt / system.kv_capacity, (guest.prompt + (later + 1) / 2) / system.kv_capacity
        tokens = guest.prompt / system.max_batch_tokens, 1 / system.max_batch_tokens
        running = 1 / system.max_running if system.max_running else 0.0
        work = least_sum(*guest.works, guest.prompt + 1, guest.prompt + guest.later) / later
        return Load(prompt, work, (kv, tokens, (running, running)))

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

    def prices(self, stop: Callable[[], bool] | None = None) -> Prices:
        """Prices of about the best bound: the duals of the program, rounded to what is allowed.

        Parameters
        ----------
        stop : callable, optional
            Asked whether to take the prices as they are.
        """
        if not self.ends:
            return Prices(0, [], [], [], [(0, ())] * len(self.proof.guests))
        self._add_cells()
        scale = self._add_guests()
        return self._rounded(self.rows.solved(stop) * scale)

    def _add_guests(self) -> float:
        """All guests, each served as far as it pays; what the duals are in parts of."""
        heaviest = float(max(guest.weight for guest in self.guests.values()))
        for number, guest in self.guests.items():
            served = self.rows.column(float(guest.weight) / heaviest, float(guest.count))
            self._add_prompt(guest, self.loads[number], served)
            self._add_tokens(number, served)
        return heaviest

    def _add_cells(self) -> None:
        """Time, batches, and batches that make later tokens, which are no more than all."""
        rows, cells = self.rows, range(len(self.ends))
        self.time = [
            rows.row(self.machines * (end - begin) / self.width) for begin, end in pairwise([0, *self.ends])
        ]
        alpha, rest = self.proof.alpha / self.unit, (self.fixed - self.proof.alpha) / self.unit
        batches = [rows.column(0.0, FREE) for _ in cells]
        self.makers = [rows.column(0.0, FREE) for _ in cells] if self.scarce else batches
        self.uses = [[rows.row(0.0) for _ in cells] for _ in self.scarce]
        for k in cells:
            rows.entries += [(row[k], batches[k], -1.0) for row in self.uses]
            if not self.scarce:  # both are the same column
                rows.entries.append((self.time[k], batches[k], alpha + rest))
            else:
                rows.entries += [(self.time[k], batches[k], alpha), (self.time[k], self.makers[k], rest)]
                within = rows.row(0.0)
                rows.entries += [(within, self.makers[k], 1.0), (within, batches[k], -1.0)]

    def _add_prompt(self, guest: Guest, load: Load, served: int) -> None:
        """Prompts of a guest, done in the cells where they may be."""
        rows, cells = self.rows, self._cells(guest.begin, guest.until)
        if not cells:  # it takes no time
            return
        done = rows.row(0.0, equal=True)
        rows.entries.append((done, served, -1.0))
        for k in cells:
            column = rows.column(0.0, FREE)
            rows.entries += [(done, column, 1.0), (self.time[k], column, load.prompt / self.width)]
            for kind, row in zip(self.scarce, self.uses, strict=True):
                rows.entries.append((row[k], column, load.uses[kind][0] * self.unit / self.width))

    def _add_tokens(self, number: int, served: int) -> None:
        """Later tokens of a guest, no more in a cell than batches, where these take time."""
        rows, guest, load = self.rows, self.guests[number], self.loads[number]
        if not guest.later or guest.due is None or not guest.least:
            return
        cells, own = self._cells(guest.ready, guest.due), list[int]()
        made, count = rows.row(0.0, equal=True), float(guest.count)
        rows.entries.append((made, served, -guest.later * self.unit / self.width))
        for k in cells:
            ticks = min(guest.due, self.ends[k]) - max(guest.ready, self.ends[k - 1] if k else 0)
            column = rows.column(0.0, count * self.unit / guest.least * (ticks / self.width))
            own.append(rows.row(0.0))
            rows.entries += [(made, column, 1.0), (self.time[k], column, load.token / self.unit)]
            rows.entries += [(own[-1], column, 1.0), (own[-1], self.makers[k], -count)]
            for kind, row in zip(self.scarce, self.uses, strict=True):
                rows.entries.append((row[k], column, load.uses[kind][1]))
        self.owned[number] = cells.start, own

    def _cells(self, begin: int, end: int | None) -> range:
        """Cells that overlap a stretch of time."""
        assert end is not None, "those who may come at any time are left out"
        return range(bisect_right(self.ends, begin), bisect_left(self.ends, end) + 1 if begin < end else 0)

    def _rounded(self, duals: Floats) -> Prices:
        """Prices and shares in whole units, with shares that are allowed in every cell."""
        import numpy as np

        one = 1 << SHARE_BITS
        high = float(max(duals[self.time])) / self.width
        exponent = min(512, max(0, PRICE_BITS - int(np.floor(np.log2(high))))) if high > 0 else 0
        prices = [int(value / self.width * 2.0**exponent) for value in duals[self.time]]
        scarce = [self._scarce(duals, k) for k in range(len(self.ends))]
        asked = np.zeros(len(self.ends))
        for number, (first, rows) in self.owned.items():
            asked[first : first + len(rows)] += self.guests[number].count * duals[rows]
        # What is left of 1 in a cell, in proportion to the duals; a hair less, as floats round.
        left = [(one - sum(some)) * (1 - HAIR) for some in scarce]
        part = [share / all_ if all_ > 0 else 0.0 for share, all_ in zip(left, asked, strict=True)]
        shares: list[tuple[int, Sequence[int]]] = [(0, ())] * len(self.proof.guests)
        for number, (first, rows) in self.owned.items():
            shares[number] = first, [int(part[k] * duals[row]) for k, row in enumerate(rows, first)]
        return Prices(exponent, self.ends, prices, scarce, shares)

    def _scarce(self, duals: Floats, cell: int) -> tuple[int, int, int]:
        """Shares of alpha in a cell, at most 1 together."""
        one, some = 1 << SHARE_BITS, [0, 0, 0]
        price = duals[self.time[cell]] * self.proof.alpha / self.unit
        if price > 0:
            for kind, rows in zip(self.scarce, self.uses, strict=True):
                some[kind] = int(one * min(1.0, duals[rows[cell]] / price))
        kv, tokens, requests = (share * one // max(one, sum(some)) for share in some)
        return kv, tokens, requests
