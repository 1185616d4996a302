"""The problems of this package side by side: what may stand where either of them may."""

from __future__ import annotations

from infermax_opt.instance import Instance
from infermax_opt.makespan.instance import MakespanInstance
from infermax_opt.makespan.metrics import MakespanMetrics
from infermax_opt.makespan.schedule import MakespanSchedule
from infermax_opt.metrics import Metrics
from infermax_opt.schedules import Schedule

__all__ = ["MAKESPAN", "AnyInstance", "AnyMetrics", "AnySchedule", "fits", "objective_name"]

AnyInstance = Instance | MakespanInstance
AnySchedule = Schedule | MakespanSchedule
AnyMetrics = Metrics | MakespanMetrics

#: The one objective of makespan instances.
MAKESPAN = "makespan"


def objective_name(instance: AnyInstance) -> str:
    """The objective, as results name it."""
    return MAKESPAN if isinstance(instance, MakespanInstance) else str(instance.objective)


def fits(instance: AnyInstance, schedule: AnySchedule) -> bool:
    """Whether instance and schedule are of the same problem."""
    return isinstance(instance, MakespanInstance) == isinstance(schedule, MakespanSchedule)
