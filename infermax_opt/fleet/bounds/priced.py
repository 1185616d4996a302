r"""Priced time: machines that are too few, by prices of time and shares of what batches of later tokens cost.

The windows of `infermax_opt.fleet.bounds.pooled` charge all that lies within a window alike.  Here a moment
has a price, the same on all machines; who can choose takes the cheapest.  Who may share batches with
others is told for each moment, too, where `infermax_opt.fleet.bounds.beside` knows one horizon for all.

Fix an affine piece of the batch time, and the words of `beside`: good requests, chunks, their tokens c_b in
batch b, q, A.  Let u(t) >= 0 be the price of a moment, and u_b its mean over batch b.  Let l_j >= 0 be the
share of request j, and let the l_j of all requests whose later tokens may lie at t add up to u(t) at most.

*Charges.*  A batch takes t_b, which costs u_b t_b.  It charges what it charges in `beside`, each tick at u_b;
but to a request that makes a later token in it, instead of a part of alpha and d0,

    l_j times (1 - 1 / q) alpha (1 - c_b / P), and l_j times d0 if it decodes.

The later tokens of these requests may lie at each moment of the batch.  So their l_j add up to u(t) at most
all along it, and to u_b; and all charges to u_b t_b, by the same sums as in `beside`.

*Requests.*  What good j does lies in its stretches: the prompt in one, all later tokens in another.  Let p_j
and w_j be the least prices in these.  No charge is below 0, so together j pays at least

    p_j (what a prompt pays in `beside`) + w_j (work of later tokens)
        + l_j ((1 - 1 / q) alpha max(0, N - s / (beta P)) + N d0),

for its N later tokens, s as there.  A token that ends a refill takes no d0 of a batch, but the refill works
more than it is charged for, by (beta - d1) I or more, at a price of w_j or more.  If that is at least d0 it
pays for l_j d0, since l_j <= w_j; else, with preemption, d0 is left out.

*Machines.*  What good requests pay on a machine is at most what its time costs, the integral of u.  So all
good requests pay at most m times that; whoever is good, they pay at least the sum of the ceil(q n) smallest
payments among requests that are not lost.  QED.

*Choice.*  Of m machines that may be too few, a linear program: let nobody pay more than 1, and let the sum of
payments, less m times the cost of time, be the largest.  If it exceeds the number that may miss their limits,
then m are too few.  Prices are steps.  The least price of a stretch is that of two overlapping runs of 1, 2,
4, ... cells, each of which has one column.  Where time has a price at last its cells are cut smaller.

Floats suffice: the checker takes any whole numbers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, NamedTuple

from infermax_opt.checking.work import Work
from infermax_opt.core.linear import INTERIOR, ended_by, quiet_solver, sparse_program
from infermax_opt.files.text import counted
from infermax_opt.fleet.checker.machine import Machine
from infermax_opt.fleet.checker.needs import Need, unit_of
from infermax_opt.fleet.checker.pooled import prompt_needs
from infermax_opt.fleet.checker.priced import Cells, Costs, costs_of, lowest, most_shared
from infermax_opt.fleet.checker.question import Asked

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["prices_of_too_few"]

#: Requests beyond which it is not tried; most cells of a program, and of the first one.
MOST_REQUESTS, MOST_CELLS, FIRST_CELLS = 2_500, 20_000, 1_000
#: Cells in a window of first tokens, at first; parts of a cell that has a price in each later round; rounds.
CELLS, PARTS, ROUNDS = 6, 3, 3
#: Parts of a batch, of which one is shared by work: few where attention is much of it.
SHARED = 8, 64
#: Part of what may be missed that a round has to prove, or no more are tried.
HOPE = 0.5
#: By how much a float exceeds what it is to exceed.
SURE = 1e-6
#: An interior point is enough, as the checker takes any; seconds for a program.
OPTIONS = {**INTERIOR, "ipm_optimality_tolerance": 1e-5, "time_limit": 30.0}
#: Bits of the highest price, and of the lowest that counts.
BITS, LEAST_BITS = 40, 12


class _Payer(NamedTuple):
    """A request that may be good: its place, what it costs, and the seconds of that."""

    place: int
    costs: Costs
    prompt: float
    work: float
    batches: float


class _Priced(NamedTuple):
    """What a program found: payments less the cost of time, prices of cells, shares of payers."""

    value: float
    prices: Floats
    shares: Floats


def prices_of_too_few(
    machine: Machine,
    requests: Sequence[Asked],
    spare: int,
    known: int,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any] | None:
    """Evidence that most machines are too few; None if no more than are known.

    Parameters
    ----------
    machine : Machine
    requests : sequence of Asked
        All of the question.
    spare : int
        Of these, how many may miss their limits.
    known : int
        Machines that are needed.
    tell : callable, optional
        Takes lines of progress.
    """
    if not known or len(requests) > MOST_REQUESTS:
        return None
    best, needs = None, [prompt_needs(machine, asked) for asked in requests]
    for piece, parts in product(range(len(machine.alpha)), SHARED):
        payers = _payers(machine, requests, needs, piece, parts)
        spared = spare - (len(requests) - len(payers))
        while spared >= 0 and (found := _too_few(machine, payers, spared, known, tell)) is not None:
            told = _evidence(len(requests), payers, *found)
            best, known = {"piece": piece, "parts": parts, **told}, known + 1
    return best


def _payers(
    machine: Machine, requests: Sequence[Asked], needs: Sequence[list[Need] | None], piece: int, parts: int
) -> list[_Payer]:
    found, second = list[_Payer](), machine.ticks_per_second * unit_of(machine)
    for place, (asked, some) in enumerate(zip(requests, needs, strict=True)):
        if some is not None:
            costs = costs_of(machine, asked, some, piece, parts)
            found.append(_Payer(place, costs, *(units / second for units in costs[2:])))
    return found


def _too_few(
    machine: Machine,
    payers: Sequence[_Payer],
    spared: int,
    machines: int,
    tell: Callable[[str], None] | None,
) -> tuple[list[int], _Priced] | None:
    """Bounds of cells in ticks and what they proved; None if so many machines may be enough."""
    cuts, before = _first_cuts(payers), 0.0
    for _ in range(ROUNDS):
        if not 1 < len(cuts) <= MOST_CELLS:
            return None
        if tell is not None:
            tell(f"{counted(machines, 'machines')}: prices of time, {len(cuts) - 1} cells")
        found = _Program(cuts, machine.ticks_per_second, payers).solved(machines)
        if found is None or found.value < HOPE * spared:
            return None
        if found.value > spared + SURE:
            return cuts, found
        if before and found.value + (found.value - before) < spared:
            return None  # a round gains less than the one before
        cuts, before = _finer(cuts, found.prices), found.value
    return None


def _stretches(payer: _Payer) -> Iterator[Need]:
    return (need for need in (payer.costs.first, payer.costs.later) if need is not None)


def _first_cuts(payers: Sequence[_Payer]) -> list[int]:
    """Cells of equal length, of which some are in a window of first tokens."""
    needs = [need for payer in payers for need in _stretches(payer)]
    if not needs:
        return []
    lengths = sorted(need.end - need.begin for need in needs if need.first == 1) or [needs[0].end]
    width = max(1, lengths[len(lengths) // 2] // CELLS)
    begin, end = min(need.begin for need in needs), max(need.end for need in needs)
    width = max(width, -(-(end - begin) // FIRST_CELLS))
    return [*range(begin, end, width), end]


def _finer(cuts: Sequence[int], prices: Floats) -> list[int]:
    """Cells that have a price, and those beside them, in parts."""
    import numpy as np

    dear = prices > float(prices.max()) * 1e-6
    dear[1:] |= dear[:-1].copy()
    dear[:-1] |= dear[1:].copy()
    found = [cuts[0]]
    for begin, end, parts in zip(cuts, cuts[1:], np.where(dear, PARTS, 1).tolist(), strict=False):
        parts = min(parts, end - begin)
        found += [begin + (end - begin) * k // parts for k in range(1, parts + 1)]
    return found


def _evidence(requests: int, payers: Sequence[_Payer], cuts: Sequence[int], found: _Priced) -> dict[str, Any]:
    """Whole numbers of prices and shares; prices are raised where shares add up to a little more."""
    unit = 2**BITS / float(found.prices.max())
    prices = [int(price * unit) for price in found.prices.tolist()]
    kept = [k for k, price in enumerate(prices) if price >= 2**LEAST_BITS]
    cells = Cells([cuts[k] for k in kept], [cuts[k + 1] for k in kept], [prices[k] for k in kept])
    shares, sharing = [0] * requests, list[tuple[Need, int]]()
    for payer, share in zip(payers, found.shares.tolist(), strict=True):
        later = payer.costs.later
        if later is not None and payer.costs.batches > 0:
            shares[payer.place] = max(0, min(int(share * unit), lowest(cells, later, Work())))
            sharing.append((later, shares[payer.place]))
    shared = most_shared(cells, sharing, Work())
    raised = [max(some) for some in zip(cells.prices, shared, strict=True)]
    told = [list(cell) for cell in zip(cells.begins, cells.ends, raised, strict=True)]
    return {"cells": told, "shares": shares}


class _Program:
    """The linear program: columns and rows as they are added; time in seconds.

    Parameters
    ----------
    cuts : sequence of int
        Bounds of the cells of time, in ticks.
    second : int
        Ticks of a second.
    payers : sequence of _Payer
    """

    def __init__(self, cuts: Sequence[int], second: int, payers: Sequence[_Payer]):
        self.cuts = cuts
        self.costs, self.uppers = list[float](), list[float]()
        self.entries, self.highs, self.count = list[tuple[int, int, float]](), list[float](), 0
        self.cells = [self._column() for _ in range(len(cuts) - 1)]
        self.lengths = [(end - begin) / second for begin, end in pairwise(cuts)]
        self._runs: dict[tuple[int, int], int] = {(0, k): column for k, column in enumerate(self.cells)}
        self._changes: list[list[tuple[int, float]]] = [[] for _ in cuts]
        self.shares = [self._pays(payer) for payer in payers]
        self._share_batches()

    def _column(self, cost: float = 0.0, upper: float = float("inf")) -> int:
        self.costs.append(cost)
        self.uppers.append(upper)
        return len(self.costs) - 1

    def _at_most(self, terms: Sequence[tuple[int, float]], high: float = 0.0) -> None:
        """A row: the sum of the terms, column and factor, is so much at most."""
        self.entries += [(self.count, column, factor) for column, factor in terms]
        self.highs.append(high)
        self.count += 1

    def _run(self, level: int, first: int) -> int:
        """The column of the least price of 2**level cells."""
        if (level, first) not in self._runs:
            self._runs[level, first] = column = self._column()
            for half in (first, first + 2 ** (level - 1)):
                self._at_most([(column, 1.0), (self._run(level - 1, half), -1.0)])
        return self._runs[level, first]

    def _reach(self, need: Need) -> tuple[int, int]:
        """The cells into which a stretch reaches: the first, and the one after the last."""
        first = bisect_right(self.cuts, need.begin) - 1
        return first, max(first + 1, bisect_left(self.cuts, need.end))

    def _least(self, need: Need) -> int:
        """A column of the least price of a stretch."""
        first, end = self._reach(need)
        column, level = self._column(), (end - first).bit_length() - 1
        for run in dict.fromkeys((first, end - 2**level)):
            self._at_most([(column, 1.0), (self._run(level, run), -1.0)])
        return column

    def _pays(self, payer: _Payer) -> int | None:
        """The column of the share of a request, which pays 1 at most; None if it has none."""
        first, later = payer.costs.first, payer.costs.later
        terms, share = [(self._column(-1.0, 1.0), 1.0)], None
        if first is not None:
            terms.append((self._least(first), -payer.prompt))
        if later is not None:
            terms.append((self._least(later), -payer.work))
        if later is not None and payer.batches > 0:
            share = self._column()
            terms.append((share, -payer.batches))
            begin, end = self._reach(later)
            self._changes[begin].append((share, 1.0))
            self._changes[end].append((share, -1.0))
        self._at_most(terms)
        return share

    def _share_batches(self) -> None:
        """Shares of those who may be in a batch are the price of a moment at most: a sum that goes along."""
        before: list[tuple[int, float]] = []
        for price, changes in zip(self.cells, self._changes, strict=False):
            shared = self._column()
            self._at_most([*before, *changes, (shared, -1.0)])
            self._at_most([(shared, 1.0), (price, -1.0)])
            before = [(shared, 1.0)]

    def solved(self, machines: float) -> _Priced | None:
        """The best prices for so many machines; None if there was no time to find any."""
        import highspy
        import numpy as np

        costs, lows = np.array(self.costs), np.full(self.count, -np.inf)
        costs[self.cells] = np.array(self.lengths) * machines
        solver = quiet_solver(**OPTIONS)
        solver.cbIpmInterrupt += ended_by(lambda: False)
        solver.passModel(
            sparse_program(costs, self.uppers, lows, self.highs, zip(*self.entries, strict=True))
        )
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = np.maximum(0.0, np.array(solver.getSolution().col_value))
        shares = np.array([0.0 if share is None else values[share] for share in self.shares])
        value = -float(solver.getInfo().objective_function_value)
        return _Priced(value, values[self.cells], shares) if values[self.cells].any() else None
