"""Checking a lower bound by enumerating every schedule of a tiny instance.

Dijkstra's algorithm over joint states, written from the problem statement alone: no estimates, nothing
shared with the search engine.  A state is the multiset of (type, m, n) of the unfinished requests; a
batch costs its time multiplied by what the objective weighs a second in that state.  Batches that only
evict are batches like others; one that leaves the state as it is does no more than a wait.  Once the
cheapest unexpanded point costs as much as the claimed bound, every schedule does, as neither a batch nor
a wait costs less than nothing.

*Arrivals.*  A point is a state with the time at which it is reached and the least weight of a second so
far, that of the state included.  A batch may not start before its members arrive.  What is missing is
waited for, at the least weight so far: no batch is harmed if the wait comes earlier, so the wait lies
where that weight applied.  No schedule with the same batches costs less: the seconds of waiting that a
batch demands, beyond what the ones before it demanded, lie somewhere before it, at no less.

*Points left out.*  Where all requests of a state have arrived, neither time nor least weight matter any
more.  Of two points of one state, B is left out for A, if A's least weight is no higher than B's, and A
costs no more than B even after waiting, at its least weight, until it is as late as B.  Then A is no
earlier than B, and whatever batches follow B can follow A: by induction, A needs to wait no more for each
than B, and pays no more for it, as the states are the same from here on.

*Other objectives* than sums over time are enumerated by `exhaustive_times`.

*Limit.*  The work is counted in steps: a move listed or considered for a request, a batch considered
again at another time, a comparison of two points.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from math import lcm

from infermax_opt.infermax.bounds.exhaustive_times import least_regular
from infermax_opt.infermax.bounds.joint_states import Batches, State, TooManySteps
from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.latencies import beyond_states, gains_by_waiting

__all__ = ["MAX_STEPS", "holds", "least", "why_not"]

#: Steps of the enumeration after which the check gives up; a second or two.
MAX_STEPS = 300_000
#: Requests beyond which it does not even start.
MAX_REQUESTS = 16
#: Generated tokens beyond which it does not even start.
MAX_TOKENS = 200

#: A state, the time at which it is reached, and the least weight of a second so far.
_Point = tuple[State, int, int]


def holds(instance: Instance, bound: Fraction, steps: int = MAX_STEPS) -> bool | None:
    """Tell whether `bound` is a lower bound on the objective.

    Parameters
    ----------
    instance : Instance
    bound : Fraction
        Exact, in the unit of the objective.
    steps : int
        Most steps of the enumeration.

    Returns
    -------
    bool or None
        None where the instance is too large to enumerate within `steps`.
    """
    found = least(instance, bound, steps)
    return None if found is None else found >= bound


def least(instance: Instance, enough: Fraction, steps: int = MAX_STEPS) -> Fraction | None:
    """The optimum, or anything from `enough` on that it is at least.

    Parameters
    ----------
    instance : Instance
    enough : Fraction
        In the unit of the objective.
    steps : int
        Most steps of the enumeration.

    Returns
    -------
    Fraction or None
        None where the instance is too large to enumerate within `steps`.
    """
    if why_not(instance) is not None:
        return None
    try:
        if beyond_states(instance):
            return least_regular(instance, enough, steps)
        return _ScheduleEnumeration(instance, steps).least(enough)
    except TooManySteps:
        return None


def why_not(instance: Instance) -> str | None:
    """Why `instance` is not even enumerated, or None."""
    if instance.release is not None:
        return "a closed loop is not enumerated"
    requests, tokens = len(instance.requests), instance.output_tokens
    if requests > MAX_REQUESTS:
        return f"{requests} requests; up to {MAX_REQUESTS} are enumerated"
    if tokens > MAX_TOKENS:
        return f"{tokens} output tokens; up to {MAX_TOKENS} are enumerated"
    gains = gains_by_waiting(instance)
    if gains is not None and beyond_states(instance):
        return (
            f"{gains.value} may gain by waiting; where no sum over time is asked for, that is not enumerated"
        )
    return None


class _ScheduleEnumeration(Batches):
    """All schedules of an instance, in whole units of time and of the objective's weights."""

    def __init__(self, instance: Instance, steps: int):
        super().__init__(instance, steps)
        objective, kinds = instance.objective, instance.types
        makespan = objective.weight(Metric.MAKESPAN)
        young, old = objective.rates(kinds)
        self.scale = lcm(*(weight.denominator for weight in (makespan, *young, *old)))
        self.makespan = int(makespan * self.scale)
        self.young = [int(weight * self.scale) for weight in young]
        self.old = [int(weight * self.scale) for weight in old]
        self.about: dict[State, tuple[int, int]] = {}
        # What accrues before a request arrives does not belong to its latency.
        self.early = sum(
            (w * len(kind.members) * kind.arrival for w, kind in zip(young, kinds, strict=True)), Fraction(0)
        )

    def least(self, enough: Fraction) -> Fraction:
        """Optimal objective, or anything from `enough` on that it is at least."""
        goal = (enough + self.early) * self.unit * self.scale
        start = tuple((k, 0, 0) for k, kind in enumerate(self.instance.types) for _ in kind.members)
        first = self._point(start, 0, self._of(start)[0])
        best: dict[_Point, int] = {first: 0}
        queue: list[tuple[int, _Point]] = [(0, first)]
        expanded: dict[State, list[tuple[int, int, int]]] = {}
        while True:
            cost, (state, now, least) = heapq.heappop(queue)
            if not state or cost >= goal:
                return Fraction(cost, self.unit * self.scale) - self.early
            others = expanded.setdefault(state, [])
            self.spend(len(others))
            if any(w <= least and c + w * max(0, now - t) <= cost for c, t, w in others):
                continue
            others.append((cost, now, least))
            weight, _ = self._of(state)
            for (after, ready), time in self.of(state).items():
                wait = max(0, ready - now)
                total = cost + wait * least + time * weight
                point = self._point(after, now + wait + time, least)
                if point not in best or total < best[point]:
                    best[point] = total
                    heapq.heappush(queue, (total, point))

    def _point(self, state: State, now: int, least: int) -> _Point:
        """The point of a state reached now, if `least` is the least weight before it."""
        weight, latest = self._of(state)
        if now >= latest:
            return state, latest, 0
        return state, now, min(least, weight)

    def _of(self, state: State) -> tuple[int, int]:
        """What the objective weighs a unit of time spent in `state`, and the latest arrival in it."""
        if state not in self.about:
            weight = self.makespan + sum(self.old[kind] if n else self.young[kind] for kind, _, n in state)
            self.about[state] = weight, max((self.arrivals[kind] for kind, _, _ in state), default=0)
        return self.about[state]
