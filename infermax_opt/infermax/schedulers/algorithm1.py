"""Algorithm 1 of InferMax (section 3.1) as one parameterised scheduler.

`Options` are the columns of the paper's Table 1; `schedule` runs the loop of
`infermax_opt.infermax.schedulers._algorithm1_loop`, compiled where that pays.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Coefficients
from infermax_opt.infermax.data.instance import Instance, Request
from infermax_opt.infermax.data.release import refuse_release
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule, TooManyBatches
from infermax_opt.infermax.schedulers import _algorithm1_loop as _loop
from infermax_opt.infermax.schedulers._knowledge import promised_dates, quality_orders
from infermax_opt.infermax.schedulers._state import (
    DECODES,
    PLAN_COUNTERS,
    PREFILLS,
    QUEUE_COUNTERS,
    WAITS,
    BatchPlan,
    QueueState,
    RequestColumns,
    SchedulerLimits,
)

__all__ = ["LoopInput", "Options", "Order", "loop_input", "schedule"]

#: Below so many request-tokens plain Python takes less time than loading compiled code.
PLAIN_WORK = 50_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 500
#: What plain Python does in all before the loop is compiled: some seconds, and compiling takes a dozen.
UNCOMPILED = 200_000


#: Columns of dates where keys do not follow the clock.
NO_DATES: tuple[tuple[Any, ...], ...] = ((),) * 6


class Order(enum.Enum):
    """How GroupRequests orders the candidates.

    ``prefill``: running prefills, waiting, running decodes (vLLM).  ``decode``: running decodes,
    running prefills, waiting (Sarathi).  ``running``: all running in the order in which they were admitted,
    waiting (version 1 of vLLM's engine).  Those of ``rank`` form a single group, by input tokens, by
    output tokens, or in the order of the instance (appendix A.3); ties by that order.  So do the next
    two, by what changes meanwhile: ``remaining`` output tokens as predicted, and ``latest`` moment to
    start, requests whose service level can be kept before all others.  ``quality`` groups like
    ``decode``; its waiting requests come in the batches of Sorted-F, which reserve their peaks.
    """

    PREFILL = "prefill"
    DECODE = "decode"
    RUNNING = "running"
    RANK_INPUT = "rank_input"
    RANK_OUTPUT = "rank_output"
    RANK_ORIGINAL = "rank_org"
    REMAINING = "remaining"
    LATEST = "latest"
    QUALITY = "quality"

    @property
    def ranked(self) -> bool:
        """Whether all candidates form one group."""
        return self not in _GROUPS


_GROUPS = {
    Order.PREFILL: (PREFILLS, WAITS, DECODES),
    Order.DECODE: (DECODES, PREFILLS, WAITS),
    Order.RUNNING: (DECODES + PREFILLS, WAITS),
    Order.QUALITY: (DECODES, PREFILLS, WAITS),
}

_RANK: dict[Order, Callable[[Request], int]] = {
    Order.RANK_INPUT: lambda request: request.input_tokens,
    Order.RANK_OUTPUT: lambda request: request.output_tokens,
    Order.RANK_ORIGINAL: lambda request: 0,
    Order.LATEST: lambda request: 0,
    Order.REMAINING: lambda request: request.predicted_output_tokens or 0,
}


@dataclass(frozen=True)
class Options:
    """What distinguishes one scheduler from another.

    Parameters
    ----------
    order : Order
    hybrid, chunked : bool
        Mix phases in a batch; split prefills.  Only where the instance's policy allows it.  A
        prompt that fits no batch whole is split by every scheduler.
    prefill_tokens : int
        P: most prefill tokens per batch; the instance's limit holds beside it.
    eviction_free : bool
        Reserve the peak KV of a request when it is admitted, and evict none.
    max_running : int or None
        R_max: most requests holding KV; the instance's limit holds beside it.
    resume : bool
        Evicted requests go on before anybody new, and a batch that evicts admits nobody.
    """

    order: Order
    hybrid: bool
    chunked: bool
    prefill_tokens: int
    eviction_free: bool = False
    max_running: int | None = None
    resume: bool = False

    @property
    def knows_outputs(self) -> bool:
        """Whether it goes by how many tokens a request will generate, which no server is told."""
        return self.eviction_free or self.order in (Order.RANK_OUTPUT, Order.QUALITY)

    @property
    def needs_predictions(self) -> bool:
        """Whether it goes by predicted outputs, which each request then has to have."""
        return self.order is Order.REMAINING


class LoopInput(NamedTuple):
    """What `infermax_opt.infermax.schedulers._algorithm1_loop.schedule_loop` takes."""

    limits: SchedulerLimits
    groups: Any
    requests: RequestColumns
    state: QueueState
    plan: BatchPlan
    cost: Coefficients


def schedule(instance: Instance, options: Options, whole: Instance | None = None) -> Schedule:
    """Schedule an instance by Algorithm 1.

    Parameters
    ----------
    instance : Instance
        Requests with arrivals are admitted by a simulated clock; the schedule waits where the
        exact clock might be behind it.
    options : Options
    whole : Instance, optional
        What the instance is a part of: who has what the order goes by may come later.

    Returns
    -------
    Schedule
        Valid for every instance.

    Raises
    ------
    InputError
        If the schedule would have more than `infermax_opt.infermax.replay.plain.MAX_BATCHES` batches, or the
        instance lacks what the order goes by.

    Notes
    -----
    Where the instance forbids chunks, a request whose refill could outgrow a batch reserves its
    peak KV and is never evicted, since it could not come back.
    """
    refuse_release(instance, f"the scheduler by {options.order.value}")
    _check_knowledge(whole or instance, options)
    limits = _limits(instance, options)
    chunks = sum(r.input_tokens for r in instance.requests) // min(limits.prefill, limits.tokens)
    work = instance.output_tokens + len(instance.requests) + chunks
    if not worthwhile(_compiled, work, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED):
        return _run(instance, options, limits, _loop.schedule_loop, list, list)
    import numpy as np

    integers = functools.partial(np.array, dtype=np.int64)
    floats = functools.partial(np.array, dtype=np.float64)
    return _run(instance, options, limits, _compiled(), integers, floats)


def _check_knowledge(instance: Instance, options: Options) -> None:
    """Refuse an instance that lacks what the order goes by."""
    if options.needs_predictions:
        for request in instance.requests:
            if request.predicted_output_tokens is None:
                problem = f"goes by predicted_output_tokens; request {request.id!r} has none"
                raise InputError(problem, field="scheduler")
    if options.order is Order.LATEST and not any(request.terms.slo for request in instance.requests):
        raise InputError("goes by service levels (slo); no request has one", field="scheduler")


@functools.cache
def _compiled() -> Callable[..., Any]:
    return compiled(_loop.schedule_loop, _loop.HELPERS, helpers_allocate=False)


def _run(
    instance: Instance,
    options: Options,
    limits: SchedulerLimits,
    loop: Callable[..., Any],
    integers: Callable[[Iterable[int]], Any],
    floats: Callable[[Iterable[float]], Any],
) -> Schedule:
    finished, *entries = loop(*_input(instance, options, limits, integers, floats))
    if not finished:
        raise TooManyBatches.than(MAX_BATCHES)
    return Schedule(instance.name, _batches(instance.requests, *entries))


def loop_input(instance: Instance, options: Options) -> LoopInput:
    """What the loop takes to schedule an instance, in arrays, for loops that run it on several machines.

    Raises
    ------
    InputError
        If the instance lacks what the order goes by.
    """
    import numpy as np

    refuse_release(instance, f"the scheduler by {options.order.value}")
    _check_knowledge(instance, options)
    integers = functools.partial(np.array, dtype=np.int64)
    floats = functools.partial(np.array, dtype=np.float64)
    return _input(instance, options, _limits(instance, options), integers, floats)


def _input(
    instance: Instance,
    options: Options,
    limits: SchedulerLimits,
    integers: Callable[[Iterable[int]], Any],
    floats: Callable[[Iterable[float]], Any],
) -> LoopInput:
    requests, order = instance.requests, options.order
    n = len(requests)
    rank = _ranks(instance, options)
    # Sorted by rank within an arrival, so that an offline queue is built by appending.
    arrivals = sorted(range(n), key=lambda i: (requests[i].arrival, rank[i]))
    if order is Order.REMAINING:
        # A generated token takes n off; the place breaks ties.
        for position, i in enumerate(arrivals):
            rank[i] = n * (requests[i].predicted_output_tokens or 0) + position
    columns = _columns(instance, options, limits, arrivals, integers, floats)

    def zeros(size: int = n) -> Any:
        return integers([0] * size)

    state = QueueState(
        cached=zeros(), generated=zeros(), reserved=zeros(), phase=zeros(), key=integers(rank),
        seen=zeros(), decoding=zeros(), prefilling=zeros(),
        after=integers([0] * n + [n]), before=integers([0] * n + [n]),
        first=floats([-1.0] * len(columns.latest)), heads=zeros(len(columns.qualities) // n),
        count=zeros(QUEUE_COUNTERS),
    )  # fmt: skip
    plan = BatchPlan(zeros(), zeros(), zeros(), zeros(), zeros(), count=zeros(PLAN_COUNTERS))
    unit = instance.cost.floats
    cost = Coefficients(floats(unit.alpha), floats(unit.beta), *unit[2:])
    groups = integers(_GROUPS.get(order, (DECODES | PREFILLS | WAITS,)))
    return LoopInput(limits, groups, columns, state, plan, cost)


def _ranks(instance: Instance, options: Options) -> list[int]:
    """Rank of each request before anything happens; 0 where candidates form several groups."""
    requests, n = instance.requests, len(instance.requests)
    rank = [0] * n
    if options.order.ranked:
        key = _RANK[options.order]
        for position, i in enumerate(sorted(range(n), key=lambda i: key(requests[i]))):
            rank[i] = position
    return rank


def _columns(
    instance: Instance,
    options: Options,
    limits: SchedulerLimits,
    arrivals: list[int],
    integers: Callable[[Iterable[int]], Any],
    floats: Callable[[Iterable[float]], Any],
) -> RequestColumns:
    """The requests as the loop takes them, which arrive in that order."""
    requests = instance.requests
    place = [0] * len(requests)
    for position, i in enumerate(arrivals):
        place[i] = position
    dates = NO_DATES
    if limits.dated:
        dates = tuple(zip(*promised_dates(instance, min(limits.prefill, limits.tokens)), strict=True))
    latest, first_due, last_due, pace, step, promised = dates
    return RequestColumns(
        inputs=integers([r.input_tokens for r in requests]),
        outputs=integers([r.output_tokens for r in requests]),
        protected=integers(_protected(instance, options)),
        arrival=floats([float(r.arrival) for r in requests]),
        order=integers(arrivals),
        place=integers(place),
        qualities=integers(quality_orders(instance) if limits.batched else []),
        latest=floats(latest),
        first_due=floats(first_due),
        last_due=floats(last_due),
        pace=floats(pace),
        step=floats(step),
        promised=integers(promised),
        predicted=integers([r.predicted_output_tokens or 0 for r in requests]),
    )


def _protected(instance: Instance, options: Options) -> list[int]:
    """Whether each request reserves its peak and is never evicted."""
    policy, budget = instance.policy, instance.system.prefill_budget
    pinned = options.eviction_free or options.order is Order.QUALITY or not policy.preemption
    return [int(pinned or (not policy.chunked_prefill and r.peak_kv > budget)) for r in instance.requests]


def _limits(instance: Instance, options: Options) -> SchedulerLimits:
    system, policy = instance.system, instance.policy
    running = [limit for limit in (system.max_running, options.max_running) if limit is not None]
    return SchedulerLimits(
        capacity=system.kv_capacity,
        tokens=system.max_batch_tokens,
        prefill=min(options.prefill_tokens, system.max_prefill_tokens),
        most_prefill=system.max_prefill_tokens,
        running=min(running, default=len(instance.requests)),
        block=system.block_size,
        batches=MAX_BATCHES,
        hybrid=int(options.hybrid and policy.hybrid_batching),
        chunked=int(options.chunked and policy.chunked_prefill),
        may_split=int(policy.chunked_prefill),
        ranked=int(options.order.ranked),
        exact=int(instance.cost.exact_attention),
        fall=len(instance.requests) if options.order is Order.REMAINING else 0,
        dated=int(options.order is Order.LATEST),
        batched=int(options.order is Order.QUALITY),
        resume=int(options.resume),
    )


def _batches(
    requests: tuple[Request, ...],
    named: list[int],
    chunks: list[int],
    evicted: list[int],
    named_end: list[int],
    evicted_end: list[int],
    decode_all: list[int],
    repeat: list[int],
    start: list[int],
) -> tuple[Batch, ...]:
    """Name the requests of the loop's columns."""
    names = [request.id for request in requests]
    batches = []
    for k in range(1, len(repeat)):
        a, b = named_end[k - 1], named_end[k]
        c, d = evicted_end[k - 1], evicted_end[k]
        batches.append(
            Batch(
                tokens={names[i]: tokens for i, tokens in zip(named[a:b], chunks[a:b], strict=True)},
                evict=tuple(names[i] for i in evicted[c:d]),
                start=requests[start[k]].arrival if start[k] >= 0 else None,
                decode_all=bool(decode_all[k]),
                repeat=repeat[k],
            )
        )
    return tuple(batches)
