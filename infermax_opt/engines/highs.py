"""HiGHS: the root LP for a safe bound, then branch and bound, both on a lowered model.

Runs inside a worker process (`infermax_opt.engines.worker`) and reports what it finds at once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

from infermax_opt.engines.lowering import LoweredModel
from infermax_opt.engines.outcome import Termination
from infermax_opt.engines.safebound import safe_bound, weakened

__all__ = ["Scaling", "load", "solve"]

Emit = Callable[[dict[str, Any]], None]

#: Share of the time limit that the root LP may take.
ROOT_SHARE = 0.25

#: Largest cost coefficient that HiGHS sees.  Ticks make objectives of 1e9 and more, far from the
#: absolute tolerances; dividing by a power of two changes no digit.
LARGEST_COST = 1024.0

#: Continuous columns with larger bounds (times in ticks) are scaled.
LARGE_BOUND = 2**20


def solve(model: LoweredModel, *, seconds: float | None, threads: int, seed: int, emit: Emit) -> str:
    """Minimise `model`; return one of `Termination`.

    Parameters
    ----------
    emit : callable
        Receives ``incumbent`` (values), ``bound`` (ticks, source), ``start`` (accepted) and
        ``details`` events.
    """
    began = time.monotonic()
    scaled = Scaling(model)

    def remaining() -> float | None:
        return None if seconds is None else max(0.01, seconds - (time.monotonic() - began))

    left = remaining()
    _root(model, scaled, None if left is None else left * ROOT_SHARE, threads, seed, emit)
    return _branch_and_bound(model, scaled, remaining(), threads, seed, emit)


class Scaling:
    """Powers of two that bring a model in ticks near 1, where HiGHS's tolerances are meant to be.

    Columns of times (continuous, with large bounds) are counted in units of `column` ticks and
    their rows divided by as much; the costs are divided by `cost`.  Left unscaled, coefficients of
    1e9 and more beside binaries gave false bounds and false infeasibility.
    """

    def __init__(self, model: LoweredModel):
        unit = 2.0 ** math.ceil(math.log2(max([1, *map(abs, model.value)])))
        self.column = np.array(
            [
                unit if not whole and high > LARGE_BOUND else 1.0
                for whole, high in zip(model.integral, model.ub, strict=True)
            ]
        )
        self.row = np.array(
            [1 / unit if any(self.column[k] > 1 for k, _ in model.row(r)) else 1.0 for r in range(model.rows)]
        )
        costs = np.array(model.cost, dtype=float) * self.column
        largest = max(1.0, float(np.abs(costs).max(initial=0.0)))
        self.cost = 2.0 ** max(0, math.ceil(math.log2(largest / LARGEST_COST)))

    def duals(self, solution: Any) -> list[float]:
        """Row multipliers of a solution, in ticks."""
        return (np.array(solution, dtype=float) * self.row * self.cost).tolist()  # type: ignore[no-any-return]

    def values(self, solution: Any) -> list[int]:
        """Column values of a solution, in ticks and counts."""
        return [round(x) for x in (np.array(solution, dtype=float) * self.column).tolist()]


def load(
    model: LoweredModel,
    scaled: Scaling,
    seconds: float | None,
    threads: int,
    seed: int,
    integral: bool,
) -> highspy.Highs:
    """HiGHS with a model and its start, and strict tolerances.

    Parameters
    ----------
    model : LoweredModel
    scaled : Scaling
        Of the same model.
    seconds : float or None
        Time limit.
    threads, seed : int
    integral : bool
        False loads the linear relaxation.
    """
    solver = highspy.Highs()
    # The log has to go somewhere, or its callback is not called.
    solver.setOptionValue("log_to_console", False)
    solver.setOptionValue("log_file", os.devnull)
    solver.setOptionValue("threads", threads)
    solver.setOptionValue("random_seed", seed)
    solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
    solver.setOptionValue("dual_feasibility_tolerance", 1e-9)
    solver.setOptionValue("mip_feasibility_tolerance", 1e-8)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.0)
    if seconds is not None:
        solver.setOptionValue("time_limit", float(seconds))

    def ends(values: list[int | None], missing: float) -> Any:
        return np.array([missing if e is None else e for e in values], dtype=float) * scaled.row

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.columns, model.rows
    lp.col_cost_ = np.array(model.cost, dtype=float) * scaled.column / scaled.cost
    lp.offset_ = model.offset / scaled.cost
    lp.col_lower_ = np.array(model.lb, dtype=float) / scaled.column
    lp.col_upper_ = np.array(model.ub, dtype=float) / scaled.column
    lp.row_lower_ = ends(model.row_lb, -math.inf)
    lp.row_upper_ = ends(model.row_ub, math.inf)
    start, index = np.array(model.row_start, dtype=np.int32), np.array(model.index, dtype=np.int32)
    rows = np.repeat(scaled.row, np.diff(start))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = start
    lp.a_matrix_.index_ = index
    lp.a_matrix_.value_ = np.array(model.value, dtype=float) * scaled.column[index] * rows
    if integral:
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in model.integral]
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the model")
    if integral and model.start is not None:
        start = highspy.HighsSolution()
        start.col_value = (np.array(model.start, dtype=float) / scaled.column).tolist()
        solver.setSolution(start)
    return solver


def _root(
    model: LoweredModel, scaled: Scaling, seconds: float | None, threads: int, seed: int, emit: Emit
) -> None:
    """Solve the relaxation and report the bound that its duals prove in exact arithmetic."""
    solver = load(model, scaled, seconds, threads, seed, integral=False)
    solver.run()
    solution = solver.getSolution()
    if solution.dual_valid:
        duals = scaled.duals(solution.row_dual)
        # The optimum is a whole number of ticks.
        emit({"event": "bound", "value": math.ceil(safe_bound(model, duals)), "source": "root LP"})


def _branch_and_bound(
    model: LoweredModel, scaled: Scaling, seconds: float | None, threads: int, seed: int, emit: Emit
) -> str:
    solver = load(model, scaled, seconds, threads, seed, integral=True)
    best: int | None = None

    def report_bound(bound: float) -> None:
        nonlocal best
        ticks = weakened(bound, scaled.cost)
        if ticks is not None and (best is None or ticks > best):
            best = ticks
            emit({"event": "bound", "value": ticks, "source": "branch and bound"})

    def improved(event: Any) -> None:
        emit({"event": "incumbent", "values": scaled.values(event.data_out.mip_solution)})
        report_bound(event.data_out.mip_dual_bound)

    def progressed(event: Any) -> None:
        report_bound(event.data_out.mip_dual_bound)

    def logged(event: Any) -> None:
        if "MIP start solution is feasible" in event.message:
            emit({"event": "start", "accepted": True})
        elif "MIP start solution is infeasible" in event.message:
            emit({"event": "start", "accepted": False})

    solver.cbLogging += logged
    solver.cbMipImprovingSolution += improved
    solver.cbMipLogging += progressed
    solver.cbMipInterrupt += progressed
    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Termination.INFEASIBLE
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        emit({"event": "incumbent", "values": scaled.values(solver.getSolution().col_value)})
    report_bound(info.mip_dual_bound)
    emit(
        {"event": "details", "nodes": int(info.mip_node_count), "status": solver.modelStatusToString(status)}
    )
    if status == highspy.HighsModelStatus.kOptimal:
        return Termination.OPTIMAL
    if status == highspy.HighsModelStatus.kMemoryLimit:
        return Termination.MEMORY_LIMIT
    return Termination.TIME_LIMIT if status == highspy.HighsModelStatus.kTimeLimit else Termination.CRASHED
