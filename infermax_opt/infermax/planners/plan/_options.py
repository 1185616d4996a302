"""The planner's options, and what they mean for one instance."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.plan._early_evictions import early_tokens, tokens_beside
from infermax_opt.infermax.planners.plan._early_search import with_early_starts
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._profile import Rules
from infermax_opt.infermax.planners.plan._run import Plan, pilot_order, run_kernel
from infermax_opt.infermax.planners.plan._strides import plan_with_strides, widened
from infermax_opt.infermax.planners.polish.polish import MAX_NAMED

__all__ = [
    "AHEAD",
    "ArrivalsError",
    "EarlyWay",
    "PlannerOptions",
    "balanced_width",
    "crowding",
    "decide",
    "expected_batches",
    "filled_batches",
    "knees",
    "longest_output",
    "rules_of",
    "typical_slots",
    "widths_of",
]

#: Most prompts that are processed at once where requests come in groups, as a multiple of a group.
GROUP_ROOM = 1.3
#: Share of M that a priority of 1 is worth to the pilot method.
PILOT_SCALE = 0.1
#: Batches, relative to the longest output, by which the requests placed may run ahead: any number.
AHEAD = 1e9


class ArrivalsError(InputError):
    """The planner takes offline instances only."""


class EarlyWay(NamedTuple):
    """Settings of early starts; see `PlannerOptions`."""

    early: float = 0.0
    room: float = 0.0
    young: float = 1.0


@dataclass(frozen=True)
class PlannerOptions:
    """What distinguishes one plan from another.

    Parameters
    ----------
    by_output, by_input, noise : float
        Requests are considered by descending priority: the sum of these, times output tokens and
        input tokens (both relative to the largest) and a random number in [0, 1).
    backwards : bool
        Plan from the last batch to the first.
    chunk : float or None
        Width of chunks, relative to the one that balances attention work and KV area; None is
        whole prompts, as far as a batch has room.
    slack : float
        Batches, relative to the longest output, by which the KV area of the requests started may
        run ahead of the clock: paces the start, so that requests do not end all at once.
    last : float
        Share of the requests, those of least priority, that are considered by output instead, longest
        first: planned backwards the schedule begins with them, and its KV fills up sooner.
    window, walk, choice : int
        Requests that may fail to fit, be looked at, and be compared (the largest that fits starts)
        in one batch.
    reserve : float
        Tokens of a batch left to decodes when planning backwards, relative to the mean number of
        decoding requests.
    fill : float
        Share of C that batches may use.
    every : int
        Requests start in every so many batches only.
    stride : int
        Requests decode in every so many batches only, all of them; forwards with hybrid batching and chunks.
    gather : float
        KV that has to be free before prompts are processed, relative to the tokens of a batch of them (but a
        quarter of M at most), and then no more prompts than so many batches hold, in whole ones, or than
        `alike` says; forwards without hybrid batching, 0 for no such rule.
    alike : float
        Requests of nearly equal outputs come one after the other, in groups whose prompts fill so many
        batches: they end together, so that many prompts can be processed at once.  0 for no groups.
    group : int
        Prompts are processed in every so many batches only, and idle until their second token;
        backwards with hybrid batching.
    spare : float
        Share of M that is left to prompts that idle.
    early, young : float
        Share of early starts, and the worth that they must have; see `early_tokens`.
    room : float
        0: the ages of early starts are those of the steady state.  Otherwise they are chosen so that they
        take such a share of the KV that is free in the first batches of a plan without; see `tokens_beside`.
    pilot : float
        0: the order is that of the priorities.  Otherwise every type of request is tried next, and
        the one taken that holds the most KV over so many batches, relative to the longest output;
        a priority of 1 counts as a tenth of M.
    """

    by_output: float = 0.3
    by_input: float = 0.0
    noise: float = 0.7
    backwards: bool = True
    chunk: float | None = 1.0
    slack: float = 0.5
    last: float = 0.0
    window: int = 16
    walk: int = 512
    choice: int = 1
    reserve: float = 1.2
    fill: float = 1.0
    every: int = 1
    stride: int = 1
    gather: float = 0.0
    alike: float = 0.0
    group: int = 1
    spare: float = 0.0
    early: float = 0.0
    young: float = 1.0
    room: float = 0.0
    pilot: float = 0.0

    def in_order(self) -> PlannerOptions:
        """The same where each request starts as soon as it fits, and none before its predecessor."""
        plain = replace(self, early=0.0, room=0.0, pilot=0.0)
        return replace(plain, window=1, walk=1, choice=1, slack=AHEAD, backwards=True)

    def with_early(self, way: EarlyWay) -> PlannerOptions:
        """The same with early starts, chosen in a given way."""
        return replace(self, early=way.early, room=way.room, young=way.young, group=1, spare=0.0)


def balanced_width(instance: Instance) -> float | None:
    """Chunk width over sqrt(I) that balances attention work and KV area; None if none does."""
    cost = instance.cost.floats
    if instance.cost.exact_attention or not instance.policy.chunked_prefill or cost.p1 <= 0:
        return None
    return float(math.sqrt(max(cost.alpha) / (2 * cost.p1 * instance.system.kv_capacity)))


def decide(
    instance: Instance,
    options: PlannerOptions,
    seed: int,
    deadline: float | None = None,
    order: Sequence[int] | None = None,
) -> Plan:
    """Plan an instance.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions
    seed : int
        Of the noise in the priorities.
    deadline : float, optional
        Moment of `time.monotonic` after which early starts are improved no further.
    order : sequence of int, optional
        The requests in the order in which they are considered, instead of that by priority.
    """
    if not instance.offline:
        raise ArrivalsError("the planner takes requests that are all there from the start", field="requests")
    width, rules = widths_of(instance, options), rules_of(instance, options)
    if order is None:
        order = _ordered(instance, options, seed, rules, width)
    policy = instance.policy
    if options.stride > 1 and rules.chunked and rules.hybrid and not rules.backwards:
        wide = rules_of(widened(instance, options.stride), options)
        strided = plan_with_strides(instance, wide, rules, order, width)
        if strided is not None:
            return strided
    found = run_kernel(instance, rules, order, width)
    if options.backwards and policy.hybrid_batching and policy.preemption:
        tokens = _early(instance, options, order, found)
        if any(tokens):
            return with_early_starts(instance, rules, order, width, tokens, found, deadline)
    return found


def _ordered(
    instance: Instance, options: PlannerOptions, seed: int, rules: Rules, width: Sequence[int]
) -> Sequence[int]:
    """The requests in the order in which they are considered.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions
    seed : int
        Of the noise in the priorities.
    rules : Rules
    width : sequence of int
        Most tokens of a chunk, per request.
    """
    priority = _priorities(instance, options, seed)
    if options.pilot > 0:
        far = max(1, round(options.pilot * longest_output(instance)))
        scale = PILOT_SCALE * far * rules.capacity
        bias = [scale * priority[kind.members[0]] for kind in instance.types]
        found = pilot_order(instance, rules, width, bias, far)
        if found is not None:
            return found
    if options.alike > 0:
        return _in_groups(instance, options, priority)
    order = sorted(range(len(priority)), key=lambda i: -priority[i])
    rest = len(order) - round(options.last * len(order))
    order[rest:] = sorted(order[rest:], key=lambda i: -instance.requests[i].output_tokens)
    return order


def _early(instance: Instance, options: PlannerOptions, order: Sequence[int], found: Plan) -> Sequence[int]:
    """Tokens that each request generates in an early start, beside a plan without."""
    if options.room > 0:
        first = found.held[::-1][: longest_output(instance)]
        return tokens_beside(instance, first, order, options.room, options.young)
    return early_tokens(instance, options.early, options.young) if options.early > 0 else ()


def _priorities(instance: Instance, options: PlannerOptions, seed: int) -> list[float]:
    """Priority of each request; see `PlannerOptions`."""
    requests, rng = instance.requests, random.Random(seed)
    most_input = max(r.input_tokens for r in requests)
    most_output = longest_output(instance)
    return [
        options.by_output * r.output_tokens / most_output
        + options.by_input * r.input_tokens / most_input
        + options.noise * rng.random()
        for r in requests
    ]


def _in_groups(instance: Instance, options: PlannerOptions, priority: Sequence[float]) -> list[int]:
    """Groups of requests of nearly equal outputs, by the priority of the first one of each.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions
    priority : sequence of float
        Of each request.
    """
    requests, most = instance.requests, options.alike * instance.system.prefill_budget
    groups, tokens, lengths = [list[int]()], 0, [(r.output_tokens, r.input_tokens) for r in requests]
    for i in sorted(range(len(requests)), key=lengths.__getitem__):
        if tokens >= most:
            groups.append([])
            tokens = 0
        groups[-1].append(i)
        tokens += requests[i].input_tokens
    groups.sort(key=lambda group: -priority[group[0]])
    return [i for group in groups for i in group]


def longest_output(instance: Instance) -> int:
    """Output tokens of the longest request."""
    return max(r.output_tokens for r in instance.requests)


def widths_of(instance: Instance, options: PlannerOptions) -> list[int]:
    """Most tokens of a chunk, per request."""
    balanced = balanced_width(instance)
    if balanced is None or options.chunk is None:
        return [MAX_TOKENS] * len(instance.requests)
    scale = options.chunk * balanced
    return [max(1, math.ceil(scale * math.sqrt(r.input_tokens))) for r in instance.requests]


def expected_batches(instance: Instance, tokens: int) -> float:
    """Batches of a good plan, roughly, with at most so many tokens each."""
    requests = instance.requests
    processed = sum(r.peak_kv for r in requests)
    longest = longest_output(instance)
    return max(filled_batches(instance), processed / tokens, longest)


def knees(instance: Instance) -> list[float]:
    """Tokens at which two pieces of the batch time cross, and a steeper one begins; some may be negative."""
    pieces = instance.cost.floats
    lines = list(zip(pieces.alpha, pieces.beta, strict=True))
    return [(low - high) / (steep - flat) for low, flat in lines for high, steep in lines if steep > flat]


def knee_share(instance: Instance) -> float:
    """Share of C at the first knee of the batch time that a full KV leaves room for; 1 if there is none.

    A token beyond the knee costs more than the same one in another batch, while memory, not tokens, decides
    how many batches there are.
    """
    most = instance.system.max_batch_tokens
    if not instance.policy.chunked_prefill:
        return 1.0
    mean = sum(r.peak_kv for r in instance.requests) / filled_batches(instance)
    shares = [knee / most for knee in knees(instance)]
    return min((share for share in shares if mean / most <= share < 1), default=1.0)


def filled_batches(instance: Instance) -> float:
    """Batches in which all tokens need all the KV, all the time."""
    held = sum(int(area(r.input_tokens, r.output_tokens)) for r in instance.requests)
    return held / instance.system.kv_capacity


def typical_slots(instance: Instance) -> float:
    """Requests that fill the KV at their mean size.

    Parameters
    ----------
    instance : Instance
    """
    held = sum(r.output_tokens * (r.input_tokens + r.output_tokens / 2) for r in instance.requests)
    return instance.system.kv_capacity * instance.output_tokens / held


def crowding(instance: Instance) -> float:
    """Batches that it takes to process all tokens, in parts of those in which all KV is held.

    0 where not all batches may be full.

    Parameters
    ----------
    instance : Instance
    """
    if not (instance.policy.hybrid_batching and instance.policy.chunked_prefill):
        return 0.0
    system, requests = instance.system, instance.requests
    processed = sum(r.peak_kv for r in requests) / system.max_batch_tokens
    prompts = sum(r.input_tokens for r in requests) / system.max_prefill_tokens
    return max(processed, prompts) / filled_batches(instance)


def _gathered(instance: Instance, options: PlannerOptions, tokens: int) -> tuple[int, int]:
    """KV that has to be free before prompts are processed, and most tokens of these; 0 for no rule.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions
    tokens : int
        Of a batch.
    """
    system, each = instance.system, min(tokens, instance.system.max_prefill_tokens)
    if instance.policy.hybrid_batching or options.backwards or options.gather <= 0:
        return 0, 0
    free = round(min(system.kv_capacity / 4, options.gather * each))
    return free, each * max(1, round(free / each), round(GROUP_ROOM * options.alike))


def rules_of(instance: Instance, options: PlannerOptions) -> Rules:
    """What the planner's loop goes by."""
    system, policy, requests = instance.system, instance.policy, instance.requests
    tokens = system.max_batch_tokens
    if policy.chunked_prefill:
        tokens = max(1, min(tokens, round(tokens * options.fill)))
    batches = expected_batches(instance, tokens)
    peak = max(system.held(r.peak_kv) for r in requests)
    reserve = round(options.reserve * (instance.output_tokens - len(requests)) / batches)
    cost = instance.cost.floats
    grouped = options.backwards and policy.hybrid_batching and cost.p0 > 0
    grouped = grouped and instance.output_tokens <= MAX_NAMED
    gather, most = _gathered(instance, options, tokens)
    return Rules(
        capacity=max(peak, round(system.kv_capacity * (1 - options.spare))),
        tokens=tokens,
        prefill=system.max_prefill_tokens,
        running=len(requests) if system.max_running is None else system.max_running,
        block=system.block_size,
        chunked=int(policy.chunked_prefill),
        hybrid=int(policy.hybrid_batching),
        exact=int(instance.cost.exact_attention),
        backwards=int(options.backwards),
        reserve=min(reserve, tokens - 1) if options.backwards and policy.hybrid_batching else 0,
        window=max(1, options.window),
        walk=max(1, options.walk),
        choice=max(1, options.choice),
        every=max(1, options.every),
        gather=gather,
        round=most,
        group=max(1, options.group) if grouped else 1,
        slack=float(options.slack * longest_output(instance)),
        prefix=instance.cost.extra_ticks.p2 / instance.cost.ticks.p1 if instance.cost.ticks.p1 else 0.0,
    )
