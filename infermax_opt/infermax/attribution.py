"""Where the time of a schedule goes, in parts that add up exactly.

*Makespan.*  A batch of x tokens takes the fixed time A = max_k alpha_k, and d0, p0 if it decodes, prefills;
for its tokens max_k (alpha_k + beta_k x) - A; for attention; and e0 + e1 * KV longer where it does both.
What it processes again after an eviction
counts apart: by how much it would be shorter without.  The fixed time of a batch goes to the reason why it
did not hold more: everybody was in it; its tokens or requests were at their limit; some with KV were left
out; the prompt of nobody who waited fitted whole into the KV that was left; or somebody's did.  The rest of
the makespan is time in which no batch runs.

*Needed.*  Each token that is cached in the end is processed once, I + O - 1 for a request, and costs the
slope of the first piece at least.  Without evictions, token k >= 2 reads I + k - 2 tokens, and a prompt in
one chunk has attention work of I**2 (more chunks have less with "square" attention, and the same with
"exact").  What a bound is above all that is what it counts for batches, waiting and tokens beyond the first
piece.

*End-to-end latency.*  From its arrival a request waits for its first batch; then each moment until its last
token belongs to what the running batch does with it, or no batch runs.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.explanation import Explanation, Part
from infermax_opt.files.figure import Phase
from infermax_opt.infermax.bounds.lone import LoneLatency
from infermax_opt.infermax.data.cost import BatchFeatures
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import valid_replay
from infermax_opt.infermax.replay.plain import Replay
from infermax_opt.infermax.replay.sparse_walk import SparseWalk
from infermax_opt.infermax.replay.timeline import each_batch

__all__ = ["explain"]

#: Slices of a schedule in a picture.
SLICES = 120

TOKENS, READS, PREFILLS, AGAIN = "tokens", "KV reads", "prefill attention", "refills"
BOTH = "decodes beside prefills"
#: Why a batch did not hold more, in the order in which reasons are looked for.
ALONE = "batches with all who are there"
BUDGET = "batches of full token budget"
APART = "batches that leave out some with KV"
SEATS = "batches of full request limit"
MEMORY = "batches of full KV"
ROOM = "batches with room for one who waits"
IDLE, EMPTY = "no batch, though requests wait", "no batch, nobody there"
REASONS = (BUDGET, SEATS, MEMORY, ROOM, APART, ALONE)
PARTS = (TOKENS, READS, PREFILLS, AGAIN, BOTH, *REASONS, IDLE, EMPTY)


def explain(instance: Instance, schedule: Schedule) -> tuple[Explanation, Explanation]:
    """Makespan and mean end-to-end latency of a valid schedule, in parts.

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    replayed = valid_replay(instance, schedule)
    walked = _walked(instance, schedule, replayed)
    return _makespan(instance, replayed, walked), _latency(instance, replayed, walked)


# --- what is seen of each batch -----------------------------------------------------------------


@dataclass
class _Walked:
    """What is seen of the batches of a schedule, one after the other.

    Attributes
    ----------
    ticks : dict of part to list of int, one per batch
        The time before a batch in which none runs counts as the batch's.
    counts : dict of reason to int
        Batches.
    phases : dict of Phase to int
        Requests times ticks, of those that were in a batch.
    begins : list of int, one per request
        First batch; -1 for none.
    tokens_again : int
        Tokens processed again.
    waiting : list of int, one per batch
        Requests that have arrived and are in no batch yet.
    """

    ticks: dict[str, list[int]]
    counts: dict[str, int]
    phases: dict[Phase, int]
    begins: list[int]
    tokens_again: int
    waiting: list[int]


class _Queue:
    """Requests that have arrived and hold no KV: how many, and the least that one of them needs."""

    def __init__(self, instance: Instance, walk: SparseWalk, unit: int):
        self.instance, self.walk = instance, walk
        self.ticks = [int(request.arrival * unit) for request in instance.requests]
        self.order = sorted(range(len(self.ticks)), key=lambda i: self.ticks[i])
        self.arrivals = [self.ticks[i] for i in self.order]
        self.arrived = 0
        self.needs: list[tuple[int, int]] = []

    def move(self, now: int, evicted: Sequence[int]) -> None:
        """Let those in that have arrived, and those that were evicted."""
        before, count = self.arrived, len(self.arrivals)
        while self.arrived < count and self.arrivals[self.arrived] <= now:
            self.arrived += 1
        for i in [*self.order[before : self.arrived], *evicted]:
            heapq.heappush(self.needs, (self.need(i), i))

    def need(self, i: int) -> int:
        """KV tokens that a request needs for its prompt, or for what it had before an eviction."""
        tokens = self.instance.requests[i].input_tokens + self.walk.generated[i]
        return self.instance.system.held(tokens)

    def least(self) -> int | None:
        """KV tokens that the smallest of those that still wait needs for its prompt; None for nobody."""
        walk = self.walk
        while self.needs:
            need, i = self.needs[0]
            # One that ran since then, and was evicted again, has another entry.
            if (walk.begins[i] < 0 or i in walk.evicted) and need == self.need(i):
                return need
            heapq.heappop(self.needs)
        return None


