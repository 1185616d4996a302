"""Who is refused from the start, so that fewer miss: changes among those who come when somebody misses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from infermax_opt.fleet.question import FleetQuestion

__all__ = ["Refusals"]

#: How many more may miss after a change that is kept, typically.
HEAT = 0.2
#: How many places before and after somebody who misses changes are tried.
NEAR = 300
#: Shares of the changes that serve one who was refused, and that refuse one more; others do both.
SERVE, REFUSE = 0.3, 0.3


class Refusals:
    """Iterates over changes, the same ones each time, as far as it learns the same of them.

    Parameters
    ----------
    question : FleetQuestion
    refused : sequence of int
        Places of those who are refused from the start.
    missed : sequence of int
        Places of those who miss then, these included.
    """

    def __init__(self, question: FleetQuestion, refused: Sequence[int], missed: Sequence[int]):
        import numpy as np

        requests = question.workload.requests
        self._rng = np.random.default_rng(0)
        self._order = sorted(range(len(requests)), key=lambda i: requests[i].arrival)
        self._place = {i: place for place, i in enumerate(self._order)}
        self._lengths = np.array([r.input_tokens for r in requests], np.float64)
        self._refused, self._missed = set(refused), list(missed)

    def __iter__(self) -> Iterator[list[int]]:
        """Others to refuse, without end."""
        while self._missed:
            yield self._changed()

    def learn(self, refused: Sequence[int], missed: Sequence[int]) -> None:
        """Go on from a change, if not many more miss then.

        Parameters
        ----------
        refused, missed : sequence of int
        """
        if len(missed) <= len(self._missed) - HEAT * math.log(1.0 - self._rng.random()):
            self._refused, self._missed = set(refused), list(missed)

    def _changed(self) -> list[int]:
        """Near somebody who misses another one is refused, a long one most likely, or one less, or both."""
        rng, missed = self._rng, set(self._missed)
        place = self._place[self._missed[int(rng.integers(len(self._missed)))]]
        near = self._order[max(0, place - NEAR) : place + NEAR]
        before, served = [i for i in near if i in self._refused], [i for i in near if i not in missed]
        found, which = set(self._refused), rng.random()
        if which >= SERVE and served:
            lengths = self._lengths[served]
            found.add(served[int(rng.choice(len(served), p=lengths / lengths.sum()))])
        if not SERVE <= which < SERVE + REFUSE and before:
            found.discard(before[int(rng.integers(len(before)))])
        return sorted(found)
