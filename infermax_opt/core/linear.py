"""Small linear programs of bounds: HiGHS without a log, on one thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from infermax_opt.core.interrupts import deferred

if TYPE_CHECKING:
    import highspy

__all__ = ["ended_by", "maximizer", "quiet_solver"]


def quiet_solver() -> highspy.Highs:
    """An empty linear program, quiet and on one thread."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    return solver


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
