"""The machine as a scheduler that reserves KV sees it: who holds what, and what batches do to it.

All that run make a token in every batch that decodes, so their progress is a number of steps, and nothing is
done for each of them in each batch.  The clock is exact.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from heapq import heappop, heappush
from typing import NamedTuple

from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule
from infermax_opt.infermax.replay.plain import tick_unit
from infermax_opt.infermax.schedulers.reservation.job import Job, Phase
from infermax_opt.infermax.schedulers.reservation.region import Member, Region

__all__ = ["Event", "Machine", "Part"]


class Part(NamedTuple):
    """Tokens of a prompt that a batch processes."""

    job: Job
    tokens: int


class Event(NamedTuple):
    """Something that happens to a job after a step, unless its phase changes before."""

    step: int
    place: int
    stamp: int
    job: Job


class Machine:
    """Requests, their KV and the batches so far.

    Parameters
    ----------
    instance : Instance
    by_blocks : bool
        Whether those that run take their KV block by block.

    Attributes
    ----------
    now : int
        Ticks of 1 / `second` s.
    steps : int
        Batches with decodes so far.
    running : dict
        Its keys are the jobs that run.
    prefilling, queued : dict
        Jobs in these phases.
    evicted, dismissed : list of Job
        Those whose KV the batch to come drops, and those that lose what they reserved and had not used;
        neither is admitted again before it.
    committed, executed : int
        KV tokens reserved by all, and by those that run.
    area : int
        `committed` by ticks, summed over all batches.
    busy : int
        Ticks of all batches.
    """

    def __init__(self, instance: Instance, by_blocks: bool):
        self.instance, self.by_blocks = instance, by_blocks
        system = instance.system
        self.block = system.block_size
        self.capacity = system.kv_capacity // self.block * self.block
        self.held = system.held
        self.second = tick_unit(instance, Schedule(instance.name, ()))
        self.now = self.steps = self.committed = self.executed = self.area = self.busy = 0
        self.running: dict[Job, None] = {}
        self.prefilling: dict[Job, None] = {}
        self.queued: dict[Job, None] = {}
        self.evicted: list[Job] = []
        self.dismissed: list[Job] = []
        self.batches: list[Batch] = []
        self.length = 0
        self.waited = False
        self._ends: list[Event] = []
        self._limits: list[Event] = []
        self._began = 0
        self._cached = 0  # of those that run, at step 0 if they had run since
        self._crossing: Counter[int] = Counter()  # of those that take blocks, by the step of the next one

    # --- what jobs hold -------------------------------------------------------------------------------

    @property
    def free(self) -> int:
        """KV tokens that nobody has reserved, in whole blocks."""
        return self.capacity - self.committed

    @property
    def holding(self) -> int:
        """Requests that hold KV."""
        return len(self.running) + len(self.prefilling) + len(self.queued)

    @property
    def growth(self) -> int:
        """KV tokens that the next step takes beyond what is reserved."""
        return self.block * self._crossing[-self.steps % self.block]

    def commit(self, job: Job, tokens: int) -> None:
        """Change what a job has reserved."""
        self.committed += tokens - job.commit
        if job.phase is Phase.RUNNING:
            self.executed += tokens - job.commit
        job.commit = tokens

    def admit(self, job: Job, tokens: int) -> None:
        """Let a waiting job begin its prompt, with so much KV reserved."""
        job.phase = Phase.PREFILL
        job.stamp += 1
        self.prefilling[job] = None
        self.commit(job, tokens)

    def queue(self, job: Job) -> None:
        """Let a job in decode wait with its KV."""
        self._leave(job)
        job.phase = Phase.QUEUED
        self.queued[job] = None
        if not job.protected:
            self.commit(job, self.held(job.cached))

    def start(self, job: Job, tokens: int) -> None:
        """Let a job in decode run, with so much KV reserved; by blocks, what it has cached."""
        self._leave(job)
        self.commit(job, tokens)
        job.phase = Phase.RUNNING
        job.since = self.steps
        self.running[job] = None
        self.executed += tokens
        self._cached += job.cached - self.steps
        heappush(self._ends, Event(self.steps + job.outputs - job.generated, job.place, job.stamp, job))
        if self.by_blocks and not job.protected:
            self._crossing[(job.cached - self.steps) % self.block] += 1

    def limit(self, job: Job, step: int) -> None:
        """Say after which step a job has used up its KV, or its turn."""
        job.limit = step
        heappush(self._limits, Event(step, job.place, job.stamp, job))

    def due(self) -> list[Job]:
        """Jobs that have come to their limit, and go on all the same."""
        found = []
        while self._limits and self._limits[0].step <= self.steps:
            event = heappop(self._limits)
            if event.stamp == event.job.stamp and event.job.limit <= self.steps:
                found.append(event.job)
        return found

    def evict(self, job: Job) -> None:
        """Drop the KV of a job, before the batch to come."""
        self._leave(job)
        job.phase = Phase.WAITING
        self.commit(job, 0)
        (self.evicted if job.cached else self.dismissed).append(job)
        job.cached = 0

    def settle(self, job: Job) -> None:
        """Bring a job that runs up to date; the sums over those that run do not change."""
        done = self.steps - job.since
        job.cached += done
        job.generated += done
        job.made_at_level += done
        job.since = self.steps

    def _leave(self, job: Job) -> None:
        """Take a job out of its phase; one that ran is brought up to date, and holds what it has cached."""
        job.stamp += 1
        self.prefilling.pop(job, None)
        self.queued.pop(job, None)
        if job.phase is not Phase.RUNNING:
            return
        if self.by_blocks and not job.protected:
            self._crossing[(job.cached - job.since) % self.block] -= 1
        self._cached -= job.cached - job.since
        self.settle(job)
        del self.running[job]
        if job.region is not None:
            self.detach(job)
        if self.by_blocks and not job.protected:
            job.commit = self.held(job.cached)  # its blocks have been counted as it took them
        self.executed -= job.commit
        job.phase = Phase.QUEUED

    # --- regions --------------------------------------------------------------------------------------

    def open_region(self, job: Job) -> Region | None:
        """Make what a job that has just started will grow into a region; None if that is nothing."""
        base = self.held(job.cached)
        length = job.commit - base
        if length == 0:
            return None
        region = Region(Member(job, 0, length, self.steps, base - job.cached), self.block)
        job.region = region
        self._resize(region, length)
        self.commit(job, base)
        return region

    def invite(self, job: Job, region: Region, offset: int, length: int) -> None:
        """Let a generation that waits run as a guest.

        Parameters
        ----------
        job : Job
        region : Region
        offset, length : int
            Its first cell, and the steps that it may take.
        """
        base = self.held(job.cached)
        self.start(job, base)
        job.region = region
        region.members[job] = Member(job, offset, length, self.steps, base - job.cached)
        region.vacant = [slot for slot in region.vacant if slot[1] != offset]
        self._resize(region, region.occupied())
        self.limit(job, self.steps + length)

    def detach(self, job: Job) -> None:
        """Give a job that runs the KV that it has cached as its own, outside of its region."""
        region = job.region
        assert region is not None
        job.region = None
        del region.members[job]
        self._resize(region, region.occupied())
        self.commit(job, self.held(job.cached))

    def _resize(self, region: Region, cells: int) -> None:
        self.committed += cells - region.commit
        self.executed += cells - region.commit
        region.commit = cells

    # --- batches --------------------------------------------------------------------------------------

    def run(self, parts: list[Part], decodes: bool, until: int | None) -> list[Job]:
        """Run a batch, or several in a row if they only decode; return who has finished.

        Parameters
        ----------
        parts : list of Part
        decodes : bool
            Whether those that run make a token.
        until : int, optional
            The tick at which repetitions end: the next arrival.
        """
        names = {part.job.id: part.tokens for part in parts}
        everybody = decodes and bool(self.running) and not self.queued
        if decodes and not everybody:
            names.update((job.id, 1) for job in self.running)
        first = self._features(parts, decodes, 0)
        times = 1
        if parts or not decodes:
            self._began = self.now
            self._pass(self._ticks(first), decodes)
            for part in parts:
                part.job.cached += part.tokens
            if decodes:
                self.steps += 1
        else:
            times = self._repeat(first, until)
        start = Fraction(self._began, self.second) if self.waited else None
        evicted = tuple(job.id for job in self.evicted)
        self.batches.append(Batch(names, evicted, start, everybody, times))
        self.evicted, self.dismissed, self.waited = [], [], False
        self.length += times
        return self._finished()

    def _features(self, parts: list[Part], decodes: bool, ahead: int) -> BatchFeatures:
        exact = self.instance.cost.exact_attention
        count = len(self.running) if decodes else 0
        read = self._cached + count * (self.steps + ahead) if decodes else 0
        work = sum(prefill_work(exact, part.tokens, part.job.cached) for part in parts)
        behind = sum(part.job.cached for part in parts)
        tokens = count + sum(part.tokens for part in parts)
        return BatchFeatures(tokens, count, read, len(parts), work, behind)

    def _ticks(self, features: BatchFeatures) -> int:
        cost = self.instance.cost
        return cost.batch_ticks(features) * (self.second // cost.ticks_per_second)

    def _pass(self, ticks: int, decodes: bool) -> None:
        if self.by_blocks and decodes:
            growth = self.growth
            self.committed += growth
            self.executed += growth
        self.now += ticks
        self.busy += ticks
        self.area += self.committed * ticks

    def _repeat(self, first: BatchFeatures, until: int | None) -> int:
        """Decode until something may change; how often."""
        began, times = self.now, 0
        ticks = self._ticks(first)
        # Each step reads one token more of each of those that run.
        more = self._ticks(first._replace(decode_kv=first.decode_kv + first.decodes)) - ticks
        most = min(self._next(self._ends), self._next(self._limits), self.steps + MAX_BATCHES) - self.steps
        while times < max(1, most) and (times == 0 or until is None or self.now < until):
            if times and self.by_blocks and self.growth > self.free:
                break
            self._pass(ticks, True)
            ticks += more
            self.steps += 1
            times += 1
        self._began = began
        return times

    def _next(self, events: list[Event]) -> int:
        """The step of the next event; void ones are dropped."""
        while events and events[0].stamp != events[0].job.stamp:
            heappop(events)
        return events[0].step if events else self.steps + MAX_BATCHES

    def _finished(self) -> list[Job]:
        done = []
        while self._ends and self._next(self._ends) <= self.steps and self._ends:
            done.append(heappop(self._ends).job)
        for job in done:
            self.finish(job)
        return done

    def finish(self, job: Job) -> None:
        """Free what a job holds that has made its last token."""
        self._leave(job)
        self.commit(job, 0)
        job.phase = Phase.DONE
