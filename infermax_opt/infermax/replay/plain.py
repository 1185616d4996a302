"""Exact replay: from decisions to times, states and violations.

This is the plain path: readable, and able to name every violation.  `infermax_opt.infermax.replay.fast`
does the same for valid schedules in compiled code; the two agree on every test.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from infermax_opt.infermax.data.cost import BatchFeatures
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.release import NEVER, derived_arrivals
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, TooManyBatches
from infermax_opt.infermax.replay.machine import Machine
from infermax_opt.infermax.replay.rules import Rule, Violation, before_arrival

__all__ = [
    "Replay",
    "Rule",
    "Violation",
    "check_length",
    "clock",
    "replay_plain",
    "tick_unit",
]


@dataclass(frozen=True)
class Replay:
    """What a schedule does, exactly.  Times are integers in ticks of 1 / `ticks_per_second` s.

    Attributes
    ----------
    violations : tuple of Violation
        Empty for a valid schedule.
    features : list of BatchFeatures, one per batch
    starts, ends : list of int, one per batch
        Ticks.
    kv_used, running : list of int, one per batch
        KV tokens occupied and requests holding KV after the batch (finishing ones included).
    first_batch, last_batch : list of int, one per request
        Position (from 0) of the batch that generated the first and the last token; -1 if none.
    evictions, refill_tokens : int
        Refill tokens are the prefill tokens of requests that were evicted before.
    generated : int
        Tokens made in all.
    released : mapping of int to int
        Ticks at which requests of a closed loop arrive, but for its first set.
    """

    violations: tuple[Violation, ...]
    ticks_per_second: int
    features: list[BatchFeatures]
    starts: list[int]
    ends: list[int]
    kv_used: list[int]
    running: list[int]
    first_batch: list[int]
    last_batch: list[int]
    evictions: int
    refill_tokens: int
    generated: int
    released: Mapping[int, int] = field(default_factory=dict)

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    def seconds(self, ticks: int) -> Fraction:
        """Convert ticks to exact seconds."""
        return Fraction(ticks, self.ticks_per_second)

    def latencies(self, instance: Instance) -> Latencies:
        """When each request has its first and its last token; the instance is the one that was replayed."""
        firsts, lasts = (
            [self.ends[batch] if batch >= 0 else NEVER for batch in batches]
            for batches in (self.first_batch, self.last_batch)
        )
        return Latencies(instance, self.ticks_per_second, firsts, lasts, self.released)


def check_length(schedule: Schedule) -> None:
    """Raise `InputError` where a schedule has more batches than `MAX_BATCHES`."""
    if schedule.length > MAX_BATCHES:
        raise TooManyBatches(
            f"{schedule.length} batches, repetitions counted; the most is {MAX_BATCHES}",
            field="batches",
        )


def tick_unit(instance: Instance, schedule: Schedule) -> int:
    """Ticks per second in which batch times, arrivals and starts are all integers."""
    arrivals = {Fraction(group.arrival).denominator for group in instance.groups}
    starts = {batch.start.denominator for batch in schedule.batches if batch.start is not None}
    return math.lcm(instance.cost.ticks_per_second, *arrivals, *starts)


def clock(
    instance: Instance,
    unit: int,
    features: Sequence[BatchFeatures],
    earliest: Mapping[int, Fraction],
) -> tuple[list[int], list[int]]:
    """Start and end of every batch, in ticks of 1 / `unit` seconds.

    Batches run one after the other, so the longest path through them is this sum, and from the last wait on
    every batch is critical.  Of 10,000 batches the sum takes 0.4 ms, networkx's `dag_longest_path_length`
    80 ms.

    Parameters
    ----------
    instance : Instance
    unit : int
    features : sequence of BatchFeatures
    earliest : mapping of batch position (from 0) to seconds
        Where the schedule waits.
    """
    scale = unit // instance.cost.ticks_per_second
    durations = instance.cost.many_batch_ticks(features)
    if not earliest:
        ends = [total * scale for total in itertools.accumulate(durations)]
        return [0, *ends][: len(ends)], ends
    starts, ends = [], []
    now = 0
    for j, duration in enumerate(durations):
        if j in earliest:
            now = max(now, int(earliest[j] * unit))
        starts.append(now)
        now += duration * scale
        ends.append(now)
    return starts, ends


def _unfinished(machine: Machine) -> Iterator[Violation]:
    """Every request that had to generate all its tokens and did not."""
    for i, request in enumerate(machine.instance.requests):
        if not machine.state.finished(i) and not request.terms.optional:
            n = machine.state.generated[i]
            message = f"generated {n} of {request.output_tokens} tokens"
            yield Violation(Rule.COMPLETION, None, request.id, n, request.output_tokens, message)


def _each(schedule: Schedule) -> Iterator[tuple[Batch, bool]]:
    """Yield every batch, repetitions one by one, and whether it opens its entry."""
    for batch in schedule.batches:
        for k in range(batch.repeat):
            yield batch, k == 0


def replay_plain(instance: Instance, schedule: Schedule) -> Replay:
    """Replay a schedule batch by batch, in plain Python.

    Raises
    ------
    InputError
        If the schedule has more than `MAX_BATCHES` batches.

    Notes
    -----
    A faulty decision is reported and left out; the replay goes on from there, so later
    violations may follow from earlier ones.
    """
    check_length(schedule)
    machine = Machine(instance)
    unit = tick_unit(instance, schedule)
    violations: list[Violation] = []
    features: list[BatchFeatures] = []
    kv_used: list[int] = []
    running: list[int] = []
    earliest: dict[int, Fraction] = {}
    awaited = {i: True for i, r in enumerate(instance.requests) if r.arrival > 0}
    awaited.update((i, True) for members in instance.release_sets[1:] for i in members)
    newest: list[tuple[int, int]] = []  # (batch, request) of each awaited request's first tokens
    for j, (batch, opens) in enumerate(_each(schedule)):
        if opens and batch.start is not None:
            earliest[j] = batch.start
        step = machine.examine(batch, opens)
        violations += step.faults
        newest.extend((j, i) for i in step.chosen if awaited.pop(i, False))
        features.append(step.features)
        kv_used.append(step.kv)
        running.append(step.running)
        machine.run(step)
    starts, ends = clock(instance, unit, features, earliest)
    released = derived_arrivals(instance, machine.last, ends)
    for j, i in newest:
        arrival: Fraction | None = instance.requests[i].arrival
        if i in released:
            arrival = None if released[i] == NEVER else Fraction(released[i], unit)
        early = before_arrival(instance.requests[i], Fraction(starts[j], unit), j + 1, arrival)
        if early is not None:
            violations.append(early)
    violations.extend(_unfinished(machine))
    return Replay(
        violations=tuple(violations),
        ticks_per_second=unit,
        features=features,
        starts=starts,
        ends=ends,
        kv_used=kv_used,
        running=running,
        first_batch=machine.first,
        last_batch=machine.last,
        evictions=machine.evictions,
        refill_tokens=machine.refill_tokens,
        generated=sum(machine.state.generated),
        released=released,
    )
