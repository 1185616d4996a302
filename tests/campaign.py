"""How many random instances a test tries: a part of them by default, all with ``pytest --campaign full``.

A campaign says both numbers where it stands.  The part is always the same: the first seeds, every so
many-th alteration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

__all__ = ["PART", "SIZES", "campaign", "choose", "examples", "in_blocks", "one_in", "size"]

#: What the option may be: what a run of all tests tries, or everything.
SIZES = PART, FULL = ("part", "full")

Item = TypeVar("Item")
_chosen = PART


def choose(which: str) -> None:
    """Set the size of all campaigns; to be called before a test is collected."""
    global _chosen
    assert which in SIZES
    _chosen = which
    # The part is the same in every run, and a full campaign is another one each time.
    settings.register_profile("campaign", derandomize=which == PART)
    settings.load_profile("campaign")


def size(part: int, full: int) -> int:
    """One of the two numbers, by the option."""
    assert part <= full
    return full if _chosen == FULL else part


def campaign(part: int, full: int, first: int = 0) -> range:
    """Seeds of random instances.

    Parameters
    ----------
    part, full : int
        How many there are by default, and in a full campaign.
    first : int
        The first of them.
    """
    return range(first, first + size(part, full))


def examples(part: int, full: int) -> settings:
    """So many examples of `hypothesis`: `part` of them by default, and `full` in a full campaign."""
    slow = [HealthCheck.too_slow]
    return settings(max_examples=size(part, full), deadline=None, suppress_health_check=slow)


def in_blocks(seeds: range, each: int) -> pytest.MarkDecorator:
    """The test for `each` of the `seeds` at a time, so that workers share them and a failure names few."""
    blocks = [seeds[k : k + each] for k in range(0, len(seeds), each)]
    return pytest.mark.parametrize("seeds", blocks, ids=[f"{block[0]}-{block[-1]}" for block in blocks])


def one_in(count: int, items: Iterable[Item]) -> Iterator[Item]:
    """Every `count`-th of the `items` by default, and all of them in a full campaign."""
    return itertools.islice(items, 0, None, 1 if _chosen == FULL else count)
