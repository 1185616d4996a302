"""Plans for latencies, and with arrivals: the planners that may help an objective, in turn or in a race."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from infermax_opt.infermax.data.first_tokens import counts_first_tokens
from infermax_opt.infermax.data.instance import Instance, Metric, Objective
from infermax_opt.infermax.data.schedule import Schedule

__all__ = ["latency_plans"]

#: Share of the time that planners for latencies have where those for the makespan may help, too.
ADMISSION_SHARE = 0.4
#: Share that those for service levels have before the others, where they are not raced.
LEVELS_SHARE = 0.9
#: Shares of the time in which the planners of a race show how good they are: that for first tokens, or for
#: percentiles, which needs more tries to show it, and each of the others.
FIRST_TRIAL, TRIAL = 0.3, 0.1


class _Raced(Protocol):
    """A planner whose values can be compared with those of others."""

    value: float

    def plans(self, deadline: float | None = None) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans; called again, it goes on from its best one."""


def latency_plans(
    instance: Instance, *, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Plans for an instance with arrivals, or for an objective that is not the makespan.

    Where first tokens count, alone or among others, their planner is raced against those for whole requests.
    It is far better where memory is scarce, and worse where nobody may be evicted.  For percentiles of
    end-to-end latencies, smaller and smaller limits are raced against the others, from what these reach on.
    Offline waves of equal requests come first, as they take no time, and the planners for the makespan last:
    a full memory helps all.

    Parameters
    ----------
    instance : Instance
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Yields
    ------
    name : str
        Where the schedule comes from.
    schedule : Schedule
    """
    from infermax_opt.infermax.planners.admission.levels import LevelsPlanner
    from infermax_opt.infermax.planners.admission.planner import AdmissionPlanner
    from infermax_opt.infermax.planners.admission.ranks import RanksPlanner, has_limit
    from infermax_opt.infermax.planners.anytime import anytime_plans
    from infermax_opt.infermax.planners.first_tokens.planner import FirstTokensPlanner
    from infermax_opt.infermax.planners.waves import wave_plans

    now, metrics = time.monotonic(), instance.objective.metrics
    if instance.objective.name is None and len(metrics) == 1:  # a weight or a limit of one changes no order
        instance = replace(instance, objective=Objective.of(metrics[0].value))

    def until(share: float) -> float | None:
        return None if deadline is None else now + share * (deadline - now)

    yield from wave_plans(instance)
    share = ADMISSION_SHARE if instance.offline else 1.0
    admission = AdmissionPlanner(instance, seed=seed)
    planners: list[_Raced] = [admission]
    if counts_first_tokens(instance):
        planners.insert(0, FirstTokensPlanner(instance, seed=seed))
    if has_limit(instance):
        yield from admission.plans(until(TRIAL))
        planners.insert(0, RanksPlanner(instance, seed=seed, known=admission.value))
    if Metric.MISSED in metrics:
        levels, share = LevelsPlanner(instance, seed=seed), max(share, LEVELS_SHARE)
        if len(planners) > 1 and len(metrics) == 1:
            planners.append(levels)
        else:
            yield from levels.plans(until(LEVELS_SHARE))
    yield from _raced(planners, until(share))
    if instance.offline:
        packed = replace(instance, objective=Objective.of(Metric.MAKESPAN.value))
        yield from anytime_plans(packed, seed=seed, deadline=deadline)


def _raced(planners: Sequence[_Raced], deadline: float | None) -> Iterator[tuple[str, Schedule]]:
    """Plans of each in a part of the time, then those of the best one; without a deadline, of each.

    Parameters
    ----------
    planners : sequence
        The first one has the longest trial; of two that are equally good the first one goes on.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.
    """
    if deadline is not None and len(planners) > 1:
        now, share = time.monotonic(), 0.0
        for planner in planners:
            share += TRIAL if share else FIRST_TRIAL
            yield from planner.plans(now + share * (deadline - now))
        planners = [min(planners, key=lambda planner: planner.value)]
    for planner in planners:
        yield from planner.plans(deadline)
