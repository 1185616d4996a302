"""Compiled replay of valid schedules.

The rules and the plain path are in `infermax_opt.infermax.replay.plain`.  The compiled path returns
exactly what the plain one does.  It takes valid schedules only: at the first broken rule it hands over
to the plain path, which names every violation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.infermax.data.cost import BatchFeatures
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.release import derived_arrivals
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay._entries import Entries, entries_of
from infermax_opt.infermax.replay.plain import Replay, check_length, clock, replay_plain, tick_unit

if TYPE_CHECKING:
    from infermax_opt.infermax.replay._kernel import ReplayLimits

__all__ = ["replay", "replay_compiled", "valid_replay"]

#: Below so many request-tokens the plain path takes less time than loading compiled code.
PLAIN_WORK = 20_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 60
#: What it does in all before the kernel is compiled: about as long as compiling takes.
UNCOMPILED = 200_000


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
    work = instance.output_tokens + named + schedule.length
    if not worthwhile(_kernel, work, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED):
        return replay_plain(instance, schedule)
    return replay_compiled(instance, schedule) or replay_plain(instance, schedule)


def valid_replay(instance: Instance, schedule: Schedule) -> Replay:
    """Replay a schedule that is valid.

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    replayed = replay(instance, schedule)
    if not replayed.valid:
        raise ValueError(f"the schedule breaks a rule: {replayed.violations[0]}")
    return replayed


def replay_compiled(instance: Instance, schedule: Schedule) -> Replay | None:
    """Replay a schedule in compiled code; None if it breaks a rule or does not fit int64."""
    entries = _entries(instance, schedule)
    if entries is None:
        return None
    import numpy as np

    from infermax_opt.infermax.replay import _kernel as kernel

    inputs = np.array([r.input_tokens for r in instance.requests], np.int64)
    outputs = np.array([r.output_tokens for r in instance.requests], np.int64)
    done = kernel.Replayed.of(len(inputs), schedule.length)
    if not _kernel()(inputs, outputs, entries, _limits(instance), done):
        return None
    table = done.features
    # What `BatchFeatures._make` does, without a call of Python per batch.
    make = functools.partial(tuple.__new__, BatchFeatures)
    features = list(map(make, zip(*(table[:, k].tolist() for k in range(6)), strict=True)))
    unit = tick_unit(instance, schedule)
    starts, ends = clock(instance, unit, features, _waits(schedule))
    if not instance.offline:
        for request, j in zip(instance.requests, done.touched.tolist(), strict=True):
            if starts[j] < request.arrival * unit:
                return None
    last_batch = done.last.tolist()
    released = derived_arrivals(instance, last_batch, ends)
    touched = done.touched
    if any(touched[i] >= 0 and starts[touched[i]] < arrival for i, arrival in released.items()):
        return None
    return Replay(
        violations=(),
        ticks_per_second=unit,
        features=features,
        starts=starts,
        ends=ends,
        kv_used=table[:, 6].tolist(),
        running=table[:, 7].tolist(),
        first_batch=done.first.tolist(),
        last_batch=last_batch,
        released=released,
        evictions=int(done.totals[kernel.EVICTIONS]),
        refill_tokens=int(done.totals[kernel.REFILLS]),
        generated=instance.output_tokens,
    )


@functools.cache
def _kernel() -> Callable[..., Any]:
    from infermax_opt.infermax.replay import _kernel as kernel

    return compiled(kernel.replay_kernel, kernel.HELPERS, allocates=False)


def _limits(instance: Instance) -> ReplayLimits:
    from infermax_opt.infermax.replay._kernel import ReplayLimits

    system, policy = instance.system, instance.policy
    return ReplayLimits(
        capacity=system.kv_capacity,
        tokens=system.max_batch_tokens,
        prefill=system.max_prefill_tokens,
        running=len(instance.requests) if system.max_running is None else system.max_running,
        block=system.block_size,
        hybrid=policy.hybrid_batching,
        chunked=policy.chunked_prefill,
        preemption=policy.preemption,
        exact=instance.cost.exact_attention,
    )


def _waits(schedule: Schedule) -> dict[int, Fraction]:
    """Earliest start of each batch (position from 0) that has one."""
    waits = {}
    position = 0
    for batch in schedule.batches:
        if batch.start is not None:
            waits[position] = batch.start
        position += batch.repeat
    return waits


def _entries(instance: Instance, schedule: Schedule) -> Entries | None:
    """The schedule's entries as int64 columns.

    None for what only the plain path can report: unknown requests, and numbers that are no
    int64 or no token counts at all.
    """
    import numpy as np

    batches = schedule.batches
    counts = [count for batch in batches for count in batch.tokens.values()]
    counts += [batch.repeat for batch in batches]
    if not all(type(value) is int and 1 <= value <= 2 * MAX_TOKENS for value in counts):
        return None
    try:
        return entries_of(instance, schedule, functools.partial(np.array, dtype=np.int64))
    except KeyError:
        return None
