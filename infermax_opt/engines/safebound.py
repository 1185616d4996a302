"""Lower bounds that stay true under rounding.

A floating-point LP solver returns duals that are only nearly optimal.  Any dual vector gives a
valid bound, if it is evaluated exactly (Neumaier and Shcherbina 2004): here in integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from infermax_opt.engines.lowering import LoweredModel

__all__ = ["safe_bound", "weakened"]

#: Duals are rounded to multiples of 2**-SHIFT; the bound holds for any multiple.
SHIFT = 30

#: How far a floating-point branch-and-bound may be off, relative to the bound.  Its nodes were cut
#: off with tolerances and cannot be checked again, so its bound is lowered by this and remains a
#: claim of the solver.
RELATIVE_TOLERANCE = 1e-6


def safe_bound(model: LoweredModel, duals: Sequence[float]) -> Fraction:
    """Bound the relaxation of `model` from below, whatever `duals` are.

    For the relaxation min c x with b <= A x <= B, l <= x <= u and any y

        c x  =  y (A x) + (c - A'y) x  >=  sum_r min(y_r b_r, y_r B_r) + sum_k min over [l_k, u_k],

    where a multiplier of the wrong sign for a one-sided row counts as 0.  The closer y is to an
    optimal dual solution, the closer the bound to the LP optimum; it never exceeds that.

    Parameters
    ----------
    duals : sequence of float
        Row multipliers, in ticks; positive where the lower end of a row binds.
    """
    reduced = [c << SHIFT for c in model.cost]
    total = 0
    for r, dual in enumerate(duals):
        if not math.isfinite(dual):
            continue
        y = round(Fraction(dual) * (1 << SHIFT))
        end = model.row_lb[r] if y > 0 else model.row_ub[r]
        if y == 0 or end is None:
            continue
        total += y * end
        for k, a in model.row(r):
            reduced[k] -= y * a
    for d, low, high in zip(reduced, model.lb, model.ub, strict=True):
        total += d * (low if d > 0 else high)
    return model.offset + Fraction(total, 1 << SHIFT)


def weakened(bound: float, unit: float = 1.0) -> int | None:
    """Whole ticks below a floating-point bound, lowered by the stated tolerance.

    The result is less than `bound`, so it never claims that a schedule is optimal.

    Parameters
    ----------
    bound : float
        In units of `unit` ticks.

    Returns
    -------
    int or None
        None for a bound that is not finite.
    """
    if not math.isfinite(bound):
        return None
    exact = Fraction(bound) * Fraction(unit)
    size = max(abs(exact), Fraction(1))
    return math.floor(exact - size * Fraction(RELATIVE_TOLERANCE))
