"""Metrics of a valid placement, exact: workers, GPUs, and how much of its limits each worker uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import ClassVar

from infermax_opt.core.shown import ShownMetrics
from infermax_opt.core.values import SHARE
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.data.schedule import Placement

__all__ = [
    "PLACEMENT_DEFINITIONS",
    "PlacementMetrics",
    "WorkerUse",
    "measure_placement",
    "worker_members",
    "worker_uses",
]

_ITERATION = "limit b: iteration time of all requests / what ATGT and theta allow"
_PREFILL = "limits c and d: prefill of new requests / what TTFT and ongoing requests allow, c1 apart"
_KV = "limit e: most KV at any iteration / KV capacity"
_OVER = "mean over workers in use"

PLACEMENT_DEFINITIONS = {
    "workers": "workers in use: those with new or ongoing requests, or busy",
    "gpus": "GPUs of these workers",
    "new_requests": "requests that were to be placed",
    "ongoing_requests": "requests that stay on the workers where they are",
    "mean_iteration_use": f"{_ITERATION}, {_OVER}",
    "most_iteration_use": "the same, largest",
    "mean_prefill_use": f"{_PREFILL}, {_OVER}",
    "most_prefill_use": "the same, largest",
    "mean_kv_use": f"{_KV}, {_OVER}",
    "most_kv_use": "the same, largest",
}
"""Definition of every metric, as printed beside it."""

UNITS = {
    "workers": "workers",
    "gpus": "GPUs",
    "new_requests": "requests",
    "ongoing_requests": "requests",
    **{name: SHARE for name in PLACEMENT_DEFINITIONS if name.endswith("_use")},
}
"""Units of the metrics that have one."""


@dataclass(frozen=True)
class PlacementMetrics(ShownMetrics):
    """Metrics of one placement; `PLACEMENT_DEFINITIONS` says what each one means.

    A use is a share; above 1 only on a worker whose ongoing requests exceed a limit by themselves, and None
    where something is needed of a limit that allows nothing.
    """

    definitions: ClassVar[Mapping[str, str]] = PLACEMENT_DEFINITIONS
    units: ClassVar[Mapping[str, str]] = UNITS

    workers: int
    gpus: int
    new_requests: int
    ongoing_requests: int
    mean_iteration_use: Fraction | None
    most_iteration_use: Fraction | None
    mean_prefill_use: Fraction | None
    most_prefill_use: Fraction | None
    mean_kv_use: Fraction | None
    most_kv_use: Fraction | None

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


@dataclass(frozen=True, slots=True)
class WorkerUse:
    """Shares of the limits b, c with d, and e that some requests of a worker use."""

    iteration: Fraction | None
    prefill: Fraction | None
    kv: Fraction | None


def worker_members(
    instance: PlacementInstance, limits: Limits, placement: Placement
) -> dict[int, tuple[list[int], list[int]]]:
    """Ongoing and new requests, by position, of each worker in use; workers by number.

    Parameters
    ----------
    instance : PlacementInstance
    limits : Limits
        Of the instance.
    placement : Placement
        With a worker for every new request.
    """
    found: dict[int, tuple[list[int], list[int]]] = {
        worker: (list(members), []) for worker, members in limits.ongoing.items()
    }
    for k in limits.new:
        found.setdefault(placement.workers[instance.requests[k].id], ([], []))[1].append(k)
    return dict(sorted(found.items()))


def worker_uses(limits: Limits, worker: int, context: int, prompt: int, kv: int) -> WorkerUse:
    """Shares that needs, in the units of `limits`, are of what a worker has.

    Parameters
    ----------
    limits : Limits
    worker : int
        Its number.
    context, prompt, kv : int
        What its requests need of the iteration time, of the prefill time, and of KV at the peak.
    """
    return WorkerUse(
        _share(context, limits.most_context),
        _share(prompt, limits.worker_prompt.get(worker, limits.most_prompt)),
        _share(kv, limits.most_kv),
    )


def _share(need: int, most: int) -> Fraction | None:
    if need == 0:
        return Fraction(0)
    return Fraction(need, most) if most > 0 else None


def measure_placement(instance: PlacementInstance, placement: Placement) -> PlacementMetrics:
    """Compute the metrics of a valid placement."""
    limits = Limits.of(instance)
    uses = []
    for worker, (ongoing, new) in worker_members(instance, limits, placement).items():
        members = [*ongoing, *new]
        context, prompt = sum(limits.context[k] for k in members), sum(limits.prompt[k] for k in new)
        uses.append(worker_uses(limits, worker, context, prompt, limits.kv_peak(members)))
    columns = {
        name: _mean_and_most(getattr(use, name) for use in uses) for name in ("iteration", "prefill", "kv")
    }
    return PlacementMetrics(
        len(uses),
        len(uses) * instance.worker.gpus,
        len(limits.new),
        len(instance.requests) - len(limits.new),
        *columns["iteration"],
        *columns["prefill"],
        *columns["kv"],
    )


def _mean_and_most(shares: Iterable[Fraction | None]) -> tuple[Fraction | None, Fraction | None]:
    known: list[Fraction] = []
    for share in shares:
        if share is None:
            return None, None
        known.append(share)
    return sum(known, Fraction(0)) / len(known), max(known)
