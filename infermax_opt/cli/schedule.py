"""What the command `schedule` runs for each problem, and says of how long the decisions took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from infermax_opt import api
from infermax_opt.core.problem import INFERMAX, MAKESPAN, PLACEMENT, AnyInstance, AnySchedule, problem_of
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.placement.data.instance import PlacementInstance

__all__ = ["run_timed"]

#: A schedule, and remarks on how it was made.
_Run = tuple[AnySchedule, tuple[str, ...]]


def _scheduler(instance: Instance, name: str) -> _Run:
    return api.schedule(instance, name), ()


def _method(instance: MakespanInstance, name: str) -> _Run:
    from infermax_opt.makespan.methods.by_name import run_method

    run = run_method(instance, name)
    slowest = max(run.decision_seconds) * 1000
    return run.schedule, (f"{len(run.decision_seconds)} decisions, the slowest took {slowest:.2g} ms",)


def _heuristic(instance: PlacementInstance, name: str) -> _Run:
    began = time.perf_counter()
    placement = api.schedule(instance, name)
    spent = (time.perf_counter() - began) * 1000
    new = max(1, sum(not request.ongoing for request in instance.requests))
    return placement, (f"placed in {spent:.3g} ms, {spent / new:.2g} ms a new request",)


_RUNS: dict[Any, Callable[[Any, str], _Run]] = {
    INFERMAX: _scheduler,
    MAKESPAN: _method,
    PLACEMENT: _heuristic,
}


def run_timed(instance: AnyInstance, name: str) -> _Run:
    """Run a scheduler, method or heuristic.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    return _RUNS[problem_of(instance)](instance, name)
