"""The verifier of the placement problem: checks every limit of every worker, and every claim of a result.

Its lower bounds are closed forms, which are recomputed, or a solver's word: that is accepted up to the best
closed form, refuted by a placement that beats it, and in between decided by looking at every placement,
unless these are too many.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from infermax_opt.core.result import Claim, Proof, Result
from infermax_opt.core.truth import Fault, FaultKind, Finding, Truth, Unchecked, found_by_enumerating
from infermax_opt.core.verification import BaseVerification
from infermax_opt.placement.bounds import exhaustive
from infermax_opt.placement.bounds.closed_form import WorkerBound, placement_bounds
from infermax_opt.placement.data.instance import MAX_WORKERS, PlacementInstance
from infermax_opt.placement.data.limits import Limits, unplaceable
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import PlacementViolation, check_placement
from infermax_opt.placement.replay.metrics import PlacementMetrics, measure_placement

__all__ = ["PlacementResult", "PlacementVerification", "alone", "verify_placement"]

#: Why a detail could not be checked.
OTHER_WORDS = "is not among the reasons that the verifier recomputes"


#: The results of this problem.
PlacementResult = Result[Placement, PlacementMetrics]


@dataclass(frozen=True)
class PlacementVerification(BaseVerification[PlacementViolation, PlacementMetrics]):
    """Outcome of the verification of a placement or result of a placement instance."""


def verify_placement(
    instance: PlacementInstance, placement: Placement | None, subject: Placement | Claim
) -> PlacementVerification:
    """Verify a placement, and what a result claims.

    Parameters
    ----------
    instance : PlacementInstance
    placement : Placement or None
        Of the subject; None where that is a bound alone.
    subject : schedule or Claim
        The placement itself, or all that is claimed with it.

    Returns
    -------
    PlacementVerification
        Violations and faults as data; nothing is raised for a wrong placement.
    """
    violations: tuple[PlacementViolation, ...] = ()
    metrics = None
    if placement is not None:
        violations = check_placement(instance, placement).violations
        metrics = measure_placement(instance, placement) if not violations else None

    @cache
    def bounds() -> list[WorkerBound]:
        return placement_bounds(instance)

    def closed_form(source: str | None) -> Fraction | None:
        values = [some.value for some in bounds() if source in (None, some.source)]
        return Fraction(max(values)) if values else None

    def confirm(lower: Fraction) -> Finding:
        tried = exhaustive.exhaust(instance, math.ceil(lower) - 1)
        return found_by_enumerating(
            tried.placement is None if tried.decided else None, _why_not_enumerated(instance)
        )

    def trivial() -> Fraction | None:
        own = alone(instance) if len(instance.requests) + len(instance.busy) <= MAX_WORKERS else None
        if own is None or not check_placement(instance, own).valid:
            return None
        return Fraction(measure_placement(instance, own).workers)

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=None if metrics is None else Fraction(metrics.workers),
        closed_form=closed_form,
        confirm=confirm,
        trivial=trivial,
        infeasible=lambda: bool(unplaceable(instance)),
        details=lambda claim: _details(instance, claim, bounds),
    )
    return PlacementVerification.of(subject, truth)


def _why_not_enumerated(instance: PlacementInstance) -> str:
    """Why `exhaust` does not decide an instance, where it does not."""
    new = len(Limits.of(instance).new)
    if new > exhaustive.MAX_REQUESTS:
        return f"{new} new requests; up to {exhaustive.MAX_REQUESTS} are enumerated"
    return f"enumerating takes more than {exhaustive.MAX_NODES} steps"


def alone(instance: PlacementInstance) -> Placement:
    """Each new request on a fresh worker of its own; valid where there is any placement."""
    fresh = (number for number in itertools.count(1) if number not in instance.in_use)
    new = (request for request in instance.requests if not request.ongoing)
    return Placement(instance.name, {request.id: next(fresh) for request in new})


def _details(
    instance: PlacementInstance, claim: Claim, bounds: Callable[[], list[WorkerBound]]
) -> tuple[list[Fault], list[Unchecked]]:
    """Wrong and unchecked ones of the details that say something about the instance.

    These are ``excluded``, why so many workers are not enough, ``binding``, why the lower bound holds, and
    ``unplaceable``, why there is no placement.  That a number of workers is not enough stands and falls with
    the lower bound, which is checked by itself; here the reason is, where a closed form is enough.  Where a
    solver was needed, the reason tells how it found out: a note.
    """
    faults, unchecked = [], []
    least = 0 if claim.lower_bound is None else math.ceil(claim.lower_bound)
    for key, reason in _items(claim.details.get("excluded")):
        named = re.fullmatch(r"(?:\d+ to )?(\d{1,9})", key)
        if named is None or int(named[1]) >= least:
            faults.append(Fault(FaultKind.DETAILS, f"excluded: {key!r} is not below the lower bound"))
        elif int(named[1]) < bounds()[0].value and not _known(bounds(), int(named[1]) + 1, reason):
            unchecked.append(Unchecked(f"solver.details.excluded.{key}", OTHER_WORDS))
    binding = dict(_items(claim.details.get("binding")))
    if binding and binding.get("source") != claim.lower_source:
        message = f"binding.source is {binding.get('source')!r}, lower.source {claim.lower_source!r}"
        faults.append(Fault(FaultKind.DETAILS, message))
    formula = claim.proof is Proof.CLOSED_FORM
    if binding and formula and not _known(bounds(), least, binding.get("reason")):
        unchecked.append(Unchecked("solver.details.binding.reason", OTHER_WORDS))
    if "unplaceable" in claim.details and claim.details["unplaceable"] != unplaceable(instance):
        unchecked.append(Unchecked("solver.details.unplaceable", OTHER_WORDS))
    return faults, unchecked


def _known(bounds: list[WorkerBound], least: int, reason: object) -> bool:
    """Whether a bound of so many workers or more has this reason."""
    return any(some.value >= least and some.reason == reason for some in bounds)


def _items(value: object) -> Iterator[tuple[str, object]]:
    """Keys and values of a mapping; nothing of anything else."""
    if isinstance(value, Mapping):
        yield from value.items()
