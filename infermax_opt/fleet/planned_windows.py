"""Fewest machines of each window of a trace, by a plan that knows the future; each keeps the share by itself.

Windows are served one after the other.  Each is asked for as a trace is (`infermax_opt.fleet.planned`), but
machines begin with what they have to do already, and as many misses are allowed as the window may have.
What is found is dealt to the machines: each takes its requests by promises, apart from all others, as it will
in the whole trace.  It counts if the window keeps its share so, and those before keep theirs, as nobody who
was taken before may give way beyond what their windows may miss.

The numbers are found window by window: fewer machines in one may leave more to do for the next one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from infermax_opt.fleet.dispatch.dispatcher import Dealt, Dispatcher
from infermax_opt.fleet.dispatch.snapshots import Machines
from infermax_opt.fleet.dispatch.states import State, idle
from infermax_opt.fleet.fewest import fewest
from infermax_opt.fleet.planned import ALONE, Asked, Dear, Search
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.infermax.data.schedule import TooManyBatches

__all__ = ["Part", "planned_windows"]

#: How often windows are served again, where the replay misses the share: those get a machine more.
TRIES = 3

Tell = Callable[[str], None] | None


class Part(NamedTuple):
    """A window that somebody arrives in.

    Attributes
    ----------
    members : sequence of int
        Places of its requests.
    spare : int
        Of these, how many may miss.
    least, most : int
        Machines that are tried.
    dear : sequence of sequence of int
        Guesses of whom to refuse, places among all requests.
    """

    members: Sequence[int]
    spare: int
    least: int
    most: int
    dear: Dear


class _Settled(NamedTuple):
    """What comes of a window: routes of its requests, states of machines after it, and misses by window."""

    routes: dict[int, int]
    states: list[State]
    missed: Counter[int]


class _Fleet:
    """Machines that have served windows so far."""

    def __init__(self, question: FleetQuestion, parts: Sequence[Part], tell: Tell):
        self.question, self.parts, self.tell = question, parts, tell
        self.dispatcher = Dispatcher(question)
        self.machine = Machines(self.dispatcher, 1)
        self.window = {i: k for k, part in enumerate(parts) for i in part.members}
        self.states, self.left = list[State](), [part.spare for part in parts]
        self.routes = [-1] * len(self.window)
        self.served = 0

    def serve(self, number: int) -> int | None:
        """Serve a window with the fewest machines found for it; None: none of those that are tried do."""
        part, known = self.parts[number], dict[int, _Settled]()
        begin, end = self.served, self.served + len(part.members)
        given = self.dispatcher.part(begin, end, self.states)
        search = Search(self.question, Asked(given, part.spare, part.dear), self.tell)

        def reached(machines: int) -> bool:
            if self.tell is not None:
                self.tell(f"window {number + 1} of {len(self.parts)}: planning {machines}")
            for *_, pilot in search.candidates(machines):
                routes = {i: pilot.routes[i] for i in part.members}
                some = self._settled(routes, end)
                if all(missed <= self.left[k] for k, missed in some.missed.items()):
                    known[machines] = some
                    return True
            return False

        found = fewest(reached, part.least, part.most)
        if found is not None:
            some = known[found]
            self.states, self.served = some.states, end
            for i, k in some.routes.items():
                self.routes[i] = k
            for k, missed in some.missed.items():
                self.left[k] -= missed
        return found

    def _settled(self, routes: dict[int, int], end: int) -> _Settled:
        """Each machine serves those of a window that are dealt to it."""
        import numpy as np

        states, lost = list[State](), [i for i, k in routes.items() if k < 0]
        members = self.dispatcher.order[self.served : end]
        machines = max(len(self.states), 1 + max(routes.values(), default=-1))
        before = [*self.states, *(idle() for _ in range(machines - len(self.states)))]
        for k, state in enumerate(before):
            mine = np.array([i for i in members.tolist() if routes[i] == k], np.int64)
            after, missed = self.machine.serve(state, mine, end, ALONE, 1)
            states.append(after)
            lost += missed.tolist()
        return _Settled(routes, states, Counter(self.window[i] for i in lost))


def planned_windows(
    question: FleetQuestion, parts: Sequence[Part], tell: Tell = None
) -> tuple[list[int], FleetReplay] | None:
    """Machines that take new requests in each window, and the replay; None if the share is missed somewhere.

    Parameters
    ----------
    question : FleetQuestion
    parts : sequence of Part
        By arrival; each request is in one of them.
    tell : callable, optional
        Takes lines of progress.
    """
    for _ in range(TRIES):
        found = _replayed(question, parts, tell)
        if found is None:
            return None
        counts, replay, missed = found
        short = [missed[k] > part.spare for k, part in enumerate(parts)]
        if not any(short):
            return counts, replay
        # Simulated clocks were wrong by a hair.
        parts = [
            part._replace(least=min(count + 1, part.most)) if more else part
            for part, count, more in zip(parts, counts, short, strict=True)
        ]
    return None


def _replayed(
    question: FleetQuestion, parts: Sequence[Part], tell: Tell
) -> tuple[list[int], FleetReplay, Counter[int]] | None:
    """Machines of each window, the replay, and how many of each window miss there."""
    fleet, counts = _Fleet(question, parts, tell), list[int]()
    for number in range(len(parts)):
        found = fleet.serve(number)
        if found is None:
            return None
        counts.append(found)
    dealt, machines = Dealt(ALONE, fleet.routes), max(counts)
    pilot = fleet.dispatcher.pilot(machines, dealt)
    try:
        replay = replay_fleet(question, pilot.routes, fleet.dispatcher.schedules(machines, dealt))
    except TooManyBatches:
        return None
    return counts, replay, Counter(fleet.window[i] for i in fleet.window if i not in replay.good)
