"""Ways by promises that change on the way: the trace is cut into stretches, each with the way that suits it.

A stretch is served in several ways, from each of the few best states that machines can be in when it begins.
Of all that comes of it the few best are kept: those with the fewest misses so far, where what machines have
to do counts, too.  A stretch near which nobody misses is served in one way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.fleet.dispatch.dispatcher import Course, Dispatcher, Way
from infermax_opt.fleet.dispatch.snapshots import Machines
from infermax_opt.fleet.dispatch.states import State, joined
from infermax_opt.fleet.routing.policies import FOREVER, Pilot

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["Option", "Stretches"]

#: A way, and the places of requests that are refused from the start.
Option = tuple[Way, Sequence[int]]


class _Node(NamedTuple):
    """Machines after a stretch.

    `missed`: who does by then; `price`: the same and work to come, to compare; `before`, `chosen`: how this
    came about.
    """

    state: State
    missed: int
    price: float
    before: _Node | None = None
    chosen: int = 0


class Stretches:
    """Courses for a number of machines.

    Parameters
    ----------
    dispatcher : Dispatcher
    machines : int
    options : sequence of Option
        Tried in each stretch near which somebody misses; the first one serves the others.
    pilot : Pilot
        What comes of the first one, if it serves all.

    Attributes
    ----------
    bounds : list of (int, int)
        Places by arrival where each stretch begins and ends.
    worth : float
        Of a second of work to come, in requests that miss.
    missing : int
        How many miss by the pilot.
    """

    def __init__(self, dispatcher: Dispatcher, machines: int, options: Sequence[Option], pilot: Pilot):
        import numpy as np

        self._dispatcher, self._count, self._options = dispatcher, machines, options
        self._machines = Machines(dispatcher, machines)
        self._jobs = jobs = dispatcher.columns(machines).jobs
        self._refused = [np.zeros(len(jobs.inputs), bool) for _ in options]
        for some, (_, refused) in zip(self._refused, options, strict=True):
            some[list(refused)] = True
        missed = np.array(pilot.missed, np.int64)
        self.missing = len(missed)
        lengths = dispatcher.unit[0] * jobs.inputs[missed].sum()
        self.worth = self.missing / float(lengths) if lengths > 0 else 0.0
        self.bounds = list(pairwise(self._cuts()))
        self._place = np.empty(len(jobs.inputs), np.int64)
        self._place[dispatcher.order] = np.arange(len(jobs.inputs))
        self._late = np.sort(self._place[missed])

    def best(self, width: int) -> tuple[Course, list[int]]:
        """A course by which few requests miss, and who is refused from the start.

        Parameters
        ----------
        width : int
            States that are kept of each stretch.
        """
        states, every = [_Node(self._machines.empty, 0, 0.0)], range(len(self._options))
        for stretch in range(len(self.bounds)):
            if not self._near(stretch):
                states = [self._served(states[0], stretch, 0)]
                continue
            found = [self._served(one, stretch, k) for one in states for k in every]
            found.sort(key=lambda one: one.price)
            alike: dict[tuple[float, int], _Node] = {}
            for one in found:
                alike.setdefault((one.price, one.missed), one)
            states = list(alike.values())[:width]
        chosen = [*_chosen(min(states, key=lambda one: one.missed))][::-1]
        course, refused = list[tuple[int, Way]](), list[int]()
        for (begin, end), option in zip(self.bounds, chosen, strict=True):
            course.append((begin, self._options[option][0]))
            some = self._dispatcher.order[begin:end]
            refused += some[self._refused[option][some]].tolist()
        return course, sorted(refused)

    def _cuts(self) -> list[int]:
        """Places by arrival where stretches begin, each as long as requests stay in the mean, and the end."""
        import numpy as np

        jobs, first, last = self._jobs, self._dispatcher.first, self._dispatcher.last
        arrivals = jobs.arrival[self._dispatcher.order[first:last]]
        ends = np.minimum(jobs.last_due, jobs.first_due + jobs.tpot * (jobs.outputs - 1))
        stays = (ends - jobs.arrival)[ends < FOREVER]
        stay = float(stays.mean()) if len(stays) else FOREVER
        parts = np.floor((arrivals - arrivals[0]) / stay).astype(np.int64)
        return [first, *(np.flatnonzero(np.diff(parts)) + 1 + first).tolist(), last]

    def _near(self, stretch: int) -> bool:
        """Whether somebody misses in a stretch, the one before or the one after."""
        import numpy as np

        begin = self.bounds[max(0, stretch - 1)][0]
        end = self.bounds[min(len(self.bounds) - 1, stretch + 1)][1]
        first, last = np.searchsorted(self._late, (begin, end))
        return bool(last > first)

    def routed(self, states: Sequence[State], first: int, last: int) -> tuple[Integers, Integers]:
        """Who arrives in some stretches, and on which machine it should be, or -1, by the best option.

        Parameters
        ----------
        states : sequence of State
            Of each machine by itself before these stretches.
        first, last : int
            The stretches are those from the first one up to the last one, which is not among them.
        """
        import numpy as np

        near = any(self._near(stretch) for stretch in range(first, last))
        least, best = inf, np.zeros(0, np.int64)
        for option in range(len(self._options) if near else 1):
            node = _Node(joined(states), 0, 0.0)
            for stretch in range(first, last):
                node = self._served(node, stretch, option)
            if node.price < least:
                least, best = node.price, self._machines.routes(self._some(first, last))
        return self._some(first, last), best

    def _some(self, first: int, last: int | None = None) -> Integers:
        """Who arrives in a stretch, or from one up to another one."""
        end = first + 1 if last is None else last
        return self._dispatcher.order[self.bounds[first][0] : self.bounds[end - 1][1]]

    def _served(self, node: _Node, stretch: int, option: int) -> _Node:
        """What comes of a stretch after a state."""
        import numpy as np

        some, (way, _) = self._some(stretch), self._options[option]
        given = np.where(self._refused[option][some], 0, self._count)
        after, who = self._machines.serve(node.state, some, self.bounds[stretch][1], way, given)
        missed = node.missed + len(who)
        return _Node(after, missed, missed + self.worth * after.ahead, node, option)


def _chosen(node: _Node | None) -> Iterator[int]:
    """Options up to a state, the last one first."""
    while node is not None and node.before is not None:
        yield node.chosen
        node = node.before
