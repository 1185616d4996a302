"""Planners that know the output lengths, one after the other, ever better schedules."""

from __future__ import annotations

import time
from collections.abc import Iterator

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule

__all__ = ["anytime_plans"]

#: Share of the time that the list planner has before the beam search, where that one applies.
LIST_SHARE = 0.2
#: The same where more requests than `FEW` fill the KV, of which a beam sees too little.
MANY_SHARE, FEW = 0.6, 12
#: Share of the time left that the search for orders has, where that one applies; the list planner has
#: `LIST_SHARE` there.
ORDER_SHARE = 0.6
#: Requests that fill the KV up to which long outputs are planned at a coarse scale as well, and the share
#: of the time left that the beam search at full scale has before.
COARSE_FEW, FINE_SHARE = 16, 0.6


def anytime_plans(
    instance: Instance, *, upper: float | None = None, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Plans for an offline instance, each better than those before by the planner's own estimate.

    Parameters
    ----------
    instance : Instance
    upper : float, optional
        Makespan in seconds that is known already; the beam search yields only what is better.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Yields
    ------
    name : str
        Where the schedule comes from.
    schedule : Schedule
    """
    from infermax_opt.infermax.planners.beam.beam import beam_plans
    from infermax_opt.infermax.planners.plan.planner import Planner, typical_slots
    from infermax_opt.infermax.planners.polish.polish import polish
    from infermax_opt.infermax.planners.scaled_instance import coarse_plans, coarse_scale
    from infermax_opt.infermax.planners.sequence import sequence_plans, sequences_help

    began = time.monotonic()
    ordered = sequences_help(instance)
    share = LIST_SHARE if ordered or typical_slots(instance) <= FEW else MANY_SHARE
    first = None if deadline is None else began + share * (deadline - began)
    planner = Planner(instance, seed=seed)
    yield from planner.improve(first)
    if ordered:
        now = time.monotonic()
        until = None if deadline is None else now + ORDER_SHARE * (deadline - now)
        yield from sequence_plans(instance, planner, seed=seed, deadline=until)
    both = typical_slots(instance) <= COARSE_FEW and coarse_scale(instance) > 1
    for plans in (beam_plans, coarse_plans) if both else (beam_plans,):
        until = deadline
        if both and plans is beam_plans and deadline is not None:
            until = time.monotonic() + FINE_SHARE * (deadline - time.monotonic())
        for name, schedule in plans(instance, upper=upper, seed=seed, deadline=until):
            yield name, polish(instance, schedule)[1] if instance.objective.is_makespan else schedule
    if deadline is not None and time.monotonic() < deadline:
        yield from planner.improve(deadline)
