"""Exact replay: from decisions to times, states and violations.

This is the plain path: readable, and able to name every violation.  `infermax_opt.infermax.replay.fast`
does the same for valid schedules in compiled code; the two agree on every test.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule
from infermax_opt.infermax.replay.state import State

__all__ = [
    "Replay",
    "Rule",
    "Violation",
    "check_length",
    "clock",
    "replay_plain",
    "tick_unit",
]


class Rule(enum.Enum):
    """The rules of DESIGN section 1.1 that a schedule can break."""

    UNKNOWN_REQUEST = "unknown_request"
    FINISHED = "finished"
    TOKENS = "tokens"
    CHUNKED_PREFILL = "chunked_prefill"
    HYBRID_BATCHING = "hybrid_batching"
    PREEMPTION = "preemption"
    EVICTION = "eviction"
    MAX_BATCH_TOKENS = "max_batch_tokens"
    MAX_PREFILL_TOKENS = "max_prefill_tokens"
    KV_CAPACITY = "kv_capacity"
    MAX_RUNNING = "max_running"
    ARRIVAL = "arrival"
    COMPLETION = "completion"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule.

    Attributes
    ----------
    rule : Rule
    batch : int or None
        Position of the batch, from 1, repetitions counted; None for the whole schedule.
    request : str or None
    value, limit : int or Fraction or None
        What was found and what the rule allows.
    message : str
    """

    rule: Rule
    batch: int | None
    request: str | None
    value: int | Fraction | None
    limit: int | Fraction | None
    message: str

    def __str__(self) -> str:
        place = "schedule" if self.batch is None else f"batch {self.batch}"
        who = "" if self.request is None else f", request {self.request!r}"
        return f"{place}{who}: {self.rule.value}: {self.message}"


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

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    def seconds(self, ticks: int) -> Fraction:
        """Convert ticks to exact seconds."""
        return Fraction(ticks, self.ticks_per_second)


