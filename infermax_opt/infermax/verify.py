"""The verifier of the InferMax problem: replays a schedule, checks every rule and every claim of a result.

It imports no scheduler, formulation or solver, so that none of them can vouch for itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.result import Claim
from infermax_opt.core.verification import ROUNDING, BaseVerification, Trust, Truth
from infermax_opt.files.certificates import certified_bound
from infermax_opt.infermax.bounds import closed_form_bounds, exhaustive
from infermax_opt.infermax.certificates import CERTIFICATION
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import Metrics, measure, objective_value
from infermax_opt.infermax.replay.plain import Violation

__all__ = ["Verification", "verify_schedule"]


@dataclass(frozen=True)
class Verification(BaseVerification[Violation, Metrics]):
    """Outcome of the verification of a schedule or result of an InferMax instance."""


def verify_schedule(instance: Instance, schedule: Schedule | None, subject: Schedule | Claim) -> Verification:
    """Verify a schedule, and what a result claims.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule or None
        Of the subject; None where that is a bound alone.
    subject : schedule or Claim
        The schedule itself, or all that is claimed with it.

    Returns
    -------
    Verification
        Violations and faults as data; nothing is raised for a wrong schedule.
    """
    violations: tuple[Violation, ...] = ()
    metrics = None
    objective = None
    if schedule is not None:
        replayed = replay(instance, schedule)
        violations = replayed.violations
        if replayed.valid:
            metrics = measure(instance, replayed)
            objective = objective_value(instance.objective, metrics)

    def closed_form() -> Fraction:
        return max(bound.value for bound in closed_form_bounds(instance))

    def confirm(lower: Fraction) -> Trust:
        # A rounding below, so that a bound written as a double is not refuted for that.
        true = exhaustive.holds(instance, lower * (1 - ROUNDING))
        if true is None:
            return Trust.SOLVER
        return Trust.ENUMERATED if true else Trust.REFUTED

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=objective,
        closed_form=closed_form,
        confirm=confirm,
        certified=lambda claim: certified_bound(instance, claim, CERTIFICATION),
    )
    return Verification.of(subject, truth)
