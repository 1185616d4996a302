"""Bounds from elsewhere, from files and other packages: whether they are what they say."""

from __future__ import annotations

from collections.abc import Sequence

from infermax_opt.core.checks import checked_kind
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult, LowerBound, Proof
from infermax_opt.core.values import AnyInstance
from infermax_opt.files import certificates
from infermax_opt.files.fields import shown

__all__ = ["require_all_true", "require_certified", "require_made_for", "require_true_of_one"]


def require_made_for(lower: LowerBound, instances: Sequence[AnyInstance], field: str) -> None:
    """Check that the files that a bound was read from are of one of these instances.

    Parameters
    ----------
    lower : LowerBound
        One that was in no file is of any instance.
    instances : sequence of AnyInstance
        At least one.
    field : str
        Names the bound in an error.

    Raises
    ------
    InputError
    """
    own = {instance.sha256 for instance in instances}
    for instance in instances:
        certification = problem_of(instance).certification
        if certification is not None:
            own.add(certification.sha256(instance))
    foreign = [named for named in lower.made_for if named not in own]
    if foreign:
        given, wanted = shown(foreign[0][:16]), instances[0].sha256[:16]
        text = f"its instance_sha256 begins {given}, not '{wanted}'"
        raise InputError(f"is of another instance, machine or objective: {text}", field=field)


def require_certified(instance: AnyInstance, lower: LowerBound | None) -> None:
    """Check what a problem of another package calls certified: the certificate is to prove the bound."""
    if lower is None or lower.proof is not Proof.CERTIFICATE:
        return
    from infermax_opt.core.watched import Watched  # loads what no closed form needs

    problem: object = problem_of(instance)
    if not isinstance(problem, Watched):
        return
    with problem.blamed(".certification"):
        proved = certificates.check_evidence(instance, lower, problem.require_certification())
        if proved < lower.value:
            less = f"its certificate proves {float(proved):.6g}"
            raise InputError(f"{lower.source!r} claims {float(lower.value):.6g}, {less}")


def require_all_true(instance: AnyInstance, bounds: Sequence[LowerBound]) -> None:
    """Check bounds that come from elsewhere, and that the files they were read from are of this instance.

    Parameters
    ----------
    instance : instance of any problem
    bounds : sequence of LowerBound

    Raises
    ------
    InputError
        If one is none, or is not proved; ``bounds[k]`` names it.
    """
    for k, lower in enumerate(bounds):
        field = f"bounds[{k}]"
        checked_kind(lower, LowerBound, field)
        require_made_for(lower, [instance], field)
        require_true_of_one(lower, [instance], field)


def require_true_of_one(lower: LowerBound, instances: Sequence[AnyInstance], field: str) -> None:
    """Check that a bound is proved for one of these instances, such as one with another objective.

    Parameters
    ----------
    lower : LowerBound
    instances : sequence of AnyInstance
        At least one.
    field : str
        Names the bound in an error.

    Raises
    ------
    InputError
        It says what is wrong with the bound for the instance that it names, or else for the first one.
    """
    wrong = list[str]()
    for instance in sorted(instances, key=lambda instance: instance.sha256 not in lower.made_for):
        known = AnyResult(instance.name, instance.sha256, instance.objective_name, lower=lower)
        check = problem_of(instance).verify(instance, None, known.claim())
        faults = [*check.faults, *check.unchecked]
        if not faults:
            return
        wrong.append(str(faults[0]))
    raise InputError(f"the bound {float(lower.value):.6g} is not proved: {wrong[0]}", field=field)
