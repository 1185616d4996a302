"""EcoServe (Algorithm 1) and its variants: prompts fill batches, generations fill KV."""

from __future__ import annotations

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.schedulers.reservation.job import Job, Phase, padded
from infermax_opt.infermax.schedulers.reservation.options import ReservationOptions
from infermax_opt.infermax.schedulers.reservation.policy import Policy
from infermax_opt.infermax.schedulers.reservation.queues import Lengths
from infermax_opt.infermax.schedulers.reservation.region import Region

__all__ = ["Decoupled"]

#: Generations that are tried in a region at a time.
TRIES = 8


class Decoupled(Policy):
    """EcoServe-D, -SD, -SDO and EcoServe.

    Parameters
    ----------
    instance : Instance
    options : ReservationOptions
    """

    def __init__(self, instance: Instance, options: ReservationOptions):
        super().__init__(instance, options)
        machine, share = self.machine, options.prompts_share
        block = machine.block
        #: KV tokens that generations may reserve when they start.
        self._most = int(machine.capacity * (1 - share)) // block * block
        self.generations = self.make_queue(self._size)
        self._lengths = Lengths()
        self._left: dict[int, int] = {}  # members of each group that are not done
        self._ended = True
        self._regions: dict[Region, None] = {}
        self._fresh = False  # whether a place for guests, or a guest, is new

    # --- what generations take ------------------------------------------------------------------------

    def admission(self, job: Job) -> int:
        """KV of its prompt alone."""
        return self.reservation(job) if job.protected else self.machine.held(job.target)

    def _size(self, job: Job) -> int:
        """KV of a generation that waits, with what it is expected to make."""
        machine = self.machine
        return job.commit if job.protected else min(machine.capacity, machine.held(job.cached + job.left))

    def prefilled(self, job: Job) -> None:
        """Let its generation wait."""
        self._wait(job)

    def _wait(self, job: Job) -> None:
        self.machine.queue(job)
        self.generations.add(job)
        self._lengths.add(job)
        self._fresh = True

    def _unqueue(self, job: Job) -> None:
        self.generations.discard(job)
        self._lengths.discard(job)

    # --- going on -------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Let those go on that may, then others start: groups, then guests."""
        machine = self.machine
        # Guests before hosts: a host comes to the end of its region after all guests have left it.
        for job in sorted(machine.due(), key=lambda job: job.region is None):
            if job.phase is Phase.RUNNING and not self.extend(job):
                self._stop(job)
        if self.generations and (self._ended or not self.options.synced or not machine.running):
            self._start_groups()
        if self._fresh and self._regions and machine.queued:
            self._start_guests()
        self._fresh = False

    def extend(self, job: Job) -> bool:
        """See `Policy`; whoever had been in a region has KV of its own from now on."""
        if job.region is not None and self.machine.held(job.cached) < job.commit + 1 and self._is_guest(job):
            self.counts.late += 1
        return super().extend(job)

    def _is_guest(self, job: Job) -> bool:
        return job.region is not None and job.region.members[job].offset > 0

    def _stop(self, job: Job) -> None:
        """Let a job wait with its KV; where that is in the way of a host, drop it."""
        self._leave_group(job)
        if self.machine.free < 0:
            self.evict(job)
        else:
            self.counts.stopped += 1
            self._wait(job)

    # --- groups ---------------------------------------------------------------------------------------

    def _start_groups(self) -> None:
        """Start generations in order until they have reserved what they may; the last group is split."""
        machine = self.machine
        self._ended = False
        while len(machine.running) < self.slots:
            most = self._most - machine.executed if machine.running else machine.capacity
            job = self.generations.pick(most)
            if job is None or self._size(job) - job.commit > machine.free:
                break
            if not self.options.synced:
                self._start(job)
                continue
            number, members = self.counts.groups, 0
            for other in [job, *(one for one in list(self._lengths.same(job.left)) if one is not job)]:
                most = self._most - machine.executed if machine.running else machine.capacity
                need = self._size(other)
                if len(machine.running) == self.slots or need > most or need - other.commit > machine.free:
                    break
                self._start(other)
                other.group, members = number, members + 1
            self._left[number] = members
            self.counts.sizes[members] += 1
        if not self.generations:
            self._ended = True  # KV is not full: whoever comes next need not wait for an end

    def _start(self, job: Job) -> None:
        machine = self.machine
        kv = self._size(job)
        self._unqueue(job)
        machine.start(job, kv)
        if job.protected:
            return
        machine.limit(job, machine.steps + kv - job.cached)
        if self.options.pipelined:
            region = machine.open_region(job)
            if region is not None:
                self.counts.hosts += 1
                self._regions[region] = None
                self._fresh = True

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
        self._fresh = True

    # --- guests ---------------------------------------------------------------------------------------

    def _start_guests(self) -> None:
        """Let generations that wait run in what hosts have reserved and not reached, the longest first."""
        machine = self.machine
        for region in list(self._regions):
            if not region.commit:
                del self._regions[region]
                continue
            self._fill_region(region)
            if not machine.queued or len(machine.running) >= self.slots:
                return

    def _fill_region(self, region: Region) -> None:
        machine, rehost = self.machine, self.options.rehost
        widest = region.length // 2 if rehost else max((width for width, _ in region.vacant), default=0)
        tries = 0
        while widest >= machine.block and tries < TRIES and len(machine.running) < self.slots:
            job = next(self._lengths.longest_first(widest), None)
            if job is None:
                return
            tries += 1
            length = machine.held(padded(job.left, self.options.buffer))
            place = None
            if length <= widest and not job.protected:
                place = (region.gap if rehost else region.slot)(length, machine.steps)
            if place is None:
                widest = job.left - 1
                continue
            self._unqueue(job)
            machine.invite(job, region, *place)
            self.counts.guests += 1

    # --- prompts --------------------------------------------------------------------------------------

    def next_prompt(self, room: int, first: bool) -> Job | None:
        """See `Policy`; only who leaves room for the shortest generation that waits."""
        machine = self.machine
        if machine.holding >= self.most_holding or not len(self.waiting):
            return None
        job = self.waiting.pick(min(machine.free, machine.held(room + 1 - machine.block)))
        if job is None:
            job = self._any_prompt()
        if job is None or not self._has_place(job) or not self.chunk(job, room, first):
            return None
        self.waiting.discard(job)
        machine.admit(job, self.admission(job))
        return job

    def _any_prompt(self) -> Job | None:
        """Who fits into the KV, if not whole into the batch."""
        return self.waiting.pick(self.machine.free)

    def _has_place(self, job: Job) -> bool:
        """Whether a prompt may take KV.

        With those that wait it takes no more than what is left to prompts, or its generation could start at
        once as well, or nobody waits.  And some generation can run beside all that wait, once those that run
        now have ended.
        """
        machine = self.machine
        if job.protected:
            return True
        waits = machine.committed - machine.executed
        need = self.admission(job)
        if waits and waits + need > machine.capacity - self._most:
            wait = sum(self._whole(one) for one in (job, *machine.prefilling, *machine.queued))
            if machine.executed + wait > self._most:
                return False
        waits += need
        candidates = [job, *machine.prefilling]
        if self._lengths.shortest is not None:
            candidates.append(self._lengths.shortest)
        least = min(self._growth(one) for one in candidates)
        return waits + least <= machine.capacity

    def _whole(self, job: Job) -> int:
        """KV of a job that waits, with what its generation is expected to make."""
        if job.protected or job.phase is Phase.QUEUED:
            return self._size(job)
        return min(self.machine.capacity, self.machine.held(job.target + max(1, job.left - 1)))

    def _growth(self, job: Job) -> int:
        """KV tokens that a generation takes beside what is cached before it."""
        if job.protected:
            return 0
        cached = job.cached if job.phase is Phase.QUEUED else job.target
        return self._whole(job) - self.machine.held(cached)

    def force(self) -> None:
        """Let the first generation that waits run, and drop the KV of the last ones until it can."""
        machine = self.machine
        self.counts.forced += 1
        self._ended = True
        if not machine.queued:
            return
        first, *others = sorted(machine.queued, key=lambda job: (not job.protected, *self.rank(job)))
        others = [job for job in others if not job.protected]
        while others and self._size(first) - first.commit > machine.free:
            last = others.pop()
            self._unqueue(last)
            self.evict(last)
        kv = min(self._size(first), first.commit + machine.free)
        self._unqueue(first)
        machine.start(first, kv)
        if not first.protected:
            machine.limit(first, machine.steps + kv - first.cached)
