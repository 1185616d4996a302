"""The verifier: replays a schedule, checks every rule, re-checks every claim of a result.

It imports no scheduler, formulation or solver, so that none of them can vouch for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import overload

from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import (
    INFERMAX,
    MAKESPAN,
    PLACEMENT,
    PROBLEMS,
    AnyInstance,
    AnySchedule,
    Problem,
)
from infermax_opt.core.result import AnyResult, BaseResult, Claim, MakespanResult, PlacementResult, Result
from infermax_opt.core.verification import ROUNDING, BaseVerification, Fault, FaultKind, Trust, Truth
from infermax_opt.infermax.bounds import closed_form_bounds, exhaustive
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import Metrics, measure, objective_value
from infermax_opt.infermax.replay.plain import Violation
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.verify import MakespanVerification, verify_bins
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.verify import PlacementVerification, verify_placement

__all__ = [
    "AnyVerification",
    "Fault",
    "FaultKind",
    "MakespanVerification",
    "PlacementVerification",
    "Trust",
    "Verification",
    "verify",
]


@dataclass(frozen=True)
class Verification(BaseVerification[Violation, Metrics]):
    """Outcome of the verification of a schedule or result of an InferMax instance."""


AnyVerification = Verification | MakespanVerification | PlacementVerification


@overload
def verify(instance: Instance, subject: Schedule | Result | Claim) -> Verification: ...
@overload
def verify(
    instance: MakespanInstance, subject: MakespanSchedule | MakespanResult | Claim
) -> MakespanVerification: ...
@overload
def verify(
    instance: PlacementInstance, subject: Placement | PlacementResult | Claim
) -> PlacementVerification: ...
@overload
def verify(instance: AnyInstance, subject: AnySchedule | AnyResult | Claim) -> AnyVerification: ...
def verify(instance: AnyInstance, subject: AnySchedule | AnyResult | Claim) -> AnyVerification:
    """Verify a schedule, or all that a result claims.

    Parameters
    ----------
    instance : instance of any problem
    subject : schedule or result of such an instance, or Claim

    Returns
    -------
    Verification, MakespanVerification or PlacementVerification
        Violations and faults as data; nothing is raised for a wrong schedule.

    Raises
    ------
    InputError
        If an argument is something else.
    """
    claim = subject.claim() if isinstance(subject, BaseResult) else subject
    schedule = claim.schedule if isinstance(claim, Claim) else claim
    for problem in PROBLEMS:
        if isinstance(instance, problem.instance) and isinstance(schedule, (problem.schedule, type(None))):
            return _VERIFIERS[problem](instance, schedule, claim)
    raise InputError(
        "verify takes an Instance and a Schedule or Result, or an instance of another problem and its own, "
        f"not {type(instance).__name__} and {type(subject).__name__}"
    )


def _verify(instance: Instance, schedule: Schedule | None, subject: AnySchedule | Claim) -> Verification:
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
    )
    return Verification.of(subject, truth)


_VERIFIERS: dict[Problem, Callable[..., AnyVerification]] = {
    INFERMAX: _verify,
    MAKESPAN: verify_bins,
    PLACEMENT: verify_placement,
}
