"""Solving makespan instances: bounds, the methods, then an engine, each warm-started by what is known.

Data flows one way: closed-form bounds -> schedules of the methods -> the exact
engine where the instance is small -> annealing for the rest of the time -> verifier -> result.  Where a
formulation is asked for, an engine that solves formulations takes the place of both.

The bounds are for schedules that know all output lengths.  The methods know only estimates, so those are
run once more on a copy of the instance whose estimates are the truth: its schedules are valid for both.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cached_property

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Scope
from infermax_opt.core.run import SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome
from infermax_opt.engines.process import Engine
from infermax_opt.makespan.anneal.plans import anneal_plans
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.exact.solve import exact_size, require_size, solve_makespan_exactly
from infermax_opt.makespan.exact.solve_formulation import get_makespan_formulation, solve_formulation
from infermax_opt.makespan.methods.by_name import ASSIGNMENT_SECONDS, METHODS, run_method
from infermax_opt.makespan.replay.metrics import MakespanMetrics

__all__ = ["MakespanRun", "check_options"]

#: Share of the time left that `auto` gives the exact engine before annealing, which gets the rest.
EXACT_SHARE = 0.5
#: Share of the time left that a method may take to assign requests.
ASSIGNMENT_SHARE = 0.05
#: What is added to the name of a method that was run with true output lengths.
TRUE = ", true lengths"
#: Formulation that ``highs`` and ``cpsat`` solve if none is named: by far the smaller one.
FORMULATION = "arcs"


def check_options(instance: MakespanInstance, options: SolveOptions) -> None:
    """Check what only this problem can judge.

    Raises
    ------
    InputError
        If there is no such formulation, the engine takes no such option, or the instance is too large for it.
    """
    if options.formulation is not None:
        get_makespan_formulation(options.formulation)
        if options.solver in ("exact", "anneal"):
            raise InputError(f"{options.solver} takes no formulation", field="formulation")
    elif options.memory_limit is not None and options.solver not in ("highs", "cpsat"):
        problem = "the engines of makespan instances take none without a formulation"
        raise InputError(problem, field="memory_limit")
    if options.solver == "exact":
        require_size(instance)


class MakespanRun(SolveRun[MakespanInstance, MakespanSchedule, MakespanMetrics]):
    """One call of `solve` on a makespan instance."""

    @cached_property
    def truthful(self) -> MakespanInstance:
        """The instance whose estimates are the true output lengths."""
        groups = (replace(group, estimated_output_tokens=None) for group in self.instance.groups)
        return replace(self.instance, groups=tuple(groups))

    def warm_up(self) -> None:
        """Run the methods, with estimated and with true output lengths."""
        names = list(METHODS)
        if self.truthful.requests != self.instance.requests:
            names += [name + TRUE for name in METHODS]
        self.start_from(names, self.method)

    def method(self, name: str) -> MakespanSchedule:
        """Run a method, with true lengths if the name says so."""
        plain = name.removesuffix(TRUE)
        instance = self.instance if plain == name else self.truthful
        left = self.left()
        seconds = ASSIGNMENT_SECONDS if left is None else min(ASSIGNMENT_SECONDS, ASSIGNMENT_SHARE * left)
        return run_method(instance, plain, seed=self.options.seed, time_limit=seconds).schedule

    def run_engines(self) -> None:
        """The exact engine where the instance is small, then annealing; or a formulation."""
        solver = self.options.solver
        if self.options.formulation is not None or solver in ("highs", "cpsat"):
            self.formulated(self.options.formulation or FORMULATION)
            return
        if solver == "auto":
            exact = exact_size(self.instance)
            reason = f"the instance is {'small enough' if exact else 'too large'} for the exact engine"
        else:
            exact, reason = solver == "exact", "asked for"
        self.report = replace(self.report, reason=reason)
        if exact:
            self.exact(EXACT_SHARE if solver == "auto" else 1.0)
        if solver == "anneal" or (solver == "auto" and not self.settled() and not self.called_off):
            self.anneal()

    def exact(self, share: float) -> None:
        """Run the exact engine for a share of the time left."""
        self.begin("exact")
        left = self.left()
        found = solve_makespan_exactly(
            self.instance,
            warm=self.best.schedule if self.best else None,
            time_limit=None if left is None else left * share,
            threads=self.report.threads or 1,
            seed=self.options.seed,
            progress=self.say,
            stop=None,
        )
        self.take(found, "exact")

    def formulated(self, name: str) -> None:
        """Solve a formulation as a whole."""
        asked = self.options.solver != "auto"
        engine: Engine = "highs" if self.options.solver == "highs" else "cpsat"
        reason = "asked for" if asked else "a formulation was asked for"
        self.report = replace(self.report, reason=reason, formulation=name)
        self.begin(engine)
        found = solve_formulation(
            self.instance, name, engine, warm=self.best.schedule if self.best else None,
            limits=EngineLimits(
                self.left(), self.report.threads or 1, self.options.seed, self.options.memory_limit
            ),
        )  # fmt: skip
        self.report = replace(
            self.report,
            scope=Scope(found.details["scope"]),
            warm_start_accepted=found.warm_start_accepted,
        )
        self.take(found, f"{engine}:{name}")

    def take(self, found: EngineOutcome[MakespanSchedule], source: str) -> None:
        """Keep what an engine found, if it stands."""
        self.report = replace(self.report, termination=found.termination, details=dict(found.details))
        self.offer_found(found.schedule, source)
        self.improve_bound(self.credible(found.lower))

    def anneal(self) -> None:
        """Improve the schedule until it meets the bound, or the time or the effort is spent."""
        self.begin("anneal")
        left = self.left()
        end = math.inf if left is None else time.monotonic() + left
        plans = anneal_plans(
            self.instance,
            seed=self.options.seed,
            threads=self.report.threads or 1,
            deadline=None if end == math.inf else end,
            upper=self.best.value if self.best else None,
        )
        for source, schedule in plans:
            self.offer_found(schedule, source)
            if self.settled() or time.monotonic() > end:
                break
        spent = "heuristics only" if left is None else "time_limit"
        self.report = replace(self.report, termination="optimal" if self.proved() else spent)

    def begin(self, engine: str) -> None:
        """Note which engine runs."""
        self.report = replace(self.report, engine=engine)
        self.say(f"engine {engine}: {self.report.reason}")
