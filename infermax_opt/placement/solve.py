"""Solving placement instances: bounds, heuristics, packing, then an engine that decides count by count.

Data flows one way: closed-form bounds -> placements of the heuristics -> packing,
which anneals towards fewer workers -> prices of configurations -> the exact engine, from the bound upwards
-> verifier -> result.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

from infermax_opt.core.compiling_apart import OutOfTime, under_limit
from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import Problem
from infermax_opt.core.result import LowerBound, Proof, Result
from infermax_opt.core.run import WARM_UP, SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.placement.bounds.closed_form import excluded, placement_bounds
from infermax_opt.placement.bounds.configurations import configurations_bound
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits, unplaceable
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.exact.solve import solve_placement_exactly
from infermax_opt.placement.exact.solve_formulation import get_placement_formulation, solve_formulation
from infermax_opt.placement.heuristics.place import place
from infermax_opt.placement.replay.metrics import PlacementMetrics

__all__ = ["lower_bounds", "solve_placement"]

#: Heuristics that ``best`` runs: the paper's, and those that are often better.
FIRST = ("best-fit", "best-fit-size", "multi-start")
#: Share of the time left that packing may take where the exact engine comes after it.
PACK_SHARE = 0.3
#: Share of the time left after it that prices of configurations may take.
PRICE_SHARE = 0.6
#: Columns beyond which the integer program takes too long to write down.
MOST_COLUMNS = 150_000

_Exact = Literal["cpsat", "highs"]


def lower_bounds(instance: PlacementInstance) -> list[LowerBound]:
    """All closed-form lower bounds in workers, best first, each with its reason."""
    return [
        LowerBound(Fraction(bound.value), bound.source, Proof.CLOSED_FORM, reason=bound.reason)
        for bound in placement_bounds(instance)
    ]


def check_options(options: SolveOptions) -> None:
    """Check what only this problem can judge.

    Raises
    ------
    InputError
        If there is no such formulation, or the engine takes no such option.
    """
    if options.formulation is not None:
        get_placement_formulation(options.formulation)
        if options.solver == "pack":
            raise InputError("packing takes no formulation", field="formulation")
    elif options.memory_limit is not None:
        raise InputError("the engines of placements take none without a formulation", field="memory_limit")


def solve_placement(
    problem: Problem[PlacementInstance, Placement, PlacementMetrics],
    instance: PlacementInstance,
    options: SolveOptions,
) -> Result[Placement, PlacementMetrics]:
    """Find a placement on few workers and a lower bound, as close to each other as the limits allow.

    Parameters
    ----------
    problem : Problem
        The placement problem.
    instance : PlacementInstance
    options : SolveOptions

    Returns
    -------
    Result
        Verified.  The details of its solver report hold ``binding``, source and reason of the lower bound,
        and ``excluded``, a reason for every smaller number of workers; or, if there is no placement,
        ``unplaceable``: what requests exceed by themselves.

    Raises
    ------
    InputError
        If an option is unusable, the warm start breaks a rule, or the instance is too large for the chosen
        engine.
    """
    check_options(options)
    run = PlacementRun(problem, instance, options)
    reasons = unplaceable(instance)
    if reasons:
        run.report = replace(run.report, termination="infeasible", details={"unplaceable": reasons})
        return replace(run.result(), infeasible=True)
    run.run()
    run.explain()
    return run.result()


class PlacementRun(SolveRun[PlacementInstance, Placement, PlacementMetrics]):
    """One call of `solve` on a placement instance."""

    def __init__(
        self,
        problem: Problem[PlacementInstance, Placement, PlacementMetrics],
        instance: PlacementInstance,
        options: SolveOptions,
    ):
        super().__init__(problem, instance, options)
        #: Reason for each range of numbers of workers that a closed form excludes.
        self.excluded: dict[str, str] = {}

    def closed_forms(self) -> list[LowerBound]:
        """The bounds; the simplest that is enough is the reason for each smaller number of workers."""
        bounds = lower_bounds(self.instance)
        first, best = 0, int(bounds[0].value)
        while first < best:
            reason = excluded(self.instance, first)
            end = max(int(bound.value) for bound in bounds if bound.reason == reason)
            self.excluded[_range(first, end)] = reason
            first = end
        return bounds

    def explain(self) -> None:
        """Add what binds, and why fewer workers are not enough, to the report."""
        lower, known = self.lower, self.certified
        if lower is None:
            return
        reasons = dict(self.excluded)
        if known is not None and lower.value > known.value:
            reasons[_range(int(known.value), int(lower.value))] = str(lower.reason)
        binding = {"source": lower.source, "reason": lower.reason}
        details = {"binding": binding, "excluded": reasons, **self.report.details}
        self.report = replace(self.report, details=details)

    @property
    def least(self) -> int:
        """Workers that are known to be needed."""
        return 0 if self.lower is None else int(self.lower.value)

    def warm_up(self) -> None:
        self.start_from(FIRST, self.heuristic)

    def heuristic(self, name: str) -> Placement:
        """Run a heuristic; one that could go on for ever has a share of the time."""
        limit = self.options.time_limit
        deadline = None if limit is None else self.began + WARM_UP * limit
        return place(self.instance, name, seed=self.options.seed, target=self.least, deadline=deadline)

    def run_engines(self) -> None:
        solver, formulation = self.options.solver, self.options.formulation
        if formulation is not None:
            self.formulated(formulation, "highs" if solver == "highs" else "cpsat")
        elif solver == "pack":
            self.pack("asked for", 1.0)
        elif solver != "auto":
            if self.columns > MOST_COLUMNS:
                problem = f"{self.columns} columns in the integer program; the most is {MOST_COLUMNS}"
                raise InputError(problem, field="solver")
            self.exact("asked for", "highs" if solver == "highs" else "cpsat")
        else:
            self.pack("it finds most optima fast", PACK_SHARE)
            if not self.settled():
                self.prices()
            if not self.settled():
                self.decide()

    def prices(self) -> None:
        """Look for prices of requests that raise the bound; none where a worker takes too many of them."""
        if self.best is None:
            return
        self.begin("configurations", "packing leaves it open")
        left = self.left()
        end = None if left is None else time.monotonic() + PRICE_SHARE * left
        found = configurations_bound(
            self.instance,
            self.best.schedule,
            known=self.least,
            enough=int(self.best.value),
            stop=lambda: end is not None and time.monotonic() >= end,
        )
        self.improve_bound(self.credible(found))
        self.report = replace(self.report, termination="optimal" if self.proved() else "time_limit")

    def decide(self) -> None:
        """Decide number by number what is open, by an integer program; pack on where that is too large."""
        if self.columns > MOST_COLUMNS:
            self.pack(f"the integer program has {self.columns} columns; the most is {MOST_COLUMNS}", 1.0)
            return
        cpsat: tuple[_Exact, ...] = ("cpsat",) if self.able("cpsat", "ortools") else ()
        self.exact("it decides what packing leaves open", *cpsat, "highs")

    @cached_property
    def columns(self) -> int:
        """Columns of the integer program for the best number of workers known: types times workers."""
        limits = Limits.of(self.instance)
        requests = [self.instance.requests[k] for k in limits.new]
        kinds = {(r.input_tokens, r.predicted_output_tokens) for r in requests}
        most = len(limits.ongoing) + len(requests) if self.best is None else int(self.best.value)
        return len(kinds) * most

    def pack(self, reason: str, share: float) -> None:
        """Look for fewer workers until the bound is met, or this share of the time or the effort is spent.

        It runs in a thread, so that Ctrl-C is noticed at once.
        """
        from infermax_opt.placement.heuristics.pack import anytime_placements

        self.begin("pack", reason)
        left = self.left()
        end = None if left is None else time.monotonic() + share * left
        halt = threading.Event()
        found: queue.SimpleQueue[tuple[str, Placement] | BaseException | None] = queue.SimpleQueue()

        def search() -> None:
            try:
                for item in anytime_placements(
                    self.instance,
                    lower=self.least,
                    seed=self.options.seed,
                    threads=self.report.threads or 1,
                    # With a deadline it goes on until then; the exact engine has more use for the time.
                    deadline=end if share == 1 else None,
                    stop=lambda: halt.is_set() or (end is not None and time.monotonic() >= end),
                ):
                    found.put(item)
            except (Exception, OutOfTime) as error:
                found.put(error)
            finally:
                found.put(None)

        worker = threading.Thread(target=under_limit(search), daemon=True)
        worker.start()
        try:
            while (item := found.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                name, placement = item
                self.offer_found(placement, name if name == "pack" else f"heuristic:{name}")
        finally:
            halt.set()
            worker.join()
        late = end is not None and time.monotonic() >= end
        termination = "optimal" if self.proved() else "time_limit" if late else "heuristics only"
        self.report = replace(self.report, termination=termination)

    def exact(self, reason: str, *engines: _Exact) -> None:
        """Decide whether as many workers as the bound says are enough, then one more, and so on."""
        name = "+".join(engines)
        self.begin(name, reason)
        found = solve_placement_exactly(
            self.instance,
            lower=self.least,
            warm=self.best.schedule if self.best else None,
            time_limit=self.left(),
            threads=self.report.threads or 1,
            seed=self.options.seed,
            engines=engines,
        )
        decided = {str(count): how for count, how in found.details["decided"].items()}
        counts = {key: found.details[key] for key in ("rounds", "kv_rows")}
        details = {"decided": decided, **counts} if decided else counts
        self.report = replace(self.report, termination=found.termination, details=details)
        self.offer_found(found.schedule, name)
        self.improve_bound(self.credible(found.lower))

    def formulated(self, formulation: str, engine: _Exact) -> None:
        """Solve a formulation as a whole."""
        asked = self.options.solver != "auto"
        self.begin(engine, "asked for" if asked else "a formulation was asked for")
        found = solve_formulation(
            self.instance, formulation, engine, warm=self.best.schedule if self.best else None,
            limits=EngineLimits(
                self.left(), self.report.threads or 1, self.options.seed, self.options.memory_limit
            ),
        )  # fmt: skip
        self.report = replace(
            self.report,
            formulation=formulation,
            termination=found.termination,
            warm_start_accepted=found.warm_start_accepted,
            details=found.details,
        )
        self.offer_found(found.schedule, f"{engine}:{formulation}")
        self.improve_bound(self.credible(found.lower))

    def begin(self, engine: str, reason: str) -> None:
        """Note which engine runs, and why."""
        self.report = replace(self.report, engine=engine, reason=reason)
        self.say(f"engine {engine}: {reason}")


def _range(first: int, end: int) -> str:
    """Numbers of workers from the first to the one before the end."""
    return str(first) if end == first + 1 else f"{first} to {end - 1}"
