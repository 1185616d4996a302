"""Requests are dealt to machines one by one, and dealt again where fewer miss then.

The trace is looked at through a window of some stretches, which goes from its begin to its end.  Who enters
the window is dealt as the best option of all machines together does it (`stretches`), or as is given.  Then
changes of who is dealt to which machine are tried near those who miss: of each machine that a change concerns
the window is served again, alone, which takes a small part of the time of all machines.  A change is kept if
not many more miss in the window and machines have not much more to do after it; in the end the best deal of
the window is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from infermax_opt.fleet.dispatch.dispatcher import Dealt, Dispatcher, Way
from infermax_opt.fleet.dispatch.snapshots import Machines
from infermax_opt.fleet.dispatch.states import State, idle
from infermax_opt.fleet.dispatch.stretches import Stretches

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]

__all__ = ["Dealing"]

#: Stretches of a window, and those by which it goes on: what has been dealt is looked at three times.
WINDOW, STEP = 6, 2
#: Changes that are tried in a window for each request that misses there; the same from a deal that is given.
TRIES, ON = 15, 60
#: Changes in all, about, beyond which fewer are tried for each: what takes a minute or two.
MOST = 40_000
#: How often that is done in a window, each time from the deal that it had: one time ends better than another.
STARTS = 3
#: How many more may miss after a change that is kept, typically, at the first change of a window.  None may
#: at the last one.
HEAT = 0.1
#: How many more by a stretch end the trial of a change, whatever follows.
HOPELESS = 1.0
#: How many places before and after somebody who misses changes are tried.
NEAR = 200
#: By how much less somebody counts who misses with a prompt of their mean length than one without a prompt.
LONG = 0.2
#: Kinds of changes, by chance: who misses goes elsewhere, twice as often as others; somebody near does; that
#: one does, and who misses takes the place; one near is refused, and who misses takes the place or another.
KINDS = ("goes", "goes", "makes room", "changes", "replaces", "outlasts")

#: Who is dealt to which machine, -1 for none.
Change = list[tuple[int, int]]


class _Kept(NamedTuple):
    """Of stretches of a window: members of each machine, states after, who misses; and who is refused."""

    members: list[list[list[int]]]
    after: list[list[State]]
    missed: list[list[list[int]]]
    refused: list[set[int]]


class Dealing:
    """A deal of requests to a number of machines.

    Parameters
    ----------
    dispatcher : Dispatcher
    machines : int
    stretches : Stretches
        Of the same.
    way : Way
        By promises, of each machine.
    tell : callable
        Told when the last one of a window arrives.
    routes : sequence of int, optional
        To which machine each is dealt at first, -1 for none.
    seed : int
        Of the changes.

    Attributes
    ----------
    changes : int
        How many were tried.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        machines: int,
        stretches: Stretches,
        way: Way,
        tell: Callable[[float], None] = lambda _: None,
        routes: Sequence[int] | None = None,
        seed: int = 0,
    ):
        import numpy as np

        self._dispatcher, self._count, self._way, self._tell = dispatcher, machines, way, tell
        self._stretches, self._bounds, self._worth = stretches, stretches.bounds, stretches.worth
        self._machine, self._given = Machines(dispatcher, 1), routes
        n, parts, order = len(dispatcher.order), len(self._bounds), dispatcher.order
        self._place = np.empty(n, np.int64)
        self._place[order] = np.arange(n)
        # Who arrives before is in none.
        self._stretch = np.full(n, -1)
        for stretch, (begin, end) in enumerate(self._bounds):
            self._stretch[order[begin:end]] = stretch
        self._inputs = dispatcher.inputs
        self._sizes = LONG * self._worth * dispatcher.unit[0] * self._inputs
        self._route = [-1] * n
        self._members: list[list[list[int]]] = [[[] for _ in range(parts)] for _ in range(machines)]
        self._started = [*dispatcher.started, *(idle() for _ in range(machines))][:machines]
        self._after = [[state] * parts for state in self._started]
        self._missed: list[list[list[int]]] = [[[] for _ in range(parts)] for _ in range(machines)]
        self._refused: list[set[int]] = [set() for _ in range(parts)]
        self._rng = np.random.default_rng(seed)
        self._begin = self._end = self.changes = 0
        # Each who misses is in so many windows as the trace goes by.
        few, most = (TRIES, MOST) if routes is None else (ON, MOST // 3)
        self._tries = min(few, most // (STARTS * WINDOW // STEP * max(1, stretches.missing)))

    def dealt(self) -> Dealt:
        """Who is dealt to which machine in the end, the same each time for a new object."""
        for begin in range(0, len(self._bounds), STEP):
            end = min(len(self._bounds), begin + WINDOW)
            for entered in range(self._end, end, STEP):
                self._enter(entered, min(end, entered + STEP))
            self._begin, self._end = begin, end
            if self._missing():
                self._tell(self._dispatcher.before(self._bounds[begin][1]))
                self._improve()
        return Dealt(self._way, self._route)

    def _enter(self, first: int, last: int) -> None:
        """Deal those who arrive in some stretches after all that is dealt."""
        if self._given is None:
            states = [self._before(k, first) for k in range(self._count)]
            some, to = self._stretches.routed(states, first, last)
            given = dict(zip(some.tolist(), to.tolist(), strict=True))
        else:
            some = self._dispatcher.order[self._bounds[first][0] : self._bounds[last - 1][1]]
            given = {i: self._given[i] for i in some.tolist()}
        for i, k in given.items():
            self._route[i] = k
            stretch = int(self._stretch[i])
            if k < 0:
                self._refused[stretch].add(i)
            else:
                self._members[k][stretch].append(i)
        for k in range(self._count):
            for stretch in range(first, last):
                served = self._served(stretch, self._before(k, stretch), self._members[k][stretch])
                self._after[k][stretch], self._missed[k][stretch] = served

    def _before(self, k: int, stretch: int) -> State:
        """The state of a machine before a stretch."""
        return self._after[k][stretch - 1] if stretch else self._started[k]

    def _served(self, stretch: int, state: State, members: Sequence[int]) -> tuple[State, list[int]]:
        """The state of a machine after a stretch that it begins in another one, and who misses."""
        import numpy as np

        some = np.array(members, np.int64)
        after, missed = self._machine.serve(state, some, self._bounds[stretch][1], self._way, 1)
        return after, missed.tolist()

    def _missing(self) -> list[int]:
        """Who arrives in the window and misses."""
        found, window = list[int](), range(self._begin, self._end)
        for stretch in window:
            found += sorted(self._refused[stretch])
        for missed in self._missed:
            for stretch in window:
                found += [i for i in missed[stretch] if self._stretch[i] >= self._begin]
        return found

    def _improve(self) -> None:
        """Try changes of the window, over again from the deal that it has, and keep the best deal."""
        least, start = 0.0, self._kept()
        best, tries = start, self._tries * len(self._missing())
        for _ in range(STARTS):
            price = 0.0
            self._restore(start)
            for k in range(tries):
                missed = self._missing()
                if not missed:
                    break
                self.changes += 1
                room = -HEAT * (1 - k / tries) * math.log(1.0 - self._rng.random())
                more = self._changed(self._change(missed), room)
                if more is not None:
                    price += more
                    if price < least:
                        least, best = price, self._kept()
        self._restore(best)

    def _kept(self) -> _Kept:
        """The deal of the window."""
        window = slice(self._begin, self._end)
        return _Kept(
            [one[window] for one in self._members], [one[window] for one in self._after],
            [one[window] for one in self._missed], [set(some) for some in self._refused[window]],
        )  # fmt: skip

    def _restore(self, kept: _Kept) -> None:
        """Deal the window as it was dealt before."""
        window = slice(self._begin, self._end)
        self._refused[window] = [set(some) for some in kept.refused]
        for some in kept.refused:
            for i in some:
                self._route[i] = -1
        for k in range(self._count):
            self._members[k][window], self._after[k][window] = kept.members[k], kept.after[k]
            self._missed[k][window] = kept.missed[k]
            for members in kept.members[k]:
                for i in members:
                    self._route[i] = k

    def _change(self, missed: Sequence[int]) -> Change:
        """A change near somebody who misses; none where nobody else is near."""
        rng, route = self._rng, self._route
        i, kind = missed[int(rng.integers(len(missed)))], KINDS[int(rng.integers(len(KINDS)))]
        elsewhere = int(rng.integers(self._count))
        if kind == "goes":
            return [(i, elsewhere)]
        begin, end = self._bounds[self._begin][0], self._bounds[self._end - 1][1]
        place, late = int(self._place[i]), set(missed)
        near = self._dispatcher.order[max(begin, place - NEAR) : min(end, place + NEAR)].tolist()
        near = [one for one in near if one not in late]
        if not near:
            return []
        lengths = self._inputs[near]
        # Those who give way are long ones most likely: they make most room.
        weights = None if kind == "makes room" else lengths / lengths.sum()
        other = near[int(rng.choice(len(near), p=weights))]
        if kind == "makes room":
            return [(other, elsewhere)]
        if kind == "outlasts":
            return [(other, -1), (i, elsewhere)]
        return [(other, elsewhere if kind == "changes" else -1), (i, route[other])]

    def _changed(self, change: Change, room: float) -> float | None:
        """Make a change, if it costs no more than there is room; what it costs, in requests that miss."""
        members, more = dict[int, dict[int, list[int]]](), 0.0
        for i, k in change:
            before, stretch = self._route[i], int(self._stretch[i])
            if before == k:
                return None
            more += (k < 0) * self._cost([i]) - (before < 0) * self._cost([i])
            for machine in (before, k):
                if machine >= 0:
                    some = members.setdefault(machine, {})
                    some.setdefault(stretch, list(self._members[machine][stretch]))
            if before >= 0:
                members[before][stretch].remove(i)
            if k >= 0:
                members[k][stretch].append(i)
                members[k][stretch].sort(key=lambda one: self._place[one])
        found = dict[int, list[tuple[State, list[int]]]]()
        for k, some in members.items():
            served, costs = self._again(k, some, room - more)
            if costs is None:
                return None
            found[k], more = served, more + costs
        if not change or more > room:
            return None
        self._take(change, members, found)
        return more

    def _again(
        self, k: int, members: dict[int, list[int]], room: float
    ) -> tuple[list[tuple[State, list[int]]], float | None]:
        """What a machine does with others in some stretches, and what that costs; None: too much by far."""
        first, last, missing, served = min(members), max(members), 0.0, list[tuple[State, list[int]]]()
        state, costs = self._before(k, first), 0.0
        for stretch in range(first, self._end):
            some = members.get(stretch, self._members[k][stretch])
            state, missed = self._served(stretch, state, some)
            served.append((state, missed))
            missing += self._cost(missed) - self._cost(self._missed[k][stretch])
            before = self._after[k][stretch]
            costs = missing + self._worth * (state.ahead - before.ahead)
            if stretch >= last:
                if state.same(before):
                    break
                if costs > room + HOPELESS:
                    return served, None
        return served, costs

    def _take(
        self,
        change: Change,
        members: dict[int, dict[int, list[int]]],
        found: dict[int, list[tuple[State, list[int]]]],
    ) -> None:
        """Deal as in a change that was tried."""
        for k, some in members.items():
            for stretch, mine in some.items():
                self._members[k][stretch] = mine
            for stretch, (state, missed) in enumerate(found[k], min(some)):
                self._after[k][stretch], self._missed[k][stretch] = state, missed
        for i, k in change:
            refused = self._refused[int(self._stretch[i])]
            refused.discard(i)
            if k < 0:
                refused.add(i)
            self._route[i] = k

    def _cost(self, missed: Sequence[int]) -> float:
        """Of those who miss, less where prompts are long."""
        return len(missed) - sum(float(self._sizes[i]) for i in missed)
