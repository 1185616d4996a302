r"""The bound by configurations: prices of requests of which no worker can take much.

Let every new request i have a price w_i >= 0.  If the requests of each set that fits on a fresh worker are
worth C > 0 together at most, and of each set that fits on worker e beside its ongoing ones R_e at most, then

    sum over all i of w_i  <=  C * fresh + sum over e of R_e,

as all new requests are on some worker, and what an open worker takes fits on it.  So a placement uses at
least (sum of w_i - sum of R_e) / C fresh workers, rounded up.  Unlike the closed forms, C and R_e are here
the largest sums of all sets (`_heaviest_kernel`), so the prices need not follow from the limits.

*Prices* are duals of a linear program: the fewest workers, if sets that fit may be used in parts, such that
every request is covered (column generation).  They are searched near those of the best bound so far, as
duals jump.  They are rounded to whole numbers, and the sums of sets are exact; so the bound is true,
whatever the prices are.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled, in_plain_python, in_rehearsal
from infermax_opt.core.linear import quiet_solver
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.placement.bounds import _heaviest_kernel as kernel
from infermax_opt.placement.bounds.rows import open_workers, placeable
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay._state import Requests, Workers, enter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

__all__ = ["configurations_bound"]

#: A price of 1.
ONE = 2**40
#: Sets of fresh workers worth no more than this do not interest; a hair above 1, as prices are rounded.
ENOUGH = ONE + 2**20
#: Sums of needs are below, or it is not tried.
MOST_SUM = 2**62
#: Requests of a set, at most, and of the smallest that may fit on a worker: there are too many sets beyond.
WIDEST, TOGETHER = 24, 8
#: Steps of the search for sets with one first request: in the beginning, by how much they grow where it finds
#: nothing new, and at most.
STEPS, GROWTH, MOST_STEPS = 20_000, 8, 20_000 * 8**4
#: New requests up to which the search runs in plain Python, and its steps.
FEW, FEW_STEPS, MOST_FEW_STEPS = 40, 300, 300 * 8**2
#: Share of the prices of the best bound so far in those that are tried next.
NEAR = 0.6
#: A linear program's value counts as whole if it is no more than this above it.
HAIR = 1e-6


def configurations_bound(
    instance: PlacementInstance,
    placement: Placement,
    *,
    known: int,
    enough: int,
    stop: Callable[[], bool] | None = None,
) -> LowerBound | None:
    """Search for prices that prove a bound on the number of workers.

    Parameters
    ----------
    instance : PlacementInstance
        Every new request fits on a worker.
    placement : Placement
        A valid one; its sets begin the linear program.
    known : int
        Workers of the best bound so far, those in use included.
    enough : int
        Workers of the best placement: a bound that high ends the search.
    stop : callable, optional
        Asked between two searches for sets, each of some seconds at most.

    Returns
    -------
    LowerBound or None
        None where nothing above `known` is found, or a worker takes too many requests.
    """
    limits = Limits.of(instance)
    if not limits.new or not _small(limits) or placeable(limits) != limits.new or _most(limits) > TOGETHER:
        return None
    search = _PriceSearch(limits, stop or (lambda: False))
    used = len(limits.ongoing)
    value = search.run(_sets(instance, limits, placement), known - used, enough - used)
    if used + value <= known:
        return None
    reason = (
        f"prices of the {len(limits.new)} new requests: no worker can take requests worth more than 1, "
        f"and all are worth {search.worth:.6g}" + (f" beyond what the {used} in use take" if used else "")
    )
    return LowerBound(Fraction(used + value), "configurations", Proof.SOLVER, reason=reason)


def _small(limits: Limits) -> bool:
    """Whether all sums stay within 64 bits."""
    return max(sum(limits.context), sum(limits.prompt), sum(_at_the_end(limits))) < MOST_SUM


def _at_the_end(limits: Limits) -> list[int]:
    """KV of each request in its last iteration."""
    return [held + limits.grows * last for held, last in zip(limits.held, limits.lasts, strict=True)]


def _most(limits: Limits) -> int:
    """How many requests may fit on a fresh worker: of the smallest, by each limit alone.

    KV is that of the first end.
    """
    first = min(limits.lasts[k] for k in limits.new)
    needs = (
        (limits.context, limits.most_context),
        (limits.prompt, limits.most_prompt),
        ([held + limits.grows * first for held in limits.held], limits.most_kv),
    )
    sums = ((list(accumulate(sorted(some[k] for k in limits.new))), most) for some, most in needs)
    return min(bisect_right(some, most) for some, most in sums)


def _sets(
    instance: PlacementInstance, limits: Limits, placement: Placement
) -> list[tuple[int | None, list[int]]]:
    """What each worker of a placement takes; None: a fresh one."""
    members: dict[int, list[int]] = {}
    for k in limits.new:
        members.setdefault(placement.workers[instance.requests[k].id], []).append(k)
    on = {worker: place for place, worker in enumerate(open_workers(limits))}
    return [(on.get(worker), some) for worker, some in members.items()]


@functools.cache
def _heaviest() -> Callable[..., Any]:
    return compiled(kernel.heaviest, kernel.HELPERS)


@dataclass
class _Priced:
    """Sets that are worth much under some prices, and what sets are worth at most where all were looked at.

    Attributes
    ----------
    sets : list of (int or None, list of int)
        Requests, and the open worker that takes them; None: a fresh one.
    fresh, taken : int
        The most that a fresh worker takes, and all open ones together.
    complete : bool
        Whether all sets were looked at.
    """

    sets: list[tuple[int | None, list[int]]]
    fresh: int
    taken: int
    complete: bool


class _PriceSearch:
    """Column generation on one instance."""

    def __init__(self, limits: Limits, stop: Callable[[], bool]):
        import numpy as np

        self.limits, self.stop = limits, stop
        self.open = open_workers(limits)
        self.requests, self.workers = self._columns()
        ceiling = [min(2 * MOST_SUM - 1, most) for most in (limits.most_context, 0, limits.most_kv)]
        self.most = np.array(ceiling)
        few = len(limits.new) <= FEW and not in_rehearsal()
        self.heaviest = kernel.heaviest if few else _heaviest()
        self.steps = FEW_STEPS if few else in_plain_python(STEPS)
        self.most_steps = MOST_FEW_STEPS if few else in_plain_python(MOST_STEPS)
        #: New requests by rising last iteration, and the least needs of those from each place on.
        self.order = np.array(sorted(limits.new, key=lambda k: (limits.lasts[k], limits.held[k])))
        needs = (np.array(some)[self.order] for some in (limits.context, limits.prompt, limits.held))
        self.needs = [np.minimum.accumulate(some[::-1])[::-1] for some in needs]
        #: The best prices, and what all requests are worth by them beyond what open workers take.
        self.centre: Floats | None = None
        self.worth = 0.0

    def _columns(self) -> tuple[Requests, Workers]:
        """Requests, and the open workers with their ongoing ones, then a fresh one."""
        import numpy as np

        limits = self.limits
        new = np.zeros(len(limits.context), bool)
        new[list(limits.new)] = True
        context, prompt, held, last = map(
            np.array, (limits.context, limits.prompt, limits.held, limits.lasts)
        )
        requests = Requests(context, prompt, held, last, np.array(_at_the_end(limits)), new)
        number, many = len(self.open) + 1, len(new)
        used, asked, start, ends, most = (np.zeros(number, np.int64) for _ in range(5))
        rooms = [*(limits.worker_prompt[e] for e in self.open), limits.most_prompt]
        room = np.array([min(2 * MOST_SUM - 1, some) for some in rooms])
        head, worker, after = (np.full(size, -1) for size in (number, many, many))
        workers = Workers(used, asked, start, ends, most, room, head, worker, after)
        for place, e in enumerate(self.open):
            for k in limits.ongoing[e]:
                enter(workers, requests, k, place)
        return requests, workers

    def run(self, sets: Sequence[tuple[int | None, list[int]]], known: int, enough: int) -> int:
        """Fresh workers that are needed; 0 says nothing."""
        program = self.program(sets)
        best, near, steps = 0, NEAR, self.steps
        while best < enough:
            solved = program.solved()
            if solved is None or solved.value <= max(known, best) + HAIR:
                break
            prices = self.near_the_best(solved.prices, near)
            priced = self.priced(prices, steps)
            if priced is None:
                break
            if priced.complete:
                best = max(best, self.bound(prices, priced))
            if program.add(priced.sets):
                near = NEAR
            elif priced.complete and near > 0:
                near = 0.0  # the program's own prices are left to try
            elif steps < self.most_steps and not priced.complete:
                steps *= GROWTH
            else:
                break
        return best

    def program(self, sets: Sequence[tuple[int | None, list[int]]]) -> _CoverProgram:
        """The program with these sets and each request by itself."""
        found = _CoverProgram(self.limits.new, len(self.limits.context), len(self.open))
        found.add([*sets, *((None, [k]) for k in self.limits.new)])
        return found

    def near_the_best(self, prices: Floats, near: float) -> Floats:
        """Prices and the best ones so far, of which a share, mixed."""
        return prices if self.centre is None else near * self.centre + (1 - near) * prices

    def bound(self, prices: Floats, priced: _Priced) -> int:
        """Fresh workers that prices prove to be needed; the best prices are kept."""
        left = int(_whole(prices).sum()) - priced.taken
        if self.centre is None or left / priced.fresh > self.worth:
            self.centre, self.worth = prices * (ONE / priced.fresh), left / priced.fresh
        return max(0, -(-left // priced.fresh))

    def priced(self, prices: Floats, steps: int) -> _Priced | None:
        """The most that sets are worth; None if it was stopped."""
        import numpy as np

        order, worth = self.order, _whole(prices)[self.order]
        tail = np.zeros((4, len(order) + 1), np.int64)
        tail[:, :-1] = [np.maximum.accumulate(worth[::-1])[::-1], *self.needs]
        tops, sets = np.zeros(len(order), np.int64), np.full((len(order), WIDEST), -1)
        work = [np.zeros(WIDEST + 1, np.int64) for _ in range(3)]
        found = _Priced([], ENOUGH, 0, True)
        for place in range(len(self.open) + 1):
            is_open = place < len(self.open)
            if self.stop():
                return None
            most = self.heaviest(
                self.requests, self.workers, place, self.most, self.limits.grows, order, worth, tail,
                0 if is_open else ENOUGH, steps, tops, sets, *work,
            )  # fmt: skip
            best = np.argsort(-tops, kind="stable")[: 1 if is_open else None]
            key = place if is_open else None
            found.sets += [(key, [int(k) for k in sets[row] if k >= 0]) for row in best if tops[row]]
            if most == kernel.UNKNOWN:
                found.complete = False
            elif is_open:
                found.taken += int(most)
            else:
                found.fresh = int(most)
        return found


def _whole(prices: Floats) -> npt.NDArray[np.int64]:
    """Prices in whole numbers."""
    import numpy as np

    whole: npt.NDArray[np.int64] = np.floor(np.maximum(prices, 0.0) * ONE).astype(np.int64)
    return whole


@dataclass
class _Solved:
    """Value of the program, and a price of each request."""

    value: float
    prices: Floats


class _CoverProgram:
    """Fewest fresh workers, if sets may be used in parts; one row a request, then one an open worker."""

    def __init__(self, new: Sequence[int], many: int, places: int):
        import highspy
        import numpy as np

        self.many, self.new = many, np.array(new)
        self.row = {k: row for row, k in enumerate(new)}
        self.known: set[tuple[int | None, frozenset[int]]] = set()
        self.solver = quiet_solver()
        low = np.concatenate([np.ones(len(new)), np.full(places, -highspy.kHighsInf)])
        high = np.concatenate([np.full(len(new), highspy.kHighsInf), np.ones(places)])
        nothing = np.zeros(0, np.int32)
        rows = len(new) + places
        self.solver.addRows(rows, low, high, 0, np.zeros(rows, np.int32), nothing, np.zeros(0))

    def add(self, sets: Sequence[tuple[int | None, list[int]]]) -> int:
        """Add sets of a fresh worker (None) or an open one; how many are new."""
        import highspy
        import numpy as np

        count = 0
        for place, members in sets:
            key = place, frozenset(members)
            if key in self.known:
                continue
            self.known.add(key)
            count += 1
            rows = [self.row[k] for k in members]
            rows += [] if place is None else [len(self.new) + place]
            cost = 1.0 if place is None else 0.0
            entries = np.array(rows, np.int32), np.ones(len(rows))
            self.solver.addCol(cost, 0.0, highspy.kHighsInf, len(rows), *entries)
        return count

    def solved(self) -> _Solved | None:
        """Solve it; None where the solver fails."""
        import numpy as np

        self.solver.run()
        found = self.solver.getSolution()
        if not found.dual_valid:
            return None
        prices = np.zeros(self.many)
        prices[self.new] = np.array(found.row_dual)[: len(self.new)]
        return _Solved(float(self.solver.getInfo().objective_function_value), prices)
