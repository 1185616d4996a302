"""Checking what a result claims, of whichever problem.

What the verifier finds out by itself about an instance and a schedule is a `Truth`, against which
`BaseVerification.of` sets the claims.  What it cannot check is named, with the reason (`Unchecked`).

Not every word of a result is a claim about the instance.  ``upper.source`` and ``solver`` tell how the result
was found; ``lower.source`` does so where the proof is no formula.  These are notes: named, and not checked.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic, Self, TypeVar

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Claim, LowerBound, Proof, Status
from infermax_opt.core.values import AnyInstance, AnyMetrics, AnySchedule, AnyViolation

__all__ = [
    "ROUNDING", "BaseVerification", "Fault", "FaultKind", "Finding", "Trust", "Truth", "Unchecked",
    "best_of", "found_by_enumerating",
]  # fmt: skip

#: Relative rounding allowed in a claimed number: what a double can hold.
ROUNDING = Fraction(1, 10**12)
#: Name of the claim of a lower bound, as in a result file.
LOWER_BOUND = "lower_bound"

V = TypeVar("V", bound=AnyViolation)
M = TypeVar("M", bound=AnyMetrics)


class FaultKind(enum.Enum):
    """Which claim of a result is wrong."""

    INSTANCE = "instance"
    OBJECTIVE = "objective"
    STATUS = "status"
    UPPER_BOUND = "upper_bound"
    LOWER_BOUND = "lower_bound"
    GAP = "gap"
    METRICS = "metrics"
    DETAILS = "details"


@dataclass(frozen=True)
class Fault:
    """One wrong claim: what the result says and what is true."""

    kind: FaultKind
    message: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.message}"


class Trust(enum.Enum):
    """How far the verifier could check a claimed lower bound."""

    RECOMPUTED = "recomputed"
    ENUMERATED = "confirmed by enumerating every schedule"
    REFUTED = "refuted"
    CERTIFIED = "its certificate was checked"
    UNCHECKED = "not checked"

    @property
    def is_word(self) -> bool:
        """Whether nothing but a solver's word stands behind the bound."""
        return self is Trust.UNCHECKED


@dataclass(frozen=True)
class Finding:
    """How far a bound could be checked, and why no further."""

    trust: Trust
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.trust.value}: {self.reason}" if self.reason else self.trust.value


@dataclass(frozen=True)
class Unchecked:
    """A claim that could not be checked, and why."""

    claim: str
    reason: str

    def __str__(self) -> str:
        return f"{self.claim}: {self.reason}"


def found_by_enumerating(holds: bool | None, why_not: str) -> Finding:
    """What an enumeration found out about a bound.

    Parameters
    ----------
    holds : bool or None
        None if it was given up.
    why_not : str
        Why it was given up, if it was.
    """
    if holds is None:
        return Finding(Trust.UNCHECKED, why_not)
    return Finding(Trust.ENUMERATED if holds else Trust.REFUTED)


def best_of(bounds: Iterable[LowerBound], source: str | None) -> Fraction | None:
    """The best of the bounds of that source, of all without one; None if there is none."""
    return max((bound.value for bound in bounds if source in (None, bound.source)), default=None)


def _no_certificate(claim: Claim) -> Fraction | None:
    return None


@dataclass(frozen=True)
class Truth(Generic[V, M]):
    """What the verifier knows without any claim; `V` and `M` are the violations and metrics of the problem.

    Parameters
    ----------
    instance : AnyInstance
    violations : tuple
        Rules that the schedule breaks.
    metrics : metrics of the problem, or None
        Of the replayed schedule; None without a valid one.
    objective : Fraction or None
        Replayed objective, in its unit (seconds, or workers).
    closed_form : callable
        Gives the best closed-form lower bound of that source, in that unit; None if there is no such
        source.  Without a source: the best of all.
    confirm : callable
        Says how far it can check a solver's bound above all closed forms, given in that unit.
    trivial : callable
        Gives what a valid schedule made by a plain rule attains, or something above it, in that unit; None
        if that would take too long, or there is no schedule.
    infeasible : callable
        Whether there is no schedule.  An instance of a problem without it always has one.
    certified : callable
        Gives the bound that the certificate of a claim proves, None if the claim names none; raises
        `InputError` if it proves nothing.  For problems whose bounds are certified.
    details : callable
        Gives wrong and unchecked claims among the details of the solver; all other details are notes.
    unchecked : tuple of Unchecked
        What could not be checked of the schedule itself.
    """

    instance: AnyInstance
    violations: tuple[V, ...]
    metrics: M | None
    objective: Fraction | None
    closed_form: Callable[[str | None], Fraction | None]
    confirm: Callable[[Fraction], Finding]
    trivial: Callable[[], Fraction | None]
    infeasible: Callable[[], bool] = lambda: False
    certified: Callable[[Claim], Fraction | None] = _no_certificate
    details: Callable[[Claim], tuple[list[Fault], list[Unchecked]]] = lambda _: ([], [])
    unchecked: tuple[Unchecked, ...] = ()


