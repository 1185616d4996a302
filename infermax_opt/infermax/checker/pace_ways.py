"""Proof: what the ways of a request cost it at prices, for pace."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from infermax_opt.infermax.checker.pace_legs import PACE_BITS, Leg


class Member(NamedTuple):
    """K of each leg of a request, q, and at the ends in how many cells it counts."""

    k: list[int]
    q: int
    until: int

    def numbers(self, legs: list[Leg]) -> Iterator[tuple[Leg, tuple[int, int]]]:
        """Each leg of the request with k and q."""
        return ((leg, (k, self.q)) for leg, k in zip(legs, self.k, strict=True))

    def may_be_late(self, legs: list[Leg]) -> bool:
        """Whether to end after the last cell is no cheaper."""
        return all(k + largest_offset(leg, q, 0) <= 1 << PACE_BITS for leg, (k, q) in self.numbers(legs))


#: A member, all rewards by it, and least costs of those in the prompt, and in one of the first legs after it.
PaceWay = tuple[Member, int, list[int]]


def largest_offset(leg: Leg, q: int, root: int) -> int:
    """The largest (q - r) x of a leg, rounded up.

    Parameters
    ----------
    leg : Leg
    q, root : int
    """
    return -((root - q) * (leg.high if q > root else leg.low) >> PACE_BITS)


def all_rewards(legs: list[Leg], member: Member) -> int:
    """Sum of e (k + q x)**2 over all that a request does.

    Parameters
    ----------
    legs : list of Leg
    member : Member
    """
    q = member.q
    return sum(
        k * k * leg.fixed + 2 * k * q * leg.roots + q * q * leg.works
        for leg, k in zip(legs, member.k, strict=True)
    )


def ended_ways(cost: list[int], toll: int) -> int:
    """Least cost of those that end now.

    Parameters
    ----------
    cost : list of int
        Least costs of those in the prompt, and of those in one of the first legs after it.
    toll : int
        What the prompt pays.
    """
    return min(cost[0] + toll, cost[-1]) if len(cost) > 1 else cost[0] + toll


def pass_time(cost: list[int], span: int, lost: list[int], toll: int) -> int:
    """Let so many ticks go by in each leg, or in a later one; the least cost of those that end meanwhile.

    Parameters
    ----------
    cost : list of int
        Least costs of those in the prompt, and of those in one of the first legs after it, which come with
        the first time that goes by; changed in place.
    span : int
    lost : list of int
        L of each leg.
    toll : int
        What the prompt pays.
    """
    before, done, one = ended_ways(cost, toll), cost[0] + toll, 1 << 2 * PACE_BITS
    later = [min(some, done) for some in cost[1:]] or [done] * (len(lost) - 1)
    cost[0] += span * (one - lost[0])
    spent = (so_far + span * (one - some) for so_far, some in zip(later, lost[1:], strict=True))
    cost[1:] = accumulate(spent, min)
    return min(before, ended_ways(cost, toll))


def late_ends(legs: list[Leg], ways: list[PaceWay], passed: int) -> Iterator[int]:
    """The same for those that end after the last cell.

    Parameters
    ----------
    legs : list of Leg
    ways : list of PaceWay
    passed : int
        How many cells they came through.
    """
    for some, reward, cost in ways:
        if some.until > passed and some.may_be_late(legs):
            yield reward + ended_ways(cost, 0)
