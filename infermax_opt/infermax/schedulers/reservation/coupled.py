"""Schedulers whose requests reserve KV for prompt and output at once, or none beyond their blocks."""

from __future__ import annotations

from itertools import chain

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.schedulers.reservation.job import Job, Phase
from infermax_opt.infermax.schedulers.reservation.nearest import NearestQueue
from infermax_opt.infermax.schedulers.reservation.options import Order, ReservationOptions
from infermax_opt.infermax.schedulers.reservation.policy import Policy
from infermax_opt.infermax.schedulers.reservation.queues import Lengths

__all__ = ["Coupled"]

#: Levels of ``mlfq``.
LEVELS = 5


class Coupled(Policy):
    """ORCA, SRTF, FastServe, FastGen, MultiRes, SyncCoupled, SyncFastGen and what is like them.

    Parameters
    ----------
    instance : Instance
    options : ReservationOptions
    """

    def __init__(self, instance: Instance, options: ReservationOptions):
        super().__init__(instance, options)
        self._levels = options.queue is Order.MLFQ
        if options.queue is Order.MULTIRES:
            self.waiting = NearestQueue(instance.system, self.admission)
        self._lengths = Lengths()  # of those that wait, where groups are formed
        self._ended = True  # whether a group has, or there was nobody to form one of
        self._left: dict[int, int] = {}  # members of each group that are not done
        self._full = -1  # the step before which nobody is admitted, as somebody had to make room for it

    # --- going on -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Let those go on that may, make room for their growth, and let others come before them."""
        machine = self.machine
        for job in machine.due():
            machine.settle(job)
            if self._levels and job.made_at_level >= self._turn(job):
                job.level, job.made_at_level = min(job.level + 1, LEVELS - 1), 0
            if self._has_kv(job) or self.extend(job):
                self._set_limit(job)
            else:
                self.counts.stopped += 1
                self._leave_group(job)
                machine.queue(job)
        self._make_room()
        if self.options.preemptive:
            self._preempt()
        else:
            self._resume()
        if self.options.synced:
            self._form_groups()

    def _turn(self, job: Job) -> int:
        """Tokens that a job makes at its level."""
        return self.options.quantum << job.level

    def _has_kv(self, job: Job) -> bool:
        return self.by_blocks or job.protected or job.commit > job.cached

    def _set_limit(self, job: Job) -> None:
        """Note when a job that runs has used up its KV or its turn."""
        limits = []
        if not self.by_blocks and not job.protected:
            limits.append(job.commit - job.cached)
        if self._levels and job.level < LEVELS - 1:
            limits.append(max(1, self._turn(job) - job.made_at_level))
        if limits:
            self.machine.limit(job, self.machine.steps + min(limits))

    def _run(self, job: Job) -> None:
        cached = self.machine.held(job.cached)
        self.machine.start(job, cached if self.by_blocks and not job.protected else max(job.commit, cached))
        self._set_limit(job)

    def _need(self, job: Job) -> int:
        """KV tokens that a job which holds some needs to run."""
        machine = self.machine
        if self.by_blocks or job.protected:
            return 0
        return min(machine.capacity, machine.held(job.cached + job.left)) - job.commit

    def _resume(self) -> None:
        """Let those that stopped go on, if there is KV for what they are expected to make."""
        machine = self.machine
        for job in sorted(machine.queued, key=self.rank):
            need = self._need(job)
            if len(machine.running) + len(machine.prefilling) >= self.slots or need > self._free:
                break
            machine.commit(job, job.commit + need)
            self._run(job)

    @property
    def _free(self) -> int:
        """KV tokens for others than those that run."""
        return self.machine.free - self.machine.growth

    def _make_room(self) -> None:
        """Drop the KV of those that come last, where those that run need more blocks than there are."""
        machine = self.machine
        if machine.growth <= machine.free:
            return
        holders = self.holders()
        while machine.growth > machine.free:
            victim = holders.pop()
            self._leave_group(victim)
            self.evict(victim)
        self._full = machine.steps

    @property
    def _closed(self) -> bool:
        """Whether nobody may be admitted: those that made room could come back before anybody used it."""
        return self.machine.steps <= self._full

    # --- one before the other -------------------------------------------------------------------------

    def _preempt(self) -> None:
        """Let those run that come first, in the place of those that come last."""
        machine = self.machine
        while machine.queued or (len(self.waiting) and not self._closed):
            job = min(chain(machine.queued, self._first_waiting()), key=self.rank)
            waits = job.phase is Phase.WAITING
            need = self.admission(job) if waits else self._need(job)
            crowded = len(machine.running) + len(machine.prefilling) >= self.slots
            full = need > self._free or (waits and machine.holding >= self.most_holding)
            if not crowded and not full:
                if waits:
                    self.waiting.discard(job)
                    machine.admit(job, need)
                else:
                    machine.commit(job, job.commit + need)
                    self._run(job)
            elif not self._give_way(job, need, crowded):
                return

    def _first_waiting(self) -> list[Job]:
        first = None if self._closed else next(iter(self.waiting), None)
        return [] if first is None else [first]

    def _give_way(self, job: Job, need: int, crowded: bool) -> bool:
        """Stop somebody who comes after a job, or drop the KV of one; whether there was anybody."""
        machine = self.machine
        later = [other for other in self.holders() if self.rank(other)[0] > self.rank(job)[0]]
        if crowded:
            running = [other for other in later if other.phase is Phase.RUNNING]
            if running:
                machine.queue(running[-1])
                return True
            later = [other for other in later if other.phase is Phase.PREFILL]
        elif self._free + sum(other.commit for other in later) < need:
            return False
        if not later:
            return False
        stopped = [other for other in later if other.phase is Phase.QUEUED]
        self.evict((stopped or later)[-1])
        return True

    # --- prompts --------------------------------------------------------------------------------------

    def enqueue(self, job: Job) -> None:
        """Let a job wait, also by length."""
        super().enqueue(job)
        if self.options.synced:
            self._lengths.add(job)

    def next_prompt(self, room: int, first: bool) -> Job | None:
        """See `Policy`; requests of groups and those that came before others have been admitted."""
        machine = self.machine
        if self.options.synced or self.options.preemptive or self._closed:
            return None
        if machine.holding >= self.most_holding:
            return None
        if len(machine.running) + len(machine.prefilling) >= self.slots:
            return None
        if isinstance(self.waiting, NearestQueue):
            job = self.waiting.nearest(self._free, room, first, self.may_split)
        else:
            job = self.waiting.pick(self._free)
        if job is None or not self.chunk(job, room, first):
            return None
        self.waiting.discard(job)
        machine.admit(job, self.admission(job))
        return job

    def prefilled(self, job: Job) -> None:
        """Let it run: it has reserved what it takes."""
        self._run(job)

    # --- groups ---------------------------------------------------------------------------------------

    def _form_groups(self) -> None:
        """Admit requests of the same length together, once such a group has ended, until KV is full."""
        if self._closed or not (self._ended or not self._left):
            return
        machine = self.machine
        self._ended = False
        while True:
            head = next(iter(self.waiting), None)
            if head is None:
                self._ended = True  # whoever comes next need not wait for an end
                return
            number, members = self.counts.groups, 0
            for job in list(self._lengths.same(head.left)):
                crowded = len(machine.running) + len(machine.prefilling) >= self.slots
                if crowded or machine.holding >= self.most_holding or self.admission(job) > self._free:
                    break
                self.waiting.discard(job)
                self._lengths.discard(job)
                machine.admit(job, self.admission(job))
                job.group, members = number, members + 1
            if members == 0:
                return
            self._left[number] = members
            self.counts.sizes[members] += 1

    def _leave_group(self, job: Job) -> None:
        if job.group in self._left:
            self._left[job.group] -= 1
            if self._left[job.group] == 0:
                del self._left[job.group]
                self._ended = True
        job.group = -1

    def leave(self, job: Job) -> None:
        """Note that a job has finished, and its group with its last one."""
        super().leave(job)
        self._leave_group(job)

    def force(self) -> None:
        """Let the first of those that stopped go on, in the place of others that did."""
        machine = self.machine
        self.counts.forced += 1
        self._ended, self._full = True, -1
        if not machine.queued:
            return
        first, *others = sorted(machine.queued, key=lambda job: (not job.protected, *self.rank(job)))
        while machine.free < machine.held(first.cached + 1) - first.commit and others:
            self.evict(others.pop())
        kv = min(machine.capacity, machine.held(first.cached + first.left), first.commit + machine.free)
        machine.commit(first, max(first.commit, kv))
        self._run(first)
