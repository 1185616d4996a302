"""Routes and schedules of machines that know all outputs, by a queue or by promises."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import inf, isqrt
from typing import Any, NamedTuple

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.fleet.dispatch.states import State, idle, joined, restored
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.routing.policies import Limits, Pilot
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, TooManyBatches, run_length

__all__ = ["Columns", "Course", "Dealt", "Dispatcher", "Way", "dispatches"]

#: Output tokens up to which plain Python takes less time than loading compiled code, for some dozens of ways.
PLAIN_WORK = 100
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 10
#: The same as long as there is none: compiling takes a dozen seconds.
UNCOMPILED = 2_400
#: Least tokens of a prompt to which a batch is limited, if at all.
LEAST_CHUNK = 64


class Way(NamedTuple):
    """How requests are dispatched, see `infermax_opt.fleet.dispatch._state.Limits`.

    Attributes
    ----------
    hold : bool
        First tokens wait for each other, as long as they may.
    shed : float
        Share of their time in which machines are taken to run prompts: above 0, the longest requests are
        refused where the others would be too late.
    promise: bool
        Each request goes to a machine when it arrives, or is refused (`_promises`).
    joined : float
        Share of the time of an empty batch that each one more is taken to cost where a request is promised.
    short : int
        Output tokens up to which the last machine takes a request by promises, if there are others; 0: any.
    """

    hold: bool = False
    shed: float = 0.0
    promise: bool = False
    joined: float = 0.25
    short: int = 0


#: Ways by promises, each with the place by arrival from which on requests are taken so; the first is 0.
Course = Sequence[tuple[int, Way]]


class Dealt(NamedTuple):
    """Each machine is apart from all others: it takes those by promises, in a way, that are dealt to it.

    Attributes
    ----------
    way : Way
    routes : sequence of int
        Machine of each request, -1 for none.
    """

    way: Way
    routes: Sequence[int]


class Columns(NamedTuple):
    """What the kernel takes, see `infermax_opt.fleet.dispatch._state`.

    `given`: of how many machines, the first ones, one takes each request, whatever the way.
    """

    given: Any
    jobs: Any
    trial: Any
    fleet: Any


def dispatches(workload: Instance) -> bool:
    """Whether the machine may run what is planned here: batches that mix phases, and prompts in parts."""
    return workload.policy.hybrid_batching and workload.policy.chunked_prefill


class Dispatcher:
    """Dispatches the requests of a question, whose outputs it knows; all of them, or a part.

    Parameters
    ----------
    question : FleetQuestion
        Of a machine that `dispatches`.

    Attributes
    ----------
    order : array of int, (n,)
        Places of requests by arrival.
    first, last : int
        It serves those from the first place by arrival up to the last one, which is not among them.
    started : tuple of State
        Of each machine before these; further ones have nothing to do.
    inputs : array of int, (n,)
        Prompt tokens of each request.
    """

    def __init__(self, question: FleetQuestion):
        import numpy as np

        self.question, workload = question, question.workload
        requests, system = workload.requests, workload.system
        self.inputs = np.array([r.input_tokens for r in requests], np.int64)
        self._outputs = np.array([r.output_tokens for r in requests], np.int64)
        self.order = np.array(sorted(range(len(requests)), key=lambda i: requests[i].arrival), np.int64)
        self.first, self.last, self.started = 0, len(requests), tuple[State, ...]()
        self._due, due = Limits(question), Limits(question, wary=True)
        self._first_due, self._last_due = due.arrival + np.minimum(due.ttft, due.e2e), due.arrival + due.e2e
        self._tpot = due.tpot
        self._cost = workload.cost.columns
        self._limits = (
            system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens,
            min(system.max_running or len(requests), system.max_batch_tokens), system.block_size,
            int(workload.cost.exact_attention), _best_chunk(workload),
        )  # fmt: skip
        self._long = worthwhile(_compiled, workload.output_tokens, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED)

    @property
    def unit(self) -> tuple[float, float]:
        """Seconds of a prompt token, and of a batch that decodes before its tokens."""
        return float(self._cost.beta[0]), float(self._cost.alpha[0] + self._cost.d0)

    def pilot(
        self,
        machines: int,
        way: Way | Course | Dealt,
        refused: Collection[int] = (),
        among: Sequence[int] | None = None,
    ) -> Pilot:
        """Routes, and who misses their limits by the simulated clocks.

        Parameters
        ----------
        machines : int
        way : Way, Course or Dealt
        refused : collection of int
            Places of requests that no machine serves.
        among : sequence of int, optional
            Of how many machines, the first ones, one takes each request; default: of all.
        """
        mine = {*self.order[self.first : self.last].tolist()}
        if not isinstance(way, Dealt):
            jobs, _ = self._run(machines, way, refused, among)
            carried = {i for state in self.started[:machines] for i in state.there.tolist()}
            return Pilot(jobs.route.tolist(), sorted((mine | carried) & self._missed(jobs)))
        routes, good, lost = [-1] * len(self.inputs), set[int](), set[int]()
        for k, given in _members(way):
            jobs, _ = self._run(1, way.way, refused, given, at=k)
            missed = self._missed(jobs)
            served = {i for i, one in enumerate(given) if one and jobs.route[i] >= 0}
            good |= served - missed
            for state in self.started[k : k + 1]:
                lost |= {*state.there.tolist()} & missed
            for i in served:  # be it too late by a hair, as it is in the schedule
                routes[i] = k
        return Pilot(routes, sorted((mine - good) | lost))

    def _missed(self, jobs: Any) -> set[int]:
        """Who misses, of all requests."""
        late = self._due.late(jobs.route, jobs.first, jobs.last)
        return {*late.nonzero()[0].tolist()}

    @property
    def whole(self) -> bool:
        """Whether it serves all requests."""
        return self.last - self.first == len(self.order)

    def part(self, first: int, last: int, started: Sequence[State]) -> Dispatcher:
        """The same for those who arrive in a part of the trace, which is served to its end.

        Who was given to a machine before stays there.  It counts as missed if another one takes its place.

        Parameters
        ----------
        first, last : int
            Places by arrival.
        started : sequence of State
            Of each machine before.
        """
        other = copy.copy(self)
        other.first, other.last, other.started = first, last, tuple(started)
        return other

    def schedules(
        self,
        machines: int,
        way: Way | Course | Dealt,
        refused: Collection[int] = (),
        among: Sequence[int] | None = None,
    ) -> Mapping[int, Schedule]:
        """The schedules of the machines with these routes.

        Parameters
        ----------
        machines, way, refused, among
            As for `pilot`.

        Raises
        ------
        TooManyBatches
            If machines that are not dealt to one by one need more together than a schedule may hold.
        """
        from infermax_opt.fleet.dispatch import _state as state

        if isinstance(way, Dealt):
            alone = ((k, self.schedules(1, way.way, refused, mine)) for k, mine in _members(way))
            return {k: some[0] for k, some in alone if some}
        _, counted = self._run(machines, way, refused, among)
        sizes = int(counted[state.BATCHES]), int(counted[state.ENTRIES])
        if sizes[0] > MAX_BATCHES:
            raise TooManyBatches.than(MAX_BATCHES)
        log = self._log(*sizes)
        self._run(machines, way, refused, among, log)
        requests, name = self.question.workload.requests, self.question.workload.name
        named, tokens = log.named.tolist(), log.tokens.tolist()
        found: dict[int, list[Batch]] = {}
        begin, promised = 0, any(some.promise for _, some in _course(way))
        for k, new, end in zip(log.machine.tolist(), log.start.tolist(), log.end.tolist(), strict=True):
            parts = {requests[named[j]].id: tokens[j] for j in range(begin, end)}
            # Who moves to another machine may have come after this one fell idle.
            come = [requests[named[j]].arrival for j in range(begin, end)] if promised else []
            come += [requests[new].arrival] if new >= 0 else []
            start = max(come, default=None)
            found.setdefault(k, []).append(Batch(parts, start=start, decode_all=True))
            begin = end
        return {k: Schedule(name, run_length(batches)) for k, batches in found.items()}

    def _run(
        self,
        machines: int,
        way: Way | Course,
        refused: Collection[int],
        among: Sequence[int] | None,
        log: Any = None,
        at: int = 0,
    ) -> tuple[Any, Any]:
        """The columns of requests, and the counters of the log; machines are those from a number on."""
        columns, course = self.columns(machines, refused, among, at), _course(way)
        log, begins = log or self._log(0, 0), [self.first, *(begin for begin, _ in course[1:])]
        for begin, end, (_, some) in zip(begins, [*begins[1:], self.last], course, strict=True):
            self.serve(columns, self.order[begin:end], end, some, log)
        return columns.jobs, log.count

    def columns(
        self, machines: int, refused: Collection[int] = (), among: Sequence[int] | None = None, at: int = 0
    ) -> Columns:
        """Requests and machines as they are before anybody arrives.

        Parameters
        ----------
        machines, refused, among
            As for `pilot`.
        at : int
            The machines are those from this number on.
        """
        import numpy as np

        from infermax_opt.fleet.dispatch import _state as state

        n = len(self.inputs)
        given = np.full(n, machines, np.int64) if among is None else np.array(among, np.int64)
        given[list(refused)] = 0
        jobs = state.Jobs(
            self.inputs, self._outputs, self._due.arrival, self.order, given.copy(),
            first_due=self._first_due, last_due=self._last_due.copy(), tpot=self._tpot,
            done=np.zeros(n, np.int64), made=np.zeros(n, np.int64), route=np.full(n, -1, np.int64),
            first=np.zeros(n), last=np.full(n, inf),
        )  # fmt: skip
        rows, row = (machines + 1, n), n
        fleet = state.Fleet(
            decoding=np.zeros(rows, np.int64), prompts=np.zeros(rows, np.int64),
            count=np.zeros((machines + 1, state.COUNTERS), np.int64), clock=np.zeros(machines),
            waiting=np.zeros(row, np.int64), part=np.zeros(row, np.int64), chunk=np.zeros(row, np.int64),
        )  # fmt: skip
        states = [*self.started[at : at + machines], *(idle() for _ in range(machines))][:machines]
        if self.started:
            restored(jobs, fleet, joined(states))
            jobs.among[[i for state in states for i in state.there]] = 0  # they stay where they are
        trial = jobs._replace(
            done=np.zeros(n, np.int64), made=np.zeros(n, np.int64),
            first=np.zeros(n), last=np.zeros(n), last_due=np.zeros(n),
        )  # fmt: skip
        return Columns(given, jobs, trial, fleet)

    def before(self, place: int) -> float:
        """When the last one arrives before a place by arrival."""
        return float(self._due.arrival[self.order[place - 1]])

    def serve(self, columns: Columns, some: Any, end: int, way: Way, log: Any = None) -> None:
        """Serve some who arrive before a place by arrival, with what machines have to do already.

        Machines by promises run no further than to the next arrival; without one they end all.

        Parameters
        ----------
        columns : Columns
            What is known of those who arrive is as before anybody does.
        some : array of int
            Places of requests, by arrival.
        end : int
            Place by arrival.
        way : Way
        log : Log, optional
        """
        import numpy as np

        from infermax_opt.fleet.dispatch import _state as state
        from infermax_opt.fleet.dispatch._promises import dispatch_loop as plain

        last, among = end == self.last, columns.given[some]
        if way.short:
            most = np.minimum(among, max(1, len(columns.fleet.clock) - 1))
            among = np.where(self._outputs[some] > way.short, most, among)
        columns.jobs.among[some] = among
        limits = state.Limits(
            *self._limits, hold=int(way.hold), shed=float(way.shed), promise=int(way.promise),
            joined=float(way.joined), until=inf if last else float(self._due.arrival[self.order[end]]),
        )  # fmt: skip
        loop = _compiled() if self._long else plain
        loop(
            limits, columns.jobs._replace(order=some), columns.trial, columns.fleet, self._cost,
            log or self._log(0, 0),
        )  # fmt: skip

    def _log(self, batches: int, entries: int) -> Any:
        """Room for so many batches, and prompts in them."""
        import numpy as np

        from infermax_opt.fleet.dispatch import _state as state

        sizes = (state.NOTES, batches, batches, batches, entries, entries)
        return state.Log(*(np.zeros(size, np.int64) for size in sizes))


def _course(way: Way | Course) -> Course:
    return [(0, way)] if isinstance(way, Way) else way


def _members(way: Dealt) -> Iterator[tuple[int, list[int]]]:
    """Each machine that somebody is dealt to, and of how many machines one takes each request then."""
    for k in sorted({route for route in way.routes if route >= 0}):
        yield k, [int(route == k) for route in way.routes]


def _best_chunk(workload: Instance) -> int:
    """Tokens of a prompt in each batch with which it takes the least time by itself, about."""
    unit, most = workload.cost.floats, workload.system.max_batch_tokens
    if workload.cost.exact_attention or not unit.p1:
        return most
    return max(LEAST_CHUNK, isqrt(int((max(unit.alpha) + unit.p0) / unit.p1)))


@functools.cache
def _compiled() -> Callable[..., Any]:
    from infermax_opt.fleet.dispatch import _promises as kernel

    return compiled(kernel.dispatch_loop, kernel.HELPERS, allocates=False)
