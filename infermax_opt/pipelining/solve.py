"""Solving pipelining instances: bounds and heuristics, then annealing, then an engine where it is small."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from infermax_opt.core.compiling_apart import OutOfTime, under_limit
from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import Problem
from infermax_opt.core.result import LowerBound, Result
from infermax_opt.core.run import SolveRun
from infermax_opt.core.solve_options import SolveOptions
from infermax_opt.engines.outcome import EngineLimits
from infermax_opt.pipelining.bounds.closed_form import closed_form_bounds
from infermax_opt.pipelining.bounds.searched import certified_bounds
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.exact.solve_formulation import get_formulation, solve_formulation
from infermax_opt.pipelining.heuristics.annealing import Annealing, packed
from infermax_opt.pipelining.heuristics.place import make_schedule
from infermax_opt.pipelining.replay.metrics import PipeliningMetrics

__all__ = ["solve_pipelining"]

#: Heuristics that ``best`` runs.
FIRST = ("dyadic", "splitting")
#: Useful requests up to which the model with an order of each pair is tried.
MOST_ORDERED = 40
#: Share of the time left that annealing may take where an engine comes after it, and seconds at most.
ANNEAL_SHARE, ANNEAL_SECONDS = 0.2, 1.0
#: Share of the time left that a long round of annealing takes, and how many short ones it is at most.
LONG_SHARE, LONGEST = 0.45, 64
#: Most rounds; without a time limit, how many short ones each of them is.
ROUNDS = 12
LENGTHS = (1, 4, 16)
#: No round begins with less.
LEAST_SECONDS = 0.3

_Exact = Literal["cpsat", "highs"]


def solve_pipelining(
    problem: Problem[PipeliningInstance, Pipelining, PipeliningMetrics],
    instance: PipeliningInstance,
    options: SolveOptions,
) -> Result[Pipelining, PipeliningMetrics]:
    """Find a schedule and a bound, as close to each other as the limits allow.

    Parameters
    ----------
    problem : Problem
        The pipelining problem.
    instance : PipeliningInstance
    options : SolveOptions

    Raises
    ------
    InputError
        If an option is unusable, the warm start breaks a rule, or the instance is too large for the chosen
        engine.
    """
    if options.formulation is not None:
        get_formulation(options.formulation)
        if options.solver == "anneal":
            raise InputError("annealing takes no formulation", field="formulation")
    run = PipeliningRun(problem, instance, options)
    if not instance.useful:
        reason = "no request of any value fits"
        run.report = replace(run.report, termination="infeasible", reason=reason)
        return replace(run.result(), infeasible=True)
    run.run()
    return run.result()


class PipeliningRun(SolveRun[PipeliningInstance, Pipelining, PipeliningMetrics]):
    """One call of `solve` on a pipelining instance."""

    def closed_forms(self) -> Iterator[LowerBound]:
        yield from closed_form_bounds(self.instance)

    def warm_up(self) -> None:
        self.start_from(FIRST, lambda name: make_schedule(self.instance, name))

    def run_engines(self) -> None:
        solver, formulation = self.options.solver, self.options.formulation
        for bound in certified_bounds(self.instance):
            self.improve_bound(bound)
        if self.settled():
            self.report = replace(self.report, termination="optimal", reason="a bound meets the schedule")
        elif formulation is not None:
            self.formulated(
                formulation, "cpsat" if solver == "cpsat" else "highs", "a formulation was asked for"
            )
        elif solver in ("cpsat", "highs"):
            self.formulated("order", "cpsat" if solver == "cpsat" else "highs", "asked for")
        else:
            few = solver == "auto" and len(self.instance.useful) <= MOST_ORDERED
            small = few and self.able("order formulation", "pyomo", "ortools")
            self.anneal(small)
            if small and not self.settled():
                self.formulated("order", "cpsat", f"{len(self.instance.useful)} requests are few")

    def anneal(self, briefly: bool) -> None:
        """Anneal in all threads until the bound is met or the time is over, or the part for a brief try."""
        asked = self.options.solver == "anneal"
        self.begin("anneal", "asked for" if asked else "it finds good schedules fast")
        search, threads = Annealing(self.instance), self.report.threads or 1
        end = self._end(briefly)
        moves, turn = search.moves, 0
        while turn < (len(LENGTHS) if end is None else ROUNDS):
            began = time.monotonic()
            for found in _rounds(search, self._jobs(moves, threads, turn), end):
                self.offer_found(found, "anneal")
            turn += 1
            if self.settled() or (end is not None and end - time.monotonic() < LEAST_SECONDS):
                break
            moves = _next_moves(search, moves / (time.monotonic() - began), turn, end)
        termination = "optimal" if self.proved() else "heuristics only" if end is None else "time_limit"
        self.report = replace(self.report, termination=termination, details={"rounds": threads * turn})

    def _end(self, briefly: bool) -> float | None:
        """When annealing ends; None where there is no time limit."""
        left = self.left()
        if left is None:
            return None
        return time.monotonic() + (min(ANNEAL_SECONDS, ANNEAL_SHARE * left) if briefly else left)

    def _jobs(self, moves: int, threads: int, turn: int) -> list[_Job]:
        """Rounds from the best schedule; the first ones begin hot, and half of the later ones."""
        start = None if self.best is None else self.best.schedule
        first = self.options.seed + threads * turn
        return [(start, moves, first + k, 1.0 if turn == 0 or k % 2 else 0.5) for k in range(threads)]

    def formulated(self, formulation: str, engine: _Exact, reason: str) -> None:
        """Solve a formulation as a whole.

        Parameters
        ----------
        formulation, engine : str
        reason : str
            Why this engine was chosen.
        """
        self.begin(engine, reason)
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
            details={**self.report.details, **found.details},
        )
        self.offer_found(found.schedule, f"{engine}:{formulation}")
        self.improve_bound(self.credible(found.lower))

    def begin(self, engine: str, reason: str) -> None:
        """Note which engine runs, and why."""
        self.report = replace(self.report, engine=engine, reason=reason)
        self.say(f"engine {engine}: {reason}")


def _next_moves(search: Annealing, rate: float, turn: int, end: float | None) -> int:
    """Moves of a round, at so many a second: a part of the time left."""
    if end is None:
        return search.moves * LENGTHS[min(turn, len(LENGTHS) - 1)]
    wanted = int(rate * (end - time.monotonic()) * LONG_SHARE)
    return min(LONGEST * search.moves, max(search.moves, wanted))


_Job = tuple[Pipelining | None, int, int, float]


def _rounds(search: Annealing, jobs: list[_Job], end: float | None) -> list[Pipelining]:
    """Rounds of annealing side by side, the best first; they end at that moment, and at once on Ctrl-C."""
    import numpy as np

    halt, found, failed = np.zeros(1, dtype=np.int64), list[Pipelining](), list[BaseException]()

    def work(start: Pipelining | None, moves: int, seed: int, heat: float) -> None:
        try:
            found.append(search.run(start, moves, seed, heat, halt))
        except (Exception, OutOfTime) as error:
            failed.append(error)

    workers: list[Any] = [threading.Thread(target=under_limit(work), args=job, daemon=True) for job in jobs]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join(None if end is None else max(0.0, end - time.monotonic()))
    finally:
        halt[0] = 1
        for worker in workers:
            worker.join()
    if failed:
        raise failed[0]
    return sorted(found, key=lambda some: packed(search.instance, some), reverse=True)
