"""The fewest machines with which something is reached, where more machines always reach it, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

__all__ = ["fewer_each_time", "fewest", "fewest_verified"]

T = TypeVar("T", covariant=True)


def fewer_each_time(reached: Callable[[int], bool], least: int, most: int) -> Iterator[int]:
    """Numbers with which something is reached, down to the fewest; none if not with the most.

    Steps upwards double, then the rest is halved.

    Parameters
    ----------
    reached : callable
    least, most : int
        It is not asked for other numbers, nor twice for one.
    """
    low, high, step = least - 1, least, 1
    while high <= most and not reached(high):
        low, high, step = high, max(high + 1, min(most, high + step)), 2 * step
    if high > most:
        return
    yield high
    while high - low > 1:
        middle = (low + high) // 2
        if reached(middle):
            high = middle
            yield high
        else:
            low = middle


def fewest(reached: Callable[[int], bool], least: int, most: int) -> int | None:
    """The fewest with which something is reached; None if not even the most are enough.

    Parameters
    ----------
    reached, least, most
        As for `fewer_each_time`.
    """
    return min(fewer_each_time(reached, least, most), default=None)


class Search(Protocol[T]):
    """What says quickly whether a number is enough, and proves it slowly."""

    def reached(self, machines: int) -> bool:
        """Whether it is, by simulated clocks."""

    def verified(self, machines: int) -> T | None:
        """What is found with it by exact replay; None where that says otherwise."""


def fewest_verified(search: Search[T], least: int, most: int) -> T | None:
    """What is found with the fewest machines, verified.

    Parameters
    ----------
    search : Search
    least, most : int
        As for `fewer_each_time`.
    """
    number = fewest(search.reached, least, most)
    found = None if number is None else search.verified(number)
    while found is None and number is not None and number < most:
        number += 1
        found = search.verified(number)
    return found
