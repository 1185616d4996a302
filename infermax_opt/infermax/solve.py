"""Solving InferMax instances: schedulers, an exact engine, or planners beside a search for bounds.

Data flows one way: closed-form bounds -> schedules of the schedulers -> an exact engine where the instance is
small -> planners, with the search for better bounds beside them -> the flow formulation, by windows and as a
whole, where it is small -> verifier -> result.
"""

from __future__ import annotations

import contextlib
import math
import queue
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Scope
from infermax_opt.core.run import SolveOptions, SolveRun
from infermax_opt.engines.formulations import formulation_names
from infermax_opt.engines.outcome import EngineOutcome, Limits
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.flow_windows import improved_by_windows
from infermax_opt.infermax.exact.solve_formulation import solve_formulation
from infermax_opt.infermax.exact.staged import staged_search, unsupported
from infermax_opt.infermax.formulation import GROUP, get_formulation
from infermax_opt.infermax.planners.anytime import anytime_plans
from infermax_opt.infermax.replay.metrics import Metrics

__all__ = ["InferMaxRun", "check_options"]

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


def check_options(options: SolveOptions) -> None:
    """Check what only this problem can judge.

    Raises
    ------
    InputError
        If there is no such formulation, or the engine takes none.
    """
    if options.formulation is None:
        return
    get_formulation(options.formulation)
    if options.solver == "search":
        raise InputError("the search takes no formulation", field="formulation")


class InferMaxRun(SolveRun[Instance, Schedule, Metrics]):
    """One call of `solve` on an InferMax instance."""

    def plan(self) -> None:
        """Planners and bounds; then the flow formulation, by windows and as a whole, where it is small."""
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
        upper = float(self.best.value) if self.best else None
        now = time.monotonic()
        deadline = None if end == math.inf else now + (end - now) * (PLAN_SHARE if windows else 1.0)
        yield from anytime_plans(self.instance, upper=upper, seed=self.options.seed, deadline=deadline)
        if windows and self.best is not None:
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
        tokens = self.instance.output_tokens
        if self.options.solver != "auto":
            return self.options.solver, "asked for"
        if self.options.formulation is not None:
            return "cpsat", "a formulation was asked for; CP-SAT proves these faster than HiGHS"
        if tokens > EXACT_TOKENS:
            return "none", f"{tokens} output tokens are beyond the exact engines ({EXACT_TOKENS})"
        why = unsupported(self.instance)
        if why is not None:
            return "none", f"no exact engine takes this instance: {why}"
        return "search", "the search is exact for every policy flag and proves small instances fastest"

    def run_engines(self) -> None:
        """Run the exact engine and keep what it found."""
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

    def search(self, limits: Limits) -> EngineOutcome[Schedule]:
        """Run the exact search."""
        why = unsupported(self.instance)
        if why is not None:
            raise InputError(f"the search cannot solve this instance: {why}", field="solver")
        upper = self.best.value if self.best else None
        return staged_search(self.instance, upper=upper, limits=limits, progress=self.options.progress)

    def formulated(self, engine: str, limits: Limits) -> EngineOutcome[Schedule]:
        """Solve a formulation as a whole."""
        name = self.options.formulation
        if name is None:
            able = [
                n for n in formulation_names(GROUP) if get_formulation(n).unsupported(self.instance) is None
            ]
            if not able:
                reasons = [
                    f"{n}: {get_formulation(n).unsupported(self.instance)}" for n in formulation_names(GROUP)
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
            self.report = replace(self.report, scope=Scope(scope))
        return outcome
