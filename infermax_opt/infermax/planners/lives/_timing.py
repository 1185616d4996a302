"""The best moments for what requests do, where the order of it all is known: an integer program.

A life is stretches of batches in a row in which a request makes a token in each.  It enters at the beginning
of a stretch, or has idled in memory before it.  The moments at which stretches begin and end are variables;
how many tokens a request has, and what KV it holds, is linear in them.  Memory only fills between two
moments at which somebody leaves it, by an eviction or after the last token.  So where all that lies before
and after each of these stays before and after it, memory has to be looked at in the batch before each, and
what is sought is a linear program in whole numbers: few batches, and few tokens that are processed again.

Searches in steps of several batches, in which a request holds what it has at the end of the step, leave
memory over everywhere at once.  No change of a few lives makes use of it, but other moments do.
"""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.core.linear import quiet_solver
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.lives._kernel import AWAY, DECODE, ENTER, IDLE

if TYPE_CHECKING:
    import highspy
    import numpy as np
    import numpy.typing as npt

    Lives = npt.NDArray[np.int8]
    Point = npt.NDArray[np.float64]

__all__ = ["Program", "Stretch", "optimum", "retimed", "stretches_of", "times_help", "whole_lives"]

#: Stretches beyond which programs take too long.
MAX_STRETCHES = 800
#: Relative precision of a program in whole numbers; what is as near to one counts as one.
PRECISION, WHOLE = 1e-4, 1e-6
#: Share of the time for which rounding may last, and seconds where there is no deadline.
ROUNDING_SHARE, ROUNDING = 0.7, 20.0


class Stretch(NamedTuple):
    """Batches in a row with a token in each; the batch of its first one, and that after its last.

    `enters`: whether the request was away before it; `leaves`: whether it is away afterwards.
    """

    request: int
    begin: float
    end: float
    enters: bool
    leaves: bool


class Order(NamedTuple):
    """That a column is no less than a moment (side 1), no more (-1), or the same (0)."""

    column: int
    moment: int
    side: int


def times_help(instance: Instance) -> bool:
    """Whether the program says all that limits the moments: KV by the token, and no limit on requests."""
    running = instance.system.max_running
    return instance.system.block_size == 1 and (running is None or running >= len(instance.requests))


def retimed(
    instance: Instance, lives: Lives, *, seed: int = 0, deadline: float | None = None
) -> Lives | None:
    """Lives in which the same happens in the same order, at better moments.

    Parameters
    ----------
    instance : Instance
        One of those that `times_help` names.
    lives : int8 array
        In steps of one batch.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one, moments are rounded only.

    Returns
    -------
    int8 array or None
        None where nothing was found in time.  They may be no better, as presence is not counted.
    """
    stretches = stretches_of(lives)
    if stretches is None:
        return None
    return whole_lives(Program(instance, stretches), len(lives), seed, deadline)


def whole_lives(program: Program, requests: int, seed: int, deadline: float | None) -> Lives | None:
    """The lives of a program in whole numbers, at the best moments that are found in time.

    Parameters
    ----------
    program : Program
        The moments of its stretches count where they are whole and fit.
    requests : int
    seed : int
    deadline : float or None
    """
    now = time.monotonic()
    found = program.rounded(now + (ROUNDING if deadline is None else ROUNDING_SHARE * (deadline - now)))
    start = program.start
    if start is not None and (found is None or found @ program.cost > start @ program.cost):
        found = start
    if deadline is not None:
        found = program.whole(deadline, found, seed)
    if found is None:
        return None
    changed = _lives_at(program.stretches, [int(value) for value in found.round()], requests)
    return changed if _prompts_fit(program.instance, changed) else None


def stretches_of(lives: Lives) -> list[Stretch] | None:
    """All stretches, by request and time; None where they are too many, or lives are not whole."""
    import numpy as np

    found = []
    for request, life in enumerate(lives):
        makes = (life == DECODE) | (life == ENTER)
        begins = np.flatnonzero((life == ENTER) | (makes & ~np.append(False, makes[:-1])))
        ends = [int(begin) + int(np.argmin(np.append(makes[begin:], False))) for begin in begins]
        ends = [min(end, int(later)) for end, later in zip(ends, [*begins[1:], len(life)], strict=False)]
        enters = [bool(life[begin] == ENTER) for begin in begins]
        for n, begin in enumerate(begins.tolist()):
            leaves = n + 1 == len(enters) or enters[n + 1]
            found.append(Stretch(request, begin, ends[n], enters[n], leaves))
    whole = len({some.request for some in found}) == len(lives)
    return found if whole and len(found) <= MAX_STRETCHES else None


def _lives_at(stretches: list[Stretch], times: list[int], requests: int) -> Lives:
    """Lives whose stretches begin and end at these moments."""
    import numpy as np

    lives = np.full((requests, times[-1]), AWAY, np.int8)
    for n, stretch in enumerate(stretches):
        begin, end = times[2 * n : 2 * n + 2]
        lives[stretch.request, begin:end] = DECODE
        if stretch.enters:
            lives[stretch.request, begin] = ENTER
        else:
            lives[stretch.request, times[2 * n - 1] : begin] = IDLE
    return lives


