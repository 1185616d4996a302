"""Polishing of schedules: prefill in fewer batches, at the price of idle requests.

Every batch that prefills pays a fixed price.  Schedulers that let requests start when there is
room for them pay it in nearly every batch.  `polish` leaves all decodes and evictions where they
are and moves (last chunks of) prompts and refills into batches that prefill anyway, as far as
the limits allow: see `infermax_opt.infermax.planners.polish._kernel`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from itertools import accumulate, chain, repeat
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import Coefficients
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.polish import _kernel as _polish_kernel
from infermax_opt.infermax.planners.polish import _trace as _polish_trace
from infermax_opt.infermax.planners.polish._kernel import BatchLoads, Moves, PolishLimits
from infermax_opt.infermax.planners.polish._trace import Progress
from infermax_opt.infermax.planners.polish._write import rewritten
from infermax_opt.infermax.replay._entries import entries_of

__all__ = ["FAR", "MAX_NAMED", "compiled_regroup", "polish"]

#: Batches by which a prompt may be moved back.
FAR = 1000
#: Below so many request-tokens plain Python takes less time than loading compiled code.
PLAIN_WORK = 20_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 300
#: Most decodes that may be named one by one because another request idles beside them.
MAX_NAMED = 1_000_000


@functools.cache
def compiled_regroup() -> Callable[..., Any]:
    """`regroup`, compiled."""
    return compiled(_polish_kernel.regroup, _polish_kernel.HELPERS)


@functools.cache
def _compiled_trace() -> Callable[..., Any]:
    return compiled(_polish_trace.trace, _polish_trace.HELPERS)


def polish(instance: Instance, schedule: Schedule) -> tuple[float, Schedule]:
    """Shorten a schedule of an offline instance.

    Parameters
    ----------
    instance : Instance
        Offline; with arrivals the schedule is returned as it is.
    schedule : Schedule
        A valid one.

    Returns
    -------
    saved : float
        Seconds of makespan saved; 0 if nothing has been changed.
    schedule : Schedule
        Valid, and never longer.
    """
    if not instance.offline:
        return 0.0, schedule
    work = instance.output_tokens + sum(len(batch.tokens) + batch.repeat for batch in schedule.batches)
    if work < (PLAIN_WORK_LOADED if _compiled_trace.cache_info().currsize else PLAIN_WORK):
        return _polish(
            instance, schedule, _polish_trace.trace, _polish_kernel.regroup, list, instance.cost.floats
        )
    import numpy as np

    unit = instance.cost.floats
    cost = Coefficients(np.array(unit.alpha), np.array(unit.beta), *unit[2:])
    integers = functools.partial(np.array, dtype=np.int64)
    return _polish(instance, schedule, _compiled_trace(), compiled_regroup(), integers, cost)


def _polish(
    instance: Instance,
    schedule: Schedule,
    trace: Callable[..., Any],
    regroup: Callable[..., Any],
    integers: Callable[[Iterable[int]], Any],
    cost: Coefficients,
) -> tuple[float, Schedule]:
    system, requests, length = instance.system, instance.requests, schedule.length
    entries = entries_of(instance, schedule, integers)

    def zeros(size: int) -> Any:
        return integers([0] * size)

    def follow(load: BatchLoads, idle: Any, wanted: Any) -> Any:
        now = Progress(
            integers([r.input_tokens for r in requests]),
            integers([r.output_tokens for r in requests]),
            *(zeros(len(requests)) for _ in range(7)),
        )
        return trace(entries, now, load, idle, wanted, system.block_size)

    load, idle = BatchLoads(*(zeros(length) for _ in BatchLoads._fields)), zeros(length)
    time, request, chunk, after, latest, size, fresh, _, _ = follow(load, idle, zeros(length))
    movable = sorted((k for k in range(len(time)) if latest[k] >= 0), key=lambda k: latest[k])
    columns = (time, after, latest, chunk, size, fresh)
    moves = Moves(*(integers([column[k] for k in movable]) for column in columns))
    limits = PolishLimits(
        capacity=system.kv_capacity,
        tokens=system.max_batch_tokens,
        prefill=system.max_prefill_tokens,
        running=len(requests) if system.max_running is None else system.max_running,
        hybrid=int(instance.policy.hybrid_batching),
        far=FAR,
    )
    saved = float(regroup(limits, load, moves, cost))
    if saved <= 0:
        return 0.0, schedule
    # Between its chunk and its next token a request idles.
    change = [0] * (length + 1)
    for k, u in zip(movable, moves.at, strict=True):
        change[u + 1] += 1
        change[time[k] + 1] -= 1
        time[k] = int(u)
    waiting = [int(some) + more for some, more in zip(idle, accumulate(change[:length]), strict=True)]
    if sum(int(d) for d, some in zip(load.decodes, waiting, strict=True) if some) > MAX_NAMED:
        return 0.0, schedule
    again = BatchLoads(*(zeros(length) for _ in BatchLoads._fields))
    *_, decode_time, decode_request = follow(again, zeros(length), integers([int(w > 0) for w in waiting]))
    return saved, rewritten(
        instance,
        schedule,
        [bool(d > 0 and some == 0) for d, some in zip(load.decodes, waiting, strict=True)],
        chain(
            zip(time, request, chunk, strict=True), zip(decode_time, decode_request, repeat(1), strict=False)
        ),
    )
