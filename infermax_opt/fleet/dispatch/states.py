"""States of machines by promises: what each has to do at a moment, alone or together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Moving = tuple[npt.NDArray[Any], ...]

__all__ = ["State", "idle", "joined", "moving", "restored"]


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


def moving(jobs: Any) -> Moving:
    """Columns of requests that change on the way."""
    return jobs.done, jobs.made, jobs.last_due, jobs.first, jobs.last, jobs.route, jobs.among


def idle() -> State:
    """The state of a machine that has nothing to do."""
    import numpy as np

    from infermax_opt.fleet.dispatch._state import COUNTERS

    columns = tuple(np.zeros(0, np.int64) for _ in range(7))
    return State(np.zeros((1, COUNTERS), np.int64), np.zeros(1), np.zeros(0, np.int64), columns, 0.0)


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


def restored(jobs: Any, fleet: Any, state: State) -> None:
    """Put machines into a state, and their requests.

    Parameters
    ----------
    jobs : Jobs
    fleet : Fleet
        Of as many machines.
    state : State
    """
    from infermax_opt.fleet.dispatch._state import DECODES, PROMPTS

    begin = 0
    fleet.count[:-1], fleet.clock[:] = state.counts, state.clock
    for row, counter in ((fleet.decoding, DECODES), (fleet.prompts, PROMPTS)):
        for k, number in enumerate(state.counts[:, counter]):
            row[k, :number] = state.there[begin : begin + number]
            begin += number
    for column, values in zip(moving(jobs), state.columns, strict=True):
        column[state.there] = values
