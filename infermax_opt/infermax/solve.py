"""Solving InferMax instances: schedulers, an exact engine, or planners beside a search for bounds.

Data flows one way: closed-form bounds -> schedules of the schedulers -> an exact engine where the instance is
small -> planners, with the search for better bounds beside them -> the flow formulation, by windows and as a
whole, where it is small -> verifier -> result.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from infermax_opt.core.deadline import Deadline
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Scope
from infermax_opt.core.run import SHORT_WARM_UP, WARM_UP, SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.release import refuse_release
from infermax_opt.infermax.data.rounds import in_rounds
from infermax_opt.infermax.data.schedule import Schedule, new_ones
from infermax_opt.infermax.formulation import get_formulation, refusal
from infermax_opt.infermax.planners.optional import in_vain, optional_ones, without
from infermax_opt.infermax.replay.metrics import Metrics

if TYPE_CHECKING:
    from infermax_opt.core.verification import BaseVerification
    from infermax_opt.infermax.bound_process import BoundProcess
    from infermax_opt.infermax.exact.rounds import Ints, RoundsSearch

__all__ = ["InferMaxRun", "check_options"]

#: Generated tokens up to which `auto` tries an exact engine: beyond it none gets anywhere.
EXACT_TOKENS = 4096
#: Seconds to wait for a bound in the making when time is up, at most, and as a share of the time limit.
GRACE, GRACE_SHARE = 2.0, 0.25
#: Seconds that an exact engine has to solve a small instance before the search for bounds starts beside it.
SMALL_SECONDS = 1.0
#: Share of the time left that the exact search has before the planners, which get the rest.
SEARCH_SHARE = 0.25
#: The same with arrivals, where the planner is done soon.
ONLINE_SEARCH_SHARE = 0.8
#: Columns of the flow formulation up to which it is solved as a whole, and the share of the time for that.
FLOW_COLUMNS, FLOW_SHARE = 10_000, 0.25
#: Columns of the flow formulation up to which it is solved by windows of batches.
WINDOW_COLUMNS = 40_000
#: Share of the time that planners have before these windows.
PLAN_SHARE = 0.6
#: The same where planners search whole lives or backwards, which find more than windows do.
LIVES_SHARE = 0.85
#: What is added to a value that is asked about, so that a search can show that no schedule reaches it.
ABOVE = Fraction(1, 10**9)
#: Requests up to which start rounds are searched exactly; the share of the time that plans have before that,
#: and the share of the rest that the search has.
ROUNDS_REQUESTS, ROUNDS_SHARE, PROVE_SHARE = 30, 0.15, 0.85
#: Memory that this search may take.
PROVE_BYTES = 10**9
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
    """One call of `solve` on an InferMax instance.

    Attributes
    ----------
    searching : BoundProcess or None
        The search for bounds, from the moment on at which the instance has turned out to be no small one.
    """

    searching: BoundProcess | None = None
    #: The evidence of the last bound by paths backwards, and the search with its prices.
    guide: tuple[object, RoundsSearch | None] = (None, None)

    def warm_up(self) -> None:
        """Find a schedule to start from; one request after another has the least TPOTs (`bounds.service`)."""
        solo = ["vllm@r1"] if self.instance.objective.is_tpot else []
        share = SHORT_WARM_UP if self.instance.offline and self.instance.objective.is_makespan else WARM_UP
        self.start_from([*solo, *self.problem.heuristics_for(self.instance)], new_ones(self.heuristic), share)

    def plan(self) -> None:
        """Planners and bounds; then the flow formulation, by windows and as a whole, where it is small."""
        kinds = {(t.input_tokens, t.output_tokens) for t in self.instance.types}
        columns = 4 * sum(o for _, o in kinds) * (self.best.metrics.batches if self.best else 0)
        left = self.left()
        able = (
            left is not None
            and 0 < columns <= min(WINDOW_COLUMNS, MODEL_RATE * (1 - PLAN_SHARE) * left)
            and self.instance.objective.is_makespan
            and self.instance.required is self.instance
            and self.able("flow formulation", "pyomo")
            and refusal(get_formulation("flow"), self.instance) is None
        )
        whole = able and left is not None and columns <= min(FLOW_COLUMNS, MODEL_RATE * FLOW_SHARE * left)
        self.plan_beside_bounds(1 - FLOW_SHARE if whole else 1.0, windows=able)
        left = self.left()
        if whole and not self.settled() and left is not None and left >= 1:
            self.solve_flow(left)

    def offer(self, candidate: Schedule, source: str) -> BaseVerification[Any, Metrics]:
        """Verify a schedule, also without optional requests that it serves in vain, and keep the best."""
        check = super().offer(candidate, source)
        if check.metrics is not None and self.instance.required is not self.instance:
            optional = optional_ones(self.instance)
            late = in_vain(self.instance, candidate, check.metrics.latencies)
            if late < optional:
                super().offer(without(self.instance, candidate, optional), source)
            if late:  # without these others may end in time, so it is asked again
                self.offer(without(self.instance, candidate, late), source)
        return check

    def solve_flow(self, seconds: float) -> None:
        """Solve the flow formulation, starting from the best schedule."""
        if self.best is None:
            return
        from infermax_opt.infermax.exact.solve_formulation import solve_formulation

        self.say("engine highs: the flow formulation is small")
        limits = EngineLimits(seconds, self.report.threads or 1, self.options.seed, self.options.memory_limit)
        try:
            outcome = solve_formulation(
                self.instance, "flow", "highs",
                warm=self.best.schedule, limits=limits, progress=self.say,
            )  # fmt: skip
        except InputError:  # more batches than were thought may be needed: too large after all
            return
        if outcome.schedule is not None:
            self.offer(outcome.schedule, "flow:highs")
        self.improve_bound(self.credible(outcome.lower))

    def plan_beside_bounds(self, share: float, windows: bool) -> None:
        """Improve schedule and bound side by side until they meet or this share of the time is up."""
        left = self.left()
        end = math.inf if left is None else time.monotonic() + left * share
        for source, candidate in () if self.late() else self.candidates(end, windows):
            self.offer(candidate, source)
            self.take_bounds()
            if self.settled() or time.monotonic() > end:
                break
        if not self.settled():
            self.take_bounds(None if end == math.inf else max(0.0, end - time.monotonic()))

    def take_bounds(self, wait: float | None = 0.0) -> bool:
        """Keep what the search for bounds found, waiting so many seconds; return whether all is settled."""
        if self.searching is not None:
            for bound in self.searching.found(wait):
                self.improve_bound(self.credible(bound))
        return self.settled()

    def candidates(self, end: float, windows: bool) -> Iterator[tuple[str, Schedule]]:
        """Plans until some moment; its last part goes to windows of the flow formulation, if wanted."""
        from infermax_opt.infermax.planners.anytime import anytime_plans, better_than_windows

        upper = float(self.best.value) if self.best else None
        now = time.monotonic()
        share = 1.0 if not windows else LIVES_SHARE if better_than_windows(self.instance) else PLAN_SHARE
        deadline = None if end == math.inf else now + (end - now) * share
        if self.instance.offline and self.instance.objective.is_makespan:
            yield from anytime_plans(
                self.instance,
                upper=upper,
                known=lambda: self.best.schedule if self.best else None,
                done=self.take_bounds,
                seed=self.options.seed,
                deadline=deadline,
            )
        else:
            yield from self.latency_plans(deadline)
        if windows and self.best is not None:
            from infermax_opt.infermax.exact.flow_windows import improved_by_windows

            self.say("engine highs: windows of the flow formulation")
            plan, seed = self.best.schedule, self.options.seed
            for schedule in improved_by_windows(self.instance, plan, deadline=end, seed=seed):
                yield "windows:highs", schedule

    def latency_plans(self, deadline: float | None) -> Iterator[tuple[str, Schedule]]:
        """Plans for latencies and arrivals; none for a closed loop."""
        from infermax_opt.infermax.planners.latencies import latency_plans
        from infermax_opt.infermax.planners.rounds.planner import RoundsPlanner

        if self.instance.release is not None:
            return
        if in_rounds(self.instance) and RoundsPlanner.takes(self.instance):
            from infermax_opt.infermax.exact import rounds

            merge = self.merged if rounds.takes(self.instance) else None
            yield from RoundsPlanner(self.instance, seed=self.options.seed, merge=merge).plans(deadline)
            return
        yield from latency_plans(self.instance, seed=self.options.seed, deadline=deadline)

    def merged(self, known: list[Ints], near: Ints, limit: int) -> tuple[Ints | None, bool] | None:
        """Ends near known ones with a smaller sum, and whether all were tried; None without prices.

        Parameters
        ----------
        known : list of array
            Ends of all requests in some schedules.
        near : array
            Rounds by which the end of each may differ from that in one of them.
        limit : int
            Sum of ends that is too much.
        """
        from infermax_opt.infermax.exact import rounds

        self.take_bounds()
        evidence = self.certified.evidence if self.certified is not None else None
        if evidence is not self.guide[0]:
            self.guide = evidence, rounds.guided(self.instance, evidence) or self.guide[1]
        search, left = self.guide[1], self.left()
        if search is None:
            return None
        found = search.merged(known, near, limit, Deadline(left))
        return found.ends, found.complete

    def solve_rounds(self) -> None:
        """Planner and bounds; few requests are searched exactly in between."""
        from infermax_opt.infermax.exact import rounds

        self.report = replace(self.report, engine="rounds", termination="heuristics only")
        few = len(self.instance.requests) <= ROUNDS_REQUESTS and rounds.takes(self.instance)
        self.plan_beside_bounds(ROUNDS_SHARE if few else 1.0, windows=False)
        if few and not self.proved():
            self.prove_rounds()
            self.take_bounds()
            if not self.proved():
                self.plan_beside_bounds(1.0, windows=False)
        if self.proved():
            self.report = replace(self.report, termination="optimal")

    def prove_rounds(self) -> None:
        """Search for start rounds, and for the proof that there are no better ones."""
        from infermax_opt.infermax.exact import rounds
        from infermax_opt.infermax.planners.rounds.planner import RoundsPlanner

        if self.best is None or (self.options.memory_limit or PROVE_BYTES) < PROVE_BYTES:
            return
        self.say("engine rounds: exact search backwards in time")
        requests, alpha = self.instance.requests, self.instance.cost.seconds.alpha[0]
        arrived = sum((request.arrival for request in requests), Fraction(0))
        upper = math.ceil((self.best.value * len(requests) + arrived) / alpha)
        begin, seconds = time.monotonic(), self.left()
        found = rounds.proved(
            self.instance,
            upper,
            lambda: 1.0 if seconds is None else 1 - (time.monotonic() - begin) / (PROVE_SHARE * seconds),
        )
        if found.ends is not None:
            outputs = [request.output_tokens for request in requests]
            starts = [end - tokens for end, tokens in zip(found.ends.tolist(), outputs, strict=True)]
            planner = RoundsPlanner(self.instance)
            self.offer_found(planner.schedule(starts), "rounds:search")
        value = max(Fraction(0), (found.low * alpha - arrived) / len(requests))
        self.improve_bound(self.credible(LowerBound(value, "rounds search", Proof.SOLVER)))

    def choose(self) -> tuple[str, str]:
        """Engine and the reason for it; "none" where no exact engine has a chance."""
        tokens = self.instance.output_tokens
        if self.instance.release is not None:
            if self.options.formulation is not None or self.options.solver != "auto":
                refuse_release(self.instance, self.options.formulation or self.options.solver)
            return "none", "a closed loop: schedulers and bounds alone"
        if self.options.solver != "auto":
            return self.options.solver, "asked for"
        if self.options.formulation is not None:
            return "cpsat", "a formulation was asked for; CP-SAT proves these faster than HiGHS"
        if in_rounds(self.instance):
            from infermax_opt.infermax.planners.rounds.planner import RoundsPlanner

            if RoundsPlanner.takes(self.instance):
                return (
                    "rounds",
                    "all batches take the same time: a schedule is a start round for each request",
                )
        if tokens > EXACT_TOKENS:
            return "none", f"{tokens} output tokens are beyond the exact engines ({EXACT_TOKENS})"
        from infermax_opt.infermax.exact.staged import unsupported

        why = unsupported(self.instance)
        if why is not None:
            return "none", f"no exact engine takes this instance: {why}"
        return "search", "the search is exact for every policy flag and proves small instances fastest"

    def run_engines(self) -> None:
        """Run an exact engine or planners, with the search for bounds beside them."""
        engine, reason = self.choose()
        self.report = replace(self.report, reason=reason)
        at_once = engine in ("none", "rounds")
        delayed = threading.Timer(SMALL_SECONDS, self.search_bounds)
        if self.instance.objective.is_searched:
            if at_once:  # not from a thread: where there are no planners nothing waits for that to begin
                self.search_bounds()
            else:
                delayed.start()
        try:
            self.run_engine(engine, reason)
            if not self.settled() and self.report.termination != Termination.INTERRUPTED:
                left, limit = self.left(), self.options.time_limit or 0.0
                self.take_bounds(None if left is None else left + min(GRACE, GRACE_SHARE * limit))
        finally:
            delayed.cancel()
            if delayed.ident is not None:
                delayed.join()
            self.end_search()

    def search_bounds(self) -> None:
        """Start the search for bounds; it ends with the time limit."""
        from infermax_opt.infermax.bound_process import BoundProcess

        self.searching = BoundProcess(self.instance, self.left())

    def end_search(self) -> None:
        """Stop the search for bounds, and keep what it has found."""
        if self.searching is None:
            return
        self.searching.end()
        self.take_bounds()
        if self.searching.failure is not None:
            details = {**self.report.details, "bound search failed": self.searching.failure}
            self.report = replace(self.report, details=details)

    def run_engine(self, engine: str, reason: str) -> None:
        """Run the exact engine, then planners where they may help, and keep what they found."""
        if engine == "rounds":
            self.solve_rounds()
            return
        if engine == "none":
            self.report = replace(self.report, engine="planner", termination="heuristics only")
            self.plan()
            if self.proved():
                self.report = replace(self.report, termination="optimal")
            return
        self.report = replace(self.report, engine=engine)
        left = self.left()
        plannable = self.options.solver == "auto" and engine == "search"
        if plannable and left is not None:
            left *= SEARCH_SHARE if self.instance.offline else ONLINE_SEARCH_SHARE
        limits = EngineLimits(left, self.report.threads or 1, self.options.seed, self.options.memory_limit)
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
        if plannable and not self.settled() and self.report.termination == "time_limit":
            self.plan()

    def search(self, limits: EngineLimits) -> EngineOutcome[Schedule]:
        """Run the exact search."""
        from infermax_opt.infermax.exact.staged import staged_search, unsupported

        why = unsupported(self.instance)
        if why is not None:
            raise InputError(f"the search cannot solve this instance: {why}", field="solver")
        upper = self.best.value if self.best else None
        if self.options.target is not None and upper is not None:
            # If there is none that is better than a little above what is asked for, the answer is no.
            upper = min(upper, self.options.target * (1 + ABOVE) + ABOVE)
        return staged_search(self.instance, upper=upper, limits=limits, progress=self.say)

    def formulated(self, engine: str, limits: EngineLimits) -> EngineOutcome[Schedule]:
        """Solve a formulation as a whole."""
        from infermax_opt.infermax.exact.solve_formulation import able_formulation, solve_formulation

        name = able_formulation(self.instance, self.options.formulation)
        self.report = replace(self.report, formulation=name)
        kind: Literal["highs", "cpsat"] = "highs" if engine == "highs" else "cpsat"
        warm = self.best.schedule if self.best else None
        outcome = solve_formulation(self.instance, name, kind, warm=warm, limits=limits, progress=self.say)
        scope = outcome.details.get("scope")
        if isinstance(scope, str):
            self.report = replace(self.report, scope=Scope(scope))
        return outcome
