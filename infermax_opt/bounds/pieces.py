"""What the searched bounds share: a bound for each affine piece, costs in whole units, a small LP."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from infermax_opt.instance import Instance
from infermax_opt.result import LowerBound

if TYPE_CHECKING:
    import highspy

__all__ = ["BITS", "best_piece", "in_units", "maximizer"]

#: Bits of a batch's fixed cost in units: rounding costs less than 1e-6 of a bound, and sums along a
#: path stay in int64.
BITS = 34

Stop = Callable[[], bool]


def best_piece(
    instance: Instance, search: Callable[[Instance, int, Stop], LowerBound | None], stop: Stop | None
) -> LowerBound | None:
    """The best of the bounds that a search finds for each affine piece of the batch time."""
    best = None
    for piece in range(len(instance.cost.batch)):
        found = search(instance, piece, stop or (lambda: False))
        if found is not None and (best is None or found.value > best.value):
            best = found
    return best


def in_units(ticks: int, exponent: int) -> int:
    """Whole units of 2**-exponent ticks, rounded down."""
    return int(ticks << exponent if exponent >= 0 else ticks >> -exponent)


def maximizer() -> highspy.Highs:
    """An empty linear program to maximise, quiet and on one thread."""
    import highspy

    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.changeObjectiveSense(highspy.ObjSense.kMaximize)
    return solver
