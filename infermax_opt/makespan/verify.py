"""The verifier of the makespan problem: replays a schedule and re-checks every claim of a result.

Its lower bounds are closed forms, which are recomputed, or a solver's word: that is accepted up to the
best closed form, refuted by a schedule that beats it, and not checked in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.result import Claim
from infermax_opt.core.verification import ROUNDING, BaseVerification, Trust, Truth
from infermax_opt.files.certificates import certified_bound
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.certificates import CERTIFICATION
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.replay.bins import BinViolation, replay_bins
from infermax_opt.makespan.replay.metrics import MakespanMetrics, measure_bins

__all__ = ["MakespanVerification", "verify_bins"]


@dataclass(frozen=True)
class MakespanVerification(BaseVerification[BinViolation, MakespanMetrics]):
    """Outcome of the verification of a schedule or result of a makespan instance."""


def verify_bins(
    instance: MakespanInstance, schedule: MakespanSchedule | None, subject: MakespanSchedule | Claim
) -> MakespanVerification:
    """Verify a schedule, and what a result claims.

    Parameters
    ----------
    instance : MakespanInstance
    schedule : MakespanSchedule or None
        Of the subject; None where that is a bound alone.
    subject : schedule or Claim
        The schedule itself, or all that is claimed with it.

    Returns
    -------
    MakespanVerification
        Violations and faults as data; nothing is raised for a wrong schedule.
    """
    violations: tuple[BinViolation, ...] = ()
    metrics = None
    if schedule is not None:
        replayed = replay_bins(instance, schedule)
        violations = replayed.violations
        metrics = measure_bins(schedule, replayed) if replayed.valid else None

    def closed_form() -> Fraction:
        return closed_form_makespan_bounds(instance)[0].value

    def confirm(lower: Fraction) -> Trust:
        return Trust.RECOMPUTED if lower <= closed_form() * (1 + ROUNDING) else Trust.UNCHECKED

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=metrics.makespan if metrics else None,
        closed_form=closed_form,
        confirm=confirm,
        certified=lambda claim: certified_bound(instance, claim, CERTIFICATION),
    )
    return MakespanVerification.of(subject, truth)
