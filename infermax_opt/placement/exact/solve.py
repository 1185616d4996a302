"""Fewest workers of a placement, decided count by count: "are so many enough?".

From the proven bound upwards, an integer program (`infermax_opt.placement.exact._program`) either places
all requests, which is then optimal, or is proved infeasible by the engine, which raises the bound by one.
Placements are checked exactly; a raised bound is the engine's word.
"""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Termination
from infermax_opt.engines.process import Engine, EngineRun, run_engine
from infermax_opt.placement.bounds.rows import open_workers
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.exact._program import Program
from infermax_opt.placement.replay.check import check_placement

__all__ = ["solve_placement_exactly"]

#: Largest capacity of a row.  HiGHS accepts rows that are broken by 1e-6 of an entry; CP-SAT is exact, and
#: sums stay within 64 bits.
LARGEST: dict[Engine, int] = {"highs": 2**20, "cpsat": 2**40}
#: Share of the time left that one count may take, where others may be decided after it.
SHARE = 0.6
#: Termination where a placement passes the rows, in smaller numbers, and not the limits.
UNRESOLVED = "unresolved"
#: An engine is not started for less.
LEAST_SECONDS = 0.2
#: Seconds between two looks at whether to stop.
PAUSE = 0.1


def solve_placement_exactly(
    instance: PlacementInstance,
    *,
    lower: int,
    warm: Placement | None = None,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    stop: Callable[[], bool] | None = None,
    engines: Sequence[Engine] = ("cpsat", "highs"),
) -> EngineOutcome[Placement]:
    """Search for a placement on the fewest workers, and prove it.

    Parameters
    ----------
    instance : PlacementInstance
    lower : int
        A proven bound, where the counts start.
    warm : Placement, optional
        A valid placement to improve on.
    time_limit : float, optional
        Seconds.
    threads, seed : int
        Of the engines.
    stop : callable, optional
        Asked now and then, in another thread, whether to stop.
    engines : sequence of {"cpsat", "highs"}
        Each has its part of the time for a count; without a time limit only the first has a turn.

    Returns
    -------
    EngineOutcome
        Without a placement if none is better than `warm`, and without a bound if `lower` was not raised.  Its
        termination is ``optimal``, ``infeasible`` (a request fits on no worker), ``time_limit``,
        ``interrupted``, ``crashed`` or ``unresolved`` (numbers too large for the engines).  Its details are
        ``engines``; ``decided``, how each count was decided; ``rounds``, programs solved; ``kv_rows``,
        iterations whose KV is in the last one.

    Raises
    ------
    ValueError
        If `warm` is not valid.
    """
    until = None if time_limit is None else time.monotonic() + time_limit
    search = _CountSearch(instance, lower, _Means(tuple(engines), until, threads, seed, stop))
    search.begin(warm)
    return search.run()


