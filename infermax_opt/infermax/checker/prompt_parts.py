"""Tool of the proof by overload: prompts that are processed in parts."""

from __future__ import annotations

import math
from fractions import Fraction

from infermax_opt.infermax.checker.instance import Instance
from infermax_opt.infermax.checker.moments import PRICE_BITS, WAIT_BITS
from infermax_opt.infermax.checker.pieces import Piece
from infermax_opt.infermax.checker.token_masses import Masses

#: Bits after the point of the root of 1 / c.
PART_BITS = 20
#: Steps of a sum.
PART_STEPS = 20
#: Steps of the least sum.
LEAST_STEPS = 600
#: Shares of a request are rounded down to one in so many.
SHARES = 128
#: Most tokens of a part for which the least is known.
LONGEST_PART = 2**20
#: Four times the root of c, for parts of up to so many tokens and more.
QUARTERS = [4]
while QUARTERS[-1] ** 2 < 16 * LONGEST_PART:
    QUARTERS.append(max(QUARTERS[-1] + 1, QUARTERS[-1] * 17 // 16))


def least_in_parts(
    instance: Instance,
    i: int,
    masses: Masses,
    moments: dict[tuple[int, int], int],
    parts: int,
    prices: PartPrices,
) -> int:
    """Least that the tokens of a prompt pay, in whatever parts, less what it pays whole for its presence.

    Parameters
    ----------
    instance : Instance
    i : int
        Its tokens.
    masses : tuple
        As `masses_of` gives.
    moments : dict
        As `cheapest_moments` gives.
    parts : int
        Groups of tokens.
    prices : PartPrices
    """
    first, whole, presence, _, _ = masses
    one, total = instance.capacity << 2 * prices.exponent, 0
    paid = [
        (first // i * rate >> WAIT_BITS - PRICE_BITS) + (-level * level << PRICE_BITS) // one
        for (_, level), rate in moments.items()
    ]
    cheapest = sorted((base, *key) for base, key in zip(paid, moments, strict=True))
    longest = min(i, instance.budget)
    instance.work.spend(PART_STEPS * parts)
    for k in range(parts):
        start, end = i * k // parts, i * (k + 1) // parts
        if start == end:
            continue
        share, least = SHARES * first * start // (i * whole), None
        for base, price, level in cheapest:
            if least is not None and base >= least:
                break
            value = base + prices.least(price, level, share, longest)
            least = value if least is None else min(least, value)
        total += (end - start) * (least or 0)
    return total + (-presence * first << PRICE_BITS) // (2 * whole)


class PartPrices:
    """The least over c of (l + s) p1 (c-1) + 2 x sqrt(w s / c) + a' s / c, which is convex in sqrt(c)."""

    def __init__(self, instance: Instance, piece: Piece, exponent: int):
        self.instance, self.exponent = instance, exponent
        self._work, self._presence = piece.beta + instance.p1, piece.alpha + instance.p0
        self._found: dict[tuple[int, int, int], tuple[int, int]] = {}

    def least(self, price: int, level: int, share: int, longest: int) -> int:
        """The least, rounded down, in units of prices.

        Parameters
        ----------
        price, level : int
            l and x.
        share : int
            s, as a number of 1 / SHARES.
        longest : int
            Most tokens of a part.
        """
        self.instance.work.spend(PART_STEPS)
        slope = self.instance.p1 * (price + (share << PRICE_BITS) // SHARES)
        root = math.isqrt((self._work * share << 2 * self.exponent) // SHARES)
        cross = (2 * level * root << PRICE_BITS) >> 2 * self.exponent
        own = (self._presence * share << PRICE_BITS) // SHARES
        key = price, level, share
        if key not in self._found:
            self.instance.work.spend(LEAST_STEPS)
            self._found[key] = least_of_parts(slope, cross, own)
        falls, least = self._found[key]
        if 16 * longest > falls * falls:
            return least
        inverse = math.isqrt((1 << 2 * PART_BITS) // longest)
        return slope * (longest - 1) + (cross * inverse >> PART_BITS) + own // longest


def least_of_parts(slope: int, cross: int, own: int) -> tuple[int, int]:
    """Where in QUARTERS the sum still falls, and a number that it is nowhere below.

    Between neighbours a convex function is above the line through the next two on either side.

    Parameters
    ----------
    slope, cross, own : int
        What c - 1, 1 / sqrt(c) and 1 / c are multiplied by.
    """

    def total(k: int) -> Fraction:
        """The sum at point k."""
        v = QUARTERS[k]
        return Fraction(slope * (v * v - 16) * v * v + 64 * cross * v + 256 * own, 16 * v * v)

    def beyond(k: int, other: int) -> Fraction:
        """The line through points `other` and k where the neighbour of k on its far side is."""
        across = Fraction(QUARTERS[k] - QUARTERS[2 * k - other], QUARTERS[other] - QUARTERS[k])
        return total(k) - (total(other) - total(k)) * across

    last = len(QUARTERS) - 2
    k = max(1, next((at for at in range(last) if total(at + 1) >= total(at)), last))
    if k == 1 and total(0) <= total(1):
        return QUARTERS[0], max(0, math.floor(beyond(1, 2)))
    return QUARTERS[k - 1], max(0, math.floor(min(beyond(k, k + 1), beyond(k, k - 1))))
