"""Closed loops: sets of requests of a class, each of which arrives when the one before it is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from infermax_opt.core.checks import MAX_REQUESTS, checked_text, checked_whole
from infermax_opt.core.errors import InputError

if TYPE_CHECKING:
    from infermax_opt.infermax.data.instance import Instance

__all__ = ["NEVER", "Release", "check_release", "derived_arrivals", "refuse_release", "release_sets"]

#: Tick of what does not happen: beyond all times, also those in ticks of coefficients of 40 digits.
NEVER = 2**1000


@dataclass(frozen=True)
class Release:
    """A closed loop.

    Requests of the class, in the order of the instance, are in sets of `batch`; the last set may be smaller.
    The first set is there from the start.  The others arrive with the last token of the set before; where
    that is never complete, they never arrive.  Their latencies count from then.

    Parameters
    ----------
    class_name : str
        Called ``class`` in a file.
    batch : int
        Requests in a set.
    """

    class_name: str
    batch: int

    def __post_init__(self) -> None:
        checked_text(self.class_name, "release.class")
        object.__setattr__(self, "batch", checked_whole(self.batch, "release.batch", 1, MAX_REQUESTS))


def check_release(instance: Instance) -> None:
    """Refuse a class that nobody is of, or whose requests have arrivals of their own."""
    release = instance.release
    if release is None:
        return
    groups = [group for group in instance.groups if group.class_name == release.class_name]
    if not groups:
        raise InputError(f"no request is of the class {release.class_name!r}", field="release.class")
    for group in groups:
        if group.arrival != 0:
            problem = f"request {group.id!r} of the class {release.class_name!r} has one of its own"
            raise InputError(f"{problem}: {float(group.arrival):g} s; it is released", field="arrival")


def release_sets(instance: Instance) -> list[list[int]]:
    """Requests of each set, by their place in the instance; none without a closed loop."""
    release = instance.release
    if release is None:
        return []
    members = [i for i, r in enumerate(instance.requests) if r.terms.class_name == release.class_name]
    return [members[k : k + release.batch] for k in range(0, len(members), release.batch)]


def derived_arrivals(instance: Instance, last_batch: Sequence[int], ends: Sequence[int]) -> Mapping[int, int]:
    """Ticks at which requests of all sets but the first arrive; `NEVER` where they do not.

    Parameters
    ----------
    instance : Instance
    last_batch : sequence of int, one per request
        Position of the batch of its last token; -1 if there is none.
    ends : sequence of int, one per batch
        Ticks.
    """
    found: dict[int, int] = {}
    sets = instance.release_sets
    for before, members in pairwise(sets):
        last = [last_batch[i] for i in before]
        found.update(dict.fromkeys(members, NEVER if min(last) < 0 else ends[max(last)]))
    return found


def refuse_release(instance: Instance, what: str) -> None:
    """Raise `InputError` where an instance has a closed loop, which `what` does not take.

    Parameters
    ----------
    instance : Instance
    what : str
        Begins the message.
    """
    if instance.release is not None:
        raise InputError(f"{what} does not take a closed loop", field="release")