@dataclass(frozen=True)
class _Means:
    """Engines, and what they may use."""

    engines: tuple[Engine, ...]
    until: float | None
    threads: int
    seed: int
    stop: Callable[[], bool] | None

    def left(self) -> float | None:
        """Seconds left."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())

    def run(self, engine: Engine, model: LoweredModel, seconds: float | None) -> EngineRun:
        """Run an engine; one that is stopped ends as interrupted."""
        stop, done, stopped = self.stop, threading.Event(), threading.Event()

        def watch(process: int) -> None:
            while stop is not None and not done.wait(PAUSE):
                if stop():
                    stopped.set()
                    os.kill(process, signal.SIGTERM)
                    return

        watchers = []

        def started(process: int) -> None:
            if stop is not None:
                watchers.append(threading.Thread(target=watch, args=(process,), daemon=True))
                watchers[0].start()

        try:
            found = run_engine(engine, model, EngineLimits(seconds, self.threads, self.seed), started=started)
        finally:
            done.set()
            for watcher in watchers:
                watcher.join()
        if stopped.is_set():
            found.termination = Termination.INTERRUPTED
        return found


class _CountSearch:
    """State of a search."""

    def __init__(self, instance: PlacementInstance, lower: int, means: _Means):
        self.instance, self.limits, self.means = instance, Limits.of(instance), means
        self.used = len(self.limits.ongoing)
        self.given = self.lower = max(lower, self.used)
        #: Workers of the best placement known; each new request on a worker of its own is one.
        self.upper = self.used + len(self.limits.new)
        self.placement: Placement | None = None
        self.warm = False
        self.decided: dict[int, str] = {}
        self.rounds = self.kv_rows = 0

    def begin(self, warm: Placement | None) -> None:
        """Take what is given."""
        if warm is None:
            return
        checked = check_placement(self.instance, warm)
        if not checked.valid:
            raise ValueError(f"the placement is not valid: {checked.violations[0]}")
        self.upper, self.warm = checked.workers, True

    def run(self) -> EngineOutcome[Placement]:
        """Decide counts until the bound is met."""
        if any(self.limits.excesses([k]) for k in self.limits.new):
            return self._result(Termination.INFEASIBLE)
        if not self.warm:
            self._take([[] for _ in open_workers(self.limits)] + [[k] for k in self.limits.new])
        undecided: set[int] = set()
        why = Termination.OPTIMAL
        while self.lower < self.upper:
            # The bound first; if that is too hard, a better placement may not be.
            count = self.upper - 1 if self.lower in undecided else self.lower
            if count in undecided:
                break
            ended = self._decide(count, 1.0 if count == self.upper - 1 else SHARE)
            if ended != Termination.OPTIMAL:
                undecided.add(count)
                why = ended
            if ended in (Termination.INTERRUPTED, Termination.CRASHED, Termination.MEMORY_LIMIT):
                break
        return self._result(Termination.OPTIMAL if self.lower >= self.upper else why)

    def _decide(self, count: int, share: float) -> str:
        """Place all on so many workers, or raise the bound; `Termination.OPTIMAL` if either came about."""
        left = self.means.left()
        ended = Termination.TIME_LIMIT
        for engine in self.means.engines:
            until = None
            if left is not None:
                until = time.monotonic() + left * share / len(self.means.engines)
            program = Program(self.limits, count - self.used, LARGEST[engine])
            ended = self._settle(program, engine, until)
            if ended == Termination.INFEASIBLE:
                # What fits on fewer workers fits on more.
                self.decided[count] = f"impossible ({engine})"
                self.lower = max(self.lower, count + 1)
                return Termination.OPTIMAL
            if ended == Termination.OPTIMAL:
                self.decided[count] = f"possible ({engine})"
                return ended
            if ended == Termination.INTERRUPTED:
                break
        return ended

    def _settle(self, program: Program, engine: Engine, until: float | None) -> str:
        """Solve a program, adding KV rows until nothing is broken."""
        if program.impossible:
            return Termination.INFEASIBLE
        while True:
            seconds = None if until is None else until - time.monotonic()
            if seconds is not None and seconds < LEAST_SECONDS:
                return Termination.TIME_LIMIT
            run = self.means.run(engine, program.model(), seconds)
            self.rounds += 1
            self.kv_rows = len(program.kv)
            if run.values is None:
                return run.termination
            sets = program.sets(run.values)
            if self._take(sets):
                return Termination.OPTIMAL
            if not program.separate(sets):
                # Rows in smaller numbers let something pass that the exact ones do not.
                return UNRESOLVED

    def _take(self, sets: list[list[int]]) -> bool:
        """Keep a placement, open workers in use first, if it breaks nothing."""
        numbers = [*open_workers(self.limits)]
        fresh = (k for k in itertools.count(1) if k not in self.limits.ongoing)
        workers = {}
        for place, members in enumerate(sets):
            if place < len(numbers):
                number = numbers[place]
            elif members:
                number = next(fresh)
            for k in members:
                workers[self.instance.requests[k].id] = number
        placement = Placement(self.instance.name, workers)
        checked = check_placement(self.instance, placement)
        if checked.valid:
            self.placement, self.upper = placement, checked.workers
        return checked.valid

    def _result(self, termination: str) -> EngineOutcome[Placement]:
        details = {
            "engines": self.means.engines, "decided": self.decided, "rounds": self.rounds,
            "kv_rows": self.kv_rows,
        }  # fmt: skip
        bound = None
        if self.lower > self.given:
            why = f"the integer program for {self.lower - 1} workers is {self.decided[self.lower - 1]}"
            name = "+".join(self.means.engines)
            bound = LowerBound(Fraction(self.lower), name, Proof.SOLVER, reason=why)
        return EngineOutcome(self.placement, bound, termination, details=details)
