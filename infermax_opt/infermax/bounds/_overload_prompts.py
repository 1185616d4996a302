"""What a token of a prompt that is done in parts pays at least, for `overload`, where the proof is."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from math import floor, isqrt

from infermax_opt.infermax.bounds._overload_tables import PRICE_BITS

__all__ = ["LONGEST_PART", "SHARES", "PartPrices"]

#: Bits after the point of 1 / sqrt(c).
ROOT_BITS = 20
#: Most tokens of a part for which the least is known.
LONGEST_PART = 2**20
#: Shares of a request are rounded down to one in so many.
SHARES = 128


def _quarters() -> list[int]:
    """Four times sqrt(c), for parts of c = 1 to LONGEST_PART tokens and more, a sixteenth more each time."""
    found = [4]
    while found[-1] ** 2 < 16 * LONGEST_PART:
        found.append(max(found[-1] + 1, found[-1] * 17 // 16))
    return found


QUARTERS = _quarters()


class PartPrices:
    """The least over c of (l + s) p1 (c-1) + 2 x sqrt(w s / c) + a' s / c, which is convex in sqrt(c).

    Parameters
    ----------
    work, attention, presence : int
        w, p1 and a' of a token of a prompt, in ticks.
    exponent : int
        Bits after the point of x.
    """

    def __init__(self, work: int, attention: int, presence: int, exponent: int):
        self._work, self._attention, self._presence = work, attention, presence
        self._exponent = exponent
        self._found: dict[tuple[int, int, int], tuple[int, int]] = {}

    def least(self, price: int, level: int, share: int, longest: int) -> int:
        """Rounded down, in units of 2**-PRICE_BITS ticks.

        Parameters
        ----------
        price, level : int
            l and x, in units.
        share : int
            s, as a number of 1 / SHARES.
        longest : int
            Most tokens of a part, up to LONGEST_PART.
        """
        key = price, level, share
        terms = self._terms(*key)
        if key not in self._found:
            self._found[key] = _least_of(*terms)
        falls, least = self._found[key]
        if 16 * longest > falls * falls:
            return least
        slope, cross, own = terms
        root = isqrt((1 << 2 * ROOT_BITS) // longest)
        return slope * (longest - 1) + (cross * root >> ROOT_BITS) + own // longest

    def _terms(self, price: int, level: int, share: int) -> tuple[int, int, int]:
        """What c - 1, 1 / sqrt(c) and 1 / c are multiplied by, rounded down."""
        slope = self._attention * (price + (share << PRICE_BITS) // SHARES)
        root = isqrt((self._work * share << 2 * self._exponent) // SHARES)
        cross = (2 * level * root << PRICE_BITS) >> 2 * self._exponent
        return slope, cross, (self._presence * share << PRICE_BITS) // SHARES


def _least_of(slope: int, cross: int, own: int) -> tuple[int, int]:
    """Where in QUARTERS the sum still falls, and a number that it is nowhere below.

    Between neighbours a convex function is above the line through the next two on either side.
    """

    def total(k: int) -> Fraction:
        v = QUARTERS[k]
        return Fraction(slope * (v * v - 16) * v * v + 64 * cross * v + 256 * own, 16 * v * v)

    def beyond(k: int, other: int) -> Fraction:
        """On the far side of point k as seen from `other`, as far as its neighbour there."""
        v = QUARTERS
        ahead = 2 * k - other
        return total(k) - (total(other) - total(k)) * Fraction(v[k] - v[ahead], v[other] - v[k])

    last = len(QUARTERS) - 2
    k = max(1, bisect_left(range(last), True, key=lambda at: total(at + 1) >= total(at)))
    if k == 1 and total(0) <= total(1):
        return QUARTERS[0], max(0, floor(beyond(1, 2)))
    return QUARTERS[k - 1], max(0, floor(min(beyond(k, k + 1), beyond(k, k - 1))))
