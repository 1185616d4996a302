"""Checking a lower bound on any objective that gains nothing by waiting, by enumerating every schedule.

Percentiles, maxima and missed service levels are no sums over time, so a point holds the times of the first
and last tokens made so far, as far as the objective asks (`Record`).  Requests are told apart, so instances
are tiny.  A batch starts as soon as it can: at the end of the one before, or when the last of its members
arrives.  Nothing is gained by waiting longer (`gains_by_waiting`): either the objective is regular, so that
no token that comes earlier makes it worse, or all requests are there from the start, and without a wait all
after it comes earlier by as much.
A schedule may end where only optional requests are left, at the end of a batch that finishes a request: to go
on for longer without finishing any only makes it longer.

*Value.*  A point is worth the objective with all that is missing made at once, or on arrival.  No schedule
from there on does better, and no later point is worth less.  Points are taken by their value, so once that of
the next one reaches the claimed bound, every schedule does.

*Points left out.*  Of two points of one state, B is left out for A if A is no later and its times are no
worse (`Record.no_worse`).  Whatever batches follow B can follow A, each ending no later, so with no token
later.  Where the time between first and last token counts nobody arrives, so they follow A with all their
tokens earlier by as much as A is: a request that has its first token, no longer ago than after B, has its
last one no longer after it; and one that has both took no longer.  Of the batches to one child the shortest
counts for the same reason: those tokens that it makes come earlier by as much as all that follow.
"""

from __future__ import annotations

import heapq
from fractions import Fraction
from itertools import count

from infermax_opt.infermax.bounds.joint_states import Batches, State
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.data.record import Record, Times, dropped

__all__ = ["least_regular"]


def least_regular(instance: Instance, enough: Fraction, steps: int) -> Fraction:
    """Optimum of a regular objective, or anything from `enough` on that it is at least.

    Parameters
    ----------
    instance : Instance
    enough : Fraction
        In the unit of the objective.
    steps : int
        Most steps of the enumeration; beyond it `TooManySteps` is raised.
    """
    return _TimesEnumeration(instance, steps).least(enough)


class _TimesEnumeration:
    def __init__(self, instance: Instance, steps: int):
        self.batches = Batches(instance.told_apart(), steps)
        self.record = Record(instance, self.batches.unit)
        self.optional = {k for k, request in enumerate(instance.requests) if request.terms.optional}
        # What may be left out is best made before all times.
        self.earliest = [0 if k in self.optional else -1 for k in range(len(instance.requests))]

    def least(self, enough: Fraction) -> Fraction:
        start: State = tuple((k, 0, 0) for k in range(len(self.record.arrivals)))
        times: Times = ((-1, -1),) * len(start)
        queue: list[tuple[Fraction, int, int, State, Times]] = []
        numbers = count()
        expanded: dict[State, list[tuple[int, Times]]] = {}

        def push(end: int, after: State, found: Times, may_end: bool) -> None:
            heapq.heappush(queue, (self._value(end, found), next(numbers), end, after, found))
            if after and may_end and all(k in self.optional for k, _, _ in after):
                push(end, (), dropped(found, [k for k, _, _ in after]), False)

        push(0, start, times, True)
        while True:
            value, _, now, state, times = heapq.heappop(queue)
            if not state or value >= enough:
                return value
            others = expanded.setdefault(state, [])
            self.batches.spend(1 + len(others))
            if any(then <= now and self.record.no_worse(found, then, times, now) for then, found in others):
                continue
            others.append((now, times))
            for (after, ready), time in self.batches.of(state).items():
                end = max(now, ready) + time
                left = {k: n for k, _, n in after}
                found = self.record.after(times, ((k, n) for k, _, n in state), left, end)
                push(end, after, found, len(after) < len(state))

    def _value(self, now: int, times: Times) -> Fraction:
        """The objective with all that is missing made now, or on arrival."""
        of, arrivals, least = self.record.of, self.record.arrivals, self.earliest
        pairs = [(k, (max(a, least[k]), max(b, least[k]))) for k, (a, b) in enumerate(times)]
        firsts = [a if a >= 0 else of(Latency.TTFT, k, max(now, arrivals[k])) for k, (a, _) in pairs]
        lasts = [b if b >= 0 else of(Latency.E2E, k, max(now, arrivals[k])) for k, (_, b) in pairs]
        return self.record.value(firsts, lasts)
