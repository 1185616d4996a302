"""Solving iteration instances: closed forms, heuristics, then branching, or a formulation handed to HiGHS.

Data flows one way: closed-form bounds (the table of prefixes is one, and gives its batch) -> heuristics ->
the bound of the linear relaxations -> branching -> verifier -> result.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.run import SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.iteration.bounds.closed_form import PREFIX
from infermax_opt.iteration.bounds.kept import most_kept, undecided_text
from infermax_opt.iteration.bounds.prefix import applies, best_prefix
from infermax_opt.iteration.bounds.relaxation import relaxation_bound
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.exact.branch import BRANCHING, branch
from infermax_opt.iteration.exact.solve_formulation import get_iteration_formulation, solve_formulation
from infermax_opt.iteration.replay.metrics import IterationMetrics

__all__ = ["IterationRun", "check_options"]


def check_options(options: SolveOptions) -> None:
    """Check what only this problem can judge.

    Raises
    ------
    InputError
        If there is no such formulation, or the engine takes no such option.
    """
    if options.formulation is not None:
        get_iteration_formulation(options.formulation)
        if options.solver in (PREFIX, "branch"):
            raise InputError(f"{options.solver} takes no formulation", field="formulation")
    elif options.solver == "highs":
        raise InputError("highs needs a formulation", field="formulation")
    elif options.memory_limit is not None:
        raise InputError("searches take none without a formulation", field="memory_limit")


class IterationRun(SolveRun[IterationInstance, Selection, IterationMetrics]):
    """One call of `solve` on an iteration instance."""

    def selection(self, batch: Sequence[int]) -> Selection:
        """The requests at these positions."""
        requests = self.instance.requests
        return Selection(self.instance.name, tuple(requests[k].id for k in sorted(batch)))

    def find_start(self) -> Selection | None:
        """A batch that keeps most requests is the first schedule, so that there is one in any case."""
        if self.options.warm_start != "none":
            kept = most_kept(Ticks.of(self.instance))
            self.offer_found(self.selection(kept.batch), "most kept")
        start = super().find_start()
        if (
            self.options.formulation is None
            and self.options.solver in ("auto", PREFIX)
            and not self.settled()
        ):
            self.take_prefix()
            return None if self.best is None else self.best.schedule
        return start

    def better(self, metrics: IterationMetrics, value: Fraction) -> bool:
        """A batch that keeps more savable requests wins, whatever its value.

        Parameters
        ----------
        metrics : IterationMetrics
        value : Fraction
            Seconds per value.
        """
        best = self.best
        return best is None or (metrics.rt_late, value) < (best.metrics.rt_late, best.value)

    def undecided(self) -> str | None:
        """What is not known of how many savable requests can be kept."""
        return undecided_text(most_kept(Ticks.of(self.instance)))

    def take_prefix(self) -> None:
        """Take the batch of the table of prefixes, where that applies."""
        if applies(self.instance):
            self.offer_found(self.selection(best_prefix(self.instance).batch), PREFIX)
        elif self.options.solver == PREFIX:
            text = "the table needs one piece, no swap, no product, all savable requests kept, and objective "
            raise InputError(f"{text}seconds_per_be_token", field="solver")

    def run_engines(self) -> None:
        """Branch, or solve a formulation."""
        solver, formulation = self.options.solver, self.options.formulation
        if formulation is not None:
            self.formulated(formulation)
        elif solver == PREFIX:
            self.report = replace(self.report, engine=PREFIX, termination="heuristics only")
        else:
            self.branched("asked for" if solver != "auto" else "no closed form meets the schedule")

    def branched(self, reason: str) -> None:
        """Relax, then branch."""
        self.report = replace(self.report, engine="branch", reason=reason)
        self.say(f"engine branch: {reason}")
        ticks = Ticks.of(self.instance)
        end = None if self.options.time_limit is None else self.began + self.options.time_limit

        def late() -> bool:
            return end is not None and time.monotonic() >= end

        names = self.best.schedule.select if self.best else ()
        start = [self.instance.index[name] for name in names] or list(most_kept(ticks).batch)
        worth, length = ticks.worth(start), ticks.time(start)
        ratio = Fraction(worth, length) if worth else None
        self.improve_bound(self.credible(relaxation_bound(self.instance, start=ratio, stop=late)))
        if self.settled():
            self.report = replace(self.report, termination="optimal")
            return
        found = branch(ticks, start, lambda: late())
        self.offer_found(self.selection(found.batch), "branch")
        self.improve_bound(self.credible(found.lower))
        ended = "optimal" if found.lower is not None else "time_limit" if late() else "failed"
        if ended == "optimal" and self.undecided() is not None:
            ended = "undecided"
        self.report = replace(self.report, termination=ended, details={BRANCHING: f"{found.nodes} nodes"})

    def formulated(self, formulation: str) -> None:
        """Solve a formulation with HiGHS."""
        asked = self.options.solver != "auto"
        self.report = replace(
            self.report, engine="highs", reason="asked for" if asked else "a formulation was asked for"
        )
        self.say(f"engine highs: {self.report.reason}")
        limits = EngineLimits(
            self.left(), self.report.threads or 1, self.options.seed, self.options.memory_limit
        )
        warm = self.best.schedule if self.best else None
        found = solve_formulation(self.instance, formulation, warm=warm, limits=limits)
        self.report = replace(
            self.report,
            formulation=formulation,
            termination=found.termination,
            warm_start_accepted=found.warm_start_accepted,
            details=found.details,
        )
        self.offer_found(found.schedule, f"highs:{formulation}")
        self.improve_bound(self.credible(found.lower))
