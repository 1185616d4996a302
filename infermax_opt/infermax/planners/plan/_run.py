"""Calls of the planner's kernels: columns in, plans out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from infermax_opt.core.compiled import compiled, worthwhile
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES
from infermax_opt.infermax.planners.plan import _kernel as _planner_kernel
from infermax_opt.infermax.planners.plan import _pilot_order as _planner_pilot
from infermax_opt.infermax.planners.plan._early_evictions import Early
from infermax_opt.infermax.planners.plan._pilot_order import Kinds
from infermax_opt.infermax.planners.plan._placement import Kernels, expected_horizon, longest_stay, place
from infermax_opt.infermax.planners.plan._profile import Profiles, Rules, Trial
from infermax_opt.infermax.planners.plan._regroup import regroup_plan
from infermax_opt.infermax.planners.polish._kernel import regroup
from infermax_opt.infermax.planners.polish.polish import compiled_regroup

__all__ = ["Plan", "pilot_order", "run_kernel"]

#: Below so many request-tokens plain Python takes less time than loading compiled code.
PLAIN_WORK = 20_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 300
#: What plain Python does in all before the kernel is compiled: about as long as compiling takes.
UNCOMPILED = 100_000


@dataclass(frozen=True)
class Plan:
    """What the kernel decided.  Times are batches from 0, in the kernel's direction.

    Attributes
    ----------
    rules : Rules
    batches : int
    seconds : float
        Estimated makespan; the exact one comes from replay.
    decodes : sequence of bool
        Whether a request decodes, per batch.
    chunks : sequence of (time, request, tokens)
    cuts : sequence of (time, request)
        Early evictions: the batch at whose start, and who.
    start : sequence of int
        Batch, per request, in which it was placed.
    made : sequence of int
        Tokens, per request, made before an early eviction (see `Early`); 0 for the others.
    held : sequence of int
        KV per batch, before prompts were moved back.
    regrouped : bool
        Whether prompts may have been moved back, so that requests idle.
    """

    rules: Rules
    batches: int
    seconds: float
    decodes: Sequence[bool]
    chunks: Sequence[tuple[int, int, int]]
    cuts: Sequence[tuple[int, int]]
    start: Sequence[int]
    made: Sequence[int]
    held: Sequence[int] = field(compare=False)
    regrouped: bool


@functools.cache
def _compiled() -> Callable[..., Any]:
    return compiled(_planner_kernel.plan_loop, _planner_kernel.HELPERS)


def run_kernel(
    instance: Instance,
    rules: Rules,
    order: Sequence[int],
    width: Sequence[int],
    early: Early | None = None,
) -> Plan:
    """Plan an instance by given rules.

    Parameters
    ----------
    instance : Instance
    rules : Rules
    order : sequence of int
        The requests by priority.
    width : sequence of int
        Most tokens of a chunk, per request.
    early : Early, optional
        Early starts, where the plan is made backwards with hybrid batching.

    Returns
    -------
    Plan
        With early starts it has more batches than those say where they were too few.

    Raises
    ------
    InputError
        If the plan would have more than `infermax_opt.infermax.replay.plain.MAX_BATCHES` batches.
    """
    requests = instance.requests
    load = instance.output_tokens + sum(-(-r.input_tokens // w) for r, w in zip(requests, width, strict=True))
    if not worthwhile(_compiled, load, PLAIN_WORK, PLAIN_WORK_LOADED, UNCOMPILED):
        kernels = Kernels(_planner_kernel.plan_loop, regroup, list, list)
        return _run(instance, rules, order, width, early, kernels)
    import numpy as np

    kernels = Kernels(
        _compiled(),
        compiled_regroup(),
        functools.partial(np.array, dtype=np.int64),
        functools.partial(np.array, dtype=np.float64),
    )
    return _run(instance, rules, order, width, early, kernels)


def _run(
    instance: Instance,
    rules: Rules,
    order: Sequence[int],
    width: Sequence[int],
    early: Early | None,
    kernels: Kernels,
) -> Plan:
    placed = place(instance, rules, order, width, early, kernels)
    decodes = placed.decodes(bool(rules.hybrid))
    # With too few batches for early starts it is no plan at all.
    enough = early is None or placed.batches <= early.batches
    regrouped = enough and _regroup_helps(instance, rules)
    saved = regroup_plan(instance, rules, placed, kernels) if regrouped else 0.0
    return Plan(
        rules, int(placed.batches), float(placed.seconds) - saved, decodes,
        list(zip(placed.time, placed.request, placed.chunk, strict=True)),
        placed.cuts,
        list(placed.start), placed.made, placed.profiles.kv[: placed.batches], regrouped,
    )  # fmt: skip


def _regroup_helps(instance: Instance, rules: Rules) -> bool:
    """Whether prompts may be moved back, and batches without them are cheaper."""
    movable = bool(rules.backwards and rules.hybrid)
    return movable and instance.objective.is_makespan and instance.cost.floats.p0 > 0


@functools.cache
def _compiled_pilot() -> Callable[..., Any]:
    return compiled(_planner_pilot.pilot_loop, _planner_pilot.HELPERS)


def pilot_order(
    instance: Instance, rules: Rules, width: Sequence[int], bias: Sequence[float], far: int
) -> list[int] | None:
    """Order the requests by the pilot method, in compiled code.

    Parameters
    ----------
    instance : Instance
    rules : Rules
    width : sequence of int
        Most tokens of a chunk, per request (the same for all of a type).
    bias : sequence of float
        KV area granted to a type of request that starts next, per type.
    far : int
        Batches for which a try goes on.

    Returns
    -------
    list of int or None
        None where it would take more than `MAX_BATCHES` batches.
    """
    import numpy as np

    kinds = instance.types
    n = len(kinds)
    longest = longest_stay(instance, rules)

    def zeros(size: int) -> Any:
        return np.zeros(size, np.int64)

    greedy = sorted(range(n), key=lambda k: -(kinds[k].input_tokens + kinds[k].output_tokens))
    horizon = expected_horizon(instance, rules)
    order: list[int] = []
    while len(order) < len(instance.requests):
        if horizon > MAX_BATCHES:
            return None
        columns = Kinds(
            np.array([kind.input_tokens for kind in kinds]),
            np.array([kind.output_tokens for kind in kinds]),
            np.array([width[kind.members[0]] for kind in kinds]),
            np.array([len(kind.members) for kind in kinds]),
            np.array(bias, np.float64),
        )
        size = 2 * far + 6 * longest
        order = _compiled_pilot()(
            rules, columns, Profiles(*(zeros(horizon + size) for _ in range(4))),
            Trial(zeros(longest), zeros(longest), zeros(4)),
            Profiles(*(zeros(size) for _ in range(4))), zeros(n), np.array(greedy), far,
        )  # fmt: skip
        horizon *= 2
    members = [iter(kind.members) for kind in kinds]
    return [next(members[k]) for k in order]