def _walked(instance: Instance, schedule: Schedule, replayed: Replay) -> _Walked:
    scale = replayed.ticks_per_second // instance.cost.ticks_per_second
    walk = SparseWalk(instance, replayed)
    queue = _Queue(instance, walk, replayed.ticks_per_second)
    price = _Prices(instance)
    # A batch has few of the parts: the others stay 0.
    ticks = {name: [0] * len(replayed.ends) for name in PARTS}
    counts = dict.fromkeys(REASONS, 0)
    decode = prefill = refill = holding = evicted = 0
    waiting: list[int] = []
    end = again = 0
    for j, (batch, evict) in enumerate(each_batch(instance, schedule.batches)):
        start, features = replayed.starts[j], replayed.features[j]
        took = replayed.ends[j] - start
        if start > end:
            ticks[EMPTY][j] = empty = _empty(queue, end, start, walk.done)
            ticks[IDLE][j] = start - end - empty
        walk.step(j, batch, evict)
        queue.move(start, evict)
        again += walk.tokens_again
        fixed = took
        for name, some in price.of(features, walk.tokens_again, walk.work_again):
            ticks[name][j] = some * scale
            fixed -= some * scale
        active = features.decodes + features.prefills
        held_back = replayed.running[j] - active
        waiting.append(queue.arrived - walk.begun)
        there = held_back + waiting[-1] + len(walk.evicted)
        reason = _reason(instance, queue, features, held_back, replayed.kv_used[j]) if there > 0 else ALONE
        ticks[reason][j] = fixed
        counts[reason] += 1
        decode += features.decodes * took
        prefill += (features.prefills - walk.refills) * took
        refill += walk.refills * took
        holding += held_back * took
        evicted += len(walk.evicted) * took
        end = replayed.ends[j]
    phases = {
        Phase.PREFILL: prefill, Phase.DECODE: decode, Phase.REFILL: refill, Phase.HOLDING: holding,
        Phase.EVICTED: evicted,
    }  # fmt: skip
    return _Walked(ticks, counts, phases, walk.begins, again, waiting)


def _empty(queue: _Queue, end: int, start: int, done: int) -> int:
    """Ticks between two batches in which no request is there: all that had arrived are finished."""
    known = bisect_right(queue.arrivals, end)
    if known > done:
        return 0
    following = queue.arrivals[known] if known < len(queue.arrivals) else start
    return min(start, following) - end


class _Prices:
    """The time of a batch but for what is fixed, in ticks of the cost model."""

    def __init__(self, instance: Instance):
        self.cost, self.extra = instance.cost.ticks, instance.cost.extra_ticks
        self.pieces = list(zip(self.cost.alpha, self.cost.beta, strict=True))
        self.fixed = max(self.cost.alpha)

    def tokens(self, count: int) -> int:
        """What so many tokens add to the fixed time of a batch."""
        return int(max([a + b * count for a, b in self.pieces]) - self.fixed)

    def of(self, features: BatchFeatures, tokens_again: int, work_again: int) -> list[tuple[str, int]]:
        """Those parts of a batch that it can have.

        Parameters
        ----------
        features : BatchFeatures
        tokens_again, work_again : int
            What was processed before.
        """
        cost, once = self.cost, self.tokens(features.tokens - tokens_again)
        found = [(TOKENS, once), (READS, cost.d1 * features.decode_kv)]
        if features.prefills or self.extra.p2:
            behind = self.extra.p2 * features.prefill_kv
            found += [
                (PREFILLS, cost.p1 * (features.prefill_work - work_again) + behind),
                (BOTH, int(self.extra.of(features)) - behind),
            ]
        if tokens_again:
            found.append((AGAIN, self.tokens(features.tokens) - once + cost.p1 * work_again))
        return found


def _reason(instance: Instance, queue: _Queue, features: BatchFeatures, held_back: int, kv_used: int) -> str:
    """Why a batch did not hold more, though somebody was not in it.

    Parameters
    ----------
    instance : Instance
    queue : _Queue
    features : BatchFeatures
    held_back : int
        Requests with KV that are not in the batch.
    kv_used : int
        Tokens of KV after it.
    """
    system = instance.system
    prefill = features.tokens - features.decodes
    if features.tokens == system.max_batch_tokens or (prefill == system.max_prefill_tokens and not held_back):
        return BUDGET
    if held_back > 0:
        return APART
    if features.decodes + features.prefills == system.max_running:
        return SEATS
    least = queue.least()
    return MEMORY if least is not None and least > system.kv_capacity - kv_used else ROOM


# --- makespan -----------------------------------------------------------------------------------


