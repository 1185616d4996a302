"""Small linear programs of bounds: HiGHS without a log, on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import highspy

__all__ = ["maximizer", "quiet_solver"]


def quiet_solver() -> highspy.Highs:
    """An empty linear program, quiet and on one thread."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


def maximizer() -> highspy.Highs:
    """An empty linear program to maximise, quiet and on one thread."""
    import highspy

    solver = quiet_solver()
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    return solver
