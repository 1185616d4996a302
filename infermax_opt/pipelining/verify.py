"""The verifier of the pipelining problem: checks every rule of a schedule, and every claim of a result."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from infermax_opt.core.result import Claim, LowerBound
from infermax_opt.core.truth import ROUNDING, Finding, Truth, best_of, found_by_enumerating
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.certificates import certified_bound
from infermax_opt.pipelining.bounds import exhaustive
from infermax_opt.pipelining.bounds.closed_form import closed_form_bounds
from infermax_opt.pipelining.certificates import CERTIFICATION
from infermax_opt.pipelining.data.instance import PipeliningInstance
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.pipelining.replay.check import broken_rules
from infermax_opt.pipelining.replay.metrics import PipeliningMetrics, measure
from infermax_opt.simple.records import BrokenRule

__all__ = ["PipeliningVerification", "verify_pipelining"]


@dataclass(frozen=True)
class PipeliningVerification(BaseVerification[BrokenRule, PipeliningMetrics]):
    """Outcome of the verification of a schedule or result of a pipelining instance."""


def verify_pipelining(
    instance: PipeliningInstance, schedule: Pipelining | None, subject: Pipelining | Claim
) -> PipeliningVerification:
    """Verify a schedule, and what a result claims.

    Parameters
    ----------
    instance : PipeliningInstance
    schedule : Pipelining or None
        Of the subject; None where that is a bound alone.
    subject : Pipelining or Claim
        The schedule itself, or all that is claimed with it.

    Returns
    -------
    PipeliningVerification
        Violations and faults as data; nothing is raised for a wrong schedule.
    """
    violations = broken_rules(instance, schedule) if schedule is not None else ()
    metrics = measure(instance, schedule) if schedule is not None and not violations else None

    @cache
    def bounds() -> list[LowerBound]:
        return list(closed_form_bounds(instance))

    def confirm(lower: Fraction) -> Finding:
        most = exhaustive.most_selected(instance)
        # A rounding below, so that a bound written as a double is not refuted for that.
        holds = None if most is None else lower * (1 - ROUNDING) * most <= instance.capacity
        return found_by_enumerating(holds, _why_not_enumerated(instance))

    def alone() -> Fraction | None:
        """The most valuable request by itself."""
        most = max((instance.values[k] for k in instance.useful), default=None)
        return None if most is None else instance.capacity / most

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=None if metrics is None else getattr(metrics, instance.objective_name),
        closed_form=lambda source: best_of(bounds(), source),
        confirm=confirm,
        trivial=alone,
        infeasible=lambda: not instance.useful,
        certified=lambda claim: certified_bound(instance, claim, CERTIFICATION),
    )
    return PipeliningVerification.of(subject, truth)


def _why_not_enumerated(instance: PipeliningInstance) -> str:
    """Why `most_selected` gives up."""
    if len(instance.useful) > exhaustive.MOST_REQUESTS:
        return f"{len(instance.useful)} requests that fit; up to {exhaustive.MOST_REQUESTS} are enumerated"
    return f"enumerating takes more than {exhaustive.MOST_STEPS} steps"
