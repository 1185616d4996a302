"""The verifier of the placement problem: checks every limit of every worker, and every claim of a result.

Its lower bounds are closed forms, which are recomputed, or a solver's word: that is accepted up to the best
closed form, refuted by a placement that beats it, and in between decided by looking at every placement,
unless these are too many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from infermax_opt.core.result import Claim
from infermax_opt.core.verification import BaseVerification, Trust, Truth
from infermax_opt.placement.bounds.closed_form import placement_bounds
from infermax_opt.placement.bounds.exhaustive import exhaust
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.limits import Limits
from infermax_opt.placement.metrics import PlacementMetrics, measure_placement
from infermax_opt.placement.replay import PlacementViolation, check_placement

__all__ = ["PlacementVerification", "verify_placement"]


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
    def closed_form() -> Fraction:
        return Fraction(placement_bounds(instance)[0].value)

    def confirm(lower: Fraction) -> Trust:
        if lower <= closed_form():
            return Trust.RECOMPUTED
        tried = exhaust(instance, math.ceil(lower) - 1)
        if not tried.decided:
            return Trust.SOLVER
        return Trust.ENUMERATED if tried.placement is None else Trust.REFUTED

    def infeasible() -> bool:
        # A request that exceeds a limit of a fresh worker by itself exceeds it in any company.
        limits = Limits.of(instance)
        return any(limits.excesses([k]) for k in limits.new)

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=None if metrics is None else Fraction(metrics.workers),
        closed_form=closed_form,
        confirm=confirm,
        infeasible=infeasible,
    )
    return PlacementVerification.of(subject, truth)
