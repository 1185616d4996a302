"""Polishing of a schedule by mathematical programming: windows of the state-flow formulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.exact.solve_formulation import replayed_objective, without_lost_prefills
from infermax_opt.infermax.formulation import get_formulation

__all__ = ["improved_by_windows"]


def improved_by_windows(
    instance: Instance, schedule: Schedule, *, deadline: float, seed: int = 0
) -> Iterator[Schedule]:
    """Ever shorter schedules by large-neighbourhood search.

    Parameters
    ----------
    instance : Instance
        One that the state-flow formulation takes.
    schedule : Schedule
        Valid; prompts and refills are not split over batches, or nothing is found.
    deadline : float
        Moment of `time.monotonic` at which to stop.
    seed : int

    Yields
    ------
    Schedule
        Replayed without a fault, and shorter than those before.
    """
    from infermax_opt.engines.lowering import assign, lower
    from infermax_opt.engines.windows import improve_windows

    formulation = get_formulation("flow")
    try:
        # Without chunks the model is small; its schedules are schedules of the instance, too.
        whole = replace(instance, policy=replace(instance.policy, chunked_prefill=False))
    except InputError:  # a prompt needs more than one batch
        return
    best = replayed_objective(whole, schedule)
    if best is None:
        return
    model = formulation.build(whole, schedule.length)
    try:
        formulation.warm_start(model, schedule)
    except ValueError:
        return
    lowered, variables = lower(model, warm=True)
    # The last index of every variable of the formulation is its batch.
    batches = [index[-1] if isinstance(index := v.index(), tuple) else index for v in variables]
    if time.monotonic() >= deadline:
        return
    for values in improve_windows(lowered, batches, deadline=deadline, seed=seed):
        assign(variables, values)
        found = without_lost_prefills(whole, formulation.extract(model))
        value = replayed_objective(whole, found)
        if value is not None and value < best:
            best = value
            yield found