def _prompts_fit(instance: Instance, lives: Lives) -> bool:
    """Whether prompts and decodes of each batch keep its limits on tokens."""
    import numpy as np

    system, enters = instance.system, lives == ENTER
    decodes = lives == DECODE
    inputs = np.array([request.input_tokens for request in instance.requests])[:, None]
    prompts = ((inputs + np.cumsum(enters | decodes, axis=1) - 1) * enters).sum(axis=0)
    fits = (prompts <= system.max_prefill_tokens) & (prompts + decodes.sum(axis=0) <= system.max_batch_tokens)
    return bool(fits.all())


class Program:
    """The program: columns 2 n and 2 n + 1 are the moments of stretch n, the last is the number of batches.

    Parameters
    ----------
    instance : Instance
    stretches : list of Stretch
    """

    def __init__(self, instance: Instance, stretches: list[Stretch]):
        import numpy as np

        self.instance, self.stretches = instance, stretches
        self.lives = [list(some) for _, some in itertools.groupby(
            range(len(stretches)), key=lambda n: stretches[n].request
        )]  # fmt: skip
        #: What each row says about the order, if it does.
        self.order: list[Order | None] = []
        self.low: list[float] = []
        self.high: list[float] = []
        self.starts: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        #: What columns cost, and what all refills cost besides.
        self.cost, self.fixed = np.zeros(2 * len(stretches) + 1), 0.0
        self._add_lives()
        leaving = sorted((s.end, n) for n, s in enumerate(stretches) if s.leaves)
        #: Moments at which somebody leaves, and those who do, one after the other.
        self.moments = sorted({end for end, _ in leaving})
        self.leaving = [[n for end, n in leaving if end == moment] for moment in self.moments]
        #: For each boundary, how many of these moments lie before it or are it.
        bounds = np.array([(s.begin, s.end) for s in stretches])
        self.before = np.searchsorted(self.moments, bounds, "right").tolist()
        self._add_order()
        for moment in range(len(self.moments)):
            self._add_memory(moment)
        self._add_prompts()

    @property
    def start(self) -> Point | None:
        """The moments of the stretches themselves, if they are whole and fit."""
        import numpy as np

        times = [moment for some in self.stretches for moment in (some.begin, some.end)]
        point = np.array([*times, max(times)], float)
        sums = np.add.reduceat(point[self.columns] * self.values, self.starts)
        fits = (point == point.round()).all() and (sums >= self.low).all() and (sums <= self.high).all()
        return point if bool(fits) else None

    def _row(self, low: float, high: float, weights: dict[int, int], order: Order | None = None) -> None:
        used = {column: weight for column, weight in weights.items() if weight}
        self.starts.append(len(self.columns))
        self.order.append(order)
        self.low.append(low)
        self.high.append(high)
        self.columns += used
        self.values += used.values()

    def _apart(self, later: int, earlier: int, least: int, order: Order | None = None) -> None:
        """One column is at least so much more than another."""
        self._row(least, float("inf"), {later: 1, earlier: -1}, order)

    def _add_lives(self) -> None:
        """Requests make all their tokens, and enter again after one batch at least; what that costs."""
        unit, requests = self.instance.cost.floats, self.instance.requests
        piece = max(range(len(unit.alpha)), key=lambda k: unit.alpha[k] + unit.beta[k] * len(requests) / 2)
        self.cost[-1] = unit.alpha[piece] + unit.d0 or 1.0
        last = len(self.cost) - 1
        for life in self.lives:
            request, made = requests[self.stretches[life[0]].request], 0.0
            self._row(request.output_tokens, request.output_tokens, _tokens(life))
            self._apart(last, 2 * life[-1] + 1, 0)
            for place, n in enumerate(life):
                stretch = self.stretches[n]
                self._apart(2 * n + 1, 2 * n, 1)
                if place > 0:
                    self._apart(2 * n, 2 * n - 1, int(stretch.enters))
                    if stretch.enters:
                        size = request.input_tokens + made
                        each = unit.beta[piece] - unit.d1 + 2 * unit.p1 * size
                        self.fixed += each * request.input_tokens - unit.p1 * size * size + unit.p0
                        self.fixed -= unit.beta[piece] - unit.d1  # the token itself is made in any case
                        for column, weight in _tokens(life[:place]).items():
                            self.cost[column] += weight * each
                made += stretch.end - stretch.begin

    def _add_order(self) -> None:
        """What lies before and after somebody leaves stays there; those who leave together still do."""
        at = [2 * some[0] + 1 for some in self.leaving]
        for some in self.leaving:
            for n in some[1:]:
                self._row(0, 0, {2 * n + 1: 1, 2 * some[0] + 1: -1}, Order(2 * n + 1, 2 * some[0] + 1, 0))
        for earlier, later in itertools.pairwise(at):
            self._apart(later, earlier, 1, Order(later, earlier, 1))
        for n, stretch in enumerate(self.stretches):
            # Who begins to idle when somebody leaves may do so, but who comes then comes later.
            for end in (0, 1) if not stretch.leaves else (0,):
                count = self.before[n][end]
                if count > 0:
                    self._apart(2 * n + end, at[count - 1], 0, Order(2 * n + end, at[count - 1], 1))
                if count < len(at):
                    self._apart(at[count], 2 * n + end, 1 - end, Order(2 * n + end, at[count], -1))

    def _add_memory(self, moment: int) -> None:
        """The KV held in the batch before a moment."""
        leaves = 2 * self.leaving[moment][0] + 1
        weights: dict[int, int] = {}
        room = self.instance.system.kv_capacity
        for life in self.lives:
            come = [place for place, n in enumerate(life) if self.before[n][0] <= moment]
            if not come:
                continue
            place, n = come[-1], life[come[-1]]
            ended = self.before[n][1] <= moment
            if ended and self.stretches[n].leaves:
                continue
            room -= self.instance.requests[self.stretches[n].request].input_tokens - 1
            held = _tokens(life[: place + ended])
            if not ended:
                held[leaves] = held.get(leaves, 0) + 1
                held[2 * n] = held.get(2 * n, 0) - 1
            for column, weight in held.items():
                weights[column] = weights.get(column, 0) + weight
        self._row(-float("inf"), room, weights)

    def _add_prompts(self) -> None:
        """Prompts that do not fit into one batch together stay apart."""
        system, made = self.instance.system, 0.0
        budget = min(system.max_prefill_tokens, system.max_batch_tokens - len(self.instance.requests))
        entering = []
        for n, stretch in enumerate(self.stretches):
            made = 0.0 if n == 0 or self.stretches[n - 1].request != stretch.request else made
            if stretch.enters:
                prompt = self.instance.requests[stretch.request].input_tokens + made
                entering.append((stretch.begin, n, prompt))
            made += stretch.end - stretch.begin
        entering.sort()
        first, total = 0, 0.0
        for begin, n, prompt in entering:
            total += prompt
            while total > budget and first < len(entering):
                total -= entering[first][2]
                first += 1
            if first > 0 and entering[first - 1][0] < begin:
                self._apart(2 * n, 2 * entering[first - 1][1], 1)

    def solver(self) -> highspy.Highs:
        import numpy as np

        solver, count = quiet_solver(), len(self.cost)
        solver.addVars(count, np.zeros(count), np.full(count, np.inf))
        solver.changeColsCost(count, np.arange(count, dtype=np.int32), self.cost)
        solver.addRows(
            len(self.low), np.array(self.low), np.array(self.high), len(self.columns),
            np.array(self.starts, np.int32), np.array(self.columns, np.int32), np.array(self.values, float),
        )  # fmt: skip
        return solver

    def rounded(self, deadline: float) -> Point | None:
        """Whole moments: the first that is none is to be no later than it is, or no earlier, again."""
        import numpy as np

        solver, count = self.solver(), len(self.cost)
        low, high = np.zeros(count), np.full(count, np.inf)
        point = optimum(solver)
        while point is not None and time.monotonic() < deadline:
            broken = np.flatnonzero(np.abs(point[1] - point[1].round()) > WHOLE)
            if not len(broken):
                return point[1]
            column = int(broken[np.argmin(point[1][broken])])
            below, tried = float(np.floor(point[1][column])), []
            for span in ((low[column], below), (below + 1, high[column])):
                solver.changeColBounds(column, *span)
                other = optimum(solver)
                if other is not None:
                    tried.append((other[0], span, other[1]))
            if not tried:
                return None
            least, span, moments = min(tried, key=lambda one: one[:2])
            low[column], high[column] = span
            solver.changeColBounds(column, *span)
            point = least, moments
        return None

    def whole(self, deadline: float, start: Point | None, seed: int) -> Point | None:
        """The best whole moments that are found in time, from some on."""
        import highspy
        import numpy as np

        left = deadline - time.monotonic()
        if left <= 0:
            return start
        solver, count = self.solver(), len(self.cost)
        whole = np.full(count, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
        solver.setOptionValue("time_limit", left)
        solver.setOptionValue("mip_rel_gap", PRECISION)
        solver.setOptionValue("random_seed", seed % 2**31)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start.tolist()
            solver.setSolution(solution)
        solver.run()
        if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return start
        return np.array(solver.getSolution().col_value)


def _tokens(life: list[int]) -> dict[int, int]:
    """Weights of the columns whose sum is the tokens of some stretches."""
    weights = {2 * n + 1: 1 for n in life}
    weights.update({2 * n: -1 for n in life})
    return weights


def optimum(solver: highspy.Highs) -> tuple[float, Point] | None:
    """The least value of a program and where it is."""
    import highspy
    import numpy as np

    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return solver.getInfo().objective_function_value, np.array(solver.getSolution().col_value)
