"""Plans for a percentile or the maximum of end-to-end latencies: as of a service level that is made smaller.

The r-th smallest of n latencies is at most a limit if no more than n - r requests miss it.  So a limit is
promised to all, and plans for service levels (`levels`) are searched until few enough miss it; then for a
smaller limit, beginning with what was best for the one before.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.infermax.bounds.ranks import promising
from infermax_opt.infermax.bounds.service import service_bounds
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.objective import QUANTILES, Latency, rank
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.admission.choice import Choice
from infermax_opt.infermax.planners.admission.levels import LevelChoice, LevelsPlanner

if TYPE_CHECKING:
    from infermax_opt.infermax.planners.admission.levels import Flags

__all__ = ["RanksPlanner", "has_limit"]

#: Limits that are tried without a deadline.
LIMITS = 12
#: Runs for a limit at first, and by what they grow where it is not kept.
TRIES, GROWTH = 60, 1.3
#: First limit in parts of what requests take alone, and by what it grows until one is kept.
FIRST, WIDER = 1.2, 1.4
#: By what share a limit is below the best value, at most and at least.
STEP, LEAST = 0.05, 0.002
#: Seconds between two plans.
PAUSE = 3.0


def has_limit(instance: Instance) -> bool:
    """Whether the objective is a percentile or the maximum of the end-to-end latencies of all requests."""
    plain = instance.required is instance and instance.horizon is None and instance.release is None
    metric, *others = instance.objective.metrics
    alone = not others and instance.objective.name == metric.value  # without a weight or a limit
    return plain and alone and QUANTILES.get(metric, (0, None))[1] is Latency.E2E


class RanksPlanner:
    """Searches limits for one instance (see `has_limit`).

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed tries the same choices, as many as there is time for.
    known : float
        A value that another planner has: only smaller limits are tried.
    """

    def __init__(self, instance: Instance, *, seed: int = 0, known: float = float("inf")):
        self.instance, self.seed = instance, seed
        self._metric, count = Metric(instance.objective.name), len(instance.requests)
        self._rank = rank(QUANTILES[self._metric][0], count)
        alone = float(max(value for _, value in service_bounds(instance, self._metric)))
        #: Best value by the simulated clock, who has it, and the last planner; runs and limits so far.
        self.value = known
        self._best: LevelsPlanner | None = None
        self._last: LevelsPlanner | None = None
        self.runs = self._limits = 0
        self._limit = FIRST * alone if known == float("inf") else known * (1 - STEP)
        self._step, self._tries = STEP, float(TRIES)

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans by the simulated clock; called again, it goes on where it stopped.

        Parameters
        ----------
        deadline : float, optional
            Moment of `time.monotonic` at which to stop; one limit is tried in any case.
        """
        told, written, tried = time.monotonic(), self.value, 0
        while not tried or (time.monotonic() < deadline if deadline is not None else tried < LIMITS):
            tried += 1
            self._try(deadline)
            if self._best is not None and self.value < written and time.monotonic() - told > PAUSE:
                yield f"ranks:{self.runs}", self._best.planned()
                told, written = time.monotonic(), self.value
        if self._best is not None and self.value < written:
            yield f"ranks:{self.runs}", self._best.planned()

    def _try(self, deadline: float | None) -> None:
        """Search for a plan that keeps the limit, and choose the next one."""
        limit = Fraction(max(1, round(self._limit * 10**9)), 10**9)
        planner = LevelsPlanner(
            promising(self.instance, self._metric, limit), seed=self.seed + self._limits
        )  # fmt: skip
        self._limits += 1
        spare = len(self.instance.requests) - self._rank
        before = self._last.chosen if self._last is not None else None
        start = [*self._starts(planner), *planner.known()]
        if before is not None:
            start.insert(0, before)
        for choice, out in itertools.islice(itertools.chain(start, planner.changes()), round(self._tries)):
            planner.better(choice, out)
            self.runs += 1
            if planner.value <= spare or (deadline is not None and time.monotonic() > deadline):
                break
        self._last = planner
        if planner.value <= spare:
            self._best, self.value = planner, self._value(planner)
            self._step = min(STEP, self._step * WIDER)
        elif self.value < float("inf"):
            self._step, self._tries = max(LEAST, self._step / 2), self._tries * GROWTH
        else:
            self._limit *= WIDER
            return
        self._limit = self.value * (1 - self._step)

    @staticmethod
    def _starts(planner: LevelsPlanner) -> Iterator[tuple[LevelChoice, Flags]]:
        """Choices with which few miss a limit: most outputs first."""
        _, nobody = next(planner.known())
        for crowd, haste in itertools.product((0.75, 0.85, 0.95), (0.5, 1.0)):
            yield LevelChoice(Choice(work=0.0, output=-1.0), crowd=crowd, haste=haste), nobody

    def _value(self, planner: LevelsPlanner) -> float:
        """The rank of the latencies by the best choice of a planner."""
        latencies = sorted(
            end - float(request.arrival)
            for end, request in zip(planner.ends().tolist(), self.instance.requests, strict=True)
        )
        return float(latencies[self._rank - 1])
