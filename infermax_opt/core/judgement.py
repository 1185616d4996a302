"""The checks of one claim against the truth."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Answer, Claim, Proof, Status, gap_of
from infermax_opt.core.truth import (
    LOWER_BOUND,
    ROUNDING,
    Fault,
    FaultKind,
    Trust,
    Truth,
    Unchecked,
)

__all__ = ["Judgement"]


def _close(claimed: Fraction, true: Fraction) -> bool:
    return abs(claimed - true) <= ROUNDING * abs(true)


class Judgement:
    """The checks of one claim, and the faults that they found."""

    def __init__(self, truth: Truth[Any, Any]):
        self.truth = truth
        self.faults: list[Fault] = []
        self.unchecked: list[Unchecked] = []

    def fault(self, kind: FaultKind, message: str) -> None:
        """Note a wrong claim."""
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
            message = f"is {claim.objective!r}, the instance's is '{objective}'"
            # Its numbers answer another question about the same requests.
            if claim.instance == instance.name and claim.instance_sha256 != instance.sha256:
                self.fault(FaultKind.OBJECTIVE, f"{message}; `verify` takes the --objective of `solve`")
                return Trust.UNCHECKED if claim.lower_bound is not None else None
            self.fault(FaultKind.OBJECTIVE, message)
        self.upper(claim)
        self.metrics(claim)
        trust = self.lower(claim)
        self.gap_and_status(claim)
        self.answer(claim)
        wrong, unchecked = self.truth.details(claim)
        self.faults += wrong
        self.unchecked += unchecked
        return trust

    def metrics(self, claim: Claim) -> None:
        """Check claimed metrics against the replayed ones."""
        if self.truth.metrics is None:
            for name, value in list(claim.metrics.items())[:1]:
                why = "the schedule is null" if claim.schedule is None else "the schedule breaks rules"
                self.fault(FaultKind.METRICS, f"{name} is {_show(value)}, but {why}; they must be null, too")
            return
        true_metrics = dict(self.truth.metrics.items())
        for name, value in claim.metrics.items():
            true = true_metrics[name]
            same = value == true or (
                value is not None and true is not None and _close(Fraction(value), Fraction(true))
            )
            if not same:
                self.fault(FaultKind.METRICS, f"{name} is {_show(value)}, replay gives {_show(true)}")
        self.missing(claim, true_metrics)

    def missing(self, claim: Claim, true_metrics: Mapping[str, Fraction | int | None]) -> None:
        """Find metrics that a claim leaves out; it may leave out those of later versions, as `Truth` says.

        Parameters
        ----------
        claim : Claim
        true_metrics : mapping of metric to value
            Of its schedule, replayed.
        """
        missing = {
            name: f"{name} is missing, replay gives {_show(true)}"
            for name, true in true_metrics.items()
            if name not in claim.metrics and not (true is None and name in self.truth.later)
        }
        excused = [some for some in self.truth.later_together if some <= missing.keys()]
        if missing.keys() - set[str]().union(*excused):
            more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
            self.fault(FaultKind.METRICS, next(iter(missing.values())) + more)

    def upper(self, claim: Claim) -> None:
        """Check the claimed upper bound."""
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
        """Check the claimed lower bound, as its proof asks."""
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
        if source is None or value is None:
            return self.refuted(
                f"{_show(lower)} is said to come from {source!r}, which is no closed form here"
            )
        if lower > value * (1 + ROUNDING):
            return self.refuted(f"is {_show(lower)}, the closed form {source!r} gives {_show(value)}")
        return (
            Trust.RECOMPUTED if self.truth.proved_here(source or "") else self.of_others(source or "", lower)
        )

    def of_others(self, source: str, lower: Fraction) -> Trust:
        """Check a bound by a closed form of another package, which may be wrong."""
        found = self.truth.confirm(lower)
        if found.trust is Trust.REFUTED:
            return self.refuted(f"{_show(lower)} exceeds the optimum: the closed form {source!r} is wrong")
        if found.trust is not Trust.UNCHECKED:
            return found.trust
        return Trust.REFUTED if self.above_trivial(lower) else Trust.RECOMPUTED

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
        """Check the certificate of a claim."""
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
        """Note a wrong lower bound."""
        self.fault(FaultKind.LOWER_BOUND, message)
        return Trust.REFUTED

    def gap_and_status(self, claim: Claim) -> None:
        """Check what follows from the two bounds; who leaves a gap within rounding may call it one."""
        true = gap_of(claim.upper_bound, claim.lower_bound)
        known = true is not None and claim.gap is not None
        if (claim.gap is None) != (true is None) or (known and abs(claim.gap - true) > ROUNDING):  # type: ignore[operator]
            self.fault(FaultKind.GAP, f"is {_show(claim.gap)}, the bounds give {_show(true)}")
        expected = self.status(claim)
        if claim.status is Status.INFEASIBLE and expected is not Status.INFEASIBLE:
            self.fault(FaultKind.STATUS, "is 'infeasible', but there is a schedule")
        elif claim.status is not expected and not (claim.status is Status.FEASIBLE and true):
            message = f"is {claim.status.value!r}, the bounds support {expected.value!r}"
            self.fault(FaultKind.STATUS, message)

    def answer(self, claim: Claim) -> None:
        """Check what the bounds say of the value that was asked about."""
        if claim.target is None and claim.answer is None:
            return
        if claim.target is None or claim.answer is None:
            missing, there = ("target", "answer") if claim.target is None else ("answer", "target")
            self.fault(FaultKind.ANSWER, f"there is no {missing}, though there is {there}")
            return
        upper = claim.upper_bound if claim.undecided is None else None
        true = Answer.of(claim.target, upper, claim.lower_bound)
        if true is not None and claim.answer is not true:
            self.fault(FaultKind.ANSWER, f"is {claim.answer.value!r}, the bounds say {true.value!r}")

    def status(self, claim: Claim) -> Status:
        """What the bounds of a claim support."""
        upper, lower = claim.upper_bound, claim.lower_bound
        if upper is not None:
            proved = lower is not None and _close(lower, upper)
            return Status.OPTIMAL if proved and claim.undecided is None else Status.FEASIBLE
        if claim.status is Status.INFEASIBLE and self.truth.infeasible():
            return Status.INFEASIBLE
        return Status.UNKNOWN if lower is None else Status.BOUND_ONLY


def _show(value: Fraction | int | None) -> str:
    if value is None:
        return "null"
    return repr(float(value)) if isinstance(value, Fraction) else str(value)