@dataclass(frozen=True)
class BaseVerification(Generic[V, M]):
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
    """

    violations: tuple[V, ...]
    faults: tuple[Fault, ...]
    metrics: M | None
    objective: Fraction | None
    lower_bound: Fraction | None
    bound: Trust | None
    unchecked: tuple[Unchecked, ...] = ()
    notes: tuple[str, ...] = ()

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
        judgement = _Judgement(truth)
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
        )


def _notes(claim: Claim) -> dict[str, bool]:
    """Fields that only tell how a result was found, and whether the result has them."""
    return {
        "upper.source": claim.upper_source is not None,
        "lower.source": claim.lower_source is not None and claim.proof is not Proof.CLOSED_FORM,
        "solver": claim.has_solver,
    }


def _close(claimed: Fraction, true: Fraction) -> bool:
    return abs(claimed - true) <= ROUNDING * abs(true)


class _Judgement:
    """The checks of one claim, and the faults that they found."""

    def __init__(self, truth: Truth[Any, Any]):
        self.truth = truth
        self.faults: list[Fault] = []
        self.unchecked: list[Unchecked] = []

    def fault(self, kind: FaultKind, message: str) -> None:
        self.faults.append(Fault(kind, message))

    def claim(self, claim: Claim) -> Trust | None:
        """Check everything; how far the lower bound was checked."""
        instance = self.truth.instance
        if claim.instance != instance.name:
            self.fault(FaultKind.INSTANCE, f"is for {claim.instance!r}, the instance is {instance.name!r}")
        if claim.instance_sha256 != instance.sha256:
            self.fault(FaultKind.INSTANCE, "instance_sha256 differs from the instance's")
        objective = instance.objective_name
        if claim.objective != objective:
            self.fault(FaultKind.OBJECTIVE, f"is {claim.objective!r}, the instance's is '{objective}'")
        self.upper(claim)
        self.metrics(claim.metrics)
        trust = self.lower(claim)
        self.gap_and_status(claim)
        wrong, unchecked = self.truth.details(claim)
        self.faults += wrong
        self.unchecked += unchecked
        return trust

    def metrics(self, claimed: Mapping[str, Fraction | int | None]) -> None:
        if self.truth.metrics is None:
            if claimed:
                self.fault(FaultKind.METRICS, "metrics without a valid schedule")
            return
        true_metrics = dict(self.truth.metrics.items())
        for name, value in claimed.items():
            true = true_metrics[name]
            same = value == true or (
                value is not None and true is not None and _close(Fraction(value), Fraction(true))
            )
            if not same:
                self.fault(FaultKind.METRICS, f"{name} is {_show(value)}, replay gives {_show(true)}")

    def upper(self, claim: Claim) -> None:
        upper, objective = claim.upper_bound, self.truth.objective
        problem = None
        if upper is None:
            if claim.schedule is not None:
                problem = "is null though there is a schedule"
        elif claim.schedule is None:
            problem = f"{_show(upper)} has no schedule to show for it"
        elif self.truth.violations:
            problem = f"{_show(upper)} rests on a schedule that breaks rules"
        elif objective is not None and not _close(upper, objective):
            problem = f"is {_show(upper)}, replay gives {_show(objective)}"
        if problem is not None:
            self.fault(FaultKind.UPPER_BOUND, problem)

    def lower(self, claim: Claim) -> Trust | None:
        lower, objective = claim.lower_bound, self.truth.objective
        if lower is None:
            return None
        if claim.proof is None:
            self.fault(FaultKind.LOWER_BOUND, f"{_show(lower)} does not say how it was proved")
            return None
        if lower < 0:
            self.fault(FaultKind.LOWER_BOUND, f"{_show(lower)} is negative")
        if objective is not None and lower > objective * (1 + ROUNDING):
            return self.refuted(f"{_show(lower)} exceeds {_show(objective)}, which the schedule attains")
        if claim.proof is Proof.SOLVER:
            return self.word(lower)
        if claim.proof is Proof.CERTIFICATE:
            return self.certificate(claim, lower)
        return self.formula(claim.lower_source, lower)

    def formula(self, source: str | None, lower: Fraction) -> Trust:
        """Check a bound that a closed form is said to give."""
        value = None if source is None else self.truth.closed_form(source)
        if value is None:
            return self.refuted(
                f"{_show(lower)} is said to come from {source!r}, which is no closed form here"
            )
        if lower > value * (1 + ROUNDING):
            return self.refuted(f"is {_show(lower)}, the closed form {source!r} gives {_show(value)}")
        return Trust.RECOMPUTED

    def word(self, lower: Fraction) -> Trust:
        """Check a bound that a solver is said to have proved."""
        best = self.truth.closed_form(None)
        if best is not None and lower <= best * (1 + ROUNDING):
            return Trust.RECOMPUTED
        found = self.truth.confirm(lower)
        if found.trust is Trust.REFUTED:
            return self.refuted(f"{_show(lower)} exceeds the optimum")
        if found.trust is not Trust.UNCHECKED:
            return found.trust
        if self.above_trivial(lower):
            return Trust.REFUTED
        self.unchecked.append(Unchecked(LOWER_BOUND, f"proved by a solver; {found.reason}"))
        return Trust.UNCHECKED

    def above_trivial(self, lower: Fraction) -> bool:
        """Whether a bound is above what a schedule of the verifier's own takes at most; that is a fault."""
        attained = self.truth.trivial()
        if attained is None or lower <= attained * (1 + ROUNDING):
            return False
        self.refuted(f"{_show(lower)} exceeds {_show(attained)}, and a plain schedule takes no more")
        return True

    def certificate(self, claim: Claim, lower: Fraction) -> Trust | None:
        try:
            proved = self.truth.certified(claim)
        except InputError as error:
            return self.refuted(f"{_show(lower)} rests on a certificate that fails: {error}")
        if proved is None:
            self.fault(FaultKind.LOWER_BOUND, f"{_show(lower)} names no certificate")
            return None
        if lower > proved * (1 + ROUNDING):
            return self.refuted(f"is {_show(lower)}, its certificate proves {_show(proved)}")
        return Trust.REFUTED if self.above_trivial(lower) else Trust.CERTIFIED

    def refuted(self, message: str) -> Trust:
        self.fault(FaultKind.LOWER_BOUND, message)
        return Trust.REFUTED

    def gap_and_status(self, claim: Claim) -> None:
        upper, lower = claim.upper_bound, claim.lower_bound
        true: Fraction | None = None
        if upper is not None and lower is not None:
            true = Fraction(0) if upper == 0 else (upper - lower) / upper
        if (claim.gap is None) != (true is None) or (
            true is not None and claim.gap is not None and abs(claim.gap - true) > ROUNDING
        ):
            self.fault(FaultKind.GAP, f"is {_show(claim.gap)}, the bounds give {_show(true)}")
        if upper is not None:
            proved = lower is not None and _close(lower, upper)
            expected = Status.OPTIMAL if proved else Status.FEASIBLE
        elif claim.status is Status.INFEASIBLE and self.truth.infeasible():
            expected = Status.INFEASIBLE
        else:
            expected = Status.UNKNOWN if lower is None else Status.BOUND_ONLY
        if claim.status is Status.INFEASIBLE and expected is not Status.INFEASIBLE:
            self.fault(FaultKind.STATUS, "is 'infeasible', but there is a schedule")
        elif claim.status is not expected:
            self.fault(
                FaultKind.STATUS,
                f"is {claim.status.value!r}, the bounds support {expected.value!r}",
            )


def _show(value: Fraction | int | None) -> str:
    if value is None:
        return "null"
    return repr(float(value)) if isinstance(value, Fraction) else str(value)
