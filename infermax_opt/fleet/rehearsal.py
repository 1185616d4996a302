"""Small work for the kernels of this wing, by which `infermax_opt.warm` has it compiled.

Each is compiled for one set of types, whatever the question; a test sees that none is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, RequestGroup, ServiceLevel, System

__all__ = ["rehearsals"]


def rehearsals() -> Iterator[Callable[[], object]]:
    """Functions that run kernels, each for a moment."""
    yield _routing
    yield _dispatching


def _routing() -> None:
    from infermax_opt.fleet.routing.policies import Router
    from infermax_opt.infermax.schedulers.presets import preset

    Router(_question(), preset("sarathi")).route(2, "jsq")


def _dispatching() -> None:
    from infermax_opt.fleet.dispatch.dispatcher import Dispatcher, Way

    Dispatcher(_question()).schedules(2, Way())


def _question() -> FleetQuestion:
    """Four requests at once."""
    cost = CostModel([("0.007", "0.000075")], ("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
    level = ServiceLevel(ttft=Fraction(1), tpot=Fraction(1, 10))
    groups = tuple(RequestGroup(f"r{k}", 6, 9, Fraction(k, 100), slo=level) for k in range(4))
    workload = Instance("rehearsal", groups, System(40, 64, 64), cost, objective=Objective.of("missed"))
    return FleetQuestion(workload, Fraction(1))
