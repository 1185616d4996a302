"""The Python API: solve, bound, schedule, verify.

Data flows one way: instance -> heuristic schedules -> exact engine (warm-started) -> schedule and
bound -> verifier -> result.  Whatever stops an engine (a limit, Ctrl-C, a crash), the best
verified schedule and the best valid bound so far are returned.
"""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import AnyInstance, AnySchedule
from infermax_opt.core.result import AnyResult, LowerBound, MakespanResult, PlacementResult, Result
from infermax_opt.core.run import Progress, SolveOptions, SolveRun, package_versions
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.metrics import Metrics
from infermax_opt.infermax.verify import Verification, verify
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement

if TYPE_CHECKING:
    from infermax_opt.engines.outcome import EngineOutcome, Limits

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
S = TypeVar("S", bound=AnySchedule)


def bound(instance: AnyInstance, *, time_limit: float | None = None) -> tuple[LowerBound, ...]:
    """All lower bounds on the objective, best first, in exact seconds, or workers of a placement.

    Parameters
    ----------
    instance : instance of any problem
    time_limit : float, optional
        Seconds after which a bound that takes a search is no longer improved.
    """
    if isinstance(instance, MakespanInstance):
        from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds

        return tuple(closed_form_makespan_bounds(instance))
    if isinstance(instance, PlacementInstance):
        from infermax_opt.placement.solve import lower_bounds

        return tuple(lower_bounds(instance))
    end = math.inf if time_limit is None else time.monotonic() + time_limit
    found = closed_form_bounds(instance)
    if instance.objective.is_makespan:
        found += searched_bounds(instance, stop=lambda: time.monotonic() > end)
    return tuple(sorted(found, key=lambda lower: -lower.value))


@overload
def schedule(instance: Instance, scheduler: str) -> Schedule: ...
@overload
def schedule(instance: MakespanInstance, scheduler: str) -> MakespanSchedule: ...
@overload
def schedule(instance: PlacementInstance, scheduler: str) -> Placement: ...
def schedule(instance: AnyInstance, scheduler: str) -> AnySchedule:
    """Run one scheduler, one method of the makespan problem, or one placement heuristic.

    Raises
    ------
    InputError
        If there is none of that name, or a request fits on no worker.
    """
    if isinstance(instance, MakespanInstance):
        from infermax_opt.makespan.methods.by_name import run_method

        return run_method(instance, scheduler).schedule
    if isinstance(instance, PlacementInstance):
        from infermax_opt.placement.heuristics.place import place

        return place(instance, scheduler)
    from infermax_opt.infermax.schedulers import run_scheduler

    return run_scheduler(instance, scheduler)


