"""Machines for each window of a trace: fewest from below and from above, and machine-hours.

A trace is cut into windows of equal length by arrivals, and each window asks for the share by itself: so many
of the requests that arrive in it keep their limits, whatever happens in others.

*Lower bound of a window.*  The machines that serve requests of the window do so by the pooled bound
(`infermax_opt.fleet.bounds.pooled`) for these requests alone; all others may be left out.

*Lower bound of machine time.*  That of `infermax_opt.fleet.scaling`, whose parts are the windows.

*Upper bound.*  In each window so many machines take new requests; others finish what they have.
A plan that knows the future (`infermax_opt.fleet.planned_windows`) is replayed exactly, and each window has
to keep the share.  Where there is none, a router with online schedulers is: numbers grow where the share is
missed, and fall again where they can, one at a time.  When machines are on is as in
`infermax_opt.fleet.scaling`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

from infermax_opt.core.errors import InputError
from infermax_opt.fleet.bounds.pooled import MachineBound, pooled_bound
from infermax_opt.fleet.planned import PLANNED, PROMISES, may_plan, online_of
from infermax_opt.fleet.planned_windows import Part, planned_windows
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.fleet.routing.policies import Pilot, Router
from infermax_opt.fleet.scaling import Scaling, least_time, machine_time
from infermax_opt.fleet.upper import Found
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset

__all__ = ["Autoscaled", "Window", "autoscalings", "window_count"]

#: Most windows of a trace.
MOST_WINDOWS = 1000
#: Rounds in which numbers grow, and machines of a window as a multiple of its bound and beyond that: most.
ROUNDS, FAR, MORE = 200, 16, 16
#: Share of its machines by which a window grows that misses the share, one at least.
GROWTH = Fraction(1, 8)
#: Policies that are tried, with each scheduler.
POLICIES = ("least_kv", "slo_aware")

Tell = Callable[[str], None] | None
#: Policy, scheduler, machines of each window, and the replay in which all keep the share.
_Served = tuple[str, str, list[int], FleetReplay]


@dataclass(frozen=True)
class Window:
    """A window of arrivals.

    Attributes
    ----------
    begin, end : Fraction
        Seconds of the trace.
    members : tuple of int
        Places of the requests that arrive in it.
    question : FleetQuestion or None
        Of these; None where there are none.
    bound : MachineBound or None
    upper : int or None
        Machines that take its requests, found.
    unfit : int
        Requests that arrive in it and fit no machine.
    """

    begin: Fraction
    end: Fraction
    members: tuple[int, ...]
    question: FleetQuestion | None
    bound: MachineBound | None
    upper: int | None = None
    unfit: int = 0

    @property
    def lower(self) -> int | None:
        """Machines that serve its requests at least; None if no number is enough."""
        if self.bound is None:
            return None if self.unfit else 0
        return self.bound.machines


@dataclass(frozen=True)
class Autoscaled:
    """Machines by window.

    Attributes
    ----------
    windows : tuple of Window
    lower, upper : Fraction or None
        Machine time, s.
    certificate : dict or None
        Of the lower one, for `infermax_opt.fleet.checker.hours`.
    policy, scheduler : str or None
    peak : int or None
        Most machines that are on at once.
    """

    windows: tuple[Window, ...]
    lower: Fraction | None
    upper: Fraction | None = None
    certificate: dict[str, Any] | None = None
    policy: str | None = None
    scheduler: str | None = None
    peak: int | None = None


def autoscalings(
    question: FleetQuestion,
    length: Fraction,
    scaling: Scaling,
    schedulers: Sequence[str],
    tell: Tell = None,
    known: Found | None = None,
) -> Iterator[Autoscaled]:
    """Machines for each window, over again with more: first from below, then from above, too.

    Parameters
    ----------
    question : FleetQuestion
    length : Fraction
        Of a window, s.
    scaling : Scaling
    schedulers : sequence of str
        Tried on the machines.
    tell : callable, optional
        Takes lines of progress.
    known : Found, optional
        Routes that reach the share of the whole trace, which a single window asks for, too.

    Raises
    ------
    InputError
        If there are too many windows.
    """
    windows = _windows(question, length, tell)
    if any(window.lower is None for window in windows):
        yield Autoscaled(windows, None)
        return
    lower, certificate = least_time([window.bound for window in windows if window.bound is not None], scaling)
    yield Autoscaled(windows, lower, None, certificate)
    best: tuple[Any, ...] | None = None
    for policy, name, counts, replay in chain(
        _whole(windows, known), _served(question, windows, schedulers, tell)
    ):
        total, peak = machine_time(replay, scaling)
        key = sum(counts), total
        if best is None or key < best[0]:
            best = key, counts, total, peak, policy, name
        if sum(counts) == sum(window.lower or 0 for window in windows):
            break
    if best is None:
        return
    _, counts, upper, peak, policy, name = best
    done = tuple(
        replace(window, upper=count if window.members else 0)
        for window, count in zip(windows, counts, strict=True)
    )
    yield Autoscaled(done, lower, upper, certificate, policy, name, peak)


def _whole(windows: Sequence[Window], known: Found | None) -> Iterator[_Served]:
    """What reaches the share of the whole trace, if all requests are in one window."""
    if known is not None and sum(bool(window.members) for window in windows) == 1:
        counts = [known.machines if window.members else 0 for window in windows]
        yield known.policy, known.scheduler, counts, known.replay


def _served(
    question: FleetQuestion, windows: Sequence[Window], schedulers: Sequence[str], tell: Tell
) -> Iterator[_Served]:
    """Policy, scheduler, machines of each window, and the replay in which all keep the share."""
    if may_plan(question, schedulers):
        found = _planned(question, windows, tell)
        if found is not None:
            yield PROMISES, PLANNED, *found
            return
    for policy, name, fleet in _fleets(question, online_of(schedulers)):
        if tell is not None:
            tell(f"windows: {policy} with {name}")
        found = _Search(question, windows, fleet).found()
        if found is not None:
            yield policy, name, *found


def _planned(
    question: FleetQuestion, windows: Sequence[Window], tell: Tell
) -> tuple[list[int], FleetReplay] | None:
    """Machines of each window by a plan that knows the future, and its replay."""
    parts = [
        Part(
            window.members, window.question.spare, max(1, window.bound.machines or 0), most,
            [[window.members[i] for i in some] for some in window.bound.missed],
        )
        for window, most in zip(windows, _most(windows), strict=True)
        if window.question is not None and window.bound is not None
    ]  # fmt: skip
    found = planned_windows(question, parts, tell)
    if found is None:
        return None
    counts = iter(found[0])
    return [next(counts) if window.members else 0 for window in windows], found[1]


def _most(windows: Sequence[Window]) -> list[int]:
    """Most machines of each window that are tried: one for each request so far, as more are no better."""
    so_far = accumulate(len(window.members) for window in windows)
    return [
        max(1, min(FAR * max(1, window.lower or 0) + MORE, requests))
        for window, requests in zip(windows, so_far, strict=True)
    ]


def window_count(last: Fraction, length: Fraction) -> int:
    """Windows of so many seconds up to a last arrival.

    Raises
    ------
    InputError
        If there are too many.
    """
    count = int(last / length) + 1
    if count > MOST_WINDOWS:
        problem = f"{float(length):g} s make {count} windows of this trace; the most is {MOST_WINDOWS}"
        raise InputError(problem, field="windows")
    return count


def _windows(question: FleetQuestion, length: Fraction, tell: Tell) -> tuple[Window, ...]:
    """All windows up to the last arrival, with their bounds."""
    requests = question.workload.requests
    count = window_count(max(r.arrival for r in question.everyone), length)
    members: list[list[int]] = [[] for _ in range(count)]
    for i, request in enumerate(requests):
        members[int(request.arrival / length)].append(i)
    found, before = [], 0
    for k, some in enumerate(members):
        if tell is not None:
            tell(f"windows: bound of {k + 1} of {count}")
        late = [one for one in question.unfit if int(one.request.arrival / length) == k]
        unfit = tuple(one._replace(place=one.place - before) for one in late)
        before += len(some) + len(unfit)
        part = FleetQuestion(question.machine(some), question.share, unfit) if some else None
        bound = None if part is None else pooled_bound(part)
        found.append(Window(k * length, (k + 1) * length, tuple(some), part, bound, unfit=len(unfit)))
    return tuple(found)


class _Fleet(NamedTuple):
    """A way to serve requests, each by one of the first so many machines.

    Attributes
    ----------
    pilot : callable
        Routes for a number of machines, and among how many each request is given to one.
    replay : callable
        The exact outcome for the same, and the routes.
    """

    pilot: Callable[[int, Sequence[int]], Pilot]
    replay: Callable[[int, Sequence[int], Pilot], FleetReplay]


def _fleets(question: FleetQuestion, names: Sequence[str]) -> Iterator[tuple[str, str, _Fleet]]:
    """All online ones that are tried, with policy and scheduler."""
    for name in names:
        router, run = Router(question, preset(name)), partial(schedule, options=preset(name))
        for policy in POLICIES:
            yield policy, name, _online(question, router, policy, run)


def _online(
    question: FleetQuestion, router: Router, policy: str, run: Callable[[Instance], Schedule]
) -> _Fleet:
    return _Fleet(
        lambda machines, among: router.route(machines, policy, among=among),
        lambda machines, among, pilot: replay_fleet(question, pilot.routes, run),
    )


class _Search:
    """Numbers of machines by window with which a fleet reaches the share in each."""

    def __init__(self, question: FleetQuestion, windows: Sequence[Window], fleet: _Fleet):
        self.question, self.windows, self.fleet = question, windows, fleet
        self.most = _most(windows)

    def found(self) -> tuple[list[int], FleetReplay] | None:
        """The numbers, and the replay that reaches the share with them; None if none do."""
        counts = self._grown([max(1, window.lower or 0) for window in self.windows])
        if counts is None:
            return None
        counts = self._shrunk(counts)
        while counts is not None:
            replay = self.fleet.replay(max(counts), self._among(counts), self._routed(counts))
            failing = self._failing(frozenset(range(len(self.question.levels))) - replay.good)
            if not failing:
                return counts, replay
            # Simulated clocks were wrong by a hair.
            counts = self._more(counts, failing)
        return None

    def _routed(self, counts: Sequence[int]) -> Pilot:
        return self.fleet.pilot(max(counts), self._among(counts))

    def _among(self, counts: Sequence[int]) -> list[int]:
        """Of how many machines one takes each request."""
        among = [0] * len(self.question.levels)
        for window, count in zip(self.windows, counts, strict=True):
            for i in window.members:
                among[i] = count
        return among

    def _failing(self, missed: frozenset[int]) -> list[int]:
        """Windows in which more requests miss their limits than may."""
        found = []
        for k, window in enumerate(self.windows):
            misses = len(missed.intersection(window.members))
            if window.question is not None and misses > window.question.spare:
                found.append(k)
        return found

    def _more(self, counts: Sequence[int], failing: Sequence[int]) -> list[int] | None:
        """More machines in these windows; None where they have the most already."""
        if all(counts[k] >= self.most[k] for k in failing):
            return None
        more = list(counts)
        for k in failing:
            grown = counts[k] + max(1, int(counts[k] * GROWTH))
            if grown > 2 * max(1, self.windows[k].lower or 0) and k:
                # What is left of the window before may be in the way.
                more[k - 1] = max(more[k - 1], min(self.most[k - 1], grown // 2))
            more[k] = min(self.most[k], grown)
        return more

    def _grown(self, counts: list[int] | None) -> list[int] | None:
        for _ in range(ROUNDS):
            failing = [] if counts is None else self._failing(frozenset(self._routed(counts).missed))
            if counts is None or not failing:
                return counts
            counts = self._more(counts, failing)
        return None

    def _shrunk(self, counts: list[int]) -> list[int]:
        """The same with fewer where that is enough, the largest first."""
        for k in sorted(range(len(counts)), key=lambda k: -counts[k]):
            while counts[k] > max(1, self.windows[k].lower or 0):
                fewer = [*counts[:k], counts[k] - 1, *counts[k + 1 :]]
                if self._failing(frozenset(self._routed(fewer).missed)):
                    break
                counts = fewer
        return counts
