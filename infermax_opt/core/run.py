"""What one call of `solve` knows so far, and how it came about; the same for every problem.

Schedules count once the verifier accepts them, bounds unless such a schedule refutes them.  Whatever ends
the search (a limit, Ctrl-C), the best of both is the result.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from infermax_opt.core.compiled import hurrying
from infermax_opt.core.compiling_apart import UNCOMPILED, in_time
from infermax_opt.core.errors import InputError, PackageError
from infermax_opt.core.exact import lower_rounding
from infermax_opt.core.extras import absent, remedy
from infermax_opt.core.interrupts import Stopped
from infermax_opt.core.progress import Progress, Teller
from infermax_opt.core.result import Answer, LowerBound, Proof, Result, SolverReport, UpperBound
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.core.values import AnyInstance, AnyMetrics, AnySchedule, amount
from infermax_opt.core.versions import package_versions

if TYPE_CHECKING:
    from infermax_opt.core.problem import Problem
    from infermax_opt.core.verification import BaseVerification

__all__ = ["SHORT_WARM_UP", "WARM_START", "Incumbent", "Progress", "SolveRun"]

#: Share of the time that heuristics may take before an engine starts.
WARM_UP = 0.25
#: The same where planners, which come after them, do better all but always.
SHORT_WARM_UP = 0.1
#: Source of a schedule that was given.
WARM_START = "warm start"

P = TypeVar("P", bound=AnyInstance)
S = TypeVar("S", bound=AnySchedule)
M = TypeVar("M", bound=AnyMetrics)


@dataclass(frozen=True)
class Incumbent(Generic[S, M]):
    """A verified schedule."""

    schedule: S
    metrics: M
    value: Fraction
    source: str


def first_wrong(check: BaseVerification[Any, Any]) -> str:
    """The first rule that a wrong schedule breaks, in words, and how many more there are."""
    wrong = [*check.violations, *check.faults]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    rule = f"breaks the rule {check.violations[0].rule.value}" if check.violations else "is wrong"
    return f"{rule}: {wrong[0]}{more}"


class SolveRun(Generic[P, S, M]):
    """One call of `solve` on an instance `P` with schedules `S` and metrics `M`.

    As it stands it runs the heuristics of the problem; a problem with engines derives its own class.

    Attributes
    ----------
    best : Incumbent or None
    lower, certified : LowerBound or None
        The best bound, and the best one that anybody can check.
    report : SolverReport
    say : Teller
        Tells whoever watches, and keeps what was told of schedules and bounds.
    rejected : dict of source to text
        What made schedules that do not count, and why the first of each does not.
    knowing : dict of name to text
        Heuristics that knew more than others may, and what their schedules say of that.
    untried : dict of name to text
        What was left out as no package for it is installed, and what to install.
    """

    def __init__(self, problem: Problem[P, S, M], instance: P, options: SolveOptions):
        self.problem = problem
        self.instance = instance
        self.options = options
        self.began = time.monotonic()
        self.say = Teller(options.progress, self.began)
        self.best: Incumbent[S, M] | None = None
        self.lower: LowerBound | None = None
        self.certified: LowerBound | None = None
        self.rejected: dict[str, str] = {}
        self.knowing: dict[str, str] = {}
        self.untried: dict[str, str] = {}
        self.report = SolverReport(
            versions=package_versions(),
            threads=options.threads or os.cpu_count() or 1,
            seed=options.seed,
            time_limit=options.time_limit,
            memory_limit=options.memory_limit,
        )

    def closed_forms(self) -> Iterable[LowerBound]:
        """The bounds that take no search."""
        return self.problem.bounds(self.instance, stop=lambda: True)

    def warm_up(self) -> None:
        """Find a schedule to start from, as the options ask."""
        self.start_from(self.problem.heuristics_for(self.instance), self.heuristic)

    def heuristic(self, name: str) -> S:
        """What the heuristic of that name makes of the instance."""
        made = self.problem.run_heuristic(self.instance, name)
        if made.knows is not None:
            self.knowing[name] = made.knows
        return made.schedule

    def find_start(self) -> S | None:
        """Take the bounds that need no search, and return the schedule that an engine starts from."""
        for bound in (*self.options.bounds, *self.closed_forms()):
            self.improve_bound(bound)
        self.warm_up()
        return None if self.best is None else self.best.schedule

    def run_engines(self) -> None:
        """Improve schedule and bound."""
        self.report = replace(self.report, termination="heuristics only")

    def run(self) -> None:
        """Do all of it, until it is proved or something ends it."""
        with in_time(self.late) as limit:
            try:
                self.seek()
            except KeyboardInterrupt as stop:
                ended = "stopped" if isinstance(stop, Stopped) else "interrupted"
                self.report = replace(self.report, termination=ended)
        if limit.ended:
            what, why = UNCOMPILED
            self.untried[what] = why
            if not self.proved():
                self.report = replace(self.report, termination="time_limit")

    @property
    def called_off(self) -> bool:
        """Whether the user ended the search, or who listens to its progress."""
        return self.report.termination in ("interrupted", "stopped")

    def seek(self) -> None:
        """Start, and run engines until it is proved."""
        self.find_start()
        if self.settled():
            what = "meets the schedule" if self.proved() else "or a schedule answers the question"
            reason = f"a closed-form bound {what}; no engine was needed"
            self.report = replace(self.report, reason=reason, termination="optimal")
        else:
            self.run_engines()
        if self.settled() and not self.proved():
            self.report = replace(self.report, termination="answered")

    def result(self) -> Result[S, M]:
        """Everything known.

        Raises
        ------
        InputError
            If a closed form is wrong, such as one of another package: a verified schedule is below it.
        """
        best = self.best
        if best is not None and self.lower is not None and self.refuted(self.lower):
            claimed = f"{self.lower.source} claims at least {amount(self.instance, self.lower.value)}"
            reached = f"a verified schedule needs {amount(self.instance, best.value)}"
            raise InputError(f"{claimed}, which is wrong: {reached}", field="bound")
        seconds = time.monotonic() - self.began
        details = {**self.report.details, **({"not tried": self.untried} if self.untried else {})}
        if self.rejected:
            details["rejected"] = "; ".join(f"{source} {why}" for source, why in self.rejected.items())
        return Result(
            instance=self.instance.name,
            instance_sha256=self.instance.sha256,
            objective=self.instance.objective_name,
            upper=UpperBound(best.value, best.source) if best else None,
            lower=self.lower,
            certified=self.certified,
            schedule=best.schedule if best else None,
            metrics=best.metrics if best else None,
            solver=replace(self.report, seconds=seconds, details=details),
            target=self.options.target,
            undecided=self.undecided() if best else None,
            given=self.instance,
            events=tuple(self.say.events),
        )

    def proved(self) -> bool:
        """Whether bound and schedule meet."""
        met = self.best is not None and self.lower is not None and self.lower.value >= self.best.value
        return met and self.undecided() is None

    def undecided(self) -> str | None:
        """Why it is not known whether the best schedule is as it must be; None where it is."""
        return None

    def better(self, metrics: M, value: Fraction) -> bool:
        """Whether a schedule with these metrics and this value is better than the best so far.

        Parameters
        ----------
        metrics : metrics of the problem
        value : Fraction
            Of the objective.
        """
        return self.best is None or value < self.best.value

    def settled(self) -> bool:
        """Whether bound and schedule meet, or the question is answered."""
        return self.proved() or self.answer() not in (None, Answer.OPEN)

    def answer(self) -> Answer | None:
        """Whether a schedule reaches the value that is asked about; None if none is."""
        upper = self.best.value if self.best and self.undecided() is None else None
        return Answer.of(self.options.target, upper, self.lower.value if self.lower else None)

    def refuted(self, lower: LowerBound) -> bool:
        """Whether a bound is too high: a verified schedule is below it."""
        return self.best is not None and lower.value > self.best.value

    def able(self, what: str, *modules: str) -> bool:
        """Whether the packages of these modules are installed; the report names what was not tried else.

        Parameters
        ----------
        what : str
            What needs them, such as ``flow formulation``.
        *modules : str
        """
        lacking = next(filter(absent, modules), None)
        if lacking is not None:
            self.untried[what] = remedy(lacking)
        return lacking is None

    def left(self) -> float | None:
        """Seconds left, at least a little so that engines can start."""
        if self.options.time_limit is None:
            return None
        return max(0.05, self.options.time_limit - (time.monotonic() - self.began))

    def late(self) -> bool:
        """Whether the time limit has passed and there is a schedule: nothing more has to be begun."""
        limit = self.options.time_limit
        return self.best is not None and limit is not None and time.monotonic() - self.began > limit

    def improve_bound(self, candidate: LowerBound | None) -> None:
        """Keep the better lower bound."""
        if candidate is None:
            return
        if candidate.proof is not Proof.SOLVER:
            known = self.certified
            self.certified = candidate if known is None or candidate.value > known.value else known
        if self.lower is None or candidate.value > self.lower.value:
            self.lower = candidate
            least = amount(self.instance, candidate.value, lower_rounding())
            text = f"lower bound {least} ({candidate.source})"
            self.news(text, "bound", candidate.source)

    def credible(self, lower: LowerBound | None) -> LowerBound | None:
        """The bound, unless a verified schedule refutes it: then the engine failed, and says so."""
        if lower is None or not self.refuted(lower):
            return lower
        failure = f"discarded: {lower.source} claims the bound {float(lower.value)!r}, which is wrong"
        self.say(failure)
        details = {**self.report.details, "failure": failure}
        self.report = replace(self.report, termination="failed", details=details)
        return None

    def offer(self, candidate: S, source: str) -> BaseVerification[Any, M]:
        """Verify a schedule and keep it if it is the best."""
        check = self.problem.verify(self.instance, candidate, candidate)
        value = check.objective
        metrics = check.metrics
        if check.ok and metrics is not None and value is not None and self.better(metrics, value):
            self.best = Incumbent(candidate, metrics, value, source)
            self.news(f"schedule {amount(self.instance, value)} ({source})", "schedule", source)
        return check

    def news(self, text: str, step: str, source: str) -> None:
        """Tell of a better schedule or bound.

        Parameters
        ----------
        text : str
        step : {"schedule", "bound"}
        source : str
            What found it.
        """
        value = None if self.best is None else self.best.value
        bound = None if self.lower is None else self.lower.value
        self.say(text, step, value, bound, source)

    def offer_found(self, candidate: S | None, source: str) -> None:
        """Offer what an engine or a heuristic found, if anything; a wrong schedule is reported."""
        if candidate is None:
            return
        check = self.offer(candidate, source)
        if not check.ok:
            self.rejected.setdefault(source, first_wrong(check))

    def offer_made(self, name: str, run: Callable[[str], S | None]) -> None:
        """Offer what the heuristic of that name makes; one of another package that fails is reported."""
        source = f"{self.problem.heuristic}:{name}"
        try:
            made = run(name)
            knows = f" ({self.knowing[name]})" if name in self.knowing else ""
            self.offer_found(made, source + knows)
        except PackageError as error:
            if self.options.warm_start == name:
                raise
            self.rejected[source] = f"failed: {error}"

    def start_from(
        self, names: Iterable[str], run: Callable[[str], S | None], share: float = WARM_UP
    ) -> None:
        """Obtain the schedule to start from: a given one, none, or the best of some heuristics.

        Parameters
        ----------
        names : iterable of str
            Of the heuristics that "best" tries.
        run : callable
            Runs the heuristic of that name; None where there is nothing to verify.
        share : float
            Of the time, that these have.

        Raises
        ------
        InputError
            If the schedule breaks a rule, or there is no such heuristic.
        """
        wanted = self.options.warm_start
        if not isinstance(wanted, str):
            check = self.offer(wanted, WARM_START)
            if not check.ok:
                # A schedule for another instance breaks rules for that reason only.
                fault = (*check.faults, *check.violations)[0]
                raise InputError(f"is not a valid schedule: {fault}", field="warm_start")
        elif wanted == "best":
            for name in names:
                with (
                    contextlib.suppress(InputError),  # one that needs too many batches
                    contextlib.nullcontext() if self.best else hurrying(),
                ):
                    self.offer_made(name, run)
                if self.settled():
                    break
                left = self.left()
                # At least one schedule always; an engine needs the rest of the time.
                limit = self.options.time_limit
                if left is not None and limit is not None and left < limit * (1 - share):
                    break
        elif wanted != "none":
            self.offer_made(wanted, run)
        if self.best is not None:
            self.report = replace(self.report, warm_start=self.best.source)
