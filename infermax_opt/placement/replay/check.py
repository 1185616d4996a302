"""What a placement does: the rules of a placement, checked for every worker."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limit, Limits
from infermax_opt.placement.data.schedule import Placement

__all__ = ["RULES", "PlacementCheck", "PlacementRule", "PlacementViolation", "check_placement"]


class PlacementRule(enum.Enum):
    """Rules that a placement can break."""

    UNKNOWN_REQUEST = "unknown_request"
    NOT_PLACED = "not_placed"
    MOVED = "moved"
    ITERATION = "iteration_time"
    PREFILL = "prefill"
    SAVED_TIME = "saved_time"
    KV = "kv"


RULES = {
    Limit.ITERATION: PlacementRule.ITERATION,
    Limit.PREFILL: PlacementRule.PREFILL,
    Limit.SAVED_TIME: PlacementRule.SAVED_TIME,
    Limit.KV: PlacementRule.KV,
}


@dataclass(frozen=True, slots=True)
class PlacementViolation:
    """One broken rule."""

    rule: PlacementRule
    worker: int | None
    request: str | None
    message: str

    def __str__(self) -> str:
        place = "placement" if self.worker is None else f"worker {self.worker}"
        who = "" if self.request is None else f", request {self.request!r}"
        return f"{place}{who}: {self.rule.value}: {self.message}"


@dataclass(frozen=True)
class PlacementCheck:
    """Outcome of a check.

    Attributes
    ----------
    violations : tuple of PlacementViolation
    workers : int
        Workers in use, those with ongoing requests included.
    """

    violations: tuple[PlacementViolation, ...]
    workers: int

    @property
    def valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations


def check_placement(instance: PlacementInstance, placement: Placement) -> PlacementCheck:
    """Check every rule; nothing is raised for a wrong placement."""
    limits, found = Limits.of(instance), list[PlacementViolation]()
    placed: dict[int, list[int]] = {}
    for name in placement.workers:
        if name not in instance.index:
            rule = PlacementRule.UNKNOWN_REQUEST
            found.append(PlacementViolation(rule, None, name, "is not in the instance"))
    for k, request in enumerate(instance.requests):
        worker = placement.workers.get(request.id)
        if request.worker is None:
            if worker is None:
                found.append(PlacementViolation(PlacementRule.NOT_PLACED, None, request.id, "has no worker"))
            else:
                placed.setdefault(worker, []).append(k)
        elif worker not in (None, request.worker):
            problem = f"is on worker {request.worker}, where it has to stay"
            found.append(PlacementViolation(PlacementRule.MOVED, worker, request.id, problem))
    for worker, members in sorted(placed.items()):
        for excess in limits.excesses(members, worker):
            need, most = float(excess.need), float(excess.most)
            unit = " of KV" if excess.limit is Limit.KV else " s"
            problem = f"limit {excess.limit.value}: {need:.9g}{unit} where {most:.9g}{unit} are allowed"
            found.append(PlacementViolation(RULES[excess.limit], worker, None, problem))
    return PlacementCheck(tuple(found), len(placed.keys() | limits.ongoing.keys()))
