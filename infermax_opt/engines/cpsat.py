"""CP-SAT on a lowered model: every column is an integer, every coefficient exact.

Runs inside a worker process (`infermax_opt.engines.worker`) and reports what it finds at once.  The process
is short, so it builds the solver's message itself: `cp_model` would import pandas, which takes thrice as long
as all the rest that has to be imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model_helper

from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import Termination

__all__ = ["IntegerObjective", "solve"]

Emit = Callable[[dict[str, Any]], None]

#: CP-SAT reports bounds as doubles, which hold every integer below this.
LARGEST = 2**53
#: No limit of a row.
INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class IntegerObjective:
    """``constant + unit * weights @ (x - lb)``, at most the model's objective, equal if `exact`.

    The weights are the costs divided by their greatest common divisor; where their sum could
    still leave the range of exact doubles they are rounded *down* to a coarser unit.  As x >= lb,
    the objective only gets smaller, and a bound on it remains a bound.
    """

    weights: list[int]
    unit: int
    constant: int
    exact: bool

    @classmethod
    def of(cls, model: LoweredModel, largest: int = LARGEST) -> IntegerObjective:
        """Scale the costs of `model` so that no objective value reaches `largest`."""
        unit = max(1, math.gcd(*model.cost))
        spans = [high - low for low, high in zip(model.lb, model.ub, strict=True)]
        reach = sum(abs(c) * span for c, span in zip(model.cost, spans, strict=True))
        # Rounding down moves a negative weight away from 0 by less than one.
        slack = sum(span for c, span in zip(model.cost, spans, strict=True) if c < 0)
        while reach // unit + slack >= largest:
            unit *= 2
        constant = model.offset + sum(c * low for c, low in zip(model.cost, model.lb, strict=True))
        return cls([c // unit for c in model.cost], unit, constant, all(c % unit == 0 for c in model.cost))

    def ticks(self, value: float) -> int:
        """Convert a bound on ``weights @ (x - lb)`` to ticks."""
        return self.constant + self.unit * math.floor(value)


class _Listener(cp_model_helper.SolutionCallback):
    def __init__(self, columns: int, emit: Emit):
        super().__init__()
        self.columns = columns
        self.emit = emit

    def OnSolutionCallback(self) -> None:
        values = [self.SolutionIntegerValue(column) for column in range(self.columns)]
        self.emit({"event": "incumbent", "values": values})


def solve(model: LoweredModel, *, seconds: float | None, threads: int, seed: int, emit: Emit) -> str:
    """Minimise a model.

    Parameters
    ----------
    model : LoweredModel
    seconds : float or None
        Time limit.
    threads, seed : int
    emit : callable
        Receives events, as in `infermax_opt.engines.highs`.

    Returns
    -------
    str
        One of `Termination`.
    """
    objective = IntegerObjective.of(model)
    problem = _problem(model, objective)
    listener = _Listener(model.columns, emit)
    solver: Any = cp_model_helper.SolveWrapper()
    solver.set_parameters(_parameters(seconds, threads, seed))

    def report_bound(value: float) -> None:
        if math.isfinite(value) and abs(value) < LARGEST:
            emit({"event": "bound", "value": objective.ticks(value), "source": "search"})

    def logged(line: str) -> None:
        if "The solution hint is complete" in line:
            emit({"event": "start", "accepted": "is feasible" in line})

    solver.add_best_bound_callback(report_bound)
    solver.add_log_callback(logged)
    solver.add_solution_callback(listener)
    response = solver.solve(problem)
    solver.clear_solution_callback(listener)
    status, possible = response.status, cp_model_helper.CpSolverStatus
    if status == possible.MODEL_INVALID:
        why = cp_model_helper.CpSatHelper.validate_model(problem)
        raise ValueError(f"CP-SAT refuses the model: {why.splitlines()[0]}")
    emit({"event": "details", "nodes": int(response.num_branches), "status": status.name})
    if status == possible.INFEASIBLE:
        return Termination.INFEASIBLE
    report_bound(response.best_objective_bound)
    # With rounded weights an optimum of the rounded objective proves its bound, not optimality.
    return Termination.OPTIMAL if status == possible.OPTIMAL else Termination.TIME_LIMIT


def _problem(model: LoweredModel, objective: IntegerObjective) -> Any:
    """The model for CP-SAT, with its start as a hint."""
    problem = cp_model_helper.CpModelProto()
    for low, high in zip(model.lb, model.ub, strict=True):
        problem.variables.add().domain.extend([low, high])
    for r, (least, most) in enumerate(zip(model.row_lb, model.row_ub, strict=True)):
        row, entries = problem.constraints.add().linear, sorted(model.row(r))
        row.vars.extend([k for k, _ in entries])
        row.coeffs.extend([a for _, a in entries])
        row.domain.extend([INT_MIN if least is None else least, INT_MAX if most is None else most])
    weights = {k: weight for k, weight in enumerate(objective.weights) if weight}
    problem.objective.vars.extend(list(weights))
    problem.objective.coeffs.extend(list(weights.values()))
    problem.objective.scaling_factor = 1.0
    problem.objective.offset = -sum(weight * model.lb[k] for k, weight in weights.items())
    if model.start is not None:
        problem.solution_hint.vars.extend(list(range(model.columns)))
        problem.solution_hint.values.extend(list(model.start))
    return problem


def _parameters(seconds: float | None, threads: int, seed: int) -> Any:
    parameters = cp_model_helper.SatParameters()
    parameters.num_workers = threads
    parameters.random_seed = seed
    # Packing cuts bind in the LP relaxation; level 2 puts more of the model there.
    parameters.linearization_level = 2
    parameters.log_search_progress = True
    parameters.log_to_stdout = False
    if seconds is not None:
        parameters.max_time_in_seconds = seconds
    return parameters
