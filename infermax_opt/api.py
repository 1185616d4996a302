"""The Python API: solve, bound, schedule, verify.

Data flows one way: instance -> heuristic schedules -> exact engine (warm-started) -> schedule and
bound -> verifier -> result.  Whatever stops an engine (a limit, Ctrl-C, a crash), the best
verified schedule and the best valid bound so far are returned.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import metadata
from typing import TYPE_CHECKING, Literal

from infermax_opt.bounds import closed_form_bounds
from infermax_opt.bounds.searched import searched_bounds
from infermax_opt.errors import InputError
from infermax_opt.instance import Instance
from infermax_opt.metrics import Metrics
from infermax_opt.result import LowerBound, Proof, Result, SolverReport, UpperBound
from infermax_opt.schedules import Schedule
from infermax_opt.verification import Verification, verify

if TYPE_CHECKING:
    from infermax_opt.solvers.outcome import EngineOutcome, Limits

__all__ = ["SOLVERS", "bound", "package_versions", "schedule", "solve", "verify"]

SOLVERS = ("auto", "search", "highs", "cpsat")

#: Generated tokens up to which `auto` tries an exact engine: beyond it none gets anywhere.
EXACT_TOKENS = 4096

#: Seconds to wait for a bound in the making when time is up.
GRACE = 2.0
#: Seconds after which planners and bounds let each other run.
SWITCH = 5e-4
#: Share of the time left that the exact search has before the planners, which get the rest.
SEARCH_SHARE = 0.25
#: Columns of the flow formulation up to which it is solved as a whole in the last share of the time, and
#: by windows of batches, which the planners leave the rest of their time.
FLOW_COLUMNS, FLOW_SHARE, WINDOW_COLUMNS, PLAN_SHARE = 10_000, 0.25, 40_000, 0.6
#: Columns that are modelled in a second, at least: nothing interrupts that.
MODEL_RATE = 1500
#: Share of the time that the schedulers may take before an engine or the planners start.
WARM_UP = 0.25

Progress = Callable[[str], None]


def bound(instance: Instance, *, time_limit: float | None = None) -> tuple[LowerBound, ...]:
    """All lower bounds on the objective, best first, in exact seconds.

    Parameters
    ----------
    instance : Instance
    time_limit : float, optional
        Seconds after which a bound that takes a search is no longer improved.
    """
    end = math.inf if time_limit is None else time.monotonic() + time_limit
    found = closed_form_bounds(instance)
    if instance.objective.is_makespan:
        found += searched_bounds(instance, stop=lambda: time.monotonic() > end)
    return tuple(sorted(found, key=lambda lower: -lower.value))


def schedule(instance: Instance, scheduler: str) -> Schedule:
    """Run one scheduler.

    Raises
    ------
    InputError
        If there is no scheduler of that name.
    """
    from infermax_opt.schedulers import run_scheduler

    return run_scheduler(instance, scheduler)


def solve(
    instance: Instance,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    warm_start: str | Schedule = "best",
    time_limit: float | None = 60.0,
    memory_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result:
    """Find a schedule and a lower bound, as close to each other as the limits allow.

    Parameters
    ----------
    instance : Instance
    formulation : str, optional
        Formulation for the solvers ``highs`` and ``cpsat`` (``flow`` or ``csp``).
    solver : {"auto", "search", "highs", "cpsat"}
        Exact engine; ``auto`` chooses one and says why in the result.
    warm_start : str or Schedule
        ``"best"`` runs every scheduler and takes the best schedule, a scheduler's name takes that
        one, ``"none"`` takes none; or a schedule.
    time_limit : float, optional
        Wall-clock seconds for everything; None is no limit.
    memory_limit : int, optional
        Bytes that an engine may use.
    threads : int, optional
        Threads of an engine; default: all cores.
    seed : int
    progress : callable, optional
        Receives one line of text whenever there is news.

    Returns
    -------
    Result
        Verified: its upper bound is the replayed objective of its schedule.

    Raises
    ------
    InputError
        If an option is unusable, the warm start breaks a rule, or the chosen engine cannot
        express the instance.
    """
    options = _Options(formulation, solver, warm_start, time_limit, memory_limit, threads, seed, progress)
    return _Run(instance, options).run()


def package_versions() -> dict[str, str]:
    """Versions of this package and of the solvers and libraries behind it."""
    versions = {}
    for name in ("infermax-opt", "pyomo", "highspy", "ortools", "numpy", "numba"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


@dataclass(frozen=True)
class _Options:
    formulation: str | None
    solver: str
    warm_start: str | Schedule
    time_limit: float | None
    memory_limit: int | None
    threads: int | None
    seed: int
    progress: Progress | None

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise InputError(f"{self.solver!r} is none of {', '.join(SOLVERS)}", field="solver")
        if self.formulation is not None:
            from infermax_opt.formulation import get_formulation

            get_formulation(self.formulation)
            if self.solver == "search":
                raise InputError("the search takes no formulation", field="formulation")
        limit = self.time_limit
        if limit is not None and (math.isnan(limit) or limit <= 0):
            raise InputError(f"{limit} is not a positive number of seconds", field="time_limit")
        for name, least in (("memory_limit", 1), ("threads", 1), ("seed", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{value} is less than {least}", field=name)


@dataclass(frozen=True)
class _Incumbent:
    """A verified schedule."""

    schedule: Schedule
    metrics: Metrics
    value: Fraction
    source: str


class _Run:
    """One call of `solve`: what is known so far, and how it came about."""

    def __init__(self, instance: Instance, options: _Options):
        self.instance = instance
        self.options = options
        self.began = time.monotonic()
        self.best: _Incumbent | None = None
        self.lower: LowerBound | None = None
        self.certified: LowerBound | None = None
        self.report = SolverReport(
            versions=package_versions(),
            threads=options.threads or os.cpu_count() or 1,
            seed=options.seed,
            time_limit=options.time_limit,
        )

    def run(self) -> Result:
        try:
            self.improve_bound(closed_form_bounds(self.instance)[0])
            self.find_warm_start()
            if self.proved():
                reason = "a closed-form bound meets the schedule; no engine was needed"
                self.report = replace(self.report, reason=reason, termination="optimal")
            else:
                self.run_engine()
        except KeyboardInterrupt:
            self.report = replace(self.report, termination="interrupted")
        return self.result()

    def plan(self) -> None:
        """Planners and bounds; then the flow formulation, by windows and as a whole, where it is small."""
        from infermax_opt.formulation import get_formulation

        kinds = {(t.input_tokens, t.output_tokens) for t in self.instance.types}
        columns = 4 * sum(o for _, o in kinds) * (self.best.metrics.batches if self.best else 0)
        left = self.left()
        able = (
            left is not None
            and 0 < columns <= min(WINDOW_COLUMNS, MODEL_RATE * (1 - PLAN_SHARE) * left)
            and self.instance.objective.is_makespan
            and get_formulation("flow").unsupported(self.instance) is None
        )
        whole = able and left is not None and columns <= min(FLOW_COLUMNS, MODEL_RATE * FLOW_SHARE * left)
        self.plan_beside_bounds(1 - FLOW_SHARE if whole else 1.0, windows=able)
        left = self.left()
        if whole and not self.proved() and left is not None and left >= 1:
            self.solve_flow(left)

    def solve_flow(self, seconds: float) -> None:
        """Solve the flow formulation, starting from the best schedule."""
        from infermax_opt.formulated import solve_formulation
        from infermax_opt.solvers.outcome import Limits

        if self.best is None:
            return
        self.say("engine highs: the flow formulation is small")
        limits = Limits(seconds, self.report.threads or 1, self.options.seed, self.options.memory_limit)
        try:
            outcome = solve_formulation(
                self.instance, "flow", "highs",
                warm=self.best.schedule, limits=limits, progress=self.options.progress,
            )  # fmt: skip
        except InputError:  # more batches than were thought may be needed: too large after all
            return
        if outcome.schedule is not None:
            self.offer(outcome.schedule, "flow:highs")
        self.improve_bound(self.credible(outcome.lower))

    def plan_beside_bounds(self, share: float, windows: bool) -> None:
        """Improve schedule and bound side by side until they meet or this share of the time is up."""
        left = self.left()
        left = None if left is None else left * share
        end = math.inf if left is None else time.monotonic() + left
        halt = threading.Event()
        found: queue.SimpleQueue[LowerBound] = queue.SimpleQueue()
        failures: list[str] = []

        def search_bound() -> None:
            try:
                for bound in searched_bounds(
                    self.instance, stop=lambda: halt.is_set() or time.monotonic() > end
                ):
                    found.put(bound)
            except Exception as error:  # one bound the less is no reason to lose the rest
                failures.append(f"{type(error).__name__}: {error}")

        worker = threading.Thread(target=search_bound, daemon=True)
        # Both sides make many short calls of compiled code, and would wait for each other after each.
        interval = sys.getswitchinterval()
        try:
            sys.setswitchinterval(SWITCH)
            if self.instance.objective.is_makespan:
                worker.start()
            for source, candidate in self.candidates(end, windows):
                self.offer(candidate, source)
                self.improve_bounds(found)
                if self.proved() or time.monotonic() > end:
                    break
            if worker.is_alive() and not self.proved():
                worker.join(None if end == math.inf else max(0.0, end - time.monotonic()) + GRACE)
        finally:
            halt.set()
            sys.setswitchinterval(interval)
            self.improve_bounds(found)
            if failures:
                details = {**self.report.details, "bound search failed": failures[0]}
                self.report = replace(self.report, details=details)

    def candidates(self, end: float, windows: bool) -> Iterator[tuple[str, Schedule]]:
        """Plans until some moment; its last part goes to windows of the flow formulation, if wanted."""
        from infermax_opt.schedulers import anytime_plans

        upper = float(self.best.value) if self.best else None
        now = time.monotonic()
        deadline = None if end == math.inf else now + (end - now) * (PLAN_SHARE if windows else 1.0)
        yield from anytime_plans(self.instance, upper=upper, seed=self.options.seed, deadline=deadline)
        if windows and self.best is not None:
            from infermax_opt.neighbourhood import improved_by_windows

            self.say("engine highs: windows of the flow formulation")
            for schedule in improved_by_windows(
                self.instance, self.best.schedule, deadline=end, seed=self.options.seed
            ):
                yield "windows:highs", schedule

    def proved(self) -> bool:
        """Whether bound and schedule meet."""
        return self.best is not None and self.lower is not None and self.lower.value >= self.best.value

    def say(self, text: str) -> None:
        """Tell whoever watches."""
        if self.options.progress is not None:
            self.options.progress(text)

    def left(self) -> float | None:
        """Seconds left, at least a little so that engines can start."""
        if self.options.time_limit is None:
            return None
        return max(0.05, self.options.time_limit - (time.monotonic() - self.began))

    def improve_bound(self, candidate: LowerBound | None) -> None:
        """Keep the better lower bound."""
        if candidate is None:
            return
        if candidate.proof is not Proof.SOLVER:
            known = self.certified
            self.certified = candidate if known is None or candidate.value > known.value else known
        if self.lower is None or candidate.value > self.lower.value:
            self.lower = candidate
            self.say(f"lower bound {float(candidate.value):.6g} s ({candidate.source})")

    def improve_bounds(self, found: queue.SimpleQueue[LowerBound]) -> None:
        """Keep the best of the bounds that wait to be taken."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.improve_bound(found.get_nowait())

    def offer(self, candidate: Schedule, source: str) -> Verification:
        """Verify a schedule and keep it if it is the best."""
        check = verify(self.instance, candidate)
        value = check.objective
        better = value is not None and (self.best is None or value < self.best.value)
        if check.ok and better and check.metrics is not None and value is not None:
            self.best = _Incumbent(candidate, check.metrics, value, source)
            self.say(f"schedule {float(value):.6g} s ({source})")
        return check

    def find_warm_start(self) -> None:
        """Obtain the schedule that the options ask for."""
        from infermax_opt.schedulers import run_scheduler, scheduler_names

        wanted = self.options.warm_start
        if isinstance(wanted, Schedule):
            check = self.offer(wanted, "warm start")
            if not check.ok:
                # A schedule for another instance breaks rules for that reason only.
                fault = (*check.faults, *check.violations)[0]
                raise InputError(f"is not a valid schedule: {fault}", field="warm_start")
        elif wanted == "best":
            for name in scheduler_names():
                with contextlib.suppress(InputError):  # one that needs too many batches
                    self.offer(run_scheduler(self.instance, name), f"scheduler:{name}")
                left = self.left()
                # At least one schedule always; an engine needs the rest of the time.
                limit = self.options.time_limit
                if left is not None and limit is not None and left < limit * (1 - WARM_UP):
                    break
        elif wanted != "none":
            self.offer(run_scheduler(self.instance, wanted), f"scheduler:{wanted}")
        if self.best is not None:
            self.report = replace(self.report, warm_start=self.best.source)

    def choose(self) -> tuple[str, str]:
        """Engine and the reason for it; "none" where no exact engine has a chance."""
        from infermax_opt.solvers.staged import unsupported

        tokens = self.instance.output_tokens
        if self.options.solver != "auto":
            return self.options.solver, "asked for"
        if self.options.formulation is not None:
            return "cpsat", "a formulation was asked for; CP-SAT proves these faster than HiGHS"
        if tokens > EXACT_TOKENS:
            return "none", f"{tokens} output tokens are beyond the exact engines ({EXACT_TOKENS})"
        why = unsupported(self.instance)
        if why is not None:
            return "none", f"no exact engine takes this objective: {why}"
        return "search", "the search is exact for every policy flag and proves small instances fastest"

    def run_engine(self) -> None:
        """Run the exact engine and keep what it found."""
        from infermax_opt.solvers.outcome import Limits

        engine, reason = self.choose()
        self.report = replace(self.report, reason=reason)
        if engine == "none":
            self.report = replace(self.report, engine="planner", termination="heuristics only")
            self.plan()
            if self.proved():
                self.report = replace(self.report, termination="optimal")
            return
        self.report = replace(self.report, engine=engine)
        left = self.left()
        plannable = self.options.solver == "auto" and engine == "search" and self.instance.offline
        if plannable and left is not None:
            left *= SEARCH_SHARE
        limits = Limits(left, self.report.threads or 1, self.options.seed, self.options.memory_limit)
        self.say(f"engine {engine}: {reason}")
        outcome = self.search(limits) if engine == "search" else self.formulated(engine, limits)
        self.report = replace(
            self.report,
            termination=outcome.termination,
            warm_start_accepted=outcome.warm_start_accepted,
            details=outcome.details,
        )
        if outcome.schedule is not None:
            check = self.offer(outcome.schedule, engine)
            if not check.ok:
                broken = str((*check.violations, *check.faults)[0])
                self.report = replace(self.report, details={**outcome.details, "rejected": broken})
        self.improve_bound(self.credible(outcome.lower))
        if plannable and not self.proved() and self.report.termination == "time_limit":
            self.plan()

    def credible(self, lower: LowerBound | None) -> LowerBound | None:
        """The bound, unless a verified schedule refutes it: then the engine failed, and says so."""
        if lower is None or self.best is None or lower.value <= self.best.value:
            return lower
        failure = f"discarded: {lower.source} claims the bound {float(lower.value)!r}, which is wrong"
        self.say(failure)
        details = {**self.report.details, "failure": failure}
        self.report = replace(self.report, termination="failed", details=details)
        return None

    def search(self, limits: Limits) -> EngineOutcome:
        from infermax_opt.solvers.staged import staged_search, unsupported

        why = unsupported(self.instance)
        if why is not None:
            raise InputError(f"the search cannot solve this instance: {why}", field="solver")
        upper = self.best.value if self.best else None
        return staged_search(self.instance, upper=upper, limits=limits, progress=self.options.progress)

    def formulated(self, engine: str, limits: Limits) -> EngineOutcome:
        from infermax_opt.formulated import solve_formulation
        from infermax_opt.formulation import formulation_names, get_formulation

        name = self.options.formulation
        if name is None:
            able = [n for n in formulation_names() if get_formulation(n).unsupported(self.instance) is None]
            if not able:
                reasons = [
                    f"{n}: {get_formulation(n).unsupported(self.instance)}" for n in formulation_names()
                ]
                raise InputError(f"no formulation takes this instance: {'; '.join(reasons)}", field="solver")
            name = "flow" if "flow" in able else able[0]
        why = get_formulation(name).unsupported(self.instance)
        if why is not None:
            raise InputError(f"{name!r} does not take this instance: {why}", field="formulation")
        self.report = replace(self.report, formulation=name)
        kind: Literal["highs", "cpsat"] = "highs" if engine == "highs" else "cpsat"
        warm = self.best.schedule if self.best else None
        outcome = solve_formulation(
            self.instance, name, kind, warm=warm, limits=limits, progress=self.options.progress
        )
        scope = outcome.details.get("scope")
        if isinstance(scope, str):
            from infermax_opt.result import Scope

            self.report = replace(self.report, scope=Scope(scope))
        return outcome

    def result(self) -> Result:
        """Everything known, as a result."""
        best, lower = self.best, self.lower
        seconds = time.monotonic() - self.began
        return Result(
            instance=self.instance.name,
            instance_sha256=self.instance.sha256,
            objective=str(self.instance.objective),
            upper=UpperBound(best.value, best.source) if best else None,
            lower=lower,
            certified=self.certified,
            schedule=best.schedule if best else None,
            metrics=best.metrics if best else None,
            solver=replace(self.report, seconds=seconds),
        )
