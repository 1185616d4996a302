"""Checking what a result claims, of whichever problem.

What the verifier finds out by itself about an instance and a schedule is a `Truth`, against which
`BaseVerification.of` sets the claims.  What it cannot check is named, with the reason (`Unchecked`).

Not every word of a result is a claim about the instance.  ``upper.source`` and ``solver`` tell how the result
was found; ``lower.source`` does so where the proof is no formula.  These are notes: named, and not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Generic, Self

from infermax_opt.core.frames import plain
from infermax_opt.core.judgement import Judgement
from infermax_opt.core.result import Claim, Proof
from infermax_opt.core.result_items import verification_items
from infermax_opt.core.shown import Solved
from infermax_opt.core.truth import (
    LOWER_BOUND,
    Fault,
    FaultKind,
    Finding,
    M,
    Trust,
    Truth,
    Unchecked,
    V,
)
from infermax_opt.core.values import AnyInstance, AnySchedule

__all__ = ["AnyVerification", "BaseVerification"]


@dataclass(frozen=True)
class BaseVerification(Solved, Generic[V, M]):
    """Outcome of a verification; `V` and `M` as in `Truth`.

    Attributes
    ----------
    violations : tuple
        Rules that the schedule breaks.
    faults : tuple of Fault
        Claims of the result that are wrong.
    metrics : metrics of the problem, or None
        Of the replayed schedule; None without a valid one.
    objective : Fraction or None
        Replayed objective, in its unit (seconds, or workers).
    lower_bound : Fraction or None
        Claimed lower bound, in that unit.
    bound : Trust or None
        How the claimed lower bound was checked; None where there is none.
    unchecked : tuple of Unchecked
        Claims that could not be checked.
    notes : tuple of str
        Fields that tell how the result was found: no claims, and not checked.
    given, schedule : instance and schedule
        That were verified; None where there was no schedule.
    """

    violations: tuple[V, ...]
    faults: tuple[Fault, ...]
    metrics: M | None
    objective: Fraction | None
    lower_bound: Fraction | None
    bound: Trust | None
    unchecked: tuple[Unchecked, ...] = ()
    notes: tuple[str, ...] = ()
    given: AnyInstance | None = field(default=None, compare=False, repr=False)
    schedule: AnySchedule | None = field(default=None, compare=False, repr=False)

    def facts(self) -> Mapping[str, Any]:
        """Whether anything is wrong, and the figures."""
        return {
            "instance": None if self.given is None else self.given.name,
            "ok": self.ok,
            "objective": self.objective,
            "lower_bound": self.lower_bound,
            "bound": self.bound_words,
            "violations": len(self.violations),
            "faults": len(self.faults),
            "unchecked": len(self.unchecked),
        }

    def to_dict(self) -> dict[str, Any]:
        """What `verify --json` prints, but for the instance; decimals become the nearest float."""
        found: dict[str, Any] = plain(verification_items(self))
        return found

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations and not self.faults

    @property
    def bound_words(self) -> str | None:
        """How the claimed lower bound was checked, and why not where it was not."""
        if self.bound is None:
            return None
        reasons = (some.reason for some in self.unchecked if some.claim == LOWER_BOUND)
        return str(Finding(self.bound, next(reasons, "")))

    @classmethod
    def of(cls, subject: AnySchedule | Claim, truth: Truth[V, M]) -> Self:
        """Set what a subject says against the truth."""
        judgement = Judgement(truth)
        claim = subject if isinstance(subject, Claim) else None
        schedule = subject.schedule if isinstance(subject, Claim) else subject
        if schedule is not None and schedule.instance != truth.instance.name:
            message = f"the schedule is for {schedule.instance!r}, the instance is {truth.instance.name!r}"
            judgement.fault(FaultKind.INSTANCE, message)
        trust = judgement.claim(claim) if claim else None
        notes = [name for name, given in _notes(claim).items() if given] if claim else []
        return cls(
            violations=truth.violations,
            faults=tuple(judgement.faults),
            metrics=truth.metrics,
            objective=truth.objective,
            lower_bound=claim.lower_bound if claim else None,
            bound=trust,
            unchecked=(*truth.unchecked, *judgement.unchecked),
            notes=tuple(notes),
            given=truth.instance,
            schedule=schedule,
        )


AnyVerification = BaseVerification[Any, Any]


def _notes(claim: Claim) -> dict[str, bool]:
    """Fields that only tell how a result was found, and whether the result has them."""
    return {
        "upper.source": claim.upper_source is not None,
        "lower.source": claim.lower_source is not None and claim.proof is not Proof.CLOSED_FORM,
        "solver": claim.has_solver,
    }
