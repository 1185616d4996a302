"""Small work for every kernel of this wing, by which `infermax_opt.warm` has them compiled.

Each kernel is compiled for one set of types, whatever the instance; a test sees that none is left out.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import (
    Instance,
    Objective,
    Policy,
    RequestGroup,
    ServiceLevel,
    System,
)

__all__ = ["rehearsals"]

#: For a search that takes as long as it is given.
SECONDS = 0.5
COST = CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
#: Batches that all take a second.
ROUNDS = CostModel([("1", "0")], ("0", "0"), ("0", "0"))


def rehearsals() -> Iterator[Callable[[], object]]:
    """Functions that run kernels, each for a moment."""
    yield _schedulers
    yield _planners
    yield _searches
    yield _latency_planners
    yield _bounds
    yield _rounds


def _offline(count: int = 3) -> Instance:
    """Some requests of one length, and one of another."""
    groups = (RequestGroup("a", 2, 4, count=count), RequestGroup("b", 1, 6))
    return Instance("rehearsal", groups, System(12, 64, 64), COST)


def _schedulers() -> None:
    from infermax_opt.infermax.heuristics import run_scheduler
    from infermax_opt.infermax.replay.fast import replay

    replay(_offline(), run_scheduler(_offline(), "vllm"))


def _planners() -> None:
    from infermax_opt.infermax.planners.backlog.planner import backlog_plan
    from infermax_opt.infermax.planners.orders.planner import orders_plans
    from infermax_opt.infermax.planners.plan.planner import Planner, PlannerOptions, plan
    from infermax_opt.infermax.planners.polish.polish import polish
    from infermax_opt.infermax.planners.sequence import sequence_plans

    instance = _offline()
    planner = Planner(instance)
    polish(instance, next(planner.improve())[1])
    plan(instance, PlannerOptions(pilot=0.4, window=1, noise=0.0, by_output=0.0))
    next(sequence_plans(instance, planner), None)
    next(orders_plans(instance, planner), None)
    backlog_plan(instance)


def _searches() -> None:
    from infermax_opt.infermax.planners.backward.search import BackwardOptions, backward_search
    from infermax_opt.infermax.planners.beam.beam import BeamOptions, beam_search
    from infermax_opt.infermax.planners.counts.planner import CountOptions, count_search
    from infermax_opt.infermax.planners.lives.planner import lives_plans

    instance = _offline()
    next(lives_plans(instance), None)
    beam_search(instance, options=BeamOptions(width=4))
    crowded = replace(instance, groups=(RequestGroup("a", 1, 4, count=12),), system=System(24, 64, 64))
    count_search(crowded, CountOptions(width=4))
    backward_search(crowded, BackwardOptions(width=4), upper=1.0)
    next(lives_plans(instance, deadline=time.monotonic() + SECONDS), None)


def _latency_planners() -> None:
    from infermax_opt.infermax.planners.admission.choice import Choice
    from infermax_opt.infermax.planners.admission.levels import LevelsPlanner
    from infermax_opt.infermax.planners.admission.planner import AdmissionPlanner
    from infermax_opt.infermax.planners.first_tokens.planner import FirstTokensPlanner

    level = ServiceLevel(ttft=Fraction(1, 50), tpot=Fraction(1, 100))
    groups = tuple(RequestGroup(f"r{k}", 2, 4, Fraction(k, 100), slo=level) for k in range(9))
    instance = replace(_offline(), groups=groups, objective=Objective.of("missed"))
    next(LevelsPlanner(instance).plans(), None)
    next(AdmissionPlanner(instance).plans(), None)
    AdmissionPlanner(instance).schedule(Choice(share=1))
    first = replace(instance, objective=Objective.of("mean_ttft"))
    next(FirstTokensPlanner(first).plans(), None)
    _crowds()


def _crowds() -> None:
    import numpy as np

    from infermax_opt.infermax.planners.first_tokens.crowds import Crowds

    cost = COST.columns
    tokens = np.full(2, 100)
    crowds = Crowds(np.zeros(2), np.full(2, 0.015), tokens, tokens, 100, 100, cost, False)
    crowds.least(np.arange(2), 50)


def _bounds() -> None:
    import numpy as np

    from infermax_opt.infermax.bounds._occupancy_graph import OccupancyGraph, Prices
    from infermax_opt.infermax.bounds._occupancy_knots import FirstKnots
    from infermax_opt.infermax.bounds._occupancy_priced import MemoryPrices, PricedBatches
    from infermax_opt.infermax.bounds._pace_spot import spot_prices
    from infermax_opt.infermax.bounds.beginning import beginning_batches
    from infermax_opt.infermax.bounds.deferral import deferral_bound
    from infermax_opt.infermax.bounds.lagrangian import lagrangian_bound
    from infermax_opt.infermax.bounds.levels import Ladder
    from infermax_opt.infermax.bounds.lingering import lingering_bound
    from infermax_opt.infermax.bounds.occupancy import occupancy_bound
    from infermax_opt.infermax.bounds.overload import overload_bound
    from infermax_opt.infermax.bounds.pace import PaceProof, pace_bound
    from infermax_opt.infermax.bounds.state_flow import state_flow_bound

    for search in (state_flow_bound, occupancy_bound, lagrangian_bound):
        search(_offline(1))
    beginning_batches([(1, 40, 10)], 100, None, lambda: False)
    graph = OccupancyGraph(9, 2, ((2, 3, 2),), 9, 9, 9, 1, evictions=True, chunked=True)
    potential = np.zeros(graph.shape[1:], np.int64)
    prices = Prices(1, 1, 0, 0, 0, (0,), (0,))
    FirstKnots(graph, 3, 2).run(0, prices, potential)
    list(PricedBatches(graph, 2).cheapest(prices, MemoryPrices(np.zeros(2, np.int64), 0, 0)))
    alike = replace(_offline(), groups=_offline().groups[:1])
    ladder = Ladder(alike, 0, 1)
    for width in (2, 1):
        ladder.climb(width, lambda: False)
    groups = tuple(RequestGroup(f"r{k}", 2, 4, Fraction(k, 100)) for k in range(3))
    steps = itertools.count()
    latency = replace(_offline(), groups=groups, objective=Objective.of("mean_e2e"))
    pace_bound(latency, stop=lambda: next(steps) > 1)
    spot_prices(PaceProof(latency, 0, 1, spot=True).setting(), lambda: True)
    lingering_bound(latency, stop=lambda: True)
    for search in (deferral_bound, overload_bound):
        search(latency, stop=lambda: True)


def _rounds() -> None:
    from infermax_opt.infermax.exact.rounds import proved
    from infermax_opt.infermax.planners.rounds.planner import RoundsPlanner

    policy = Policy(chunked_prefill=False, preemption=False)
    instance = Instance(
        "rehearsal",
        (RequestGroup("a", 2, 3, count=2), RequestGroup("b", 1, 4, count=2)),
        System(8, 64, 64),
        ROUNDS,
        policy,
        Objective.of("mean_e2e"),
    )
    next(RoundsPlanner(instance).plans())
    proved(instance, 100, lambda: 1.0)
