"""The loop of schedulers that tell real-time from best-effort requests; what they select is their own.

Why it ends: nobody is evicted but for a request that makes a token in the batch, and generated tokens are
never lost; other batches carry on prompts whose KV is reserved.  Where a scheduler selects nobody, the first
one that can go on does (`ClassScheduler._force`), so no batch is empty while a request is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from math import inf

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch
from infermax_opt.infermax.schedulers._draft import Draft, Job, Rules
from infermax_opt.infermax.simulator import Simulator

__all__ = ["BEST_EFFORT", "LATE", "REAL_TIME", "ClassScheduler", "by_place"]

#: Queues of `ClassScheduler`.
BEST_EFFORT, REAL_TIME, LATE = range(3)

#: Share of the latest batch in the moving average of batch times.
LATEST = 0.125


def by_place(job: Job) -> int:
    """Sort key: the order of arrival."""
    return job.place


class ClassScheduler(ABC):
    """Queues of real-time and best-effort requests, asked before each batch of a `Simulator`.

    Real-time is who has a service level.  After the horizon, optional requests are left as they are.

    Parameters
    ----------
    instance : Instance

    Attributes
    ----------
    average : float
        Moving average of batch times, seconds.
    waiting, running : tuple of dict
        Jobs that hold no KV, by arrival, and those that hold some: best-effort ones (`BEST_EFFORT`),
        real-time ones (`REAL_TIME`), and those of them that a scheduler gave up (`LATE`).
    """

    def __init__(self, instance: Instance):
        self.rules = Rules(instance)
        self.average = 0.0
        self.waiting: tuple[dict[Job, None], ...] = ({}, {}, {})
        self.running: tuple[dict[Job, None], ...] = ({}, {}, {})
        self._instance = instance
        self._horizon = inf if instance.horizon is None else float(instance.horizon)
        self._known: dict[str, Job] = {}
        self._free = instance.system.kv_capacity
        self._seen: tuple[object, ...] = ()
        self._draft: Draft | None = None
        self._gone: set[Job] = set()
        release = instance.release
        #: A class of which nobody is left, as sets that must be served wait for those before them.
        self._kept = None
        if release is not None and any(
            not r.terms.optional for r in instance.requests if r.terms.class_name == release.class_name
        ):
            self._kept = release.class_name

    @abstractmethod
    def fill(self, draft: Draft, now: float) -> None:
        """Put jobs into a batch."""

    def batch(self, sim: Simulator) -> Batch | None:
        """The next batch; None once only optional requests are left after the horizon."""
        now = float(sim.now)
        self._settle(sim, now)
        self._welcome(sim)
        draft = Draft(self.rules, self._free, sum(map(len, self.running)))
        if now >= self._horizon and not self._dismiss(draft):
            self._draft = None
            return None
        self.fill(draft, now)
        if not draft.jobs:
            self._force(draft)
        self._draft = draft
        return self._answer(draft)

    def take(self, draft: Draft, job: Job, limit: float, most: int | None = None) -> bool:
        """Put a job into a batch if it fits without an eviction and the batch takes no longer than `limit`.

        Parameters
        ----------
        draft : Draft
        job : Job
        limit : float
            Seconds.
        most : int, optional
            Prefill tokens into which prompts may be split.
        """
        tokens = draft.chunk(job, most)
        if not tokens or draft.need(job) > draft.free or draft.seconds_with(job, tokens) > limit:
            return False
        draft.add(job, tokens)
        return True

    def make_room(self, draft: Draft, job: Job, victims: Iterable[Job]) -> bool:
        """Evict the first of `victims` that are enough for a job; none if all are not.

        Parameters
        ----------
        draft : Draft
        job : Job
        victims : iterable of Job
            Those that are protected, in the batch or the job itself are passed over.
        """
        short, chosen = draft.need(job) - draft.free, list[Job]()
        if short > 0 and not self._makes_token(draft, job):
            return False
        for victim in victims:
            if short <= 0:
                break
            if not victim.protected and victim is not job and victim.cached and victim not in draft.jobs:
                chosen.append(victim)
                short -= victim.reserved
        if short > 0:
            return False
        for victim in chosen:
            draft.evict(victim)
        return True

    @staticmethod
    def _makes_token(draft: Draft, job: Job) -> bool:
        return draft.chunk(job) == job.missing

    def _force(self, draft: Draft) -> None:
        """Let somebody go on: who needs no KV first, then who runs, then who waits, each by arrival.

        One of them can: a protected job that runs needs no KV; where none does, all others make room for the
        first one, which fits alone.
        """
        running = sorted((job for queue in self.running for job in queue if job.cached), key=by_place)
        waiting = sorted((job for queue in self.waiting for job in queue), key=by_place)
        running.sort(key=lambda job: draft.need(job) > 0)
        for job in (*running, *waiting):
            tokens = draft.chunk(job)
            if tokens and self.make_room(draft, job, reversed(running)):
                draft.add(job, tokens)
                return

    # --- following the machine --------------------------------------------------------------------

    def _settle(self, sim: Simulator, now: float) -> None:
        """Note what the last batch, which ends now, has done."""
        draft = self._draft
        if draft is None or not draft.jobs:
            return
        self.average += (LATEST if self.average else 1.0) * (draft.seconds - self.average)
        self._free = draft.free
        for job, tokens in draft.jobs.items():
            made = tokens == job.missing
            job.cached += tokens
            if made:
                job.generated += 1
                job.first, job.last = min(job.first, now), now
        if sim.running is not self._seen or not sim.running:
            self._seen = sim.running
            there = {view.id for view in sim.running}
            for job in draft.jobs:
                if job.id not in there:
                    del self.running[job.queue][job]
                    self._free += job.reserved

    def _welcome(self, sim: Simulator) -> None:
        """Queue who has arrived since."""
        new = []
        for view in reversed(sim.waiting):
            if view.id in self._known:
                break
            new.append(view)
        for view in reversed(new):
            request = self._instance.requests[self._instance.index[view.id]]
            job = self._known[view.id] = Job(request, self.rules, len(self._known))
            self.waiting[job.queue][job] = None

    def give_up(self, job: Job) -> None:
        """Count a real-time job among the late ones from now on."""
        self._move(job, LATE)

    def take_back(self, job: Job) -> None:
        """Count a late job among the real-time ones again."""
        self._move(job, REAL_TIME)

    def _move(self, job: Job, queue: int) -> None:
        for queues in (self.waiting, self.running):
            if job in queues[job.queue]:
                del queues[job.queue][job]
                queues[queue][job] = None
        job.queue = queue

    def _dismiss(self, draft: Draft) -> bool:
        """Leave optional requests as they are, for good; whether somebody else is there.

        Those that hold KV lose it once somebody else is there, but for those that are never evicted, who go
        on.
        """
        for queue in self.waiting:
            for job in [job for job in queue if self._may_leave(job)]:
                del queue[job]
        left = [job for queue in self.running for job in queue if self._may_leave(job) and not job.protected]
        if sum(map(len, (*self.waiting, *self.running))) == len(left):
            return False
        for job in left:
            draft.evict(job)
            self._gone.add(job)
        return True

    def _may_leave(self, job: Job) -> bool:
        """Whether it may stay unserved, and nobody waits for it."""
        return job.optional and (self._kept is None or job.class_name != self._kept)

    def _answer(self, draft: Draft) -> Batch | None:
        """The batch in the words of the simulator."""
        for job in draft.evicted:
            del self.running[job.queue][job]
            if job in self._gone:
                continue
            queue = self.waiting[job.queue]
            queue[job] = None
            ordered = sorted(queue, key=by_place)
            queue.clear()
            queue.update(dict.fromkeys(ordered))
        for job in draft.jobs:
            if job not in self.running[job.queue]:
                del self.waiting[job.queue][job]
                self.running[job.queue][job] = None
        if not draft.jobs:
            return None
        decoding = sum(job.decoding for queue in self.running for job in queue)
        every = draft.decodes == decoding
        named = {job.id: n for job, n in draft.jobs.items() if not (every and job.decoding)}
        return Batch(named, tuple(job.id for job in draft.evicted), decode_all=every and decoding > 0)
