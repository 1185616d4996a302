"""Few requests: fewest machines, or the cheapest mix of types, by a search of all routings and schedules.

A machine keeps the limits of a set of requests if some schedule of it does, which may leave out all others
(`infermax_opt.infermax.exact.promises`).  It keeps those of each part of the set, too: without the others
batches are no longer, and they may begin when they did.  So sets are searched from the small ones on, and
those with a part that no schedule keeps are not searched.

The cheapest machines for a set are one for a part with its first request, and the cheapest ones for the
others; all parts and types are tried.  What is enough is the cheapest for any set that is large enough.  QED.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

from infermax_opt.engines.outcome import EngineLimits, LimitReached
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.fleet.upper import Found
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.promises import MAX_PROMISED, Ways, promises_of

__all__ = ["Cheapest", "Fleet", "cheapest", "few", "found_of", "replayed"]

#: Names of its routing and its schedules among policies and schedulers.
EVERY, SEARCH = "every routing", "exact search"
#: Seconds that the search may take.
SECONDS = 5.0

Tell = Callable[[str], None] | None
#: Requests of a machine, by their places among all, and its type.
Fleet = tuple[tuple[int, tuple[int, ...]], ...]


class Cheapest(NamedTuple):
    """The cheapest fleet; both None where none is enough."""

    price: Fraction | None
    fleet: Fleet | None

    @property
    def machines(self) -> int | None:
        """How many there are."""
        return None if self.fleet is None else len(self.fleet)


def few(questions: Sequence[FleetQuestion]) -> bool:
    """Whether there are few enough requests."""
    return questions[0].size <= MAX_PROMISED


def cheapest(
    questions: Sequence[FleetQuestion], prices: Sequence[Fraction], tell: Tell = None
) -> Cheapest | None:
    """The cheapest fleet that reaches the share; None if the search does not end within its limits.

    Parameters
    ----------
    questions : sequence of FleetQuestion
        The same few requests on each type, whichever of them fit there.
    prices : sequence of Fraction
        Of a machine of each type.
    tell : callable, optional
        Takes lines of progress; may raise, to stop.
    """
    kinds = [_Kept(question, tell) for question in questions]
    count, must = questions[0].size, questions[0].must
    best: dict[tuple[int, ...], Cheapest] = {(): Cheapest(Fraction(0), ())}
    try:
        for members in _subsets(count, must):
            best[members] = _cheapest_for(members, kinds, prices, best)
    except LimitReached:
        return None
    found = Cheapest(None, None)
    for enough in (best[some] for some in combinations(range(count), must)):
        if enough.price is not None and (found.price is None or enough.price < found.price):
            found = enough
    return found


def _subsets(count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Sets of one place to so many, the small ones first."""
    for size in range(1, most + 1):
        yield from combinations(range(count), size)


def _cheapest_for(
    members: tuple[int, ...],
    kinds: Sequence[_Kept],
    prices: Sequence[Fraction],
    best: dict[tuple[int, ...], Cheapest],
) -> Cheapest:
    """The cheapest machines for a set, when those for smaller ones are known."""
    first, rest, found = members[0], members[1:], Cheapest(None, None)
    for others in (some for size in range(len(rest) + 1) for some in combinations(rest, size)):
        left = best[tuple(i for i in rest if i not in others)]
        if left.price is None or left.fleet is None:
            continue
        for kind, price in enumerate(prices):
            total = left.price + price
            cheaper = found.price is None or total < found.price
            if cheaper and kinds[kind].keeps((first, *others)):
                found = Cheapest(total, (*left.fleet, (kind, (first, *others))))
    return found


class _Kept:
    """Which sets of requests a machine of a type keeps in time, by their places among all."""

    def __init__(self, question: FleetQuestion, tell: Tell):
        self.tell, workload = tell, question.workload
        places = {request.id: place for place, request in enumerate(question.everyone)}
        unit, promises = promises_of(workload)
        #: Of those that the type can hold: place on the machine, and promise.
        self.promises = {places[r.id]: (k, promises[k]) for k, r in enumerate(workload.requests)}
        self.ways = Ways(workload, unit, EngineLimits(SECONDS))
        self.known: dict[tuple[int, ...], bool] = {}

    def keeps(self, members: tuple[int, ...]) -> bool:
        """Whether some schedule keeps the limits of all these.

        Raises
        ------
        LimitReached
            If the search takes too long.
        """
        if members not in self.known:
            parts = combinations(members, len(members) - 1) if len(members) > 1 else ()
            self.known[members] = all(map(self.keeps, parts)) and self._searched(members)
        return self.known[members]

    def _searched(self, members: tuple[int, ...]) -> bool:
        if self.tell is not None:
            self.tell(f"searching all schedules of {len(members)} requests on a machine")
        if any(place not in self.promises for place in members):
            return False
        return self.ways.reach(dict(self.promises[place] for place in members)) is not None


def found_of(question: FleetQuestion, decided: Cheapest, before: Found | None) -> Found:
    """A fleet of one type, replayed exactly.

    Parameters
    ----------
    question : FleetQuestion
    decided : Cheapest
        Some machines are enough.
    before : Found or None
        Fewest machines found before, of which there may be more.
    """
    routes, replay = replayed(question, [members for _, members in decided.fleet or ()])
    known = {} if before is None else before.attained
    machines, refused = len(decided.fleet or ()), routes.count(-1)
    found = Found(machines, EVERY, SEARCH, refused, routes, replay, {machines: len(replay.good)})
    return found.with_attained(known)


def replayed(question: FleetQuestion, machines: Sequence[tuple[int, ...]]) -> tuple[list[int], FleetReplay]:
    """Machines of a type that each keep the limits of a set: routes of those it can hold, and the replay.

    Parameters
    ----------
    question : FleetQuestion
    machines : sequence of tuple of int
        Requests of each, by their places among all.
    """
    ids = [request.id for request in question.everyone]
    held = {request.id: k for k, request in enumerate(question.workload.requests)}
    routes, schedules = [-1] * len(held), dict[int, Schedule]()
    for machine, members in enumerate(machines):
        mine = [held[ids[place]] for place in members]
        for i in mine:
            routes[i] = machine
        schedules[machine] = _schedule(question, mine)
    return routes, replay_fleet(question, routes, schedules)


def _schedule(question: FleetQuestion, members: Sequence[int]) -> Schedule:
    """A schedule that keeps the limits of all these."""
    instance = question.machine(sorted(members))
    unit, promises = promises_of(instance)
    ways, kept = Ways(instance, unit, EngineLimits(None)), dict(enumerate(promises))
    goal = ways.reach(kept)
    assert goal is not None, "there is one, as was searched before"
    return ways.schedule(goal, kept)
