"""Solves a placement instance through a formulation: build, lower, run an engine, read back.

Formulations of this problem are found through the entry points of group ``infermax_opt.placement_models``.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof, Scope
from infermax_opt.engines.formulations import BuiltModel, load_formulation, run_model
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import check_placement

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

    from infermax_opt.engines.process import Engine

__all__ = [
    "PlacementFormulation", "build_formulation", "get_placement_formulation", "solve_formulation",
]  # fmt: skip

GROUP = "infermax_opt.placement_models"
#: Workers times requests beyond which a model is refused: building it would take minutes.
MOST_COLUMNS = 8_000
#: Parts of a worker in which the objective is stated; workers are whole.
PARTS = 1024


class PlacementFormulation(Protocol):
    """A mathematical model of the placement problem, whose objective is the number of workers in use.

    Every valid placement on at most `workers` workers can be set into the model with `warm_start`; it then
    satisfies every constraint, the objective equals its number of workers, and `extract` gives the placement
    back, up to the numbers of fresh workers.
    """

    @property
    def name(self) -> str:
        """Name under which it is found."""
        ...

    def build(self, instance: PlacementInstance, workers: int) -> ConcreteModel:
        """Model of all placements on at most so many workers."""
        ...

    def warm_start(self, m: ConcreteModel, placement: Placement) -> None:
        """Set every variable to what a placement does."""
        ...

    def extract(self, m: ConcreteModel) -> Placement:
        """Read the placement from the variables."""
        ...


def get_placement_formulation(name: str) -> PlacementFormulation:
    """Load a formulation by name.

    Raises
    ------
    InputError
        If no formulation of placements has that name.
    """
    formulation: PlacementFormulation = load_formulation(name, GROUP)
    return formulation


def build_formulation(
    instance: PlacementInstance, name: str, *, warm: Placement | None
) -> BuiltModel[Placement]:
    """Build the model that `solve_formulation` hands to an engine.

    Parameters
    ----------
    instance : PlacementInstance
    name : str
        Of the formulation.
    warm : Placement, optional
        As in `solve_formulation`.

    Raises
    ------
    InputError
        If there is no such formulation, or the model would be too large.
    """
    formulation = get_placement_formulation(name)
    known = Limits.of(instance)
    alone = len(known.ongoing) + len(known.new)
    workers = alone if warm is None else check_placement(instance, warm).workers
    columns = workers * len(instance.requests)
    if columns > MOST_COLUMNS:
        problem = f"{columns} columns for {workers} workers; the most is {MOST_COLUMNS}"
        raise InputError(problem, field="formulation")
    model = formulation.build(instance, workers)
    return BuiltModel(formulation, model, 1, Scope.EXACT, {"workers": workers}, warm)


def solve_formulation(
    instance: PlacementInstance, name: str, engine: Engine, *, warm: Placement | None, limits: EngineLimits
) -> EngineOutcome[Placement]:
    """Solve an instance with a formulation and an engine.

    Parameters
    ----------
    instance : PlacementInstance
    name : str
        Of the formulation.
    engine : {"highs", "cpsat"}
    warm : Placement, optional
        A valid placement to start from.  An optimal one has no more workers, so no more are modelled; without
        it, one for each new request.
    limits : EngineLimits
        Of the engine; building the model counts towards its time.

    Raises
    ------
    InputError
        If there is no such formulation, or the model would be too large.
    """
    began = time.monotonic()
    built = build_formulation(instance, name, warm=warm)
    solved = run_model(built, engine, limits=limits, began=began, parts=PARTS)
    found, least = None, solved.bound
    if least is not None:
        reason = f"{engine} proved that {least} are needed, on the formulation {name}"
        found = LowerBound(Fraction(least), f"{engine}:{name}", Proof.SOLVER, reason=reason)
    details = {**solved.sizes, **built.window, **solved.run.details}
    ended = solved.run.termination
    return EngineOutcome(solved.schedule(), found, ended, solved.objective, solved.start_accepted, details)
