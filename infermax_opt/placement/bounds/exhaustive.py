r"""Placements on a given number of workers by exhausting all of them: exact, for few new requests.

Requests are tried the largest first, on the workers in use and on fresh ones; of fresh workers that hold
nothing only the first is tried, and of equal requests the later one goes to no earlier worker.  A set that
breaks a limit is given up: more requests mend none (`infermax_opt.placement.data.limits.unplaceable`).  No
placement uses more fresh workers than there are new requests, so no more are looked at.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from infermax_opt.placement.bounds.rows import open_workers
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement

__all__ = ["MAX_NODES", "MAX_REQUESTS", "Exhausted", "exhaust"]

#: Sets of requests to look at; about five seconds.
MAX_NODES = 200_000
#: New requests beyond which it does not even start: as deep is the search.
MAX_REQUESTS = 500


@dataclass(frozen=True)
class Exhausted:
    """Outcome: a placement, or that there is none (`decided`), or neither."""

    placement: Placement | None
    decided: bool


def exhaust(instance: PlacementInstance, workers: int, *, nodes: int = MAX_NODES) -> Exhausted:
    """Decide whether a placement uses at most so many workers.

    Parameters
    ----------
    instance : PlacementInstance
    workers : int
        Those in use included.
    nodes : int
        Most sets to look at, after which it is given up.
    """
    limits = Limits.of(instance)
    fresh = workers - len(limits.ongoing)
    if fresh < 0:
        return Exhausted(None, True)
    if len(limits.new) > MAX_REQUESTS:
        return Exhausted(None, False)
    fresh = min(fresh, len(limits.new))
    search = _ExhaustiveSearch(limits, fresh, nodes)
    found = search.place(0)
    if not found:
        return Exhausted(None, search.nodes > 0)
    numbers = [*search.open, *_numbers(limits, fresh)]
    names = {instance.requests[k].id: numbers[w] for k, w in search.at.items()}
    return Exhausted(Placement(instance.name, names), True)


def _numbers(limits: Limits, count: int) -> list[int]:
    """The least numbers of workers not in use."""
    return list(itertools.islice((w for w in itertools.count(1) if w not in limits.ongoing), count))


class _ExhaustiveSearch:
    """A depth-first search."""

    def __init__(self, limits: Limits, fresh: int, nodes: int):
        self.limits, self.nodes = limits, nodes
        self.open = open_workers(limits)
        self.members: list[list[int]] = [[] for _ in range(len(self.open) + fresh)]
        most = max(1, limits.most_prompt), max(1, limits.most_context)

        def size(k: int) -> float:
            return max(limits.prompt[k] / most[0], limits.context[k] / most[1])

        self.order = sorted(limits.new, key=lambda k: (-size(k), self.kind(k)))
        self.at: dict[int, int] = {}

    def kind(self, k: int) -> tuple[int, ...]:
        """What limits know of a request."""
        limits = self.limits
        return limits.context[k], limits.prompt[k], limits.held[k], limits.lasts[k]

    def fits(self, w: int) -> bool:
        """Whether the requests on a worker break no limit."""
        number = self.open[w] if w < len(self.open) else None
        return not self.limits.excesses(self.members[w], number)

    def place(self, position: int) -> bool:
        """Place all requests from a position on; False too if the nodes are used up."""
        if position == len(self.order):
            return True
        k = self.order[position]
        first = 0
        if position and self.kind(self.order[position - 1]) == self.kind(k):
            first = self.at[self.order[position - 1]]
        for w in range(first, len(self.members)):
            if self.nodes <= 0:
                return False
            self.nodes -= 1
            empty = w >= len(self.open) and not self.members[w]
            self.members[w].append(k)
            self.at[k] = w
            if self.fits(w) and self.place(position + 1):
                return True
            self.members[w].pop()
            if empty:
                break
        self.at.pop(k, None)
        return False
