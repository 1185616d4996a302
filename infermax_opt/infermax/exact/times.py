"""Exact search for objectives that are no sums over time: percentiles, maxima, missed service levels.

A label is a state of requests, told apart, with the time and with the times of first and last tokens so far,
as far as the objective asks (`Record`).  A batch starts at the end of the one before, or when the last of its
members arrives: nothing is gained by waiting longer (`gains_by_waiting`).  That holds of regular objectives,
which no token makes worse by coming earlier; and of those with a TPOT where all requests are there from the
start, for without a wait all after it comes earlier by as much.

*Estimate.*  Each token of a request takes a batch of its own, and no batch with a token takes less than
max_k (alpha_k + beta_k) + min(d0, p0).  So of a request with r tokens to come the last is made at least r
such times after now, or after its arrival, and the first, if that is to come, one such time.  The objective
of these times is never too high.  Nor is a TPOT: from a first token that is made, or that is to come, the
last one is as many steps away as there are tokens in between, at least.

*Optional requests.*  A schedule may end where only these are left, at the end of a batch that finishes a
request: to go on without finishing any only makes it longer.  The estimate has the tokens of one that is not
finished before all times, where no metric is worse for it, or never, if it cannot be finished by the horizon.

*Dominance.*  Of two labels A and B of one state, B is dropped if A is no later and its times are no worse
(`Record.no_worse`).  A can wait until the time of B and then run whatever follows B, at the same times: so
all tokens to come are made as after B, and those made were made no later, which is enough for a regular
objective.  (That A need not wait is the rule above.)  Where a TPOT counts nobody arrives, and A can run at
once what follows B, with all tokens earlier by as much as A is.  So a request that has its first token, no
longer ago than after B, has its last one no longer after it; and one that has both took no longer.  Of
several batches to one child the shortest is enough for the same reasons: its members, whose nodes have
changed, are those of every batch to that child, and the tokens that it makes come earlier by as much as all
that follow.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, LimitReached, Termination
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import NEVER
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.data.record import Record, Times, dropped
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.moves import Load, State
from infermax_opt.infermax.exact.told_apart import ToldApart

__all__ = ["times_search"]


@dataclass(slots=True)
class _Label:
    """A way to reach a state; the batch that led to it began at `began`."""

    state: State
    now: int
    times: Times
    parent: _Label | None = None
    load: Load | None = None
    began: int = 0


def times_search(
    instance: Instance, *, upper: Fraction | None = None, limits: EngineLimits | None = None
) -> EngineOutcome[Schedule]:
    """Find an optimal schedule for an objective without `gains_by_waiting`, or a bound within the limits.

    Parameters
    ----------
    instance : Instance
    upper : Fraction, optional
        Objective of a known schedule: only better ones are looked for.
    limits : EngineLimits, optional
    """
    return _TimesSearch(instance, upper, limits or EngineLimits()).run()


class _TimesSearch(ToldApart):
    def __init__(self, instance: Instance, upper: Fraction | None, limits: EngineLimits):
        arrivals = (request.arrival.denominator for request in instance.requests)
        super().__init__(instance, lcm(instance.cost.ticks_per_second, *arrivals), limits)
        self.upper, self.record = upper, Record(instance, self.unit)
        self.horizon = NEVER if instance.horizon is None else Fraction(instance.horizon) * self.unit
        self.queue: list[tuple[Fraction, int, _Label]] = []
        self.fronts: dict[State, list[_Label]] = {}
        self.floor = Fraction(0)

    def run(self) -> EngineOutcome[Schedule]:
        """Take labels by their estimate until the best one is a whole schedule."""
        goal, termination = None, Termination.OPTIMAL
        try:
            self._push_all(_Label(self.space.start(), 0, ((-1, -1),) * len(self.instance.requests)))
            while self.queue and goal is None:
                value, _, label = heapq.heappop(self.queue)
                self.floor = max(self.floor, value)
                if not label.state:
                    goal = label
                elif self._admitted(label):
                    self._expand(label)
            if goal is None and self.upper is not None:  # nothing is better than what is known
                self.floor = self.upper
        except LimitReached as stop:
            termination = stop.termination
        except KeyboardInterrupt:
            termination = Termination.INTERRUPTED
        return EngineOutcome(
            schedule=None if goal is None else self._schedule(goal),
            lower=LowerBound(self.floor, "search", Proof.SOLVER),
            termination=termination,
            upper=None if goal is None else self.floor,
            details={"labels": self.made},
        )

    def _push_all(self, label: _Label) -> None:
        """Push a label, and the end of the schedule where that may be."""
        self._push(label)
        left = [self.space.nodes[i].kind for i in label.state]
        finished = label.parent is None or len(left) < len(label.parent.state)
        if left and finished and all(self.instance.requests[k].terms.optional for k in left):
            self._push(_Label((), label.now, dropped(label.times, left), label))

    def _push(self, label: _Label) -> None:
        value = self._estimate(label)
        if self.upper is None or value < self.upper:
            self.made += 1
            heapq.heappush(self.queue, (value, self.made, label))

    def _admitted(self, label: _Label) -> bool:
        """Whether no expanded label of the same state is as good."""
        self.check(0)
        front = self.fronts.setdefault(label.state, [])
        no_worse, times, now = self.record.no_worse, label.times, label.now
        if any(other.now <= now and no_worse(other.times, other.now, times, now) for other in front):
            return False
        front.append(label)
        return True

    def _estimate(self, label: _Label) -> Fraction:
        left = {self.space.nodes[i].kind: self.space.nodes[i].generated for i in label.state}
        firsts, lasts = [], []
        for k, (request, (first, last)) in enumerate(zip(self.instance.requests, label.times, strict=True)):
            since = max(label.now, self.record.arrivals[k])
            soonest = since + (request.output_tokens - left.get(k, 0)) * self.step
            if request.terms.optional and last < 0:
                firsts.append(first)
                lasts.append(NEVER if soonest > self.horizon else -1)
                continue
            firsts.append(first if first >= 0 else self.record.of(Latency.TTFT, k, since + self.step))
            lasts.append(last if last >= 0 else self.record.of(Latency.E2E, k, soonest))
        return self.record.value(firsts, lasts)

    def _expand(self, label: _Label) -> None:
        """Push the labels that one more batch leads to."""
        for child, (took, load) in self.shortest(label.state).items():
            moved = [self.space.nodes[i].kind for i in label.state if i not in child]
            began = max(label.now, *(self.record.arrivals[k] for k in moved))
            times = self._times(label, child, began + took)
            self._push_all(_Label(child, began + took, times, label, load, began))

    def _times(self, label: _Label, child: State, end: int) -> Times:
        """The times with those of the tokens that a batch to this state makes."""
        nodes = self.space.nodes
        left = {nodes[i].kind: nodes[i].generated for i in child}
        before = ((nodes[i].kind, nodes[i].generated) for i in label.state)
        return self.record.after(label.times, before, left, end)

    def _schedule(self, goal: _Label) -> Schedule:
        """Follow the labels back."""
        batches: list[Batch] = []
        # The end of a schedule that leaves requests unfinished takes no batch.
        label = goal if goal.load is not None or goal.parent is None else goal.parent
        while label.parent is not None and label.load is not None:
            before = label.parent
            start = label.began if label.began > before.now else None
            batches.append(self.batch(before.state, label.state, label.load, start))
            label = before
        return Schedule(self.instance.name, tuple(reversed(batches)))
