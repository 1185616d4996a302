"""How Pyomo formulations are found and solved.

They are found through groups of entry points, and never imported by name.  A wing builds the model of an
instance and says what its objective and bound mean; all between the two is the same for every wing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.extras import require
from infermax_opt.core.plugins import blaming, named_points, refuse_left_out
from infermax_opt.core.result import Scope
from infermax_opt.core.values import AnySchedule

if TYPE_CHECKING:
    from pyomo.core import ConcreteModel

    from infermax_opt.engines.lowering import LoweredModel
    from infermax_opt.engines.outcome import EngineLimits
    from infermax_opt.engines.process import Engine, EngineRun

__all__ = [
    "AnyBuiltModel", "BuiltModel", "ModelRun", "ScheduleModel", "formulation_names", "load_formulation",
    "run_model",
]  # fmt: skip

S = TypeVar("S", bound=AnySchedule)


def formulation_names(group: str) -> list[str]:
    """Names of the installed formulations of a group."""
    return sorted(named_points(group))


def load_formulation(name: str, group: str) -> Any:
    """Load a formulation of a group of entry points by name.

    Raises
    ------
    InputError
        If no formulation of that name is installed; the message lists those that are.  If Pyomo is not.
    """
    point = named_points(group).get(name)
    if point is not None:
        require("pyomo", f"the formulation {name!r}")
        with blaming(point):
            return point.load()()
    refuse_left_out(group, name)
    choices = ", ".join(formulation_names(group)) or "nothing"
    raise InputError(f"{name!r} is no installed formulation; there is {choices}", field="formulation")


class ScheduleModel(Protocol[S]):
    """What the formulations of all wings have: schedules go into their models, and out again.

    One may also have ``meaning(model, variable, index)``: what a column is, in the words of the instance,
    given the name of its Pyomo variable and its index (a tuple, empty where there is none).
    """

    @property
    def name(self) -> str:
        """Name under which it is found."""
        ...

    def warm_start(self, model: ConcreteModel, schedule: S, /) -> None:
        """Set every variable to what a schedule does; a ValueError if the model does not hold it."""
        ...

    def extract(self, model: ConcreteModel, /) -> S:
        """Read the schedule from the variables."""
        ...


@dataclass(frozen=True)
class BuiltModel(Generic[S]):
    """The model of an instance, before an engine has seen it.

    Attributes
    ----------
    formulation : ScheduleModel
        That built it.
    model : ConcreteModel
    parts_per_unit : int
        So many units of its objective are one of the instance's: ticks of a second, or 1.
    scope : Scope
        What its numbers are good for.
    window : mapping of name to int
        How much it holds, such as ``{"batches": 14}``.
    start : schedule or None
        The one that its size was chosen for; a model of few batches may not hold it.
    """

    formulation: ScheduleModel[S]
    model: ConcreteModel
    parts_per_unit: int
    scope: Scope
    window: Mapping[str, int]
    start: S | None

    def lowered(self) -> tuple[LoweredModel, list[Any]]:
        """The model as integer arrays with its start, if it holds that, and the variable of each column."""
        from infermax_opt.engines.lowering import lower

        started = self.start is not None and _started(self.formulation, self.model, self.start)
        return lower(self.model, warm=started)


AnyBuiltModel = BuiltModel[Any]


@dataclass(frozen=True)
class ModelRun(Generic[S]):
    """What an engine found for a model, in the unit of the model's objective.

    Attributes
    ----------
    run : EngineRun
        Its own words, in parts of that unit.
    parts : int
        Parts in which the objective was stated.
    sizes : dict
        Columns and rows.
    start_accepted : bool or None
        Whether the engine confirmed the start; False where the model does not hold it.
    read : callable
        Builds the schedule from the values of the columns.
    """

    run: EngineRun
    parts: int
    sizes: dict[str, int]
    start_accepted: bool | None
    read: Callable[[list[int]], S]

    @property
    def objective(self) -> Fraction | None:
        """Of the best point."""
        return None if self.run.objective is None else Fraction(self.run.objective, self.parts)

    @property
    def bound(self) -> int | None:
        """Best lower bound on an objective that is whole."""
        return None if self.run.bound is None else -(-self.run.bound // self.parts)

    def schedule(self) -> S | None:
        """The schedule of the best point."""
        return None if self.run.values is None else self.read(self.run.values)


def run_model(
    built: BuiltModel[S],
    engine: Engine,
    *,
    limits: EngineLimits,
    began: float,
    parts: int = 1,
    listen: Callable[[str, int], None] | None = None,
) -> ModelRun[S]:
    """Lower the model with its start and run an engine.

    Parameters
    ----------
    built : BuiltModel
        Its start is left out if the model does not hold it.
    engine : {"highs", "cpsat"}
    limits : EngineLimits
        Of the engine.
    began : float
        Moment of `time.monotonic` from which its time counts, for building the model is part of it.
    parts : int
        Parts of a unit in which the objective is stated, so that an engine that computes with doubles, and
        lowers its bounds by a small share, loses no whole unit.
    listen : callable, optional
        Receives ``"incumbent"`` or ``"bound"`` and its value in parts, on every improvement.
    """
    from infermax_opt.engines.lowering import assign
    from infermax_opt.engines.process import run_engine

    lowered, variables = built.lowered()
    lowered = replace(lowered, cost=[parts * c for c in lowered.cost], offset=parts * lowered.offset)
    if limits.seconds is not None:
        limits = replace(limits, seconds=max(1.0, limits.seconds - (time.monotonic() - began)))
    run = run_engine(engine, lowered, limits, listen)

    def read(values: list[int]) -> S:
        assign(variables, values)
        return built.formulation.extract(built.model)

    refused = None if built.start is None else False
    accepted = refused if lowered.start is None else run.start_accepted
    return ModelRun(run, parts, {"columns": lowered.columns, "rows": lowered.rows}, accepted, read)


def _started(formulation: ScheduleModel[S], model: ConcreteModel, start: S) -> bool:
    """Set the start, if the model holds it."""
    try:
        formulation.warm_start(model, start)
    except ValueError:
        return False
    return True
