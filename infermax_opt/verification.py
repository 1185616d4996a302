"""The verifier: replays a schedule, checks every rule, re-checks every claim of a result.

It imports no scheduler, formulation or solver, so that none of them can vouch for itself.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.bounds import closed_form_bounds, exhaustive
from infermax_opt.errors import InputError
from infermax_opt.fastreplay import replay
from infermax_opt.instance import Instance
from infermax_opt.metrics import Metrics, measure, objective_value
from infermax_opt.replay import Violation
from infermax_opt.result import Claim, Proof, Result, Status
from infermax_opt.schedules import Schedule

__all__ = ["Fault", "FaultKind", "Trust", "Verification", "verify"]

_Report = Callable[["FaultKind", str], None]

#: Relative rounding allowed in a claimed number: what a double can hold.
ROUNDING = Fraction(1, 10**12)


class FaultKind(enum.Enum):
    """Which claim of a result is wrong."""

    INSTANCE = "instance"
    OBJECTIVE = "objective"
    STATUS = "status"
    UPPER_BOUND = "upper_bound"
    LOWER_BOUND = "lower_bound"
    GAP = "gap"
    METRICS = "metrics"


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
    SOLVER = "not checked: proved by a solver, and too large to enumerate here"


@dataclass(frozen=True)
class Verification:
    """Outcome of a verification.

    Attributes
    ----------
    violations : tuple of Violation
        Rules that the schedule breaks.
    faults : tuple of Fault
        Claims of the result that are wrong.
    metrics : Metrics or None
        Of the replayed schedule; None without a valid one.
    objective : Fraction or None
        Replayed objective, in seconds.
    lower_bound : Fraction or None
        Claimed lower bound, in seconds.
    bound : Trust or None
        How the claimed lower bound was checked; None where there is none.
    """

    violations: tuple[Violation, ...]
    faults: tuple[Fault, ...]
    metrics: Metrics | None
    objective: Fraction | None
    lower_bound: Fraction | None
    bound: Trust | None

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.violations and not self.faults


def verify(instance: Instance, subject: Schedule | Result | Claim) -> Verification:
    """Verify a schedule, or all that a result claims.

    Parameters
    ----------
    instance : Instance
    subject : Schedule, Result or Claim

    Returns
    -------
    Verification
        Violations and faults as data; nothing is raised for a wrong schedule.

    Raises
    ------
    InputError
        If an argument is something else.
    """
    claim = subject.claim() if isinstance(subject, Result) else subject
    if not isinstance(instance, Instance) or not isinstance(claim, Schedule | Claim):
        raise InputError(
            f"verify takes an Instance and a Schedule or Result, not {type(instance).__name__} and "
            f"{type(subject).__name__}"
        )
    schedule = claim.schedule if isinstance(claim, Claim) else claim
    violations: tuple[Violation, ...] = ()
    faults: list[Fault] = []
    metrics = None
    objective = None
    if schedule is not None:
        replayed = replay(instance, schedule)
        violations = replayed.violations
        if replayed.valid:
            metrics = measure(instance, replayed)
            objective = objective_value(instance.objective, metrics)
        if schedule.instance != instance.name:
            message = f"the schedule is for {schedule.instance!r}, the instance is {instance.name!r}"
            faults.append(Fault(FaultKind.INSTANCE, message))
    trust = None
    if isinstance(claim, Claim):
        trust = _check_claim(instance, claim, objective, metrics, bool(violations), faults)
    lower = claim.lower_bound if isinstance(claim, Claim) else None
    return Verification(violations, tuple(faults), metrics, objective, lower, trust)


def _close(claimed: Fraction, true: Fraction) -> bool:
    return abs(claimed - true) <= ROUNDING * abs(true)


def _check_claim(
    instance: Instance,
    claim: Claim,
    objective: Fraction | None,
    metrics: Metrics | None,
    violated: bool,
    faults: list[Fault],
) -> Trust | None:
    def fault(kind: FaultKind, message: str) -> None:
        faults.append(Fault(kind, message))

    if claim.instance != instance.name:
        fault(FaultKind.INSTANCE, f"is for {claim.instance!r}, the instance is {instance.name!r}")
    if claim.instance_sha256 != instance.sha256:
        fault(FaultKind.INSTANCE, "instance_sha256 differs from the instance's")
    if claim.objective != str(instance.objective):
        fault(FaultKind.OBJECTIVE, f"is {claim.objective!r}, the instance's is '{instance.objective}'")
    _check_upper(claim, objective, violated, fault)
    if metrics is not None:
        true_metrics = dict(metrics.items())
        for name, value in claim.metrics.items():
            true = true_metrics[name]
            same = value == true or (
                value is not None and true is not None and _close(Fraction(value), Fraction(true))
            )
            if not same:
                fault(FaultKind.METRICS, f"{name} is {_show(value)}, replay gives {_show(true)}")
    elif claim.metrics:
        fault(FaultKind.METRICS, "metrics without a valid schedule")
    trust = _check_lower(instance, claim, objective, fault)
    _check_gap_and_status(claim, fault)
    return trust


def _check_upper(claim: Claim, objective: Fraction | None, violated: bool, fault: _Report) -> None:
    upper = claim.upper_bound
    if upper is None:
        if claim.schedule is not None:
            fault(FaultKind.UPPER_BOUND, "is null though there is a schedule")
    elif claim.schedule is None:
        fault(FaultKind.UPPER_BOUND, f"{_show(upper)} has no schedule to show for it")
    elif violated:
        fault(FaultKind.UPPER_BOUND, f"{_show(upper)} rests on a schedule that breaks rules")
    elif objective is not None and not _close(upper, objective):
        fault(FaultKind.UPPER_BOUND, f"is {_show(upper)}, replay gives {_show(objective)}")


def _check_lower(
    instance: Instance, claim: Claim, objective: Fraction | None, fault: _Report
) -> Trust | None:
    lower = claim.lower_bound
    if lower is None:
        return None
    if claim.proof is None:
        fault(FaultKind.LOWER_BOUND, f"{_show(lower)} does not say how it was proved")
        return None
    if lower < 0:
        fault(FaultKind.LOWER_BOUND, f"{_show(lower)} is negative")
    if objective is not None and lower > objective * (1 + ROUNDING):
        fault(
            FaultKind.LOWER_BOUND,
            f"{_show(lower)} exceeds {_show(objective)}, which the schedule attains",
        )
        return Trust.REFUTED
    if claim.proof is Proof.SOLVER:
        # A rounding below, so that a bound written as a double is not refuted for that.
        true = exhaustive.holds(instance, lower * (1 - ROUNDING))
        if true is False:
            fault(FaultKind.LOWER_BOUND, f"{_show(lower)} exceeds the optimum")
            return Trust.REFUTED
        return Trust.SOLVER if true is None else Trust.ENUMERATED
    if claim.proof is Proof.CERTIFICATE:
        return _check_certificate(instance, claim, lower, fault)
    best = max(bound.value for bound in closed_form_bounds(instance))
    if lower > best * (1 + ROUNDING):
        fault(FaultKind.LOWER_BOUND, f"is {_show(lower)}, the closed forms give {_show(best)}")
        return Trust.REFUTED
    return Trust.RECOMPUTED


def _check_certificate(instance: Instance, claim: Claim, lower: Fraction, fault: _Report) -> Trust | None:
    from infermax_opt.certificates import check_certificate, check_evidence

    try:
        if claim.evidence is not None:
            proved = check_evidence(instance, claim.evidence)
        elif claim.certificate is not None:
            proved = check_certificate(instance, claim.certificate)
        else:
            fault(FaultKind.LOWER_BOUND, f"{_show(lower)} names no certificate")
            return None
    except InputError as error:
        fault(FaultKind.LOWER_BOUND, f"{_show(lower)} rests on a certificate that fails: {error}")
        return Trust.REFUTED
    if lower > proved * (1 + ROUNDING):
        fault(FaultKind.LOWER_BOUND, f"is {_show(lower)}, its certificate proves {_show(proved)}")
        return Trust.REFUTED
    return Trust.CERTIFIED


def _check_gap_and_status(claim: Claim, fault: _Report) -> None:
    upper, lower = claim.upper_bound, claim.lower_bound
    true: Fraction | None = None
    if upper is not None and lower is not None:
        true = Fraction(0) if upper == 0 else (upper - lower) / upper
    if (claim.gap is None) != (true is None) or (
        true is not None and claim.gap is not None and abs(claim.gap - true) > ROUNDING
    ):
        fault(FaultKind.GAP, f"is {_show(claim.gap)}, the bounds give {_show(true)}")
    if upper is not None:
        proved = lower is not None and _close(lower, upper)
        expected = Status.OPTIMAL if proved else Status.FEASIBLE
    else:
        expected = Status.UNKNOWN if lower is None else Status.BOUND_ONLY
    if claim.status is not expected:
        fault(
            FaultKind.STATUS,
            f"is {claim.status.value!r}, the bounds support {expected.value!r}",
        )


def _show(value: Fraction | int | None) -> str:
    if value is None:
        return "null"
    return repr(float(value)) if isinstance(value, Fraction) else str(value)
