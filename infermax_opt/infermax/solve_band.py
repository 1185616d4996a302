"""Solving an instance whose machine is known within limits only.

The bound is that of the fastest machine, the schedule the best found for the slowest or the fastest, valued
by its worst case (`infermax_opt.infermax.band`).  Each machine has half of the time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from infermax_opt.core.exact import figures_text, lower_rounding
from infermax_opt.core.interrupts import Stopped
from infermax_opt.core.problem import Problem
from infermax_opt.core.result import Result
from infermax_opt.core.run import SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.intervals import fastest, slowest
from infermax_opt.infermax.data.release import refuse_release
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.metrics import Metrics
from infermax_opt.infermax.replay.waits import after_arrivals
from infermax_opt.infermax.solve import InferMaxRun

if TYPE_CHECKING:
    from infermax_opt.core.result import LowerBound

__all__ = ["solve_band"]


class _SlowestRun(InferMaxRun):
    """The run for the slowest machine, which says that it begins."""

    def seek(self) -> None:
        """Say so, then search."""
        self.say("now the slowest machine")
        super().seek()


def solve_band(
    problem: Problem[Instance, Schedule, Metrics], instance: Instance, options: SolveOptions
) -> Result[Schedule, Metrics]:
    """The least worst case that is found, and a bound for every machine.

    Parameters
    ----------
    problem : Problem
    instance : Instance
        With intervals of coefficients.
    options : SolveOptions

    Raises
    ------
    InputError
        If the instance has a closed loop, or an option is unusable.
    """
    refuse_release(instance, "a band")
    if isinstance(options.warm_start, Schedule):
        options = replace(options, warm_start=after_arrivals(instance, options.warm_start))
    whole: SolveRun[Instance, Schedule, Metrics] = SolveRun(problem, instance, options)
    limit = options.time_limit and options.time_limit / 2
    fast = InferMaxRun(problem, fastest(instance), replace(options, time_limit=limit))
    fast.run()
    runs = [fast]
    if not fast.called_off:
        slow = _SlowestRun(problem, slowest(instance), replace(options, time_limit=limit))
        slow.run()
        runs.append(slow)
    # Whoever listens hears of it, but nothing is left to call off.
    for run in runs:
        if run.best is not None:
            with suppress(Stopped):
                whole.offer_found(after_arrivals(instance, run.best.schedule), run.best.source)
        whole.rejected |= run.rejected
    for bound in (fast.certified, fast.lower):
        with suppress(Stopped):
            whole.improve_bound(bound)
    last = runs[-1]
    details = {**last.report.details, "slowest_machine": _bound(last.lower if len(runs) > 1 else None)}
    whole.report = replace(last.report, time_limit=options.time_limit, details=details)
    return whole.result()


def _bound(lower: LowerBound | None) -> str:
    """What no schedule has a worst case below, as a note."""
    if lower is None:
        return "no bound of its own"
    least = figures_text(lower.value, rounding=lower_rounding())
    return f"no worst case is below {least} ({lower.source}, {lower.proof.value})"
