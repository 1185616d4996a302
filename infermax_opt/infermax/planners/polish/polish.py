"""Polishing of schedules: prefill in fewer batches, at the price of idle requests.

Every batch that prefills pays a fixed price.  Schedulers that let requests start when there is
room for them pay it in nearly every batch.  `polish` leaves all decodes and evictions where they
are and moves (last chunks of) prompts and refills into batches that prefill anyway, as far as
the limits allow: see `infermax_opt.infermax.planners.polish._kernel`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, repeat
from typing import Any, NamedTuple

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.infermax.data.cost import Coefficients
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.polish import _kernel as _polish_kernel
from infermax_opt.infermax.planners.polish import _trace as _polish_trace
from infermax_opt.infermax.planners.polish._kernel import BatchLoads, Moves, PolishLimits
from infermax_opt.infermax.planners.polish._trace import Progress, Trace
from infermax_opt.infermax.planners.polish._write import rewritten
from infermax_opt.infermax.replay._entries import entries_of

__all__ = ["FAR", "MAX_NAMED", "compiled_regroup", "polish"]

#: Batches by which a prompt may be moved back.
FAR = 1000
#: Below so many request-tokens plain Python takes less time than loading compiled code.
PLAIN_WORK = 20_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 300
#: What plain Python does in all before the kernel is compiled: about as long as compiling takes.
UNCOMPILED = 100_000
#: Most decodes that may be named one by one because another request idles beside them.
MAX_NAMED = 1_000_000


class _Kernels(NamedTuple):
    """The kernels, all plain or all compiled; what makes columns for them; the cost in columns."""

    trace: Callable[..., Trace]
    regroup: Callable[..., Any]
    integers: Callable[[Iterable[int]], Any]
    cost: Coefficients


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
    if not worthwhile(_compiled_trace, work, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED):
        plain = _Kernels(_polish_trace.trace, _polish_kernel.regroup, list, instance.cost.floats)
        return _polish(instance, schedule, plain)
    import numpy as np

    cost = instance.cost.columns
    integers = functools.partial(np.array, dtype=np.int64)
    return _polish(instance, schedule, _Kernels(_compiled_trace(), compiled_regroup(), integers, cost))


def _polish(instance: Instance, schedule: Schedule, kernels: _Kernels) -> tuple[float, Schedule]:
    length, integers = schedule.length, kernels.integers
    walk = _Walk(instance, schedule, kernels)
    load, idle = walk.loads(), walk.zeros(length)
    found = walk.trace(load, idle, walk.zeros(length))
    movable = sorted(
        (k for k, latest in enumerate(found.latest) if latest >= 0), key=found.latest.__getitem__
    )
    columns = (found.time, found.after, found.latest, found.chunk, found.size, found.fresh)
    moves = Moves(*(integers([column[k] for k in movable]) for column in columns))
    saved = float(kernels.regroup(_limits(instance), load, moves, kernels.cost))
    if saved <= 0:
        return 0.0, schedule
    time, waiting = list(found.time), [int(some) for some in idle]
    _move(time, waiting, movable, moves.at)
    if sum(int(d) for d, some in zip(load.decodes, waiting, strict=True) if some) > MAX_NAMED:
        return 0.0, schedule
    again = walk.trace(walk.loads(), walk.zeros(length), integers([int(some > 0) for some in waiting]))
    everyone = [bool(d > 0 and some == 0) for d, some in zip(load.decodes, waiting, strict=True)]
    chunks = zip(time, found.request, found.chunk, strict=True)
    decodes = zip(again.decode_time, again.decode_request, repeat(1), strict=False)
    return saved, rewritten(instance, schedule, everyone, chain(chunks, decodes))


def _move(time: list[int], waiting: list[int], movable: Sequence[int], at: Sequence[int]) -> None:
    """Write the new times of the movable chunks; count who waits more in each batch.

    Between its chunk and its next token a request idles.
    """
    change = [0] * (len(waiting) + 1)
    for k, u in zip(movable, at, strict=True):
        change[u + 1] += 1
        change[time[k] + 1] -= 1
        time[k] = int(u)
    for j, more in enumerate(accumulate(change[: len(waiting)])):
        waiting[j] += more


class _Walk:
    """A schedule that can be followed time and again."""

    def __init__(self, instance: Instance, schedule: Schedule, kernels: _Kernels):
        self.instance, self.kernels = instance, kernels
        self.length = schedule.length
        self.entries = entries_of(instance, schedule, kernels.integers)

    def zeros(self, size: int) -> Any:
        return self.kernels.integers([0] * size)

    def loads(self) -> BatchLoads:
        """What batches hold, to be filled."""
        return BatchLoads(*(self.zeros(self.length) for _ in BatchLoads._fields))

    def trace(self, load: BatchLoads, idle: Any, wanted: Any) -> Trace:
        """Follow the schedule; see `infermax_opt.infermax.planners.polish._trace.trace`."""
        requests, integers = self.instance.requests, self.kernels.integers
        now = Progress(
            integers([r.input_tokens for r in requests]),
            integers([r.output_tokens for r in requests]),
            *(self.zeros(len(requests)) for _ in range(7)),
        )
        block = self.instance.system.block_size
        found: Trace = self.kernels.trace(self.entries, now, load, idle, wanted, block)
        return found


def _limits(instance: Instance) -> PolishLimits:
    system = instance.system
    return PolishLimits(
        capacity=system.kv_capacity,
        tokens=system.max_batch_tokens,
        prefill=system.max_prefill_tokens,
        running=len(instance.requests) if system.max_running is None else system.max_running,
        hybrid=int(instance.policy.hybrid_batching),
        far=FAR,
    )
