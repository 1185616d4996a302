"""Regrouping of the prompts of a plan; see `infermax_opt.infermax.planners.polish._kernel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.plan._placement import Kernels, Placement
from infermax_opt.infermax.planners.plan._profile import Rules
from infermax_opt.infermax.planners.polish._kernel import BatchLoads, Moves, PolishLimits
from infermax_opt.infermax.planners.polish.polish import FAR, MAX_NAMED

__all__ = ["regroup_plan"]


class _Prompts(NamedTuple):
    """Chunks of a backwards plan, looked at forwards.

    `final`: the last chunk of each request (its position among all chunks).  `after`: the batch that
    this one must come after, or -1.  `prefills`: chunks per batch.
    """

    final: list[int]
    after: list[int]
    prefills: list[int]

    @classmethod
    def of(cls, placed: Placement) -> _Prompts:
        n, last = len(placed.made), placed.batches - 1
        found = cls([-1] * n, [-1] * n, [0] * placed.batches)
        # Backwards the last chunk is the first one planned.
        for k, i in enumerate(placed.request):
            found.prefills[last - placed.time[k]] += 1
            if found.final[i] < 0:
                found.final[i] = k
            elif found.after[i] < 0:
                # An early start is evicted in the batch that follows its last token.
                found.after[i] = placed.made[i] or last - placed.time[k]
        return found


def regroup_plan(instance: Instance, rules: Rules, placed: Placement, kernels: Kernels) -> float:
    """Move last chunks of a backwards plan with hybrid batching into fewer batches.

    Parameters
    ----------
    instance : Instance
    rules : Rules
    placed : Placement
        The times of its chunks are changed.
    kernels : Kernels

    Returns
    -------
    float
        Seconds saved.
    """
    system, last = instance.system, placed.batches - 1
    outputs = [r.output_tokens - some for r, some in zip(instance.requests, placed.made, strict=True)]
    prompts = _Prompts.of(placed)
    second = [last - at - some + 2 for at, some in zip(placed.start, outputs, strict=True)]
    movable = sorted((i for i, some in enumerate(outputs) if some > 1), key=lambda i: second[i])
    moves = _moves(instance, placed, prompts, movable, second, kernels.integers)
    load = _loads(placed, prompts.prefills, kernels.integers)
    limits = PolishLimits(
        system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens, rules.running, 1, FAR
    )
    saved = float(kernels.regroup(limits, load, moves, kernels.cost(instance)))
    if saved <= 0:
        return 0.0
    if sum(outputs) > MAX_NAMED and _named(load, moves) > MAX_NAMED:
        return 0.0
    for i, at in zip(movable, moves.at, strict=True):
        placed.time[prompts.final[i]] = last - int(at)
    return saved


def _moves(
    instance: Instance,
    placed: Placement,
    prompts: _Prompts,
    movable: Sequence[int],
    second: Sequence[int],
    integers: Callable[[Iterable[int]], Any],
) -> Moves:
    """Where the last chunks of the `movable` requests are, and may be: before their second tokens."""
    held, last = instance.system.held, placed.batches - 1
    chunk = [placed.chunk[prompts.final[i]] for i in movable]
    inputs = [instance.requests[i].input_tokens + placed.made[i] for i in movable]
    return Moves(
        at=integers([last - placed.time[prompts.final[i]] for i in movable]),
        after=integers([prompts.after[i] for i in movable]),
        latest=integers([second[i] - 1 for i in movable]),
        chunk=integers(chunk),
        size=integers([held(i) - held(i - c) for i, c in zip(inputs, chunk, strict=True)]),
        fresh=integers([int(c == i) for i, c in zip(inputs, chunk, strict=True)]),
    )


def _loads(
    placed: Placement, prefills: Sequence[int], integers: Callable[[Iterable[int]], Any]
) -> BatchLoads:
    """What the batches of a backwards plan hold, first batch first."""
    tokens, prefill, kv, running = (column[: placed.batches][::-1] for column in placed.profiles)
    kept = [0] * placed.batches
    for some in filter(None, placed.made):
        kept[some] = 1
    return BatchLoads(
        tokens=integers(tokens),
        prefill=integers(prefill),
        prefills=integers(prefills),
        decodes=integers([c - p for c, p in zip(tokens, prefill, strict=True)]),
        kv=integers(kv),
        running=integers(running),
        kept=integers(kept),
    )


def _named(load: BatchLoads, moves: Moves) -> int:
    """Decodes of the batches in which some request idles."""
    change = [0] * (len(load.decodes) + 1)
    for at, latest in zip(moves.at, moves.latest, strict=True):
        change[at + 1] += 1
        change[latest + 1] -= 1
    return sum(int(some) for some, idle in zip(load.decodes, accumulate(change), strict=False) if idle)
