"""What all schedulers that reserve KV have in common: what they know, and how prompts fill a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from itertools import chain

from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.schedulers.reservation.job import Job, Phase, padded
from infermax_opt.infermax.schedulers.reservation.machine import Machine, Part
from infermax_opt.infermax.schedulers.reservation.options import Allocation, Order, ReservationOptions
from infermax_opt.infermax.schedulers.reservation.queues import DeadlineQueue, KeyQueue, Queue

__all__ = ["Counts", "Policy", "least_work_first"]

#: Output tokens expected of a request without a prediction before anybody has finished.
UNPREDICTED = 128


class Counts:
    """What happened to requests, for the report.

    Attributes
    ----------
    extended, stopped, evicted : int
        Times that a request outlived its reservation and got more, or stopped with its KV; that one lost it.
    hosts, guests, late : int
        Generations that began as hosts and as guests; guests whose host came before they had finished.
    sizes : Counter of int
        Groups of the same length that started, by the requests in each.
    forced : int
        Times that nobody could go on and one was made to.
    """

    def __init__(self) -> None:
        self.extended = self.stopped = self.evicted = self.hosts = self.guests = self.late = 0
        self.forced = 0
        self.sizes: Counter[int] = Counter()

    @property
    def groups(self) -> int:
        """Groups of the same length that started."""
        return self.sizes.total()

    @property
    def members(self) -> int:
        """Requests in these."""
        return sum(size * number for size, number in self.sizes.items())


class Policy(ABC):
    """A scheduler between two batches; how it admits is the matter of its kinds.

    Parameters
    ----------
    instance : Instance
    options : ReservationOptions
    """

    def __init__(self, instance: Instance, options: ReservationOptions):
        self.instance, self.options = instance, options
        self.by_blocks = options.allocation is Allocation.BLOCK
        self.machine = Machine(instance, self.by_blocks)
        system, policy = instance.system, instance.policy
        self.may_split = policy.chunked_prefill
        limits = [limit for limit in (system.max_running, options.max_running) if limit is not None]
        self.most_holding = min(limits, default=len(instance.requests))
        self.slots = min(system.max_batch_tokens, options.cap or system.max_batch_tokens)
        self.counts = Counts()
        self._outputs = self._finished = 0
        requests, second = instance.requests, self.machine.second
        by_arrival = sorted(range(len(requests)), key=lambda i: (requests[i].arrival, i), reverse=True)
        self._coming = [(int(requests[i].arrival * second), i) for i in by_arrival]
        self.waiting = self.make_queue(self.admission)
        self.unfinished = len(requests)

    # --- what it knows --------------------------------------------------------------------------------

    def job(self, place: int, arrival: int) -> Job:
        """A request that has just arrived."""
        request: Request = self.instance.requests[place]
        options, system = self.options, self.instance.system
        predicted = request.output_tokens if options.oracle else request.predicted_output_tokens
        if predicted is None:
            predicted = max(1, -(-self._outputs // self._finished)) if self._finished else UNPREDICTED
        expected = predicted if options.oracle else padded(predicted, options.padding)
        slo = request.terms.slo.e2e
        deadline = None if slo is None else arrival + int(slo * self.machine.second)
        # Without evictions, or without a way back after one, it has to have its KV to the end.
        policy = self.instance.policy
        protected = not policy.preemption or (
            not policy.chunked_prefill and request.peak_kv > system.prefill_budget
        )
        return Job(place, request, arrival, deadline, predicted, expected, protected)

    def reservation(self, job: Job) -> int:
        """KV tokens that a job reserves for prompt and output."""
        machine = self.machine
        if job.protected:
            return machine.held(job.inputs + job.outputs - 1)
        if self.by_blocks:
            return machine.held(job.target)
        most = job.target if self.options.allocation is Allocation.EXACT else self.options.max_length
        if self.options.allocation is Allocation.EXACT:
            most = job.inputs + max(job.expected, job.generated + 1) - 1
        return min(machine.capacity, machine.held(max(most, job.target)))

    def admission(self, job: Job) -> int:
        """KV tokens that a job reserves when its prompt begins."""
        return self.reservation(job)

    # --- queues ---------------------------------------------------------------------------------------

    def make_queue(self, size: Callable[[Job], int]) -> Queue:
        """A queue in the order of the options."""
        if self.options.queue is Order.ORDERING:
            machine = self.machine
            return DeadlineQueue(lambda: machine.now, machine.second, lambda job: job.commit, size)
        return KeyQueue(self.rank, size)

    def rank(self, job: Job) -> tuple[int | float, ...]:
        """What jobs are ordered by; the first number alone says who comes before whom for good."""
        order = self.options.queue
        if order is Order.SRTF:
            return (job.left, *job.order)
        if order is Order.MLFQ:
            return (job.level, *job.order)
        if order is Order.SPT:
            return (least_work_first(self.instance, job), *job.order)
        return job.order

    def arrive(self) -> None:
        """Queue who has arrived."""
        while self._coming and self._coming[-1][0] <= self.machine.now:
            arrival, place = self._coming.pop()
            self.enqueue(self.job(place, arrival))

    def enqueue(self, job: Job) -> None:
        """Let a job wait that has arrived or lost its KV."""
        self.waiting.add(job)

    def generates(self, job: Job) -> bool:
        """Take in that a part of a prompt has been processed; whether that has made its last token."""
        machine = self.machine
        if job.cached == job.target:
            job.generated += 1
            if job.generated == job.outputs:
                machine.finish(job)
                return True
        # Also a part that stopped one token short: that token is a decode step.
        if job.generated and job.target - job.cached == 1:
            self.prefilled(job)
        return False

    @property
    def next_arrival(self) -> int | None:
        """Tick of the next arrival; None if nobody is to come."""
        return self._coming[-1][0] if self._coming else None

    def leave(self, job: Job) -> None:
        """Note that a job has finished."""
        self.unfinished -= 1
        self._finished += 1
        self._outputs += job.outputs

    # --- the batch to come ----------------------------------------------------------------------------

    @abstractmethod
    def prepare(self) -> None:
        """Let generations go on, start and stop."""

    @abstractmethod
    def next_prompt(self, room: int, first: bool) -> Job | None:
        """Admit somebody whose prompt can begin in a batch with this room.

        Parameters
        ----------
        room : int
            Tokens left in the batch.
        first : bool
            Whether it holds no prompt yet.
        """

    @abstractmethod
    def prefilled(self, job: Job) -> None:
        """Say where a job goes that has made a token at the end of its prompt."""

    @abstractmethod
    def force(self) -> None:
        """Let somebody go on where nobody can."""

    def compose(self) -> tuple[list[Part], bool]:
        """Parts of prompts of the batch to come, and whether those that run make a token in it."""
        system, running = self.instance.system, len(self.machine.running)
        budget = system.prefill_budget
        beside = min(budget, system.max_batch_tokens - running)
        hybrid = self.instance.policy.hybrid_batching
        parts = self._fill(beside if hybrid else budget)
        if parts:
            return parts, hybrid and running > 0
        if hybrid and running and not self.may_split and (self.machine.prefilling or len(self.waiting)):
            # What cannot be split and does not fit beside those that run goes without them.
            parts = self._fill(budget)
            if parts:
                return parts, False
        return [], running > 0

    def _fill(self, room: int) -> list[Part]:
        parts: list[Part] = []
        for job in list(self.machine.prefilling):
            room -= self._take(job, room, parts)
        while room > 0:
            found = self.next_prompt(room, not parts)
            if found is None:
                break
            room -= self._take(found, room, parts)
        return parts

    def chunk(self, job: Job, room: int, first: bool) -> int:
        """Tokens of a prompt that a batch with this room takes; 0 for none.

        Parameters
        ----------
        job : Job
        room : int
            Tokens left.
        first : bool
            Whether no other prompt is in it: then one is split that fits into no batch beside those that run.
        """
        missing = job.target - job.cached
        if missing <= room:
            return missing
        return room if self.may_split and (self.options.chunked or first) else 0

    def _take(self, job: Job, room: int, parts: list[Part]) -> int:
        tokens = self.chunk(job, room, not parts)
        if tokens:
            parts.append(Part(job, tokens))
        return tokens

    # --- predictions that were too short --------------------------------------------------------------

    def grant(self, job: Job) -> int:
        """Tokens that a job which has outlived its prediction is expected to make yet.

        A block at least, and the padding of its prediction; twice as much each time.
        """
        extra = max(self.machine.block, padded(job.predicted, self.options.padding) - job.predicted)
        tokens = min(extra << min(job.grants, 32), self.machine.capacity)
        job.grants += 1
        job.expected = job.generated + tokens
        return tokens

    def extend(self, job: Job) -> bool:
        """Let a job that has used up its KV have more, of what nobody has reserved; whether there is any."""
        machine = self.machine
        machine.settle(job)
        tokens = self.grant(job)
        if job.region is not None:
            machine.detach(job)
        most = machine.held(job.cached) + machine.free
        kv = min(most, machine.capacity, machine.held(job.cached + tokens))
        if kv < machine.held(job.cached + 1):
            job.failed = True
            return False
        machine.commit(job, kv)
        machine.limit(job, machine.steps + kv - job.cached)
        self.counts.extended += 1
        return True

    def evict(self, job: Job) -> None:
        """Drop the KV of a job, which waits again after the batch to come."""
        if job.cached or job.phase is Phase.RUNNING:
            job.failed = True
            self.counts.evicted += 1
        self.machine.evict(job)

    def holders(self) -> list[Job]:
        """All that hold KV and may be evicted, those first that come first."""
        machine = self.machine
        found = [
            job for job in chain(machine.running, machine.prefilling, machine.queued) if not job.protected
        ]
        for job in machine.running:
            machine.settle(job)
        return sorted(found, key=self.rank)


def least_work_first(instance: Instance, job: Job) -> float:
    """Work that a job is expected to bring yet, s: its own, and its shares of the batches it takes part in.

    A batch has room for C tokens and M of KV, so half of what it costs whatever it does is shared by tokens
    and half by KV.
    """
    cost, system = instance.cost.floats, instance.system
    tokens, steps = job.target - job.cached, job.left - 1
    kv = tokens + steps * (job.target + steps / 2)
    shares = ((tokens + steps) / system.max_batch_tokens + kv / system.kv_capacity) / 2
    work = cost.beta[-1] * (tokens + steps) + cost.d1 * (kv - tokens)
    work += cost.p1 * prefill_work(instance.cost.exact_attention, tokens, job.cached)
    return float(max(cost.alpha) * shares + work)
