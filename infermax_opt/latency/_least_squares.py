"""Affine models of at most three coefficients, none below 0: least squares, and the least one above samples.

Least squares run on floats.  What must hold for every sample, that a model lies above, is checked in exact
arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

__all__ = ["dependent", "least_above", "non_negative", "student_t"]

#: Singular values, as a share of the largest, that count as 0.
TINY = 1e-9

Row = Sequence[Fraction]


def dependent(matrix: Any) -> bool:
    """Tell whether a column is a combination of the others.

    Parameters
    ----------
    matrix : ndarray of float, shape (samples, columns)
        At least as many samples as columns; no column may be 0.
    """
    import numpy as np

    # By the lengths of the columns, so that their units do not matter.
    values = np.linalg.svd(matrix / np.linalg.norm(matrix, axis=0), compute_uv=False)
    return bool(values[-1] <= TINY * values[0])


def non_negative(matrix: Any, measured: Any) -> tuple[Any, tuple[int, ...]]:
    """Coefficients >= 0 with the least sum of squared residuals, and the columns that are not held at 0.

    Parameters
    ----------
    matrix : ndarray of float, shape (samples, columns)
        Independent columns, no entry below 0.
    measured : ndarray of float, shape (samples,)
        Above 0.
    """
    import numpy as np
    from scipy.optimize import nnls

    # By the lengths of the columns, so that their units do not matter.
    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / lengths
    found, _ = nnls(scaled, measured)
    free = np.flatnonzero(found > 0)
    # `nnls` tells which coefficients are above 0; of these this is the more accurate solution.
    solved = np.linalg.lstsq(scaled[:, free], measured, rcond=None)[0]
    # One that is 0 but for rounding may come out on either side.
    free, solved = free[solved > 0], solved[solved > 0]
    coefficients = np.zeros(len(lengths))
    coefficients[free] = solved / lengths[free]
    return coefficients, tuple(free.tolist())


def student_t(share: float, freedom: int) -> float:
    """Half width, in standard errors, of the symmetric interval that holds `share` of Student's t."""
    # What `scipy.stats.t` asks; that module takes a second to import.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + share) / 2))


def least_above(rows: Sequence[Row], measured: Sequence[Fraction], weights: Sequence[float]) -> Row:
    """Coefficients >= 0 that predict at least `measured` everywhere, by the least weighted sum above it.

    That it lies above is exact; the sum is the least up to the rounding of its terms.  The program is
    solved by vertices on a few rows, to which the one that is missed by most is added until none is.

    Parameters
    ----------
    rows : sequence of rows of Fraction
        Entries >= 0; some column is above 0 in all rows.
    measured : sequence of Fraction
        Above 0.
    weights : sequence of float
        Above 0.
    """
    columns = range(len(rows[0]))
    price = [
        Fraction(math.fsum(w * float(row[k]) for w, row in zip(weights, rows, strict=True))) for k in columns
    ]
    chosen = [0]
    while True:
        best = _cheapest([(rows[i], measured[i]) for i in chosen], price)
        misses = (
            (y - sum((b * x for b, x in zip(best, row, strict=True)), Fraction(0))) / y
            for row, y in zip(rows, measured, strict=True)
        )
        worst, index = max((miss, -i) for i, miss in enumerate(misses))
        if worst <= 0:
            return best
        chosen.append(-index)


def _cheapest(limits: Sequence[tuple[Row, Fraction]], price: Sequence[Fraction]) -> Row:
    """Vertex of {b >= 0, row b >= least for all limits} at which the price is least."""
    columns = len(price)
    axes = [(tuple(Fraction(int(k == i)) for k in range(columns)), Fraction(0)) for i in range(columns)]
    best: tuple[Fraction, Row] | None = None
    for tight in itertools.combinations([*limits, *axes], columns):
        vertex = _solve(tight)
        if vertex is None or min(vertex) < 0:
            continue
        if any(sum(b * x for b, x in zip(vertex, row, strict=True)) < least for row, least in limits):
            continue
        total = sum((p * b for p, b in zip(price, vertex, strict=True)), Fraction(0))
        if best is None or total < best[0]:
            best = total, vertex
    assert best is not None  # a column above 0 in all rows reaches every limit by itself
    return best[1]


def _solve(equations: Sequence[tuple[Row, Fraction]]) -> list[Fraction] | None:
    """Solution of as many equations as unknowns; None where there is not exactly one."""
    table = [[*row, value] for row, value in equations]
    size = len(table)
    for k in range(size):
        pivot = next((i for i in range(k, size) if table[i][k]), None)
        if pivot is None:
            return None
        table[k], table[pivot] = table[pivot], table[k]
        table[k] = [value / table[k][k] for value in table[k]]
        for i in range(size):
            if i != k and table[i][k]:
                factor = table[i][k]
                table[i] = [a - factor * b for a, b in zip(table[i], table[k], strict=True)]
    return [row[-1] for row in table]
