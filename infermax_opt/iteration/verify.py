"""The verifier of the iteration problem: recomputes (2) to (8), and checks every claim of a result.

Its lower bounds are closed forms, which are recomputed; certificates, which are checked; or a solver's
word: that is accepted up to the best closed form, and beyond decided by trying every batch, unless these are
too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.result import Claim
from infermax_opt.core.truth import ROUNDING, Finding, Truth, Unchecked, best_of, found_by_enumerating
from infermax_opt.core.verification import BaseVerification
from infermax_opt.files.certificates import certified_bound
from infermax_opt.iteration.bounds import exhaustive
from infermax_opt.iteration.bounds.closed_form import closed_form_bounds
from infermax_opt.iteration.bounds.kept import most_kept
from infermax_opt.iteration.certificates import CERTIFICATION
from infermax_opt.iteration.data.instance import IterationInstance
from infermax_opt.iteration.data.selection import Selection
from infermax_opt.iteration.data.ticks import Ticks
from infermax_opt.iteration.replay.check import IterationViolation, check_selection
from infermax_opt.iteration.replay.metrics import IterationMetrics, measure_batch

__all__ = ["IterationVerification", "verify_selection"]


@dataclass(frozen=True)
class IterationVerification(BaseVerification[IterationViolation, IterationMetrics]):
    """Outcome of the verification of a selection or result of an iteration instance."""


def verify_selection(
    instance: IterationInstance, selection: Selection | None, subject: Selection | Claim
) -> IterationVerification:
    """Verify a selection, and what a result claims.

    Parameters
    ----------
    instance : IterationInstance
    selection : Selection or None
        Of the subject; None where that is a bound alone.
    subject : schedule or Claim
        The selection itself, or all that is claimed with it.

    Returns
    -------
    IterationVerification
        Violations and faults as data; nothing is raised for a wrong selection.
    """
    ticks = Ticks.of(instance)
    violations: tuple[IterationViolation, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    metrics = objective = None
    if selection is not None:
        checked = check_selection(instance, selection)
        violations = checked.violations
        if checked.undecided is not None:
            unchecked = (Unchecked("schedule", checked.undecided),)
        if checked.valid:
            metrics, objective = measure_batch(instance, checked.batch), ticks.objective(checked.batch)

    def confirm(lower: Fraction) -> Finding:
        best = exhaustive.best_of_all(ticks)
        # A rounding below, so that a bound written as a double is not refuted for that.
        holds = None if best is None else lower * (1 - ROUNDING) <= best
        return found_by_enumerating(holds, f"there are more than {exhaustive.MOST_BATCHES} batches")

    def trivial() -> Fraction | None:
        kept = most_kept(ticks)
        return ticks.objective(kept.batch) if kept.least == kept.most else None

    truth = Truth(
        instance=instance,
        violations=violations,
        metrics=metrics,
        objective=objective,
        closed_form=lambda source: best_of(closed_form_bounds(instance), source),
        confirm=confirm,
        certified=lambda claim: certified_bound(instance, claim, CERTIFICATION),
        trivial=trivial,
        unchecked=unchecked,
    )
    return IterationVerification.of(subject, truth)
