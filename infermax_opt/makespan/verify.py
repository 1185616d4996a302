"""The verifier of the makespan problem: replays a schedule and re-checks every claim of a result.

Its lower bounds are closed forms, which are recomputed, or a solver's word: that is accepted up to the
best closed form, refuted by a schedule that beats it, and in between decided by enumerating every schedule,
unless these are too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.result import Claim, Result
from infermax_opt.core.truth import ROUNDING, Finding, Truth, best_of, found_by_enumerating
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.certificates import certified_bound
from infermax_opt.makespan.bounds import exhaustive
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.certificates import CERTIFICATION
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule
from infermax_opt.makespan.replay.bins import BinViolation, replay_bins
from infermax_opt.makespan.replay.metrics import MakespanMetrics, measure_bins

__all__ = ["MakespanResult", "MakespanVerification", "one_after_another", "verify_bins"]


#: The results of this problem.
MakespanResult = Result[MakespanSchedule, MakespanMetrics]


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

    def confirm(lower: Fraction) -> Finding:
        # A rounding below, so that a bound written as a double is not refuted for that.
        holds = exhaustive.holds(instance, lower * (1 - ROUNDING))
        return found_by_enumerating(holds, _why_not_enumerated(instance))

    def trivial() -> Fraction:
        return replay_bins(instance, one_after_another(instance)).makespan

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=metrics.makespan if metrics else None,
        closed_form=lambda source: best_of(closed_form_makespan_bounds(instance), source),
        confirm=confirm,
        certified=lambda claim: certified_bound(instance, claim, CERTIFICATION),
        trivial=trivial,
    )
    return MakespanVerification.of(subject, truth)


def _why_not_enumerated(instance: MakespanInstance) -> str:
    """Why `exhaustive.holds` does not decide an instance, where it does not."""
    requests = len(instance.requests)
    if requests > exhaustive.MAX_REQUESTS:
        return f"{requests} requests; up to {exhaustive.MAX_REQUESTS} are enumerated"
    return f"enumerating takes more than {exhaustive.MAX_STEPS} steps"


def one_after_another(instance: MakespanInstance) -> MakespanSchedule:
    """Each request alone, all on the first client: a schedule of every instance."""
    bins = (Bin({request.id: 1}, request.output_tokens) for request in instance.requests)
    return MakespanSchedule(instance.name, bins)
