"""States that machines by promises can be in, to go on from any of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.fleet.dispatch.dispatcher import Dispatcher, Way

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Moving = tuple[npt.NDArray[np.float64], ...]

__all__ = ["Machines", "State", "joined"]

#: What a second of work to come is worth, as a share of the prompts of who misses; the same of later tokens.
WORK, LATER = 1.0, 0.12


class State(NamedTuple):
    """Machines at a moment.

    `counts`, `clock`: their counters, and clocks of those that work; `there`: places of their requests, those
    who decode first; `columns`: what changes of these; `ahead`: seconds of all that is to come, by worth.
    """

    counts: Integers
    clock: npt.NDArray[np.float64]
    there: Integers
    columns: Moving
    ahead: float

    def same(self, other: State) -> bool:
        """Whether the same follows of both."""
        import numpy as np

        both = zip((*self[:3], *self.columns), (*other[:3], *other.columns), strict=True)
        return all(np.array_equal(one, some) for one, some in both)


class Machines:
    """Machines that serve some who arrive from any state.

    Parameters
    ----------
    dispatcher : Dispatcher
    machines : int

    Attributes
    ----------
    empty : State
        Before anybody has arrived.
    """

    def __init__(self, dispatcher: Dispatcher, machines: int):
        self._dispatcher, self._machines = dispatcher, machines
        self._columns = dispatcher.columns(machines)
        self._fresh = self._columns.jobs.last_due.copy()
        self._token, self._batch = dispatcher.unit
        self.empty = self._state(0.0)

    def serve(
        self, state: State, some: Integers, end: int, way: Way, given: Integers | int
    ) -> tuple[State, Integers]:
        """The state after some have arrived, and who of these and of those before misses now.

        Parameters
        ----------
        state : State
        some : array of int
            Places of requests, by arrival.
        end : int
            Place by arrival up to whose own machines run.
        way : Way
        given : array of int or int
            Of how many machines, the first ones, one takes each of these.
        """
        import numpy as np

        self._columns.given[some] = given
        self._restore(state)
        for column, value in zip(self._moving(), (0, 0, self._fresh[some], 0, inf, -1), strict=False):
            column[some] = value
        self._dispatcher.serve(self._columns, some, end, way)
        jobs = self._columns.jobs
        who = np.concatenate((state.there, some))
        return self._state(self._dispatcher.before(end)), who[jobs.route[who] < 0]

    def routes(self, some: Integers) -> Integers:
        """The machines of some who were served last, -1 for those who miss."""
        routes: Integers = self._columns.jobs.route[some]
        return routes

    def _moving(self) -> Moving:
        """Columns of requests that change on the way."""
        jobs = self._columns.jobs
        return jobs.done, jobs.made, jobs.last_due, jobs.first, jobs.last, jobs.route, jobs.among

    def _state(self, now: float) -> State:
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
        ahead = WORK * work + LATER * self._batch * batches
        return State(count, clock, who, tuple(column[who] for column in self._moving()), ahead)

    def _restore(self, state: State) -> None:
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


def joined(states: Sequence[State]) -> State:
    """The state of a fleet of machines that were apart, each of which is one."""
    import numpy as np

    from infermax_opt.fleet.dispatch._state import DECODES

    decode = [int(one.counts[0, DECODES]) for one in states]
    parts = [slice(0, some) for some in decode], [slice(some, None) for some in decode]
    both = [(k, one, part) for some in parts for k, (one, part) in enumerate(zip(states, some, strict=True))]
    columns = [np.concatenate([one.columns[c][part] for _, one, part in both]) for c in range(5)]
    route = np.concatenate([np.full(len(one.there[part]), k) for k, one, part in both])
    return State(
        np.concatenate([one.counts for one in states]),
        np.concatenate([one.clock for one in states]),
        np.concatenate([one.there[part] for _, one, part in both]),
        (*columns, route, np.full(len(route), len(states))),
        sum(one.ahead for one in states),
    )
