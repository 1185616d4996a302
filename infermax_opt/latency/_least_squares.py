"""Affine models, no coefficient below 0: least squares, and the least one of three above samples.

Least squares run on floats.  What must hold for every sample, that a model lies above, is checked in exact
arithmetic.

SciPy has `nnls` and Student's t.  It is not used: where it is installed, numba imports its linear algebra
with the first compiled kernel, which costs every command about 0.2 s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist
from typing import Any

__all__ = ["dependent", "least_above", "non_negative", "student_t"]

#: Singular values, as a share of the largest, that count as 0.
TINY = 1e-9
#: Degrees of freedom from which on quantiles come from a series; its error is below 1e-6 there.
MANY = 60
#: Slope of the residual, as a share of what is measured, from which on a column is worth its place.
SLOPE = 1e-12

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
    """Coefficients >= 0 with the least sum of squared residuals, and the columns that are above 0.

    Lawson and Hanson, Solving Least Squares Problems, chapter 23.

    Parameters
    ----------
    matrix : ndarray of float, shape (samples, columns)
        Columns of 0 alone get the coefficient 0.
    measured : ndarray of float, shape (samples,)
    """
    import numpy as np

    lengths = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(lengths > 0, lengths, 1)
    chosen: list[int] = []
    found = np.zeros(matrix.shape[1])
    least = SLOPE * float(np.linalg.norm(measured))
    # Each column comes in some few times; the limit only stops two that change places for rounding.
    for _ in range(3 * len(found)):
        slope = scaled.T @ (measured - scaled @ found)
        slope[chosen] = 0.0
        entering = int(slope.argmax())
        if slope[entering] <= least:
            break
        chosen = sorted([*chosen, entering])
        while chosen:
            solved = np.linalg.lstsq(scaled[:, chosen], measured, rcond=None)[0]
            if (solved > 0).all():
                break
            # As far towards it as all stay at 0 or above; those that are at 0 then leave.
            now, falling = found[chosen], solved <= 0
            share = min(
                float(x / (x - y)) if x > 0 else 0.0 for x, y in zip(now, solved, strict=True) if y <= 0
            )
            moved = now + share * (solved - now)
            keep = ~(falling & (moved <= TINY * moved.max()))
            found[:] = 0.0
            chosen = [k for k, kept in zip(chosen, keep, strict=True) if kept]
            found[chosen] = moved[keep]
        if chosen:
            found[:] = 0.0
            found[chosen] = solved
    return found / np.where(lengths > 0, lengths, 1), tuple(chosen)


def student_t(share: float, freedom: int) -> float:
    """Half width, in standard errors, of the symmetric interval that holds `share` of Student's t."""
    if freedom >= MANY:
        z = NormalDist().inv_cdf((1 + share) / 2)
        # Abramowitz and Stegun 26.7.5.
        terms = (
            z,
            (z**3 + z) / 4,
            (5 * z**5 + 16 * z**3 + 3 * z) / 96,
            (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        )
        return math.fsum(term / float(freedom) ** k for k, term in enumerate(terms))
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, freedom) < share else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    """Share of Student's t within sqrt(freedom) * tan(angle) (Abramowitz and Stegun 26.7.3, 26.7.4)."""
    cosine, sine = math.cos(angle), math.sin(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


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
