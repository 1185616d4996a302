"""Regrouping of the prompts of a plan; see `infermax_opt.infermax.planners.polish._kernel`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.plan._profile import Profiles, Rules
from infermax_opt.infermax.planners.polish._kernel import BatchLoads, Moves, PolishLimits
from infermax_opt.infermax.planners.polish.polish import FAR, MAX_NAMED

__all__ = ["regroup_plan"]


def regroup_plan(
    instance: Instance,
    rules: Rules,
    profiles: Profiles,
    batches: int,
    columns: tuple[list[int], list[int], list[int]],
    start: Sequence[int],
    made: Sequence[int],
    cost: Any,
    regroup: Callable[..., Any],
    integers: Callable[[Iterable[int]], Any],
) -> float:
    """Move last chunks of a backwards plan with hybrid batching into fewer batches.

    Parameters
    ----------
    columns : (time, request, chunk)
        Of every chunk; the times are changed.
    made : sequence of int
        Tokens generated before an early eviction.

    Returns
    -------
    float
        Seconds saved.
    """
    time, request, chunk = columns
    last = batches - 1
    system = instance.system
    inputs = [r.input_tokens + some for r, some in zip(instance.requests, made, strict=True)]
    outputs = [r.output_tokens - some for r, some in zip(instance.requests, made, strict=True)]
    # Backwards the last chunk is the first one planned.
    final = [-1] * len(inputs)
    after = [-1] * len(inputs)
    prefills = [0] * batches
    for k, i in enumerate(request):
        prefills[last - time[k]] += 1
        if final[i] < 0:
            final[i] = k
        elif after[i] < 0:
            # An early start is evicted in the batch that follows its last token.
            after[i] = made[i] if made[i] else last - time[k]
    kept = [0] * batches
    for some in filter(None, made):
        kept[some] = 1
    second = [last - at - some + 2 for at, some in zip(start, outputs, strict=True)]
    movable = [i for i, some in enumerate(outputs) if some > 1]
    movable.sort(key=lambda i: second[i])
    sizes = [system.held(inputs[i]) - system.held(inputs[i] - chunk[final[i]]) for i in movable]
    moves = Moves(
        integers([last - time[final[i]] for i in movable]),
        integers([after[i] for i in movable]),
        integers([second[i] - 1 for i in movable]),
        integers([chunk[final[i]] for i in movable]),
        integers(sizes),
        integers([int(chunk[final[i]] == inputs[i]) for i in movable]),
    )
    tokens, prefill, kv, running = (column[:batches][::-1] for column in profiles)
    load = BatchLoads(
        integers(tokens), integers(prefill), integers(prefills),
        integers([c - p for c, p in zip(tokens, prefill, strict=True)]),
        integers(kv), integers(running), integers(kept),
    )  # fmt: skip
    limits = PolishLimits(
        system.kv_capacity, system.max_batch_tokens, system.max_prefill_tokens, rules.running, 1, FAR
    )
    saved = float(regroup(limits, load, moves, cost))
    if saved <= 0:
        return 0.0
    if sum(outputs) > MAX_NAMED and _named(load, moves) > MAX_NAMED:
        return 0.0
    for i, at in zip(movable, moves.at, strict=True):
        time[final[i]] = last - int(at)
    return saved


def _named(load: BatchLoads, moves: Moves) -> int:
    """Decodes of the batches in which some request idles."""
    change = [0] * (len(load.decodes) + 1)
    for at, latest in zip(moves.at, moves.latest, strict=True):
        change[at + 1] += 1
        change[latest + 1] -= 1
    return sum(int(some) for some, idle in zip(load.decodes, accumulate(change), strict=False) if idle)
