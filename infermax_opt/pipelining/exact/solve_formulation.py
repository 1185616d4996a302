"""Solves a pipelining instance through a formulation: build, lower, run an engine, read back.

Formulations of this problem are found through the entry points of group ``infermax_opt.pipelining_models``.
"""

from __future__ import annotations

import time
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Protocol

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Proof, Scope
from infermax_opt.engines.formulations import BuiltModel, load_formulation, run_model
from infermax_opt.engines.outcome import EngineLimits, EngineOutcome, Termination
from infermax_opt.pipelining.bounds.closed_form import lower_bound
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

    from infermax_opt.engines.process import Engine

__all__ = ["PipeliningFormulation", "build_formulation", "get_formulation", "solve_formulation"]

GROUP = "infermax_opt.pipelining_models"
#: Parts of a unit in which the objective is stated, so that engines lose no whole unit to rounding.
PARTS = 1024


class PipeliningFormulation(Protocol):
    """A mathematical model of the pipelining problem: it minimises what is left out, in parts of a value.

    Every valid schedule can be set into the model with `warm_start`; it then satisfies every constraint, and
    the objective is ``parts(instance)`` times the value of the useful requests that it leaves out.
    """

    #: Whether a point of it is a schedule, which `extract` reads.
    scope: ClassVar[Scope]

    @property
    def name(self) -> str:
        """Name under which it is found."""
        ...

    def columns(self, instance: PipeliningInstance) -> int:
        """How many it has; what would take minutes to build is refused."""
        ...

    def parts(self, instance: PipeliningInstance) -> int:
        """How many units of its objective are one of the instance's."""
        ...

    def build(self, instance: PipeliningInstance) -> ConcreteModel:
        """The model."""
        ...

    def warm_start(self, m: ConcreteModel, schedule: Pipelining) -> None:
        """Set every variable to what a schedule does."""
        ...

    def extract(self, m: ConcreteModel) -> Pipelining:
        """Read the schedule from the variables."""
        ...


#: Columns of the largest model.
MOST_COLUMNS = 20_000


def get_formulation(name: str) -> PipeliningFormulation:
    """Load a formulation by name.

    Raises
    ------
    InputError
        If no formulation of pipelining has that name.
    """
    formulation: PipeliningFormulation = load_formulation(name, GROUP)
    return formulation


def build_formulation(
    instance: PipeliningInstance, name: str, *, warm: Pipelining | None
) -> BuiltModel[Pipelining]:
    """Build the model that `solve_formulation` hands to an engine.

    Parameters
    ----------
    instance : PipeliningInstance
    name : str
        Of the formulation.
    warm : Pipelining, optional
        A valid schedule to start from.

    Raises
    ------
    InputError
        If there is no such formulation, or the model would be too large or empty.
    """
    formulation = get_formulation(name)
    columns = formulation.columns(instance)
    if not instance.useful:
        raise InputError("no request of any value fits", field="formulation")
    if columns > MOST_COLUMNS:
        raise InputError(f"{columns} columns; the most is {MOST_COLUMNS}", field="formulation")
    model = formulation.build(instance)
    window = {"requests": len(instance.useful)}
    return BuiltModel(formulation, model, formulation.parts(instance), formulation.scope, window, warm)


def solve_formulation(
    instance: PipeliningInstance, name: str, engine: Engine, *, warm: Pipelining | None, limits: EngineLimits
) -> EngineOutcome[Pipelining]:
    """Solve an instance with a formulation and an engine.

    Parameters
    ----------
    instance : PipeliningInstance
    name : str
        Of the formulation.
    engine : {"highs", "cpsat"}
    warm : Pipelining, optional
        A valid schedule to start from.
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
    found, left_out = None, solved.bound
    if left_out is not None:
        total = sum((instance.values[k] for k in instance.useful), Fraction(0))
        most = total - Fraction(left_out, built.parts_per_unit)
        if most > 0:
            found = lower_bound(instance, most, f"{engine}:{name}", Proof.SOLVER)
    details = {**solved.sizes, **built.window, **solved.run.details}
    ended = solved.run.termination
    schedule = None
    if built.scope is Scope.EXACT:
        schedule = solved.schedule()
    elif ended == Termination.OPTIMAL:
        ended = "relaxation solved"
    return EngineOutcome(schedule, found, ended, None, solved.start_accepted, details)
