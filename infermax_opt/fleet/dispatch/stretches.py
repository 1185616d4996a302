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
from infermax_opt.fleet.routing.policies import FOREVER, Pilot

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["Option", "Stretches"]

#: A way, and the places of requests that are refused from the start.
Option = tuple[Way, Sequence[int]]

#: What a second of work to come is worth, as a share of the prompts of who misses; the same of later tokens.
WORK, LATER = 1.0, 0.12


class _State(NamedTuple):
    """Machines after a stretch.

    `counts`, `clock`: their counters, and clocks of those that work; `there`: places of their requests;
    `columns`: what changes of these; `missed`: who does by then; `price`: the same and work to come, to
    compare; `before`, `chosen`: how this came about.
    """

    counts: Integers
    clock: npt.NDArray[np.float64]
    there: Integers
    columns: tuple[npt.NDArray[np.float64], ...]
    missed: int
    price: float
    before: _State | None = None
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
    """

    def __init__(self, dispatcher: Dispatcher, machines: int, options: Sequence[Option], pilot: Pilot):
        import numpy as np

        self._dispatcher, self._machines, self._options = dispatcher, machines, options
        self._columns = dispatcher.columns(machines)
        jobs = self._columns.jobs
        self._fresh = jobs.last_due.copy()
        self._refused = [np.zeros(len(jobs.inputs), bool) for _ in options]
        for some, (_, refused) in zip(self._refused, options, strict=True):
            some[list(refused)] = True
        missed = np.array(pilot.missed, np.int64)
        self._token, self._batch = dispatcher.unit
        lengths = self._token * jobs.inputs[missed].sum()
        self._worth = len(missed) / float(lengths) if lengths > 0 else 0.0
        self._bounds = list(pairwise(self._cuts()))
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
        states, every = [self._state(0, 0.0)], range(len(self._options))
        for stretch in range(len(self._bounds)):
            if not self._near(stretch):
                states = [self._served(states[0], stretch, 0)]
                continue
            found = [self._served(one, stretch, k) for one in states for k in every]
            found.sort(key=lambda one: one.price)
            alike: dict[tuple[float, int], _State] = {}
            for one in found:
                alike.setdefault((one.price, one.missed), one)
            states = list(alike.values())[:width]
        chosen = [*_chosen(min(states, key=lambda one: one.missed))][::-1]
        course, refused = list[tuple[int, Way]](), list[int]()
        for (begin, end), option in zip(self._bounds, chosen, strict=True):
            course.append((begin, self._options[option][0]))
            some = self._dispatcher.order[begin:end]
            refused += some[self._refused[option][some]].tolist()
        return course, sorted(refused)

    def _cuts(self) -> list[int]:
        """Places by arrival where stretches begin, each as long as requests stay in the mean, and the end."""
        import numpy as np

        jobs, order = self._columns.jobs, self._dispatcher.order
        arrivals = jobs.arrival[order]
        last = np.minimum(jobs.last_due, jobs.first_due + jobs.tpot * (jobs.outputs - 1))
        stays = (last - jobs.arrival)[last < FOREVER]
        stay = float(stays.mean()) if len(stays) else FOREVER
        parts = np.floor((arrivals - arrivals[0]) / stay).astype(np.int64)
        return [0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), len(order)]

    def _near(self, stretch: int) -> bool:
        """Whether somebody misses in a stretch, the one before or the one after."""
        import numpy as np

        begin = self._bounds[max(0, stretch - 1)][0]
        end = self._bounds[min(len(self._bounds) - 1, stretch + 1)][1]
        first, last = np.searchsorted(self._late, (begin, end))
        return bool(last > first)

    def _served(self, state: _State, stretch: int, option: int) -> _State:
        """What comes of a stretch after a state."""
        import numpy as np

        (begin, end), columns = self._bounds[stretch], self._columns
        some = self._dispatcher.order[begin:end]
        columns.given[some] = np.where(self._refused[option][some], 0, self._machines)
        self._restore(state)
        for column, value in zip(self._moving(), (0, 0, self._fresh[some], 0, inf, -1), strict=False):
            column[some] = value
        self._dispatcher.serve(columns, begin, end, self._options[option][0])
        who, jobs = np.concatenate((state.there, some)), columns.jobs
        missed = state.missed + int((jobs.route[who] < 0).sum())
        after = self._state(missed, float(jobs.arrival[some[-1]]))
        return after._replace(before=state, chosen=option)

    def _moving(self) -> tuple[npt.NDArray[np.float64], ...]:
        """Columns of requests that change on the way."""
        jobs = self._columns.jobs
        return jobs.done, jobs.made, jobs.last_due, jobs.first, jobs.last, jobs.route, jobs.among

    def _state(self, missed: int, now: float) -> _State:
        """The state of the machines at a moment."""
        import numpy as np

        from infermax_opt.fleet.dispatch._state import DECODES, PASSED, PROMPTS, TO_COME

        jobs, fleet = self._columns.jobs, self._columns.fleet
        count, there, batches = fleet.count[:-1].copy(), list["Integers"](), 0
        count[:, PASSED] = 0
        for row, counter in ((fleet.decoding, DECODES), (fleet.prompts, PROMPTS)):
            there += [row[k, : count[k, counter]] for k in range(self._machines)]
        for k in range(self._machines):
            both = np.concatenate((there[k], there[self._machines + k]))
            batches += int((jobs.outputs[both] - jobs.made[both]).max(initial=0))
        busy = count[:, DECODES] + count[:, PROMPTS] > 0
        clock, who = np.where(busy, fleet.clock, 0.0), np.concatenate(there)
        work = float(np.maximum(0.0, clock - now).sum()) + self._token * int(count[:, TO_COME].sum())
        price = missed + self._worth * (WORK * work + LATER * self._batch * batches)
        return _State(count, clock, who, tuple(column[who] for column in self._moving()), missed, price)

    def _restore(self, state: _State) -> None:
        """Put the machines into a state."""
        from infermax_opt.fleet.dispatch._state import DECODES, PROMPTS

        fleet, begin = self._columns.fleet, 0
        fleet.count[:-1], fleet.clock[:] = state.counts, state.clock
        for row, counter in ((fleet.decoding, DECODES), (fleet.prompts, PROMPTS)):
            for k, number in enumerate(state.counts[:, counter]):
                row[k, :number] = state.there[begin : begin + number]
                begin += number
        for column, values in zip(self._moving(), state.columns, strict=True):
            column[state.there] = values


def _chosen(state: _State | None) -> Iterator[int]:
    """Options up to a state, the last one first."""
    while state is not None and state.before is not None:
        yield state.chosen
        state = state.before
