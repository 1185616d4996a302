"""Fewest machines of a fleet that knows all outputs: an upper bound, below that of online schedulers.

Machines take requests as they arrive, as long as they can promise all of theirs to be in time, or from one
queue; their batches keep the pace of those who decode (`infermax_opt.fleet.dispatch`).  Who misses is chosen
in two ways: those whom the adversary of the lower bound would let miss are refused from the start, and the
longest of those who wait when there are too many.
What counts is the exact replay of each machine.

Windows of a trace that keep the share each are served one after the other (`planned_windows`): the same
search is asked for the part of the trace that is a window, after what machines have to do already, with as
many misses as the window may have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, product
from typing import NamedTuple

from infermax_opt.core.errors import InputError
from infermax_opt.files.text import counted
from infermax_opt.fleet.bounds.pooled import MachineBound
from infermax_opt.fleet.dispatch.dealing import Dealing
from infermax_opt.fleet.dispatch.dispatcher import Course, Dealt, Dispatcher, Way, dispatches
from infermax_opt.fleet.dispatch.refusals import Refusals
from infermax_opt.fleet.dispatch.stretches import Option, Stretches
from infermax_opt.fleet.fewest import fewest_verified
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.routing.policies import Pilot
from infermax_opt.fleet.upper import MOST, Found, fewest_machines, longest_missed
from infermax_opt.infermax.data.schedule import TooManyBatches
from infermax_opt.infermax.schedulers.presets import preset

__all__ = [
    "ALONE", "PLANNED", "PROMISES", "QUEUE", "Asked", "Dear", "Search", "check_schedulers",
    "fewest_planned", "knows_outputs", "may_plan", "online_of", "planned_with", "routing_of", "uppers",
]  # fmt: skip

#: Its name among schedulers, and those of its routings among policies.
PLANNED, PROMISES, QUEUE = "planned", "promises", "one queue"
#: Ways of promises, each with the part of those who may miss that is refused from the start.  The more weight
#: on batches that nobody shares, the more long outputs come together on few machines.
PROMISED = (
    *((Way(hold=True, promise=True, joined=joined), 0.9) for joined in (0.42, 2.0, 0.8, 0.25)),
    *((Way(hold=True, promise=True, joined=joined), 0.75) for joined in (2.0, 0.42, 0.8, 0.25)),
    *((Way(hold=True, promise=True, joined=joined), part) for joined in (0.6, 1.2) for part in (0.9, 0.75)),
    *((Way(hold=True, promise=True), part) for part in (0.6, 0.0)),
    (Way(promise=True), 0.0),
)
#: How machines take requests from a queue, in the order in which it is tried.
WAYS = tuple(Way(hold, shed) for shed, hold in product((0.7, 0.5, 0.6, 0.8, 0.4, 0.0), (False, True)))
#: The same parts where there is a queue.
REFUSED = (1.0, 0.5, 0.0)
#: All ways with these parts.
ALL = (*PROMISED, *((way, part) for part, way in product(REFUSED, WAYS)))
#: Ways after which no other way is tried for the whole trace where a number of machines is far from enough,
#: and what is far: misses as a multiple of those that may be, and beyond.
FEW, FAR, MORE = 4, 1.2, 20
#: Of the ways that come closest, how many are tried again without those who missed.
AGAIN = 3
#: Of those by promises, how many are tried again with others refused, if no more miss than this multiple of
#: those who may; and how often each.
OTHERS, CLOSE, TRIES = 2, 1.06, 40
#: What is tried in each stretch of a trace: weights of batches,
JOINED = (0.25, 0.8)
#: parts of those who may miss that are refused,
PARTS = (0.9, 0.5)
#: and shares of the requests whose outputs are short enough for the last machine; 0: it takes all.
SHORT = (0.0, 0.2, 0.35, 0.7)
#: How many states of each stretch are kept, in turn, and up to how many misses, as a multiple of those who
#: may, that is tried.
WIDTHS = ((1, 1.6), (4, 1.35))
#: Up to how many misses, as such a multiple, requests are dealt to machines one by one.
DEAL = 1.2
#: How often that is done, each time from the best deal so far, until so many changes were tried.
PASSES, CHANGES = 6, 15_000
#: How many more misses than such a multiple count as near even so: where few may miss, one more is much.
NEARLY = 2
#: In which way each machine takes those that are dealt to it.
ALONE = Way(hold=True, promise=True)

Tell = Callable[[str], None] | None
#: Guesses of whom to refuse from the start: places of requests, the best ones first.
Dear = Sequence[Sequence[int]]
#: Machines' ways.
Plan = Way | Course | Dealt
#: The same, requests refused from the start, and what comes of it by simulated clocks.
Tried = tuple[Plan, list[int], Pilot]


def may_plan(question: FleetQuestion, schedulers: Sequence[str]) -> bool:
    """Whether a plan with all knowledge is asked for, and there is one: not where outputs are predicted."""
    return knows_outputs(question, schedulers) and dispatches(question.workload)


def knows_outputs(question: FleetQuestion, schedulers: Sequence[str]) -> bool:
    """Whether plans with all knowledge are asked for, and outputs are not predicted.

    Parameters
    ----------
    question : FleetQuestion
    schedulers : sequence of str
    """
    requests = question.workload.requests
    return PLANNED in schedulers and all(r.predicted_output_tokens is None for r in requests)


def online_of(schedulers: Sequence[str]) -> tuple[str, ...]:
    """The schedulers that do not know the future."""
    return tuple(name for name in schedulers if name != PLANNED)


def check_schedulers(schedulers: Sequence[str], compare: str | None, errors: Sequence[object]) -> None:
    """Refuse names that are none, and a plan that knows all outputs where outputs are predicted.

    Parameters
    ----------
    schedulers : sequence of str
    compare : str or None
        With which each routing policy is tried by itself.
    errors : sequence
        Of predictions; none: nothing is predicted.

    Raises
    ------
    InputError
    """
    named = [(name, "schedulers") for name in online_of(schedulers)]
    for name, field in [*named, *([] if compare is None else [(compare, "compare")])]:
        known = preset(name, [PLANNED] if field == "schedulers" else [], field)
        if known.needs_predictions and not errors:
            raise InputError(f"{name!r} goes by predicted outputs: give --predict-error", field=field)
    if errors and not online_of(schedulers):
        raise InputError(
            f"{PLANNED!r} knows all outputs, so it plans nothing where they are predicted; name others, too",
            field="schedulers",
        )


def routing_of(way: Plan) -> str:
    """The name of a routing among policies."""
    return QUEUE if isinstance(way, Way) and not way.promise else PROMISES


def planning(machines: int) -> str:
    """The line of progress of a number of machines."""
    return f"planning {counted(machines, 'machines')}"


class Asked(NamedTuple):
    """What machines are asked to do.

    Attributes
    ----------
    dispatcher : Dispatcher
        Of all requests, or of a part.
    spare : int
        Of these, how many may miss.
    dear : sequence of sequence of int
        Guesses of whom to refuse.
    """

    dispatcher: Dispatcher
    spare: int
    dear: Dear

    def near(self, pilot: Pilot, most: float) -> bool:
        """Whether no more miss than a multiple of those who may, or a few more."""
        return len(pilot.missed) <= most * self.spare + NEARLY


class Search:
    """Ways to serve a question, or a part of it, with a number of machines.

    Parameters
    ----------
    question : FleetQuestion
    asked : Asked
    tell : callable, optional
        Takes lines of progress.
    brief : bool
        Ways for the whole trace are all that is tried: others take up to minutes.
    """

    def __init__(self, question: FleetQuestion, asked: Asked, tell: Tell = None, *, brief: bool = False):
        self.question, self.asked, self.tell, self.brief = question, asked, tell, brief
        self.dispatcher, self.spare = asked.dispatcher, asked.spare
        whole = not self.dispatcher.started and self.dispatcher.whole
        #: From a queue nothing goes on from what machines have to do already.
        self.ways = ALL if whole else tuple(some for some in ALL if some[0].promise)
        self.attained: dict[int, int] = {}
        #: What comes closest, of numbers of machines.
        self._closest: dict[int, Pilot] = {}
        #: Ways that reach the share, of numbers of machines that were asked for.
        self._known: dict[int, Iterator[Tried]] = {}

    def _tried(self, machines: int, way: Plan, refused: list[int]) -> Tried:
        if self.tell is not None:
            self.tell(planning(machines))
        pilot = self.dispatcher.pilot(machines, way, refused)
        good = len(self.question.workload.requests) - len(pilot.missed)
        self.attained[machines] = max(good, self.attained.get(machines, 0))
        if len(pilot.missed) <= len(self._closest.setdefault(machines, pilot).missed):
            self._closest[machines] = pilot
        return way, refused, pilot

    def _in_way(self, machines: int, way: Way, refused: list[int]) -> tuple[Way, list[int], Pilot]:
        return way, refused, self._tried(machines, way, refused)[2]

    def _reaching(self, tried: Iterable[Tried]) -> Iterator[Tried]:
        """Those that reach the share."""
        return (one for one in tried if len(one[2].missed) <= self.spare)

    def candidates(self, machines: int) -> Iterator[Tried]:
        """Ways that reach the share by simulated clocks."""
        guesses = dict.fromkeys(map(tuple, self.asked.dear)) or {(): None}
        first = [(dear, [self._in_way(machines, *one) for one in self._ways(dear)[:FEW]]) for dear in guesses]
        dear, near = min(first, key=lambda one: _least(one[1]))
        yield from self._reaching(near)
        far = _least(near) > FAR * self.spare + MORE
        for one in self._ways(dear)[FEW:] if not far else ():
            near.append(self._in_way(machines, *one))
            yield from self._reaching(near[-1:])
        near.sort(key=lambda one: len(one[2].missed))
        promised = [one for one in near if one[0].promise]
        if not far:
            for way, _, pilot in near[:AGAIN]:
                longest = longest_missed(self.question, pilot)[: self.spare]
                yield from self._reaching([self._tried(machines, way, longest)])
        if self.brief:
            return
        if not far:
            yield from self._with_others(machines, promised[:OTHERS])
        yield from self._by_stretches(machines, dear, promised[0])

    def _ways(self, dear: Sequence[int]) -> list[tuple[Way, list[int]]]:
        """All ways, with those who are refused."""
        counts = dict.fromkeys((way, int(part * self.spare)) for way, part in self.ways)
        return [(way, list(dear[:count])) for way, count in counts]

    def _with_others(self, machines: int, known: Sequence[Tried]) -> Iterator[Tried]:
        """Ways that reach the share by simulated clocks with others refused, if some nearly do."""
        for way, refused, pilot in known:
            if not self.asked.near(pilot, CLOSE):
                return
            search = Refusals(self.question, refused, pilot.missed)
            for other in islice(search, TRIES):
                some = self._tried(machines, way, other)
                if len(some[2].missed) <= self.spare:
                    yield some
                    break
                search.learn(other, some[2].missed)

    def _by_stretches(
        self, machines: int, dear: Sequence[int], first: tuple[Way, list[int], Pilot]
    ) -> Iterator[Tried]:
        """Ways that change on the way and reach the share by simulated clocks, if one way nearly does."""
        outputs = sorted(r.output_tokens for r in self.question.workload.requests)
        shorts = [outputs[int(part * len(outputs))] if part else 0 for part in SHORT]
        options: list[Option] = [first[:2]]
        for joined, part, short in product(JOINED, PARTS, shorts if machines > 1 else [0]):
            way = Way(hold=True, promise=True, joined=joined, short=short)
            if (some := (way, list(dear[: int(part * self.spare)]))) not in options:
                options.append(some)
        stretches = Stretches(self.dispatcher, machines, options, first[2])
        known: Tried = first
        for width, most in WIDTHS:
            if not self.asked.near(known[2], most):
                break
            known = self._tried(machines, *stretches.best(width))
            yield from self._reaching([known])
        yield from self._with_others(machines, [known])
        yield from self._dealt(machines, stretches)

    def _dealt(self, machines: int, stretches: Stretches) -> Iterator[Tried]:
        """Requests dealt to machines one by one, if the share is reached so by simulated clocks.

        First from nothing, then from the deal by which the fewest miss so far, over again.
        """

        def tell(until: float) -> None:
            if self.tell is not None:
                self.tell(f"{planning(machines)}, dealt up to {until:.0f} s")

        routes, changes, passes = None, 0, 0
        while changes < CHANGES and passes < PASSES and self.asked.near(self._closest[machines], DEAL):
            dealing = Dealing(self.dispatcher, machines, stretches, ALONE, tell, routes, passes)
            yield from self._reaching([self._tried(machines, dealing.dealt(), [])])
            routes, changes, passes = self._closest[machines].routes, changes + dealing.changes, passes + 1

    def reached(self, machines: int) -> bool:
        """Whether the share is reached by simulated clocks."""
        ways = self.candidates(machines)
        first = next(ways, None)
        if first is not None:
            self._known[machines] = chain([first], ways)
        return first is not None

    def verified(self, machines: int) -> Found | None:
        """What reaches the share by exact replay."""
        for way, refused, pilot in self._known.pop(machines, self.candidates(machines)):
            try:
                schedules = self.dispatcher.schedules(machines, way, refused)
            except TooManyBatches:
                return None  # others hardly need fewer
            replay = replay_fleet(self.question, pilot.routes, schedules)
            if replay.keeps(self.question):
                none = sum(route < 0 for route in pilot.routes)
                return Found(
                    machines, routing_of(way), PLANNED, none, pilot.routes, replay, dict(self.attained)
                )
        return None


def _least(tried: Sequence[Tried]) -> int:
    """How many miss at least."""
    return min(len(pilot.missed) for _, _, pilot in tried)


def planned_with(question: FleetQuestion, machines: int) -> Found | None:
    """A plan with which so many machines reach the share, replayed; None if none is found in seconds."""
    asked = Asked(Dispatcher(question), question.spare, ())
    return Search(question, asked, brief=True).verified(machines)


def fewest_planned(
    question: FleetQuestion, bound: MachineBound, below: int | None, tell: Tell = None
) -> Found | None:
    """Fewest machines found that reach the share with all knowledge; None if not fewer than `below`.

    Parameters
    ----------
    question : FleetQuestion
    bound : MachineBound
        Of the question.
    below : int or None
        None: any number.
    tell : callable, optional
        Takes lines of progress.
    """
    asked = Asked(Dispatcher(question), question.spare, bound.missed)
    search, least = Search(question, asked, tell), max(1, bound.machines or 1)
    most = min(MOST, len(question.workload.requests)) if below is None else below - 1
    return fewest_verified(search, least, most)


def uppers(
    question: FleetQuestion, bound: MachineBound, schedulers: Sequence[str], tell: Tell = None
) -> Iterator[tuple[Found | None, Found | None]]:
    """The fewest machines found, and those of online schedulers alone, over again with better ones.

    Parameters
    ----------
    question : FleetQuestion
    bound : MachineBound
        Of the question, which some number of machines answers.
    schedulers : sequence of str
    tell : callable, optional
        Takes lines of progress.
    """
    names, online = online_of(schedulers), None
    if names:
        online = fewest_machines(question, bound.machines or 1, schedulers=names, tell=tell)
        yield online, online
    if may_plan(question, schedulers) and (online is None or online.machines > (bound.machines or 1)):
        planned = fewest_planned(question, bound, None if online is None else online.machines, tell)
        if planned is not None:
            before = {} if online is None else online.attained
            yield planned.with_attained(before), online
