"""Small linear programs of bounds: HiGHS without a log, on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from infermax_opt.core.interrupts import deferred

if TYPE_CHECKING:
    import highspy
    import numpy.typing as npt

__all__ = ["INTERIOR", "ended_by", "maximizer", "quiet_solver", "sparse_program"]

#: Options of HiGHS for a point inside, not a corner: enough where any prices prove something.
INTERIOR: dict[str, float | str] = {"solver": "ipm", "run_crossover": "off"}


def quiet_solver(**options: float | str) -> highspy.Highs:
    """An empty linear program, quiet and on one thread.

    Parameters
    ----------
    **options
        Further options of HiGHS.
    """
    import highspy

    solver = highspy.Highs()
    for option, value in {"output_flag": False, "threads": 1, **options}.items():
        solver.setOptionValue(option, value)
    return solver


def sparse_program(
    costs: npt.ArrayLike,
    uppers: npt.ArrayLike,
    lows: npt.ArrayLike,
    highs: npt.ArrayLike,
    entries: Iterable[npt.ArrayLike],
) -> highspy.HighsLp:
    """A linear program to minimise, of columns that are 0 or more.

    Parameters
    ----------
    costs, uppers : array_like of float
        Of each column.
    lows, highs : array_like of float
        Of each row.
    entries : iterable of array_like
        Rows, columns and values of what is in the matrix; no place twice.
    """
    import highspy
    import numpy as np

    rows, columns, values = (np.asarray(part) for part in entries)
    order = np.argsort(columns, kind="stable")
    program = highspy.HighsLp()
    program.col_cost_, program.col_upper_ = np.asarray(costs, float), np.asarray(uppers, float)
    program.row_lower_, program.row_upper_ = np.asarray(lows, float), np.asarray(highs, float)
    count = len(program.col_cost_)
    program.num_col_, program.num_row_ = count, len(program.row_upper_)
    program.col_lower_ = np.zeros(count)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.searchsorted(columns[order], np.arange(count + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = rows[order], values[order].astype(float)
    return program


def ended_by(stop: Callable[[], bool]) -> Callable[[Any], None]:
    """What HiGHS is to call, so that it ends where `stop` says so, and at Ctrl-C or SIGTERM.

    Parameters
    ----------
    stop : callable
    """

    def asked(event: Any) -> None:
        if deferred() or stop():
            event.interrupt()

    return asked


def maximizer() -> highspy.Highs:
    """An empty linear program to maximise, quiet and on one thread."""
    import highspy

    solver = quiet_solver()
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    return solver