def check_length(schedule: Schedule) -> None:
    """Raise `InputError` where a schedule has more batches than `MAX_BATCHES`."""
    if schedule.length > MAX_BATCHES:
        raise InputError(
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


class _Checker:
    """Applies the batches of one schedule to a `State`, collecting violations."""

    def __init__(self, instance: Instance):
        self.instance = instance
        self.state = State(instance)
        self.violations: list[Violation] = []
        self.position = 0  # of the current batch, from 0
        self.first = [-1] * len(instance.requests)
        self.last = [-1] * len(instance.requests)
        self.was_evicted = [False] * len(instance.requests)
        self.evictions = 0
        self.refill_tokens = 0
        self.in_decode: dict[int, None] = {}

    def fault(
        self,
        rule: Rule,
        message: str,
        request: str | None = None,
        value: int | Fraction | None = None,
        limit: int | Fraction | None = None,
    ) -> None:
        batch = self.position + 1
        self.violations.append(Violation(rule, batch, request, value, limit, message))

    def evict(self, names: tuple[str, ...]) -> set[int]:
        """Drop the KV of the named requests; return those that may process nothing now."""
        evicted: set[int] = set()
        for name in names:
            i = self.instance.index.get(name)
            if i is None:
                self.fault(Rule.UNKNOWN_REQUEST, "is evicted but not in the instance", name)
            elif not self.instance.policy.preemption:
                self.fault(Rule.PREEMPTION, "is evicted though preemption is off", name)
            elif i in evicted:
                self.fault(Rule.EVICTION, "is evicted twice in one batch", name)
            elif self.state.cached[i] == 0:
                self.fault(Rule.EVICTION, "is evicted but holds no KV", name, 0, 1)
            else:
                evicted.add(i)
                self.state.set_cached(i, 0)
                self.in_decode.pop(i, None)
                self.was_evicted[i] = True
                self.evictions += 1
        return evicted

    def chosen(self, batch: Batch, evicted: set[int]) -> dict[int, int]:
        """Valid (request, tokens) pairs of the batch, shorthands resolved."""
        state, index = self.state, self.instance.index
        chosen: dict[int, int] = {}
        for name, tokens in batch.tokens.items():
            i = index.get(name)
            if i is None:
                self.fault(Rule.UNKNOWN_REQUEST, "is processed but not in the instance", name)
                continue
            missing = state.missing(i)
            if state.finished(i):
                self.fault(Rule.FINISHED, "is processed after its last token", name, tokens, 0)
            elif i in evicted:
                self.fault(Rule.EVICTION, "is evicted and processed in one batch", name, tokens, 0)
            elif not 1 <= tokens <= missing:
                self.fault(
                    Rule.TOKENS, f"processes {tokens} tokens of {missing} missing", name, tokens, missing
                )
            else:
                chosen[i] = tokens
                if (
                    tokens < missing
                    and not self.instance.policy.chunked_prefill
                ):  # fmt: skip
                    self.fault(
                        Rule.CHUNKED_PREFILL,
                        f"processes {tokens} of {missing} missing tokens though chunked prefill is off",
                        name, tokens, missing,
                    )  # fmt: skip
        if batch.decode_all:
            named = {index.get(name) for name in batch.tokens}
            chosen.update({i: 1 for i in self.in_decode if i not in named})
        return chosen

    def process(self, chosen: Mapping[int, int]) -> BatchFeatures:
        """Advance the state by one batch and check the batch limits."""
        state, exact = self.state, self.instance.cost.exact_attention
        decodes = decode_kv = prefills = prefill_tokens = work = 0
        done: list[int] = []
        for i, tokens in chosen.items():
            cached = state.cached[i]
            if state.decoding(i):
                decodes += 1
                decode_kv += cached
            else:
                prefills += 1
                prefill_tokens += tokens
                work += prefill_work(exact, tokens, cached)
                if self.was_evicted[i]:
                    self.refill_tokens += tokens
            generates = tokens == state.missing(i)
            state.set_cached(i, cached + tokens)
            if generates:
                if state.generated[i] == 0:
                    self.first[i] = self.position
                state.generated[i] += 1
                self.in_decode[i] = None
                if state.finished(i):
                    self.last[i] = self.position
                    done.append(i)
            elif state.decoding(i):
                # A refill that stopped one token short leaves a decode step.
                self.in_decode[i] = None
        features = BatchFeatures(sum(chosen.values()), decodes, decode_kv, prefills, work)
        self._check_limits(features, prefill_tokens)
        self.after = (state.held, state.running)
        for i in done:
            state.set_cached(i, 0)
            del self.in_decode[i]
        return features

    def _check_limits(self, features: BatchFeatures, prefill_tokens: int) -> None:
        system, state = self.instance.system, self.state
        most_running = system.max_running
        if features.decodes and features.prefills and not self.instance.policy.hybrid_batching:
            self.fault(
                Rule.HYBRID_BATCHING,
                f"holds {features.decodes} decoding and {features.prefills} prefilling requests "
                "though hybrid batching is off",
            )
        for rule, what, value, limit in (
            (Rule.MAX_BATCH_TOKENS, "tokens processed", features.tokens, system.max_batch_tokens),
            (Rule.MAX_PREFILL_TOKENS, "prefill tokens", prefill_tokens, system.max_prefill_tokens),
            (Rule.KV_CAPACITY, "KV tokens held", state.held, system.kv_capacity),
            (Rule.MAX_RUNNING, "requests holding KV", state.running, most_running),
        ):
            if limit is not None and value > limit:
                self.fault(rule, f"{value} {what}; the limit is {limit}", None, value, limit)

    def finish(self) -> None:
        """Report every request that had to generate all its tokens and did not."""
        for i, request in enumerate(self.instance.requests):
            if not self.state.finished(i) and not request.terms.optional:
                n = self.state.generated[i]
                message = f"generated {n} of {request.output_tokens} tokens"
                self.violations.append(
                    Violation(Rule.COMPLETION, None, request.id, n, request.output_tokens, message)
                )


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
    checker = _Checker(instance)
    unit = tick_unit(instance, schedule)
    features: list[BatchFeatures] = []
    kv_used: list[int] = []
    running: list[int] = []
    earliest: dict[int, Fraction] = {}
    awaited = {i: True for i, r in enumerate(instance.requests) if r.arrival > 0}
    newest: list[tuple[int, int]] = []  # (batch, request) of each awaited request's first tokens
    for j, (batch, opens) in enumerate(_each(schedule)):
        checker.position = j
        evicted = checker.evict(batch.evict) if opens else set()
        if opens and batch.start is not None:
            earliest[j] = batch.start
        chosen = checker.chosen(batch, evicted)
        newest.extend((j, i) for i in chosen if awaited.pop(i, False))
        features.append(checker.process(chosen))
        kv_used.append(checker.after[0])
        running.append(checker.after[1])
    starts, ends = clock(instance, unit, features, earliest)
    for j, i in newest:
        request = instance.requests[i]
        began = Fraction(starts[j], unit)
        if began < request.arrival:
            checker.position = j
            message = f"processed at {float(began):g} s, before its arrival at {float(request.arrival):g} s"
            checker.fault(Rule.ARRIVAL, message, request.id, began, request.arrival)
    checker.finish()
    return Replay(
        violations=tuple(checker.violations),
        ticks_per_second=unit,
        features=features,
        starts=starts,
        ends=ends,
        kv_used=kv_used,
        running=running,
        first_batch=checker.first,
        last_batch=checker.last,
        evictions=checker.evictions,
        refill_tokens=checker.refill_tokens,
        generated=sum(checker.state.generated),
    )
