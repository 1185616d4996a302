"""A naive replay of streams, iteration by iteration in fractions, and the fewest workers of any policy.

Written from what `infermax_opt.cluster.replay.worker` says of a worker, and nothing else of it is used.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from tests.placement.oracle import broken


@dataclass
class Job:
    """A request on a worker."""

    request: StreamRequest
    tokens: int = 0
    first: Fraction | None = None
    last: Fraction | None = None
    evictions: int = 0
    running: bool = False

    @property
    def context(self) -> int:
        return self.request.input_tokens + self.tokens


@dataclass
class NaiveWorker:
    """A worker, replayed one iteration at a time."""

    stream: Stream
    clock: Fraction
    jobs: list[Job] = field(default_factory=list)  # in the order of arrival, those that have ended left out

    def held(self, jobs: Sequence[Job]) -> Fraction:
        return sum((self.stream.worker.kv(job.context) for job in jobs), Fraction(0))

    def take(self, job: Job, now: Fraction) -> None:
        if self.stream.split_phase:
            job.tokens, job.first = 1, now
            job.last = now if job.request.output_tokens == 1 else None
        if job.last is None:
            self.jobs.append(job)

    def run(self, until: Fraction | None) -> None:
        """All iterations that begin before a moment; None: until all is done."""
        while self.jobs and (until is None or self.clock < until):
            self.iteration()
        if until is not None:
            self.clock = max(self.clock, until)

    def iteration(self) -> None:
        w = self.stream.worker
        running = [job for job in self.jobs if job.running]
        chosen: list[Job] = []
        for job in self.jobs:
            if not job.running:
                if self.held([*running, *chosen, job]) > w.kv_capacity:
                    break
                chosen.append(job)
        if chosen:
            # With split phases, the KV of the others has come with them.
            prefilled = [job for job in chosen if job.evictions or not self.stream.split_phase]
            if prefilled:
                self.clock += w.prefill_token * sum(job.context for job in prefilled) + w.prefill_overhead
            for job in chosen:
                job.running = True
            self.give(prefilled)
        elif self.held(running) > w.kv_capacity:
            running[-1].running = False
            running[-1].evictions += 1
        else:
            context = sum(job.context for job in running)
            self.clock += w.decode_context * context + w.decode_request * len(running) + w.decode_overhead
            self.give(running)

    def give(self, jobs: Sequence[Job]) -> None:
        """The next token of each."""
        for job in jobs:
            job.tokens += 1
            if job.first is None:
                job.first = self.clock
            if job.tokens == job.request.output_tokens:
                job.last = self.clock
                self.jobs.remove(job)


@dataclass(frozen=True)
class Seen:
    """A worker at a heartbeat: seconds until it is free, and its requests; None if not in use."""

    wait: Fraction
    groups: tuple[PlacementGroup, ...]  # on worker 1


@dataclass(frozen=True)
class Story:
    """What became of the requests of one worker, and what was seen of it before each heartbeat."""

    jobs: Mapping[int, Job]
    seen: Mapping[int, Seen | None]


def story(stream: Stream, keys: Sequence[int]) -> Story:
    """Replay a worker that gets these requests."""
    first, last = min(stream.beats), max(stream.beats)
    worker = NaiveWorker(stream, first * stream.heartbeat)
    jobs = {k: Job(stream.requests[k]) for k in sorted(keys)}
    seen: dict[int, Seen | None] = {}
    for beat in range(first, last + 1):
        now = beat * stream.heartbeat
        worker.run(now)
        wait = worker.clock - now
        seen[beat] = Seen(wait, tuple(map(functools.partial(ongoing, worker), worker.jobs)))
        if not worker.jobs and wait == 0:
            seen[beat] = None
        for k in sorted(keys):
            if stream.beat(stream.requests[k]) == beat:
                worker.take(jobs[k], now)
    worker.run(None)
    return Story(jobs, seen)


def ongoing(worker: NaiveWorker, job: Job) -> PlacementGroup:
    """A request under way as limits see it."""
    guess = job.request.predicted_output_tokens
    while guess <= job.tokens:
        guess = 2 * guess
    spent = Fraction(0) if job.first is None else worker.clock - job.first
    return PlacementGroup(
        job.request.id, job.request.input_tokens, guess, job.request.output_tokens, job.tokens, spent, 1
    )


class Policies:
    """All placements of a stream that keep the limits at every heartbeat.

    Workers do not depend on each other, so a placement is a partition of the requests into sets each of
    which keeps the limits on a worker of its own.
    """

    def __init__(self, stream: Stream):
        self.stream = stream
        self.first, self.last = min(stream.beats), max(stream.beats)
        self.stories: dict[frozenset[int], Story] = {}
        keys = range(len(stream.requests))
        for size in range(1, len(keys) + 1):
            for members in map(frozenset, itertools.combinations(keys, size)):
                # What the last one does not mend.
                if size > 1 and members - {max(members)} not in self.stories:
                    continue
                told = story(stream, sorted(members))
                if self.keeps(members, told):
                    self.stories[members] = told

    @property
    def any(self) -> bool:
        """Whether there is any: each request fits on a worker of its own."""
        return all(frozenset([k]) in self.stories for k in range(len(self.stream.requests)))

    def keeps(self, members: frozenset[int], told: Story) -> bool:
        return not any(found for _, _, found in self.limits(members, told))

    def limits(
        self, members: frozenset[int], told: Story
    ) -> Iterator[tuple[int, PlacementInstance, set[str]]]:
        """Heartbeats that give it requests, as instances of this worker alone, and the limits broken."""
        stream = self.stream
        for beat, all_new in stream.beats.items():
            new = [stream.requests[k] for k in all_new if k in members]
            if not new:
                continue
            seen = told.seen[beat] or Seen(Fraction(0), ())
            groups = [
                PlacementGroup(r.id, r.input_tokens, r.predicted_output_tokens, r.output_tokens) for r in new
            ]
            instance = PlacementInstance(
                "worker", (*seen.groups, *groups), stream.worker, stream.slo, stream.theta, stream.gamma,
                busy={1: seen.wait} if seen.wait else {}, split_phase=stream.split_phase,
            )  # fmt: skip
            on = [r for r in instance.requests if r.ongoing]
            fresh = [r for r in instance.requests if not r.ongoing]
            yield beat, instance, broken(instance, fresh, on, seen.wait)

    def in_use(self, members: frozenset[int], beat: int) -> bool:
        return self.stories[members].seen[beat] is not None or any(
            k in members for k in self.stream.beats.get(beat, ())
        )

    def fewest(self, beat: int) -> int:
        """Fewest workers in use at a heartbeat, over all placements."""
        uses = {members: self.in_use(members, beat) for members in self.stories}

        @functools.cache
        def least(left: frozenset[int]) -> int:
            if not left:
                return 0
            one = min(left)
            return min(
                use + least(left - members)
                for members, use in uses.items()
                if one in members and members <= left
            )

        return least(frozenset(range(len(self.stream.requests))))


def tiny_stream(rng: random.Random, *, requests: int = 7, split_phase: bool | None = None) -> Stream:
    """A random stream for replays: short, with hardly more KV than one request needs."""
    longest = rng.choice([2, 4, 8, 12])
    zero = rng.choice(["0", "0.01"])
    worker = {
        "kv_token": Fraction(rng.choice(["1", "1", "0.5", "0"])),
        "kv_request": Fraction(rng.choice(["0", "0", "1.5"])),
        "prefill_token": Fraction(rng.choice([zero, "0.1", "0.03"])),
        "prefill_overhead": Fraction(rng.choice([zero, "0.3"])),
        "decode_context": Fraction(rng.choice([zero, "0.01", "0.1"])),
        "decode_request": Fraction(rng.choice([zero, "0.07"])),
        "decode_overhead": Fraction(rng.choice([zero, "0.2", "1"])),
    }
    made = []
    for k in range(rng.randint(1, requests)):
        tokens = [rng.randint(1, longest) for _ in range(3)]
        made.append(StreamRequest(f"r{k}", Fraction(rng.randint(0, 60), rng.choice([10, 20])), *tokens))
    least = max(
        worker["kv_token"] * (r.input_tokens + r.output_tokens - 1) + worker["kv_request"] for r in made
    )
    capacity = max(least, Fraction(1, 2)) * rng.choice([1, 1, Fraction(3, 2), 2, 4])
    return Stream(
        "tiny", tuple(made), Worker(kv_capacity=capacity, **worker), Slo(Fraction(100), Fraction(100)),
        theta=Fraction(rng.choice(["1", "0.5"])), gamma=Fraction(rng.choice(["0", "0.5", "1"])),
        heartbeat=Fraction(rng.choice(["0.05", "0.3", "1", "4"])),
        split_phase=rng.random() < 0.4 if split_phase is None else split_phase,
    )  # fmt: skip


def tight_stream(rng: random.Random, *, requests: int = 6, right: float = 0.4) -> Stream:
    """A random stream for limits: sizes about those at which each of them begins to bind."""
    longest = rng.choice([3, 6, 10])
    outputs = rng.choice([1, 2, 3, longest, 3 * longest])
    beats = rng.randint(1, 5)
    heartbeat = Fraction(rng.choice(["0.1", "0.5", "1", "2"]))
    exact = rng.random() < right
    made = []
    for k in range(rng.randint(2, requests)):
        output = rng.randint(1, outputs)
        guess = (
            output if exact else rng.choice([output, rng.randint(1, outputs), rng.randint(1, 2 * outputs)])
        )
        made.append(
            StreamRequest(f"r{k}", heartbeat * rng.randrange(beats), rng.randint(1, longest), guess, output)
        )
    coefficients = {
        "kv_token": Fraction(rng.choice(["1", "1", "0"])),
        "kv_request": Fraction(rng.choice(["0", "0", "2"])),
        "prefill_token": Fraction(rng.choice(["0", "0.01", "0.1", "0.1", "0.3"])),
        "prefill_overhead": Fraction(rng.choice(["0", "0", "0.2", "0.5"])),
        "decode_context": Fraction(rng.choice(["0", "0.005", "0.02", "0.05"])),
        "decode_request": Fraction(rng.choice(["0", "0.05"])),
        "decode_overhead": Fraction(rng.choice(["0", "0.1", "0.3"])),
    }
    k1, c1, k2, c2, c3 = (
        coefficients[name] for name in (
            "prefill_token", "prefill_overhead", "decode_context", "decode_request", "decode_overhead",
        )
    )  # fmt: skip
    kv = [coefficients["kv_token"] * (r.input_tokens + max(r.predicted_output_tokens, r.output_tokens))
          + coefficients["kv_request"] for r in made]  # fmt: skip
    theta = Fraction(rng.choice(["1", "1", "0.8", "0.5"]))
    gamma = Fraction(rng.choice(["0", "0.5", "1"]))
    iteration = max(
        (k2 * (r.input_tokens + gamma * 2 * max(r.predicted_output_tokens, 1)) + theta * c2) / theta + c3
        for r in made
    )
    prefill = max(k1 * r.input_tokens + c1 for r in made)

    def loosened(value: Fraction, *factors: str) -> Fraction:
        return max(value, Fraction(1, 10)) * Fraction(rng.choice(factors))

    return Stream(
        "tight", tuple(made),
        Worker(kv_capacity=loosened(max(kv), "1", "1.3", "2", "50"), **coefficients),
        Slo(loosened(prefill, "1", "1", "1.5", "2", "50"), loosened(iteration, "1", "1", "1.2", "2", "50")),
        theta=theta, gamma=gamma, heartbeat=heartbeat, split_phase=rng.random() < 0.15,
    )  # fmt: skip


def saving_stream(rng: random.Random) -> Stream:
    """A random stream whose prompts take about what requests have saved; in tenths, so often just that."""
    rates = {
        "prefill_token": Fraction("0.1"),
        "prefill_overhead": Fraction(rng.choice(["0", "0.1", "0.3"])),
        "decode_context": Fraction(rng.choice(["0", "0", "0.01", "0.05"])),
        "decode_request": Fraction(rng.choice(["0", "0.05"])),
        "decode_overhead": Fraction(rng.choice(["0.1", "0.3", "0.5"])),
    }
    heartbeat = Fraction(rng.choice(["0.5", "0.7", "1", "2"]))
    beats = rng.choice([2, 2, 3, 8])
    made = []
    for k in range(rng.randint(2, 5)):
        output = rng.choice([1, 2, 3, 5, 10, 20])
        arrival = heartbeat * (0 if k == 0 else rng.randrange(beats))
        guess = rng.choice([output, output, 1, 2 * output])
        made.append(StreamRequest(f"r{k}", arrival, rng.randint(1, 30), guess, output))
    worker = Worker(kv_capacity=Fraction(1000), kv_token=Fraction(1), kv_request=Fraction(0), **rates)
    slo = Slo(Fraction(100), Fraction(rng.choice(["0.5", "1", "1.5", "2", "3"])))
    return Stream(
        "saving", tuple(made), worker, slo,
        theta=Fraction(rng.choice(["1", "1", "0.5"])), gamma=Fraction(0), heartbeat=heartbeat,
    )  # fmt: skip
