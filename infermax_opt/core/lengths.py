"""Estimates of output lengths that are off by a random factor."""

from __future__ import annotations

import math
import random

from infermax_opt.core.errors import InputError

__all__ = ["check_error", "estimate"]


def check_error(error: float) -> None:
    """Check the deviation of estimates.

    Raises
    ------
    InputError
        If it is no finite number of 0 or more.
    """
    if not 0 <= error < math.inf:
        raise InputError(f"{error} is not 0 or more", field="error")


def estimate(outputs: int, error: float, rng: random.Random) -> int:
    """An estimated output length that is off by a lognormal factor.

    Parameters
    ----------
    outputs : int
        True tokens.
    error : float
        Standard deviation of the factor's logarithm.
    rng : random.Random
        One number is drawn.
    """
    return max(1, round(outputs * math.exp(error * rng.gauss(0, 1))))
