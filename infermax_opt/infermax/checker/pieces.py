"""The cost of a batch: affine pieces in ticks, and in the units that prices count in."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.checking.envelope import seconds
from infermax_opt.checking.errors import require
from infermax_opt.checking.fields import Field
from infermax_opt.checking.limits import MAX_RATES

#: Costs in units are below this, so that they can be compared with infinity.
MAX_UNITS = 2**700
FAR = math.inf  # potential of a state that is never reached


class Piece(NamedTuple):
    """One affine piece of the batch time, in ticks; units are what prices and potentials count in."""

    alpha: int
    beta: int
    unit: Fraction  # in a tick

    def units(self, ticks: int) -> int:
        """Whole units of so many ticks, rounded down."""
        units = math.floor(ticks * self.unit)
        require(units < MAX_UNITS, "exponent: costs are too many units")
        return units


def low_end(coefficient: Field) -> Fraction:
    """A coefficient; of an interval its low end."""
    if not isinstance(coefficient.value, list):
        return coefficient.decimal()
    low, high = (end.decimal() for end in coefficient.items(2))
    if low > high:
        coefficient.fail(f"{seconds(low)} to {seconds(high)} is no interval")
    return low


def read_cost(
    cost: Field,
) -> tuple[list[list[Fraction]], list[Fraction], list[Fraction], str, list[Fraction]]:
    """Coefficients of a cost model: batch, decode, prefill, attention, and what some batches take longer.

    Each proof is about the cost without the latter.  A schedule whose batches all start later by that, and so
    end when they did, makes each token at the same time: no objective is less than one without it may be.
    """
    batch = cost["batch"].items()  # of intervals the low ends: no batch takes less, and it may end later
    if not 1 <= len(batch) <= MAX_RATES:
        cost["batch"].fail(f"holds {len(batch)} pieces, not 1 to {MAX_RATES}")
    pieces = [[low_end(v) for v in pair.items(2)] for pair in batch]
    decode, prefill = ([low_end(v) for v in cost[key].items(2)] for key in ("decode", "prefill"))
    mixed = [low_end(v) for v in cost["mixed"].items(2)] if "mixed" in cost else [Fraction(0)] * 2
    prefix = low_end(cost["prefix"]) if "prefix" in cost else Fraction(0)
    return pieces, decode, prefill, cost["attention"].text(), [*mixed, prefix]
