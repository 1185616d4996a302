"""A batch that is being filled, and the requests that may go into it."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from infermax_opt.infermax.data.cost import PRICED, BatchFeatures, Extra, batch_time, prefill_work
from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.schedulers._knowledge import lone_prefill

__all__ = ["Draft", "Job", "Rules", "alone"]


class Rules:
    """Limits of the machine and its cost, as a scheduler asks for them.

    Parameters
    ----------
    instance : Instance
    """

    def __init__(self, instance: Instance):
        system, policy = instance.system, instance.policy
        self.capacity, self.tokens = system.kv_capacity, system.max_batch_tokens
        self.prefill = system.max_prefill_tokens
        self.budget = system.prefill_budget
        self.running = system.max_running or len(instance.requests)
        self.hybrid, self.chunked, self.preemption = (
            policy.hybrid_batching, policy.chunked_prefill, policy.preemption
        )  # fmt: skip
        self.held = system.held
        self.exact = instance.cost.exact_attention
        self.cost = instance.cost.floats
        self._extra = Extra(*map(float, instance.cost.extra))
        #: Whether the time of a batch has none of these terms.
        self.plain = not any(self._extra)
        self.block = system.block_size
        # The same sums in the same order as `batch_time` of one decode.
        self.decode_alone = float(batch_time(*self.cost, 1, 1, 0, 0, 0))

    def seconds(self, batch: BatchFeatures) -> float:
        """Time of a batch."""
        time = float(batch_time(*self.cost, *batch[:PRICED]))
        return time if self.plain else time + float(self._extra.of(batch))

    def protected(self, request: Request) -> bool:
        """Whether a request reserves its peak KV and is never evicted, as it could not come back."""
        return not self.preemption or (not self.chunked and request.peak_kv > self.budget)


class Job:
    """A request that has arrived, as a scheduler keeps it.

    Parameters
    ----------
    request : Request
    rules : Rules
    place : int
        In the order of arrivals.

    Attributes
    ----------
    cached, generated, reserved : int
        Tokens; `reserved` are those of KV that nobody else gets.
    first, last : float
        Seconds of the first token, of the latest one or the arrival.
    mark : float
        Seconds of the token with which its token group began.
    alone : (int, float)
        Tokens, and the seconds that a prefill of so many takes alone: worked out once.
    queue : int
        1 if it has a service level and so is real-time, 0 if it is best-effort; a scheduler may change it.
    """

    __slots__ = (
        "alone",
        "arrival",
        "cached",
        "class_name",
        "e2e_due",
        "first",
        "generated",
        "id",
        "last",
        "mark",
        "optional",
        "peak",
        "place",
        "predicted",
        "prompt",
        "protected",
        "queue",
        "reserved",
        "tpot",
        "ttft_due",
    )  # fmt: skip

    def __init__(self, request: Request, rules: Rules, place: int):
        slo = request.terms.slo
        self.id, self.place, self.prompt = request.id, place, request.input_tokens
        self.arrival = float(request.arrival)
        self.class_name, self.optional = request.terms.class_name, request.terms.optional
        self.queue = int(bool(slo))
        self.ttft_due = inf if slo.ttft is None else self.arrival + float(slo.ttft)
        self.e2e_due = inf if slo.e2e is None else self.arrival + float(slo.e2e)
        self.tpot = inf if slo.tpot is None else float(slo.tpot)
        self.predicted = request.predicted_output_tokens or 1
        self.protected = rules.protected(request)
        self.peak = rules.held(request.peak_kv) if self.protected else 0
        self.cached = self.generated = self.reserved = 0
        self.first, self.alone = inf, (0, 0.0)
        self.last = self.mark = self.arrival

    @property
    def missing(self) -> int:
        """Tokens to process before it makes its next one."""
        return self.prompt + self.generated - self.cached

    @property
    def decoding(self) -> bool:
        """Whether its next token takes a decode step."""
        return self.generated >= 1 and self.prompt + self.generated - self.cached == 1

    @property
    def to_come(self) -> int:
        """Tokens that it is thought to make after the next one."""
        return max(self.predicted - self.generated, 1) - 1


class Draft:
    """A batch that is being filled.

    Parameters
    ----------
    rules : Rules
    free, holders : int
        KV tokens that nobody has reserved; requests that hold some.

    Attributes
    ----------
    jobs : dict
        Who is in, and the tokens that each processes, in the order in which they came.
    evicted : list of Job
    seconds : float
        What the batch takes.
    """

    def __init__(self, rules: Rules, free: int, holders: int):
        self.rules, self.free, self.holders = rules, free, holders
        self.jobs: dict[Job, int] = {}
        self.evicted: list[Job] = []
        self._before: dict[Job, int] = {}  # what those who are in had reserved
        self.tokens = self.prefill_tokens = self.decodes = self.decode_kv = 0
        self.prefills = self.work = self.behind = 0
        self.seconds = 0.0

    def chunk(self, job: Job, most: int | None = None) -> int:
        """Tokens that a job could process in it, KV aside; 0 for none.

        Prompts are whole, but for those that fit no batch.

        Parameters
        ----------
        job : Job
        most : int, optional
            Prefill tokens into which prompts may be split, too.
        """
        rules = self.rules
        left = rules.tokens - self.tokens
        if left < 1 or (job.cached == 0 and self.holders >= rules.running):
            return 0
        if not rules.hybrid and (self.prefills if job.decoding else self.decodes):
            return 0
        if job.decoding:
            return 1
        left = min(left, rules.prefill - self.prefill_tokens)
        missing = job.missing
        if rules.chunked and (most is not None or job.cached or missing > rules.budget):
            return max(0, min(missing, left, most or missing))
        return missing * (missing <= left)

    def need(self, job: Job) -> int:
        """KV tokens that a job has to reserve to be in it: to the end of its prefill, or its peak."""
        if job.protected:
            return job.peak - job.reserved
        return max(0, self.rules.held(job.prompt + job.generated) - job.reserved)

    def seconds_with(self, job: Job, tokens: int) -> float:
        """What the batch would take with a job in it, too."""
        rules, decodes, decode_kv = self.rules, self.decodes, self.decode_kv
        prefills, work, behind = self.prefills, self.work, self.behind
        if job.decoding:
            decodes, decode_kv = decodes + 1, decode_kv + job.cached
        else:
            prefills, behind = prefills + 1, behind + job.cached
            work += prefill_work(rules.exact, tokens, job.cached)
        return rules.seconds(BatchFeatures(self.tokens + tokens, decodes, decode_kv, prefills, work, behind))

    def add_decodes(self, jobs: Iterable[Job], limit: float, size: int) -> int:
        """Put in jobs in decode, one after the other, up to the first that needs a closer look; how many.

        The same as `chunk`, `need`, `seconds_with` and `add` for each of them, without the steps between:
        most of what a scheduler does is this.

        Parameters
        ----------
        jobs : iterable of Job
        limit : float
            Seconds that the batch may take.
        size : int
            Jobs that it may hold.
        """
        rules, count = self.rules, 0
        if not rules.plain or (self.prefills and not rules.hybrid):
            return 0
        cost, prefills, work, block = rules.cost, self.prefills, self.work, rules.block
        room = min(rules.tokens - self.tokens, size - len(self.jobs))
        tokens, decodes, read, free = self.tokens, self.decodes, self.decode_kv, self.free
        seconds, inside, before = self.seconds, self.jobs, self._before
        for job in jobs:
            cached, length = job.cached, job.prompt + job.generated
            if count >= room or not job.generated or length - cached != 1:
                break
            need = (job.peak if job.protected else -(-length // block) * block) - job.reserved
            if need < 0 and not job.protected:
                need = 0
            if need > free:
                break
            time = batch_time(*cost, tokens + 1, decodes + 1, read + cached, prefills, work)
            if time > limit:
                break
            seconds, free, tokens, decodes, read = time, free - need, tokens + 1, decodes + 1, read + cached
            inside[job], before[job] = 1, job.reserved
            job.reserved += need
            count += 1
        self.seconds, self.free = float(seconds), free
        self.tokens, self.decodes, self.decode_kv = tokens, decodes, read
        return count

    def add(self, job: Job, tokens: int) -> None:
        """Put a job into it, which fits."""
        self.seconds = self.seconds_with(job, tokens)
        self.jobs[job] = tokens
        self._count(job, tokens, 1)
        need = self.need(job)
        self._before[job] = job.reserved
        job.reserved += need
        self.free -= need

    def remove(self, job: Job) -> None:
        """Take a job out again."""
        self._count(job, self.jobs.pop(job), -1)
        before = self._before.pop(job)
        self.free += job.reserved - before
        job.reserved = before
        left = BatchFeatures(self.tokens, self.decodes, self.decode_kv, self.prefills, self.work, self.behind)
        self.seconds = self.rules.seconds(left) if self.jobs else 0.0

    def evict(self, job: Job) -> None:
        """Drop the KV of a job that is not in it."""
        self.evicted.append(job)
        self.free += job.reserved
        self.holders -= 1
        job.cached = job.reserved = 0

    def _count(self, job: Job, tokens: int, sign: int) -> None:
        self.tokens += sign * tokens
        self.holders += sign * (job.cached == 0)
        if job.decoding:
            self.decodes += sign
            self.decode_kv += sign * job.cached
        else:
            self.prefills += sign
            self.prefill_tokens += sign * tokens
            self.work += sign * prefill_work(self.rules.exact, tokens, job.cached)
            self.behind += sign * job.cached


def alone(rules: Rules, job: Job) -> float:
    """Seconds until a job makes its next token with the machine to itself."""
    if job.decoding:
        return rules.decode_alone + float(rules.cost.d1 * job.cached)
    missing = job.missing
    if job.alone[0] != missing:
        cost, budget = rules.cost, min(rules.budget, missing)
        job.alone = missing, lone_prefill(cost, rules.exact, budget, missing)
    return job.alone[1]
