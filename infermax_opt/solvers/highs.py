"""HiGHS: the root LP for a safe bound, then branch and bound, both on a lowered model.

Runs inside a worker process (`infermax_opt.solvers.worker`) and reports what it finds at once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

from infermax_opt.solvers.lowering import LoweredModel
from infermax_opt.solvers.outcome import Termination
from infermax_opt.solvers.safebound import safe_bound, weakened

__all__ = ["solve"]

Emit = Callable[[dict[str, Any]], None]

#: Share of the time limit that the root LP may take.
ROOT_SHARE = 0.25

#: Largest cost coefficient that HiGHS sees.  Ticks make objectives of 1e9 and more, far from the
#: absolute tolerances; dividing by a power of two changes no digit.
LARGEST_COST = 1024.0


def solve(model: LoweredModel, *, seconds: float | None, threads: int, seed: int, emit: Emit) -> str:
    """Minimise `model`; return one of `Termination`.

    Parameters
    ----------
    emit : callable
        Receives ``incumbent`` (values), ``bound`` (ticks, source), ``start`` (accepted) and
        ``details`` events.
    """
    began = time.monotonic()
    scale = 2.0 ** max(0, math.ceil(math.log2(max(1, *map(abs, model.cost)) / LARGEST_COST)))

    def remaining() -> float | None:
        return None if seconds is None else max(0.01, seconds - (time.monotonic() - began))

    left = remaining()
    _root(model, scale, None if left is None else left * ROOT_SHARE, threads, seed, emit)
    return _branch_and_bound(model, scale, remaining(), threads, seed, emit)


def _load(
    model: LoweredModel, scale: float, seconds: float | None, threads: int, seed: int, integral: bool
) -> highspy.Highs:
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
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = model.columns, model.rows
    lp.col_cost_ = np.array(model.cost, dtype=float) / scale
    lp.offset_ = model.offset / scale
    lp.col_lower_ = np.array(model.lb, dtype=float)
    lp.col_upper_ = np.array(model.ub, dtype=float)
    lp.row_lower_ = np.array([-math.inf if e is None else e for e in model.row_lb], dtype=float)
    lp.row_upper_ = np.array([math.inf if e is None else e for e in model.row_ub], dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.array(model.row_start, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(model.index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(model.value, dtype=float)
    if integral:
        kinds = highspy.HighsVarType
        lp.integrality_ = [kinds.kInteger if whole else kinds.kContinuous for whole in model.integral]
    if solver.passModel(lp) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refuses the model")
    return solver


def _root(
    model: LoweredModel, scale: float, seconds: float | None, threads: int, seed: int, emit: Emit
) -> None:
    """Solve the relaxation and report the bound that its duals prove in exact arithmetic."""
    solver = _load(model, scale, seconds, threads, seed, integral=False)
    solver.run()
    solution = solver.getSolution()
    if solution.dual_valid:
        duals = [y * scale for y in solution.row_dual]
        # The optimum is a whole number of ticks.
        emit({"event": "bound", "value": math.ceil(safe_bound(model, duals)), "source": "root LP"})


def _branch_and_bound(
    model: LoweredModel, scale: float, seconds: float | None, threads: int, seed: int, emit: Emit
) -> str:
    solver = _load(model, scale, seconds, threads, seed, integral=True)
    best: int | None = None

    def report_bound(bound: float) -> None:
        nonlocal best
        ticks = weakened(bound, scale)
        if ticks is not None and (best is None or ticks > best):
            best = ticks
            emit({"event": "bound", "value": ticks, "source": "branch and bound"})

    def improved(event: Any) -> None:
        emit({"event": "incumbent", "values": _rounded(event.data_out.mip_solution)})
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
    if model.start is not None:
        start = highspy.HighsSolution()
        start.col_value = [float(x) for x in model.start]
        solver.setSolution(start)
    solver.run()
    status = solver.getModelStatus()
    info = solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Termination.INFEASIBLE
    if info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible:
        emit({"event": "incumbent", "values": _rounded(solver.getSolution().col_value)})
    report_bound(info.mip_dual_bound)
    emit(
        {"event": "details", "nodes": int(info.mip_node_count), "status": solver.modelStatusToString(status)}
    )
    if status == highspy.HighsModelStatus.kOptimal:
        return Termination.OPTIMAL
    if status == highspy.HighsModelStatus.kMemoryLimit:
        return Termination.MEMORY_LIMIT
    return Termination.TIME_LIMIT if status == highspy.HighsModelStatus.kTimeLimit else Termination.CRASHED


def _rounded(values: Any) -> list[int]:
    return [round(float(x)) for x in values]
