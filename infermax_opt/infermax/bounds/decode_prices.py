"""What decodes pay at least by the KV tokens that they leave, each the least of two numbers."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.infermax.bounds.least_work import Totals
from infermax_opt.infermax.bounds.sizes import Sizes

__all__ = ["DecodePrice", "least_of_decodes"]


class DecodePrice(NamedTuple):
    """What a decode that leaves h tokens pays: slope h + constant."""

    slope: Fraction
    constant: Fraction


def least_of_decodes(sizes: Sizes, totals: Totals, one: DecodePrice, other: DecodePrice) -> Fraction:
    """The sum over all decodes of the least of two prices; may be below 0.

    Parameters
    ----------
    sizes : Sizes
        Lengths of the requests.
    totals : Totals
        Sums over the same.
    one, other : DecodePrice
    """
    import numpy as np

    less, more = sorted((one, other))  # by slope, then by constant
    inputs, outputs, counts = sizes
    largest = 0
    if less.slope < more.slope:  # the least one up to so many tokens is the steep one
        crossing = (less.constant - more.constant) / (more.slope - less.slope)
        largest = min(max(math.ceil(crossing) - 1, 0), int((inputs + outputs).max()))
    number = np.minimum(np.maximum(largest - inputs, 0), outputs - 1)
    some = int((counts * number).sum())
    held = int((counts * (number * inputs + number * (number + 1) // 2)).sum())
    rest, left = totals.later - some, totals.reads + totals.later - held
    return more.slope * held + more.constant * some + less.slope * left + less.constant * rest
