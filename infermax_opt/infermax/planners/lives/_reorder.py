"""Another order of what requests do, and others who are evicted: a search whose steps are linear programs.

Where the order is known, the best moments are a linear program (`_timing`), which takes milliseconds.  Its
duals say which limits on the order cost most; one of these is turned round.  Besides, an eviction is left
out, or somebody else is evicted, or one more for a while.  Simulated annealing keeps the outcome or not.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.lives._timing import Program, Stretch, optimum, stretches_of, whole_lives

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Lives = npt.NDArray[np.int8]
    Floats = npt.NDArray[np.float64]

__all__ = ["reordered"]

#: Share of the time after which moments are made whole.
SEARCH_SHARE = 0.5
#: Shares of the tries that leave out an eviction, have somebody else evicted, and one more.
STAY, OTHER, MORE = 0.06, 0.12, 0.04
#: Temperature at the beginning, as a share of what a batch costs.
HOT = 0.5
#: Moments at most after which one more who is evicted returns.
AWAY_FOR = 4
#: Digits of moments: what is nearer than that is the same.
DIGITS = 6
#: By how much a moment differs from the one that it passes.
PAST = 0.5


def reordered(instance: Instance, lives: Lives, *, seed: int, deadline: float) -> Lives | None:
    """Lives at better moments, in another order where that is shorter.

    Parameters
    ----------
    instance : Instance
        One of those that `times_help` names.
    lives : int8 array
        In steps of one batch.
    seed : int
    deadline : float
        Moment of `time.monotonic` at which to stop.

    Returns
    -------
    int8 array or None
        None where nothing was found in time.
    """
    import numpy as np

    stretches = stretches_of(lives)
    if stretches is None:
        return None
    rng, began = np.random.default_rng(seed), time.monotonic()
    until = began + SEARCH_SHARE * (deadline - began)
    here = _Order(instance, stretches)
    if here.value == math.inf:
        return None
    here = best = _Order(instance, here.settled())
    while time.monotonic() < until and best.value < math.inf:
        changed = here.changed(rng)
        other = here if changed is None else _Order(instance, changed)
        heat = HOT * float(here.program.cost[-1]) * (until - time.monotonic()) / (until - began)
        if other.value <= here.value or rng.random() < math.exp(
            (here.value - other.value) / max(heat, 1e-12)
        ):
            here = other
            if here.value < best.value:
                best = here
    return whole_lives(_Order(instance, best.settled()).program, len(lives), seed, deadline)


class _Order:
    """The program of some stretches, and what it says.

    Parameters
    ----------
    instance : Instance
    stretches : list of Stretch

    Attributes
    ----------
    value : float
        Seconds that depend on moments and evictions; infinite where they cannot be.
    """

    def __init__(self, instance: Instance, stretches: list[Stretch]):
        import numpy as np

        self.stretches = stretches
        self.program = Program(instance, stretches)
        solver = self.program.solver()
        found = optimum(solver)
        self.value = math.inf
        if found is not None:
            self.value = found[0] + self.program.fixed
            self.times: list[float] = found[1].round(DIGITS).tolist()
            self.duals: Floats = np.abs(np.array(solver.getSolution().row_dual))

    def changed(self, rng: np.random.Generator) -> list[Stretch] | None:
        """Stretches at the best moments but for one change; None where it is impossible."""
        now = self.settled()
        draw = rng.random()
        if draw < STAY + OTHER:
            refills = [n for n, some in enumerate(now) if some.enters and n and not _first(now, n)]
            if not refills:
                return None
            n = int(rng.choice(refills))
            left, back, out = now[n - 1].end, now[n].begin, now[n].request
            now[n - 1] = now[n - 1]._replace(leaves=False)
            now[n] = now[n]._replace(enters=False)
            return now if draw < STAY else _evicted(now, left, back, out, rng)
        if draw < STAY + OTHER + MORE:
            moments = sorted({some.end for some in now if some.leaves})
            at = int(rng.integers(len(moments)))
            after = min(len(moments) - 1, at + 1 + int(rng.integers(AWAY_FOR)))
            return _evicted(now, moments[at], moments[after], -1, rng) if at < after else None
        return self._turned_round(rng)

    def _at_best(self) -> list[Stretch]:
        """The stretches at the best moments."""
        times = self.times
        return [
            some._replace(begin=times[2 * n], end=times[2 * n + 1]) for n, some in enumerate(self.stretches)
        ]

    def settled(self) -> list[Stretch]:
        """The same, where nobody idles for no time."""
        found: list[Stretch] = []
        for some in self._at_best():
            before = found[-1] if found else None
            if before is not None and not before.leaves and before.end == some.begin:
                found[-1] = before._replace(end=some.end, leaves=some.leaves)
            else:
                found.append(some)
        return found

    def _turned_round(self, rng: np.random.Generator) -> list[Stretch] | None:
        """One limit on the order the other way round, of those that cost something."""
        import numpy as np

        orders = self.program.order
        weights = np.array(
            [0.0 if order is None else math.sqrt(self.duals[k]) for k, order in enumerate(orders)]
        )
        if weights.sum() <= 0:
            return None
        order = orders[int(rng.choice(len(orders), p=weights / weights.sum()))]
        if order is None:
            return None
        now, column, moment = self._at_best(), order.column, self.times[order.moment]
        side = order.side or int(rng.choice((1, -1)))
        if not now[column // 2].leaves or column % 2 == 0 or order.side == 0:
            return _moved(now, [column], moment - side * PAST)
        # All who leave together do so a moment earlier, or with those before them.
        together = [2 * n + 1 for n, some in enumerate(now) if some.leaves and some.end == self.times[column]]
        return _moved(now, together, moment - PAST * float(rng.integers(2)))


def _first(stretches: list[Stretch], n: int) -> bool:
    """Whether a stretch is the first one of its request."""
    return n == 0 or stretches[n - 1].request != stretches[n].request


def _moved(stretches: list[Stretch], columns: list[int], moment: float) -> list[Stretch]:
    """Stretches with some boundaries at another moment."""
    found = list(stretches)
    for column in columns:
        n, end = divmod(column, 2)
        found[n] = found[n]._replace(end=moment) if end else found[n]._replace(begin=moment)
    return found


def _evicted(
    stretches: list[Stretch], left: float, back: float, out: int, rng: np.random.Generator
) -> list[Stretch] | None:
    """Stretches one of which is cut in two, between which the request is away; not one of request `out`."""
    there = [
        n for n, some in enumerate(stretches) if some.begin < left and back < some.end and some.request != out
    ]
    if not there:
        return None
    n = int(rng.choice(there))
    whole = stretches[n]
    parts = [whole._replace(end=left, leaves=True), whole._replace(begin=back, enters=True)]
    return [*stretches[:n], *parts, *stretches[n + 1 :]]
