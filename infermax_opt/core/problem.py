"""The problems of this package side by side: what their values are, and what these are called.

What differs from problem to problem and is more than a word is looked up by `problem_of`, in a table of the
module that owns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.metrics import DEFINITIONS, Metrics
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.metrics import MAKESPAN_DEFINITIONS, MakespanMetrics
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.metrics import PLACEMENT_DEFINITIONS, PlacementMetrics

__all__ = [
    "INFERMAX",
    "MAKESPAN",
    "PLACEMENT",
    "PROBLEMS",
    "AnyInstance",
    "AnyMetrics",
    "AnySchedule",
    "Problem",
    "amount",
    "fits",
    "objective_name",
    "problem_of",
]

AnyInstance = Instance | MakespanInstance | PlacementInstance
AnySchedule = Schedule | MakespanSchedule | Placement
AnyMetrics = Metrics | MakespanMetrics | PlacementMetrics


@dataclass(frozen=True, eq=False)
class Problem:
    """One problem; there is one object for each.

    Parameters
    ----------
    name : str
        As instance files name it.
    instance, schedule, metrics : type
        Of its values.
    decisions : str
        Key of the decisions in a schedule file.
    heuristic : str
        What a heuristic of it is called.
    definitions : mapping of metric to text
    objective : str, optional
        The one objective, which is a metric; None: every instance names its own.
    unit : pair of str
        Of the objective, for one and for many.
    """

    name: str
    instance: type
    schedule: type
    metrics: type
    decisions: str
    heuristic: str
    definitions: Mapping[str, str]
    objective: str | None = None
    unit: tuple[str, str] = ("s", "s")


INFERMAX = Problem("infermax", Instance, Schedule, Metrics, "batches", "scheduler", DEFINITIONS)
MAKESPAN = Problem(
    "makespan", MakespanInstance, MakespanSchedule, MakespanMetrics, "bins", "method", MAKESPAN_DEFINITIONS,
    objective="makespan",
)  # fmt: skip
PLACEMENT = Problem(
    "placement", PlacementInstance, Placement, PlacementMetrics, "workers", "heuristic",
    PLACEMENT_DEFINITIONS, objective="workers", unit=("worker", "workers"),
)  # fmt: skip
PROBLEMS = (INFERMAX, MAKESPAN, PLACEMENT)


def problem_of(value: AnyInstance | AnySchedule | AnyMetrics) -> Problem:
    """The problem that an instance, schedule or metrics are of.

    Raises
    ------
    InputError
        If it is none of these.
    """
    for problem in PROBLEMS:
        if isinstance(value, (problem.instance, problem.schedule, problem.metrics)):
            return problem
    raise InputError(f"a {type(value).__name__} is no instance, schedule or metrics of any problem")


def objective_name(instance: AnyInstance) -> str:
    """The objective, as results name it."""
    if isinstance(instance, Instance):
        return str(instance.objective)
    return str(problem_of(instance).objective)


def amount(instance: AnyInstance, value: Fraction | float) -> str:
    """A value of the objective with its unit, to six digits."""
    one, many = problem_of(instance).unit
    return f"{float(value):.6g} {one if value == 1 else many}"


def fits(instance: AnyInstance, schedule: AnySchedule) -> bool:
    """Whether instance and schedule are of the same problem."""
    return problem_of(instance) is problem_of(schedule)
