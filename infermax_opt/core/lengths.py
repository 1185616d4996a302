"""Estimates of output lengths that are off by a random factor."""

from __future__ import annotations

import math
import random

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError

__all__ = ["MOST_ERROR", "check_error", "estimate"]

#: Largest deviation of estimates: beyond it their factors are no numbers of tokens any more.
MOST_ERROR = 10


def check_error(error: float) -> None:
    """Check the deviation of estimates.

    Raises
    ------
    InputError
        If it is no number from 0 to `MOST_ERROR`.
    """
    if not 0 <= error <= MOST_ERROR:
        raise InputError(f"{error} is not between 0 and {MOST_ERROR}", field="error")


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
    return max(1, min(MAX_TOKENS, round(outputs * math.exp(error * rng.gauss(0, 1)))))