def _makespan(instance: Instance, replayed: Replay, walked: _Walked) -> Explanation:
    stages = _stages(instance, replayed, walked)
    needed = _needed(instance)
    words = {reason: f"{count} batches" for reason, count in walked.counts.items() if count}
    words[AGAIN] = f"{walked.tokens_again} tokens again, {replayed.evictions} evictions"
    parts = []
    for name in PARTS:
        ticks = walked.ticks[name]
        values = tuple(replayed.seconds(sum(ticks[some.start : some.stop])) for some, _ in stages)
        total = sum(values, Fraction(0))
        parts.append(Part(name, total, needed.get(name, Fraction(0)), words.get(name, ""), values))
    return Explanation(
        "makespan", tuple(parts), tuple(text for _, text in stages), _over_time(replayed, walked)
    )


def _needed(instance: Instance) -> dict[str, Fraction]:
    """What each part takes in every schedule that does each thing once, s."""
    cost = instance.cost.seconds
    # The piece that counts where a batch has few tokens.
    slope = max(zip(cost.alpha, cost.beta, strict=True))[1]
    tokens = reads = work = 0
    for kind in (instance.required or instance).types:
        i, o, count = kind.input_tokens, kind.output_tokens, len(kind.members)
        tokens += count * (i + o - 1)
        reads += count * (i * (o - 1) + (o - 1) * (o - 2) // 2)
        work += count * i * i
    return {TOKENS: slope * tokens, READS: cost.d1 * reads, PREFILLS: cost.p1 * work}


def _stages(instance: Instance, replayed: Replay, walked: _Walked) -> list[tuple[range, str]]:
    """Batches until the last arrival, then until nobody waits for the first batch, then the rest."""
    last = int(max(request.arrival for request in instance.requests) * replayed.ticks_per_second)
    count = len(replayed.starts)
    arriving = next((j for j, start in enumerate(replayed.starts) if start >= last), count) if last else 0
    waits = [j for j in range(arriving, count) if walked.waiting[j]]
    crowded = waits[-1] + 1 if waits else arriving
    cuts = [(0, arriving, "arrivals"), (arriving, crowded, "backlog"), (crowded, count, "rest")]
    return [(range(first, end), name) for first, end, name in cuts if first < end]


def _over_time(replayed: Replay, walked: _Walked) -> dict[str, list[float]]:
    """Share of each part in equal slices of the makespan; a batch counts where it ends."""
    if not replayed.ends or not replayed.ends[-1]:
        return {}
    last = replayed.ends[-1]
    slices = [min(SLICES - 1, end * SLICES // last) for end in replayed.ends]
    totals = [0] * SLICES
    found = {}
    for name, ticks in walked.ticks.items():
        sums = [0] * SLICES
        for place, value in zip(slices, ticks, strict=True):
            sums[place] += value
        if any(sums):
            found[name] = sums
            totals = [a + b for a, b in zip(totals, sums, strict=True)]
    return {
        name: [value / total if total else 0.0 for value, total in zip(sums, totals, strict=True)]
        for name, sums in found.items()
    }


# --- latency ------------------------------------------------------------------------------------

#: What a request does from its arrival to its last token.
STAYS = {
    Phase.WAITING: "waiting for the first batch",
    Phase.PREFILL: "prefill",
    Phase.DECODE: "decode",
    Phase.REFILL: "refill after an eviction",
    Phase.HOLDING: "held back, with KV",
    Phase.EVICTED: "evicted",
}
STANDING = "no batch runs"


def _latency(instance: Instance, replayed: Replay, walked: _Walked) -> Explanation:
    """The mean end-to-end latency of the finished requests, by what they do."""
    ends = replayed.ends
    served = [i for i in range(len(instance.requests)) if replayed.last_batch[i] >= 0]
    unit, count = replayed.ticks_per_second, len(served)
    arrivals = {i: int(instance.requests[i].arrival * unit) for i in served}
    total = sum(ends[replayed.last_batch[i]] - arrivals[i] for i in served)
    ticks = dict(walked.phases)
    ticks[Phase.WAITING] = sum(replayed.starts[walked.begins[i]] - arrivals[i] for i in served)
    lone = LoneLatency(instance)
    needed = {Phase.PREFILL: Fraction(0), Phase.DECODE: Fraction(0)}
    for kind in instance.types:
        members = len(kind.members)
        needed[Phase.PREFILL] += members * lone.of(kind).first
        needed[Phase.DECODE] += members * lone.of(kind).later
    scale = count * instance.cost.ticks_per_second
    parts = [
        Part(name, Fraction(ticks[phase], unit * count), needed.get(phase, Fraction(0)) / scale)
        for phase, name in STAYS.items()
    ]
    parts.append(Part(STANDING, Fraction(total - sum(ticks.values()), unit * count)))
    return Explanation("mean_e2e", tuple(parts))