@overload
def solve(
    instance: Instance,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    warm_start: str | AnySchedule = "best",
    time_limit: float | None = 60.0,
    memory_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Result: ...
@overload
def solve(
    instance: MakespanInstance,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    warm_start: str | AnySchedule = "best",
    time_limit: float | None = 60.0,
    memory_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> MakespanResult: ...
@overload
def solve(
    instance: PlacementInstance,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    warm_start: str | AnySchedule = "best",
    time_limit: float | None = 60.0,
    memory_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> PlacementResult: ...
def solve(
    instance: AnyInstance,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    warm_start: str | AnySchedule = "best",
    time_limit: float | None = 60.0,
    memory_limit: int | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> AnyResult:
    """Find a schedule and a lower bound, as close to each other as the limits allow.

    Parameters
    ----------
    instance : instance of any problem
    formulation : str, optional
        Formulation for the solvers ``highs`` and ``cpsat`` (``flow`` or ``csp``; ``aladdin`` for
        placements).
    solver : str
        Engine: one of `SOLVERS`, ``auto``, ``exact`` or ``anneal`` for makespan instances, ``auto``,
        ``pack``, ``cpsat`` or ``highs`` for placements.  ``auto`` chooses and says why in the result.
    warm_start : str or schedule
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
    Result, MakespanResult or PlacementResult
        Verified: its upper bound is the replayed objective of its schedule.

    Raises
    ------
    InputError
        If an option is unusable, the warm start breaks a rule, or the chosen engine cannot
        express the instance.
    """
    if isinstance(instance, MakespanInstance):
        from infermax_opt.makespan.solve import solve_makespan

        if formulation is not None:
            raise InputError("makespan instances are solved without one", field="formulation")
        return solve_makespan(
            instance, solver=solver, warm_start=_of(MakespanSchedule, warm_start), time_limit=time_limit,
            memory_limit=memory_limit, threads=threads, seed=seed, progress=progress,
        )  # fmt: skip
    if isinstance(instance, PlacementInstance):
        from infermax_opt.placement.solve import solve_placement

        return solve_placement(
            instance, solver=solver, formulation=formulation, warm_start=_of(Placement, warm_start),
            time_limit=time_limit, memory_limit=memory_limit, threads=threads, seed=seed, progress=progress,
        )  # fmt: skip
    options = _Options(
        engines=SOLVERS, solver=solver, time_limit=time_limit, memory_limit=memory_limit, threads=threads,
        seed=seed, progress=progress, formulation=formulation, warm_start=_of(Schedule, warm_start),
    )  # fmt: skip
    run = _Run(instance, options)
    run.run()
    return run.result(Result)


def _of(kind: type[S], warm_start: str | AnySchedule) -> str | S:
    """The warm start, which must be of the instance's problem."""
    if isinstance(warm_start, str | kind):
        return warm_start
    raise InputError(f"is a {type(warm_start).__name__}, not a {kind.__name__}", field="warm_start")


@dataclass(frozen=True, kw_only=True)
class _Options(SolveOptions):
    formulation: str | None
    warm_start: str | Schedule

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.formulation is not None:
            from infermax_opt.infermax.formulation import get_formulation

            get_formulation(self.formulation)
            if self.solver == "search":
                raise InputError("the search takes no formulation", field="formulation")


class _Run(SolveRun[Instance, Schedule, Metrics]):
    """One call of `solve` on an InferMax instance."""

    def __init__(self, instance: Instance, options: _Options):
        super().__init__(instance, options)
        self.options = options

    def verify(self, candidate: Schedule) -> Verification:
        return verify(self.instance, candidate)

    def closed_form(self) -> LowerBound:
        return closed_form_bounds(self.instance)[0]

    def warm_up(self) -> None:
        from infermax_opt.infermax.schedulers import run_scheduler, scheduler_names

        self.start_from(
            self.options.warm_start, scheduler_names(), lambda name: run_scheduler(self.instance, name),
            "scheduler",
        )  # fmt: skip

    def plan(self) -> None:
        """Planners and bounds; then the flow formulation, by windows and as a whole, where it is small."""
        from infermax_opt.infermax.formulation import get_formulation

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
        from infermax_opt.engines.outcome import Limits
        from infermax_opt.infermax.exact.solve_formulation import solve_formulation

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
        from infermax_opt.infermax.schedulers import anytime_plans

        upper = float(self.best.value) if self.best else None
        now = time.monotonic()
        deadline = None if end == math.inf else now + (end - now) * (PLAN_SHARE if windows else 1.0)
        yield from anytime_plans(self.instance, upper=upper, seed=self.options.seed, deadline=deadline)
        if windows and self.best is not None:
            from infermax_opt.infermax.exact.flow_windows import improved_by_windows

            self.say("engine highs: windows of the flow formulation")
            for schedule in improved_by_windows(
                self.instance, self.best.schedule, deadline=end, seed=self.options.seed
            ):
                yield "windows:highs", schedule

    def improve_bounds(self, found: queue.SimpleQueue[LowerBound]) -> None:
        """Keep the best of the bounds that wait to be taken."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.improve_bound(found.get_nowait())

    def choose(self) -> tuple[str, str]:
        """Engine and the reason for it; "none" where no exact engine has a chance."""
        from infermax_opt.infermax.exact.staged import unsupported

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

    def run_engines(self) -> None:
        """Run the exact engine and keep what it found."""
        from infermax_opt.engines.outcome import Limits

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
        self.offer_found(outcome.schedule, engine)
        self.improve_bound(self.credible(outcome.lower))
        if plannable and not self.proved() and self.report.termination == "time_limit":
            self.plan()

    def search(self, limits: Limits) -> EngineOutcome:
        from infermax_opt.infermax.exact.staged import staged_search, unsupported

        why = unsupported(self.instance)
        if why is not None:
            raise InputError(f"the search cannot solve this instance: {why}", field="solver")
        upper = self.best.value if self.best else None
        return staged_search(self.instance, upper=upper, limits=limits, progress=self.options.progress)

    def formulated(self, engine: str, limits: Limits) -> EngineOutcome:
        from infermax_opt.infermax.exact.solve_formulation import solve_formulation
        from infermax_opt.infermax.formulation import formulation_names, get_formulation

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
            from infermax_opt.core.result import Scope

            self.report = replace(self.report, scope=Scope(scope))
        return outcome
