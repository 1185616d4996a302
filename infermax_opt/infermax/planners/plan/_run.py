"""Calls of the planner's kernels: columns in, plans out."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Coefficients, batch_time
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES
from infermax_opt.infermax.planners.plan import _kernel as _planner_kernel
from infermax_opt.infermax.planners.plan import _pilot_order as _planner_pilot
from infermax_opt.infermax.planners.plan._early_evictions import Early, attention, occupy
from infermax_opt.infermax.planners.plan._kernel import Jobs, area
from infermax_opt.infermax.planners.plan._pilot_order import Kinds
from infermax_opt.infermax.planners.plan._profile import Profiles, Rules, Trial
from infermax_opt.infermax.planners.plan._regroup import regroup_plan
from infermax_opt.infermax.planners.polish._kernel import regroup
from infermax_opt.infermax.planners.polish.polish import compiled_regroup

__all__ = ["Plan", "pilot_order", "run_kernel"]

#: Below so many request-tokens plain Python takes less time than loading compiled code.
PLAIN_WORK = 20_000
#: The same once the compiled code is loaded.
PLAIN_WORK_LOADED = 300


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
    start : sequence of int
        Batch, per request, in which it was placed (last, where it was cut).
    made : sequence of int
        Tokens, per request, made before an early eviction (see `Early`); 0 for the others.
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
    if load < (PLAIN_WORK_LOADED if _compiled.cache_info().currsize else PLAIN_WORK):
        return _run(instance, rules, order, width, early, _planner_kernel.plan_loop, regroup, list, list)
    import numpy as np

    integers = functools.partial(np.array, dtype=np.int64)
    floats = functools.partial(np.array, dtype=np.float64)
    return _run(instance, rules, order, width, early, _compiled(), compiled_regroup(), integers, floats)


def _run(
    instance: Instance,
    rules: Rules,
    order: Sequence[int],
    width: Sequence[int],
    early: Early | None,
    loop: Callable[..., Any],
    regroup: Callable[..., Any],
    integers: Callable[[Iterable[int]], Any],
    floats: Callable[[Iterable[float]], Any],
) -> Plan:
    requests = instance.requests
    n = len(requests)
    inputs = [r.input_tokens for r in requests]
    outputs = [r.output_tokens for r in requests]
    made = early.tokens if early else [0] * n
    for i, tokens in enumerate(made):
        inputs[i] += tokens
        outputs[i] -= tokens
    kinds = [0] * n
    numbers: dict[tuple[int, int], int] = {}
    for i, sizes in enumerate(zip(inputs, outputs, strict=True)):
        kinds[i] = numbers.setdefault(sizes, len(numbers))
    queue = [n] * (n + 1)
    for i, following in zip_longest([n, *order], order, fillvalue=n):
        queue[i] = following
    unit = instance.cost.floats
    cost = Coefficients(floats(unit.alpha), floats(unit.beta), *unit[2:])
    longest = max(r.input_tokens + r.output_tokens for r in requests) + rules.group
    horizon = _horizon(instance, rules) + (early.batches if early else 0)
    while True:
        # The limit may be overstepped by what is reserved for the longest request.
        horizon = min(horizon, MAX_BATCHES + 2 * longest)

        def zeros(size: int) -> Any:
            return integers([0] * size)

        jobs = Jobs(
            integers(inputs), integers(outputs), integers(width), integers(kinds), integers(queue),
            zeros(len(numbers)), zeros(n), zeros(n),
        )  # fmt: skip
        profiles = Profiles(*(zeros(horizon) for _ in range(4)))
        trial = Trial(zeros(longest), zeros(longest), zeros(4))
        if early:
            occupy(instance, early, profiles)
        batches, seconds, time, request, chunk, cut_time, cut_request = loop(
            rules, jobs, profiles, trial, cost, early.batches if early else 0
        )
        if batches > MAX_BATCHES or (batches < 0 and horizon == MAX_BATCHES + 2 * longest):
            raise InputError(f"needs more than {MAX_BATCHES} batches, the most a schedule may hold")
        if batches >= 0:
            break
        horizon *= 2
    decodes = [
        bool(c > (p if rules.hybrid else 0))
        for c, p in zip(profiles.tokens[:batches], profiles.prefill[:batches], strict=True)
    ]
    saved = 0.0
    # With too few batches for early starts it is no plan at all.
    regrouped = bool(rules.backwards and rules.hybrid) and instance.objective.is_makespan and cost.p0 > 0
    regrouped = regrouped and not (early and batches > early.batches)
    if early:
        seconds += attention(instance, early)
        for i, tokens in enumerate(made):
            if tokens:
                time.append(batches - 1)
                request.append(i)
                chunk.append(requests[i].input_tokens)
                cut_time.append(batches - 1 - tokens)
                cut_request.append(i)
        # A batch that only evicts takes its time, too.
        empty = {u for u in cut_time if profiles.tokens[u] == 0}
        seconds += len(empty) * batch_time(*unit, 0, 0, 0, 0, 0)
    if regrouped:
        saved = regroup_plan(
            instance,
            rules,
            profiles,
            batches,
            (time, request, chunk),
            jobs.start,
            made,
            cost,
            regroup,
            integers,
        )
    return Plan(
        rules, int(batches), float(seconds) - saved, decodes,
        list(zip(time, request, chunk, strict=True)), list(zip(cut_time, cut_request, strict=True)),
        list(jobs.start), made, regrouped,
    )  # fmt: skip


@functools.cache
def _compiled_pilot() -> Callable[..., Any]:
    return compiled(_planner_pilot.pilot_loop, _planner_pilot.HELPERS)


def pilot_order(
    instance: Instance, rules: Rules, width: Sequence[int], bias: Sequence[float], far: int
) -> list[int] | None:
    """Order the requests by the pilot method, in compiled code.

    Parameters
    ----------
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
    longest = max(kind.input_tokens + kind.output_tokens for kind in kinds) + rules.group

    def zeros(size: int) -> Any:
        return np.zeros(size, np.int64)

    greedy = sorted(range(n), key=lambda k: -(kinds[k].input_tokens + kinds[k].output_tokens))
    horizon = _horizon(instance, rules)
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


def _horizon(instance: Instance, rules: Rules) -> int:
    """Batches that a plan will hardly need."""
    requests = instance.requests
    longest = max(r.input_tokens + r.output_tokens for r in requests) + rules.group
    held = sum(int(area(r.input_tokens, r.output_tokens)) for r in requests)
    prompts = sum(r.input_tokens for r in requests)
    return 2 * max(held // rules.capacity, prompts // min(rules.tokens, rules.prefill)) + 3 * longest
