"""The optimum of a small instance, by every way to split intervals, longest request first.

By the circle and the splitting of `infermax_opt.pipelining.bounds.closed_form`, a selection is valid iff its
requests, longest first, each find an interval x = a + b with a, b >= g.  Requests are skipped or put into
each interval in each way.  Intervals too short for the shortest request left are forgotten, and a state that
was reached before with as much value or more is not followed again.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import gcd

from infermax_opt.pipelining.data.instance import PipeliningInstance

__all__ = ["MOST_REQUESTS", "MOST_STEPS", "most_selected"]

#: Useful requests of the largest instance that is tried.
MOST_REQUESTS = 20
#: Ways to split that are tried, about two seconds.
MOST_STEPS = 400_000


def most_selected(instance: PipeliningInstance) -> Fraction | None:
    """The most of the objective that a schedule selects; None if finding it takes too long."""
    useful = sorted(instance.useful, key=lambda k: (-instance.sizes[k], -instance.values[k]))
    if len(useful) > MOST_REQUESTS:
        return None
    unit = gcd(*(instance.sizes[k] for k in useful)) or 1
    search = _Search(
        [instance.sizes[k] // unit for k in useful],
        [instance.values[k] for k in useful],
        instance.room // unit,
    )
    return search.best if search.run() else None


class _Search:
    """Depth first, most value first."""

    def __init__(self, sizes: list[int], values: list[Fraction], cells: int):
        self.sizes, self.values, self.cells = sizes, values, cells
        self.rest = [*accumulate(reversed(values), initial=Fraction(0))][::-1]
        self.best, self.steps = Fraction(0), 0
        self.seen = dict[tuple[int, tuple[int, ...]], Fraction]()

    def run(self) -> bool:
        """Whether everything was tried."""
        return all(self._follow(first + 1, (self.cells,), value) for first, value in enumerate(self.values))

    def _follow(self, place: int, intervals: tuple[int, ...], value: Fraction) -> bool:
        """Decide about the requests from `place` on."""
        self.best = max(self.best, value)
        if place == len(self.sizes) or value + self.rest[place] <= self.best:
            return True
        least = 2 * self.sizes[-1]
        state = place, tuple(sorted(x for x in intervals if x >= least))
        if self.seen.get(state, Fraction(-1)) >= value:
            return True
        self.seen[state] = value
        size, new = self.sizes[place], value + self.values[place]
        for x in sorted(set(state[1])):
            others = list(state[1])
            others.remove(x)
            for a in range(size, x // 2 + 1):
                self.steps += 1
                if self.steps > MOST_STEPS or not self._follow(place + 1, (*others, a, x - a), new):
                    return False
        return self._follow(place + 1, state[1], value)
