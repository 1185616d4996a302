"""Planners that know the output lengths, one after the other, ever better schedules."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.moments import after_share, passed

if TYPE_CHECKING:
    from infermax_opt.infermax.planners.backlog.planner import BacklogPlanner
    from infermax_opt.infermax.planners.plan.planner import Planner

__all__ = ["anytime_plans", "better_than_windows"]

#: Requests of mean size that fill the KV; where they are more, a beam sees too little of them.
FEW = 12
#: Share of all time that the list planner has first, where few requests fill the KV or are all there are.
LIST_SHARE = 0.2
#: The same where many do.
MANY_SHARE = 0.6
#: The same where prompts may queue, as plans in which they do are much better then.
QUEUED_SHARE = 0.08
#: Share of the time left then that the search for orders has, where that one applies, and of what is left
#: after it the local search; the same where types are so many that the first one puts them into classes.
ORDER_SHARES, CLASSES_SHARES = (0.6, 0.3), (0.1, 0.6)
#: The same, the first at most, where requests may start early, which the local search plans, too.
EARLY_SHARES = (0.45, 0.7)
#: The same of that search where equal requests are placed jointly after it, which mostly does better.
RIVALS_SHARE = 0.2
#: The same where plans follow in which requests fill the holes that others leave; then the share of these.
FILLED_SHARES, FILLERS_SHARE = (0.2, 0.2), 0.7
#: Requests that fill the KV; where they are no more, long outputs are planned at a coarse scale as well.
COARSE_FEW = 16
#: Share of the time left that plans have first which may keep prompts and decodes apart, where they cost more
#: beside each other and other searches follow; shares of that of each of these planners.
APART_SHARE, TURNS = 0.25, (0.25, 0.35, 0.35)
#: Share of the time left that plans have in which prompts queue, if they come near the list planner's.
BACKLOG_SHARE = 0.5
#: Share of the time left before that, which the beam search at full scale has.
FINE_SHARE = 0.6
#: Share of the time left that the search backwards has, if it comes near what is known; share of the time
#: left in the end that the list planner has before it goes on.
BACKWARD_SHARE, BETWEEN_SHARE = 0.8, 0.3
#: Share of the time left then that the beam search over counts has.
COUNT_SHARE = 0.5
#: Share of the time left that the beam search has where whole lives can be searched after it.
BEAM_SHARE = 0.25


def anytime_plans(
    instance: Instance,
    *,
    upper: float | None = None,
    known: Callable[[], Schedule | None] = lambda: None,
    done: Callable[[], bool] = lambda: False,
    seed: int = 0,
    deadline: float | None = None,
) -> Iterator[tuple[str, Schedule]]:
    """Plans for an offline instance, each better than those before by the planner's own estimate.

    Parameters
    ----------
    instance : Instance
    upper : float, optional
        Makespan in seconds that is known already; the beam search yields only what is better.
    known : callable, optional
        Gives the best schedule so far, from which the search over lives starts.
    done : callable, optional
        Asked whether nothing better is wanted, by searches that go on until the deadline.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Yields
    ------
    name : str
        Where the schedule comes from.
    schedule : Schedule
    """
    from infermax_opt.infermax.planners.backlog.planner import BacklogPlanner
    from infermax_opt.infermax.planners.lives.planner import lives_help
    from infermax_opt.infermax.planners.plan.planner import Planner
    from infermax_opt.infermax.planners.sequence import CLASSES, sequences_help

    planner, backlog = Planner(instance, seed=seed), BacklogPlanner(instance, seed=seed)
    if instance.policy.hybrid_batching and any(instance.cost.mixed):
        until = deadline if len(instance.types) > CLASSES else after_share(APART_SHARE, deadline)
        yield from _beside_or_apart(instance, planner, backlog, seed, until)
        if passed(deadline):
            return
    rivals = sequences_help(instance) or lives_help(instance) or _beams_do_well(instance)
    share = QUEUED_SHARE if backlog.helps else LIST_SHARE if rivals else MANY_SHARE
    yield from planner.improve(after_share(share, deadline), done=done)
    yield from backlog.improve(planner.best, after_share(BACKLOG_SHARE, deadline), done=done)
    if not done():
        yield from _along_orders(instance, planner, known, done, seed, deadline)
    yield from _searched(instance, planner, backlog, upper, known, done, seed, deadline)


def _along_orders(
    instance: Instance,
    planner: Planner,
    known: Callable[[], Schedule | None],
    done: Callable[[], bool],
    seed: int,
    deadline: float | None,
) -> Iterator[tuple[str, Schedule]]:
    """Plans that place one request after the other, in orders that are searched; then with fillers in holes.

    Parameters
    ----------
    instance : Instance
    planner : Planner
        Whose settings the plans have.
    known, done, seed, deadline
        As in `anytime_plans`.
    """
    from infermax_opt.infermax.planners.backward.search import backward_helps
    from infermax_opt.infermax.planners.fillers.planner import fillers_help, fillers_plans
    from infermax_opt.infermax.planners.lives.planner import lives_help
    from infermax_opt.infermax.planners.orders.planner import orders_help, orders_plans
    from infermax_opt.infermax.planners.sequence import CLASSES, sequence_plans, sequences_help

    filled = fillers_help(instance)
    search, local = ORDER_SHARES if len(instance.types) <= CLASSES else CLASSES_SHARES
    if planner.early and len(instance.types) == 1 and (_beams_do_well(instance) or backward_helps(instance)):
        local = RIVALS_SHARE
    elif planner.early:
        search, local = min(search, EARLY_SHARES[0]), EARLY_SHARES[1]
    search, local = FILLED_SHARES if filled else (search, local)
    if sequences_help(instance):
        yield from sequence_plans(instance, planner, seed=seed, deadline=after_share(search, deadline))
    if orders_help(instance) and not lives_help(instance):
        until = after_share(local, deadline)
        yield from orders_plans(instance, planner, known=known(), done=done, seed=seed, deadline=until)
    if filled:
        until = after_share(FILLERS_SHARE, deadline)
        for name, schedule in fillers_plans(instance, known(), seed=seed, deadline=until):
            yield name, _polished(instance, schedule)


def _beside_or_apart(
    instance: Instance, planner: Planner, backlog: BacklogPlanner, seed: int, deadline: float | None
) -> Iterator[tuple[str, Schedule]]:
    """Plans for an instance in which prompts and decodes cost more beside each other.

    Three planners have their turns, and the one with the best schedule goes on: that of the instance without
    hybrid batching, that in which prompts queue, and the list planner, which knows nothing of that cost.

    Parameters
    ----------
    instance : Instance
    planner, backlog : Planner, BacklogPlanner
        The latter two.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.
    """
    from infermax_opt.infermax.planners.plan.planner import Planner
    from infermax_opt.infermax.replay.fast import replay

    apart = replace(instance, policy=replace(instance.policy, hybrid_batching=False))
    separate = Planner(apart, seed=seed)
    ways: list[Callable[[float | None], Iterator[tuple[str, Schedule]]]] = [
        lambda until: ((f"apart:{name}", schedule) for name, schedule in separate.improve(until)),
        lambda until: backlog.improve(deadline=until),
        planner.improve,
    ]
    best: list[float] = [math.inf] * len(ways)
    for k, share in enumerate(TURNS):
        for name, schedule in ways[k](after_share(share, deadline)):
            best[k] = min(best[k], replay(instance, schedule).ends[-1])
            yield name, schedule
    if deadline is not None:
        yield from ways[best.index(min(best))](deadline)


def better_than_windows(instance: Instance) -> bool:
    """Whether planners search so well that windows of a schedule are hardly improved by programs."""
    from infermax_opt.infermax.planners.backward.search import backward_helps
    from infermax_opt.infermax.planners.lives.planner import lives_help

    return lives_help(instance) or backward_helps(instance)


def _searched(
    instance: Instance,
    planner: Planner,
    backlog: BacklogPlanner,
    upper: float | None,
    known: Callable[[], Schedule | None],
    done: Callable[[], bool],
    seed: int,
    deadline: float | None,
) -> Iterator[tuple[str, Schedule]]:
    """Plans of the searches that place requests jointly; then a planner from before and one of these go on.

    Parameters
    ----------
    instance : Instance
    planner, backlog : Planner, BacklogPlanner
        The list planner and that of plans in which prompts queue, which have had their first turn.
    upper, known, done, seed, deadline
        As in `anytime_plans`.
    """
    from infermax_opt.infermax.planners.backward.planner import BackwardPlanner
    from infermax_opt.infermax.planners.lives.planner import lives_help, lives_plans

    few, backward = lives_help(instance), BackwardPlanner(instance, seed=seed)

    def least() -> float:
        return min(math.inf if upper is None else upper, planner.best, backlog.best, backward.best)

    yield from backward.improve(least(), after_share(BACKWARD_SHARE, deadline), try_out=True, done=done)
    if done():
        return
    until = after_share(BEAM_SHARE, deadline) if few else deadline
    for name, schedule in _beam_plans(instance, upper, seed, until):
        yield name, _polished(instance, schedule)
    if few:
        for name, schedule in lives_plans(instance, known=known(), seed=seed, deadline=deadline):
            yield name, _polished(instance, schedule)
    if deadline is not None and time.monotonic() < deadline:
        until = after_share(BETWEEN_SHARE, deadline) if backward.best < math.inf else deadline
        if backlog.best < planner.best:
            yield from backlog.improve(planner.best, until, done=done)
        else:
            yield from planner.improve(until, done=done)
        yield from backward.improve(least(), deadline, done=done)


def _beams_do_well(instance: Instance) -> bool:
    """Whether a beam search is likely to find better schedules than the list planner."""
    from infermax_opt.infermax.planners.counts.planner import counts_help
    from infermax_opt.infermax.planners.plan._options import typical_slots

    return counts_help(instance) or typical_slots(instance) <= FEW


def _beam_plans(
    instance: Instance, upper: float | None, seed: int, deadline: float | None
) -> Iterator[tuple[str, Schedule]]:
    """Plans by beam search at full scale and, for few requests with long outputs, at a coarse one.

    First over counts of requests, where that helps.
    """
    from infermax_opt.infermax.planners.beam.beam import beam_plans
    from infermax_opt.infermax.planners.counts.planner import count_plans
    from infermax_opt.infermax.planners.plan._options import typical_slots
    from infermax_opt.infermax.planners.scaled_instance import coarse_plans, coarse_scale

    yield from count_plans(instance, upper=upper, seed=seed, deadline=after_share(COUNT_SHARE, deadline))
    if typical_slots(instance) > COARSE_FEW or coarse_scale(instance) == 1:
        yield from beam_plans(instance, upper=upper, seed=seed, deadline=deadline)
        return
    yield from beam_plans(instance, upper=upper, seed=seed, deadline=after_share(FINE_SHARE, deadline))
    yield from coarse_plans(instance, upper=upper, seed=seed, deadline=deadline)


def _polished(instance: Instance, schedule: Schedule) -> Schedule:
    from infermax_opt.infermax.planners.polish.polish import polish

    return polish(instance, schedule)[1] if instance.objective.is_makespan else schedule
