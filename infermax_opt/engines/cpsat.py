"""CP-SAT on a lowered model: every column is an integer, every coefficient exact.

Runs inside a worker process (`infermax_opt.engines.worker`) and reports what it finds at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ortools.sat.python import cp_model

from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import Termination

__all__ = ["IntegerObjective", "solve"]

Emit = Callable[[dict[str, Any]], None]

#: CP-SAT reports bounds as doubles, which hold every integer below this.
LARGEST = 2**53


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


class _Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    def __init__(self, columns: list[Any], emit: Emit):
        super().__init__()
        self.columns = columns
        self.emit = emit

    def on_solution_callback(self) -> None:
        values = [int(self.value(column)) for column in self.columns]
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
    problem, columns = _problem(model, objective)
    solver = _solver(seconds, threads, seed)

    def report_bound(value: float) -> None:
        if math.isfinite(value) and abs(value) < LARGEST:
            emit({"event": "bound", "value": objective.ticks(value), "source": "search"})

    def logged(line: str) -> None:
        if "The solution hint is complete" in line:
            emit({"event": "start", "accepted": "is feasible" in line})

    solver.best_bound_callback = report_bound
    solver.log_callback = logged
    status = solver.solve(problem, _Listener(columns, emit))
    if status == cp_model.MODEL_INVALID:
        raise ValueError(f"CP-SAT refuses the model: {problem.validate().splitlines()[0]}")
    emit({"event": "details", "nodes": int(solver.num_branches), "status": solver.status_name(status)})
    if status == cp_model.INFEASIBLE:
        return Termination.INFEASIBLE
    report_bound(solver.best_objective_bound)
    # With rounded weights an optimum of the rounded objective proves its bound, not optimality.
    return Termination.OPTIMAL if status == cp_model.OPTIMAL else Termination.TIME_LIMIT


def _problem(
    model: LoweredModel, objective: IntegerObjective
) -> tuple[cp_model.CpModel, list[cp_model.IntVar]]:
    """The model for CP-SAT with its start as a hint, and its columns."""
    problem = cp_model.CpModel()
    columns = [problem.new_int_var(low, high, "") for low, high in zip(model.lb, model.ub, strict=True)]
    for r, (low, high) in enumerate(zip(model.row_lb, model.row_ub, strict=True)):
        entries = model.row(r)
        total = cp_model.LinearExpr.weighted_sum([columns[k] for k, _ in entries], [a for _, a in entries])
        problem.add_linear_constraint(
            total,
            cp_model.INT_MIN if low is None else low,
            cp_model.INT_MAX if high is None else high,
        )
    shift = sum(w * low for w, low in zip(objective.weights, model.lb, strict=True))
    problem.minimize(cp_model.LinearExpr.weighted_sum(columns, objective.weights) - shift)
    if model.start is not None:
        for column, value in zip(columns, model.start, strict=True):
            problem.add_hint(column, value)
    return problem, columns


def _solver(seconds: float | None, threads: int, seed: int) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = threads
    solver.parameters.random_seed = seed
    # Packing cuts bind in the LP relaxation; level 2 puts more of the model there.
    solver.parameters.linearization_level = 2
    solver.parameters.log_search_progress = True
    solver.parameters.log_to_stdout = False
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    return solver
