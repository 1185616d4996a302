"""The least model of a form that is at least every sample: a linear program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.linear import quiet_solver
from infermax_opt.latency.batches.design import Design

__all__ = ["least_above"]

#: Rows that are missed by a larger share than this are added to the program, so many at a time.
SLACK, AT_A_TIME, ROUNDS = 1e-9, 64, 200


def least_above(design: Design, knees: Sequence[float]) -> Any:
    """Coefficients >= 0 with the least sum of distances above the samples, up to rounding.

    The program has few rows: those that its last solution misses most are added until none is missed.

    Parameters
    ----------
    design : Design
    knees : sequence of float
        Ascending; the overheads of all lines stay at 0 or above.

    Raises
    ------
    InputError
        If the solver finds no such model.
    """
    import numpy as np

    matrix = design.with_knees(knees) / design.scale[:, None]
    least = design.measured / design.scale
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / lengths
    # The overhead of the last line is the first one's less what all steps take off it.
    last = np.zeros(scaled.shape[1])
    last[0] = 1.0
    last[len(design.names) :] = [-knee for knee in knees]
    last /= lengths
    chosen = [int(least.argmax())]
    for _ in range(ROUNDS):
        found = _solved(scaled.sum(axis=0), scaled[chosen], least[chosen], last)
        missed = 1 - (scaled @ found) / least
        missed[chosen] = 0.0
        worst = np.argsort(-missed)[:AT_A_TIME]
        worst = worst[missed[worst] > SLACK]
        if not len(worst):
            return np.maximum(found, 0.0) / lengths
        chosen += worst.tolist()
    raise InputError("the least model above the samples was not found", field="cover")


def _solved(price: Any, rows: Any, least: Any, last: Any) -> Any:
    """Minimise price x, where rows x >= least, last x >= 0, x >= 0."""
    import highspy
    import numpy as np

    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(price), len(rows) + 1
    program.col_cost_ = price / price.max()
    program.col_lower_, program.col_upper_ = np.zeros(len(price)), np.full(len(price), np.inf)
    unit = least.max()
    program.row_lower_ = np.append(least / unit, 0.0)
    program.row_upper_ = np.full(len(rows) + 1, np.inf)
    whole = np.vstack([rows, last / np.abs(last).max()])
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.arange(len(whole) + 1) * len(price)
    program.a_matrix_.index_ = np.tile(np.arange(len(price)), len(whole))
    program.a_matrix_.value_ = whole.ravel()
    solver = quiet_solver()
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise InputError("the least model above the samples was not found", field="cover")
    return np.array(solver.getSolution().col_value, dtype=float) * unit
