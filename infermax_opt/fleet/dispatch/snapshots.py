"""States that machines by promises can be in, to go on from any of them."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from infermax_opt.fleet.dispatch.dispatcher import Dispatcher, Way
from infermax_opt.fleet.dispatch.states import State, moving, restored

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["Machines"]

#: What a second of work to come is worth, as a share of the prompts of who misses; the same of later tokens.
WORK, LATER = 1.0, 0.12


class Machines:
    """Machines that serve some who arrive from any state.

    Parameters
    ----------
    dispatcher : Dispatcher
    machines : int

    Attributes
    ----------
    empty : State
        Before anybody has arrived whom the dispatcher serves.
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

        jobs, self._columns.given[some] = self._columns.jobs, given
        restored(jobs, self._columns.fleet, state)
        for column, value in zip(moving(jobs), (0, 0, self._fresh[some], 0, inf, -1), strict=False):
            column[some] = value
        self._dispatcher.serve(self._columns, some, end, way)
        who = np.concatenate((state.there, some))
        return self._state(self._dispatcher.before(end)), who[jobs.route[who] < 0]

    def routes(self, some: Integers) -> Integers:
        """The machines of some who were served last, -1 for those who miss."""
        routes: Integers = self._columns.jobs.route[some]
        return routes

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
        return State(count, clock, who, tuple(column[who] for column in moving(jobs)), ahead)
