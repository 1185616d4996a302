"""Placements, and their check: every limit of every worker, exactly."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole
from infermax_opt.placement.data.instance import MAX_WORKERS, PlacementInstance
from infermax_opt.placement.limits import Limit, Limits

__all__ = ["Placement", "PlacementCheck", "PlacementRule", "PlacementViolation", "check_placement"]


@dataclass(frozen=True)
class Placement:
    """Worker of each new request, from 1; ongoing ones stay where they are and may be named or not.

    Raises
    ------
    InputError
        If a worker is no whole number from 1 on.  Whether the placement is valid is the verifier's question.
    """

    instance: str
    workers: Mapping[str, int]

    def __post_init__(self) -> None:
        if not isinstance(self.workers, Mapping):
            raise InputError(f"{self.workers!r} is not a mapping of request id to worker", field="workers")
        checked = {}
        for name, value in self.workers.items():
            number = read_whole(value, f"workers.{name}")
            if not 1 <= number <= MAX_WORKERS:
                raise InputError(f"{value} is not between 1 and {MAX_WORKERS}", field=f"workers.{name}")
            checked[name] = number
        object.__setattr__(self, "workers", MappingProxyType(checked))


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
