"""Routing and scheduling of a decode pool as it comes: who goes to which machine, and when it joins.

A request is given to the machine that has promised the least KV, when its first token is made; its transfer
takes what it takes, and it joins where there is room for all of its KV, in the order in which KV arrives.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from infermax_opt.fleet.decode import DecodeMachine, Job, Stretch

__all__ = ["Handed", "route_decode"]


@dataclass(frozen=True)
class Handed:
    """A request that is handed over to the decode pool.

    Attributes
    ----------
    first : int
        When its first token is made, ticks.
    job : Job
    due : int or None
        When its last token has to be made, ticks; None: at any time.
    pace : int or None
        The most that a batch may take with it, ticks; None: any time.
    """

    first: int
    job: Job
    due: int | None
    pace: int | None


@dataclass
class _Decoder:
    """A machine as it goes: what it does next depends on who comes, so it never goes beyond what is known.

    Attributes
    ----------
    running : list of (int, int)
        A heap: the batch that makes the last token of a request, and its number.
    coming : list of (int, int)
        A heap: when KV is there, and whose it is.
    """

    machine: DecodeMachine
    handed: Sequence[Handed]
    careful: bool
    now: int = 0
    batches: int = 0
    cached: int = 0
    reserved: int = 0
    promised: int = 0
    running: list[tuple[int, int]] = field(default_factory=list)
    coming: list[tuple[int, int]] = field(default_factory=list)
    queue: deque[int] = field(default_factory=deque)
    joining: list[int] = field(default_factory=list)
    schedule: list[Stretch] = field(default_factory=list)

    def held(self, i: int) -> int:
        return self.machine.system.held(self.handed[i].job.peak)

    def give(self, i: int) -> None:
        heapq.heappush(self.coming, (self.handed[i].job.ready, i))
        self.promised += self.held(i)

    def advance(self, until: int | None) -> None:
        """Run the batches whose company is known for sure before `until`; all, without it."""
        while True:
            self._admit()
            soonest = self.coming[0][0] if self.coming else None
            if until is not None and soonest is not None and soonest >= until:
                soonest = None
            if not self.running:
                if soonest is None:
                    return
                self.now = max(self.now, soonest)
                continue
            steps = self.running[0][0] - self.batches
            end = self.now + self.machine.batches(len(self.running), self.cached, steps)
            if soonest is not None and soonest < end:
                steps = self._until(soonest, steps)
            elif until is not None and end > until:
                return
            self._run(steps)

    def _until(self, moment: int, most: int) -> int:
        """The least number of batches that end no sooner than a moment."""
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            end = self.now + self.machine.batches(len(self.running), self.cached, middle)
            low, high = (low, middle) if end >= moment else (middle, high)
        return high

    def _run(self, steps: int) -> None:
        """Run so many batches, after which those that are done leave."""
        start = max((self.handed[i].job.ready for i in self.joining), default=0)
        self.schedule.append(Stretch(start, tuple(self.joining), steps))
        self.joining.clear()
        self.now += self.machine.batches(len(self.running), self.cached, steps)
        self.cached += len(self.running) * steps
        self.batches += steps
        while self.running and self.running[0][0] == self.batches:
            _, i = heapq.heappop(self.running)
            self.cached -= self.handed[i].job.peak
            self.reserved -= self.held(i)
            self.promised -= self.held(i)

    def _admit(self) -> None:
        """Let those join whose KV is there, as long as there is room for the next."""
        while self.coming and self.coming[0][0] <= self.now:
            self.queue.append(heapq.heappop(self.coming)[1])
        while self.queue:
            i = self.queue[0]
            one, company = self.handed[i], len(self.running) + 1
            if company > self.machine.most:
                return
            if self.reserved + self.held(i) > self.machine.system.kv_capacity:
                return
            takes = self.machine.batch(company, self.cached + one.job.prompt)
            if self.careful and one.due is not None and self.now + takes * one.job.steps > one.due:
                # It would be late even in this company, so it is not served.
                self.queue.popleft()
                self.promised -= self.held(i)
                continue
            if self.careful and self.running and one.pace is not None and takes > one.pace:
                return
            self.queue.popleft()
            self.joining.append(i)
            heapq.heappush(self.running, (self.batches + one.job.steps, i))
            self.cached += one.job.prompt
            self.reserved += self.held(i)


def route_decode(
    machine: DecodeMachine, handed: Sequence[Handed], machines: int, *, careful: bool
) -> list[list[Stretch]]:
    """The schedule of each machine of a pool.

    Parameters
    ----------
    machine : DecodeMachine
        Each of them.
    handed : sequence of Handed
        Each fits a machine by itself.
    machines : int
    careful : bool
        Whether a request waits while batches with it would take longer than its pace, and is not served
        where it would be late.
    """
    pool = [_Decoder(machine, handed, careful) for _ in range(machines)]
    for i in sorted(range(len(handed)), key=lambda i: handed[i].first):
        for one in pool:
            one.advance(handed[i].first)
        min(pool, key=lambda one: one.promised).give(i)
    for one in pool:
        one.advance(None)
    return [one.schedule for one in pool]
