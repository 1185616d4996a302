"""Compiled replay of valid schedules.

The rules and the plain path are in `infermax_opt.infermax.replay.plain`.  The compiled path returns
exactly what the plain one does.  It takes valid schedules only: at the first broken rule it hands over
to the plain path, which names every violation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import BatchFeatures, prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.plain import Replay, check_length, clock, replay_plain, tick_unit

__all__ = ["replay", "replay_compiled"]

#: Below so many request-tokens the plain path takes less time than loading compiled code.
PLAIN_WORK = 20_000


def replay(instance: Instance, schedule: Schedule) -> Replay:
    """Replay a schedule: small ones in plain Python, large valid ones in compiled code.

    Returns
    -------
    Replay
        The same whichever path was taken.

    Raises
    ------
    InputError
        If the schedule has more batches than `infermax_opt.infermax.replay.plain.MAX_BATCHES`.
    """
    check_length(schedule)
    named = sum(len(batch.tokens) for batch in schedule.batches)
    if instance.output_tokens + named + schedule.length < PLAIN_WORK:
        return replay_plain(instance, schedule)
    return replay_compiled(instance, schedule) or replay_plain(instance, schedule)


def replay_compiled(instance: Instance, schedule: Schedule) -> Replay | None:
    """Replay a schedule in compiled code; None if it breaks a rule or does not fit int64."""
    columns = _columns(instance, schedule)
    if columns is None:
        return None
    import numpy as np

    system, policy = instance.system, instance.policy
    requests = instance.requests
    most_running = len(requests) if system.max_running is None else system.max_running
    valid, table, first, last, touched, evictions, refill = _kernel()(
        np.array([r.input_tokens for r in requests], np.int64),
        np.array([r.output_tokens for r in requests], np.int64),
        schedule.length, *columns,
        system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens, most_running,
        system.block_size, policy.hybrid_batching, policy.chunked_prefill, policy.preemption,
        instance.cost.exact_attention,
    )  # fmt: skip
    if not valid:
        return None
    features = list(map(BatchFeatures._make, zip(*(table[:, k].tolist() for k in range(5)), strict=True)))
    unit = tick_unit(instance, schedule)
    starts, ends = clock(instance, unit, features, _waits(schedule))
    if not instance.offline:
        for request, j in zip(requests, touched.tolist(), strict=True):
            if starts[j] < request.arrival * unit:
                return None
    return Replay(
        violations=(),
        ticks_per_second=unit,
        features=features,
        starts=starts,
        ends=ends,
        kv_used=table[:, 5].tolist(),
        running=table[:, 6].tolist(),
        first_batch=first.tolist(),
        last_batch=last.tolist(),
        evictions=evictions,
        refill_tokens=refill,
    )


@functools.cache
def _kernel() -> Callable[..., Any]:
    from infermax_opt.infermax.replay._kernel import replay_kernel

    return compiled(replay_kernel, (prefill_work,))


def _waits(schedule: Schedule) -> dict[int, Fraction]:
    """Earliest start of each batch (position from 0) that has one."""
    waits = {}
    position = 0
    for batch in schedule.batches:
        if batch.start is not None:
            waits[position] = batch.start
        position += batch.repeat
    return waits


def _columns(instance: Instance, schedule: Schedule) -> tuple[Any, ...] | None:
    """The schedule's entries as int64 columns, in the order of the kernel's arguments.

    None for what only the plain path can report: unknown requests, and numbers that are no
    int64 or no token counts at all.
    """
    import numpy as np

    index, batches = instance.index, schedule.batches
    try:
        requests = [index[name] for batch in batches for name in batch.tokens]
        evicted = [index[name] for batch in batches for name in batch.evict]
    except KeyError:
        return None
    tokens = [count for batch in batches for count in batch.tokens.values()]
    repeat = [batch.repeat for batch in batches]
    if not all(type(value) is int and 1 <= value <= 2 * MAX_TOKENS for value in tokens + repeat):
        return None
    columns = (
        list(accumulate(len(batch.tokens) for batch in batches)), requests, tokens,
        list(accumulate(len(batch.evict) for batch in batches)), evicted,
        [batch.decode_all for batch in batches], repeat,
    )  # fmt: skip
    return tuple(np.array(column, np.int64) for column in columns)
