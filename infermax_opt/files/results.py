"""The result format."""

from __future__ import annotations

import os
from dataclasses import replace
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from infermax_opt.core.band import Band
from infermax_opt.core.checks import checked_kind
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction
from infermax_opt.core.problem import AnyProblem
from infermax_opt.core.registry import problem_measured, problem_of
from infermax_opt.core.result import Answer, AnyResult, Claim, LowerBound, Proof, Result, Status
from infermax_opt.core.result_items import result_items
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.files.certificates import CERTIFICATE_SCHEMA, write_certificate
from infermax_opt.files.fields import SCHEDULE_SCHEMA, Fields, shown
from infermax_opt.files.instances import any_schedule_from_json, any_schedule_to_json
from infermax_opt.files.json import STANDARD, read_as
from infermax_opt.files.schemas import SCHEMAS
from infermax_opt.files.writing import dump_json

__all__ = [
    "RESULT_SCHEMA",
    "claim_from_json",
    "claimed_bound",
    "read_bound",
    "read_schedule_or_claim",
    "read_subject",
    "result_to_json",
    "schedule_of",
    "write_result",
    "write_with_certificate",
]

RESULT_SCHEMA = SCHEMAS["solve"]

E = TypeVar("E", bound=Enum)
R = TypeVar("R", bound=AnyResult)


def result_to_json(result: AnyResult) -> dict[str, Any]:
    """Return the JSON value of a result; see `infermax_opt.core.result_items.result_items`."""
    schedule = any_schedule_to_json(result.schedule) if result.schedule else None
    return {"schema": RESULT_SCHEMA, **result_items(result, schedule)}


def write_result(result: AnyResult, path: str | os.PathLike[str]) -> None:
    """Write a result file."""
    checked_kind(result, Result, "result")
    dump_json(result_to_json(result), path)


def claim_from_json(value: object, expected: AnyProblem | None = None) -> Claim:
    """Read what a result file claims; its schedule is expected to be one of that problem.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the claims hold is the verifier's question.
    """
    required = ["schema", "instance", "instance_sha256", "objective", "status", "upper_bound"]
    required += ["lower_bound", "gap", "schedule"]
    optional = ["upper", "lower", "metrics", "solver", "target", "answer", "undecided", "band"]
    top = Fields(value, "", required, optional)
    top.schema(RESULT_SCHEMA)
    lower = top.get("lower")
    source = proof = certificate = None
    if lower is not None:
        fields = Fields(lower, "lower", ["source", "proof"], ["certificate"])
        source = fields.text("source")
        proof = _member(fields, "proof", Proof)
        if fields.get("certificate") is not None:
            certificate = fields.text("certificate")
    upper = top.get("upper")
    found_by = None if upper is None else Fields(upper, "upper", ["source"]).text("source")
    solver = top.get("solver")
    details = solver.get("details") if isinstance(solver, dict) else None
    objective = top.get("objective")
    if not isinstance(objective, str):
        raise InputError(f"{shown(objective)} is not a text", field="objective")
    written = top.get("schedule")
    schedule = None if written is None else any_schedule_from_json(written, "schedule", expected)
    return Claim(
        instance=top.text("instance"),
        instance_sha256=top.text("instance_sha256"),
        objective=objective,
        status=_member(top, "status", Status),
        upper_bound=top.seconds("upper_bound"),
        lower_bound=top.seconds("lower_bound"),
        gap=top.seconds("gap"),
        lower_source=source,
        proof=proof,
        certificate=certificate,
        schedule=schedule,
        metrics=_metrics(top.get("metrics"), schedule, expected),
        upper_source=found_by,
        has_solver=solver is not None,
        details=details if isinstance(details, dict) else {},
        target=top.seconds("target") if "target" in top.values else None,
        answer=_member(top, "answer", Answer) if "answer" in top.values else None,
        undecided=top.text("undecided") if "undecided" in top.values else None,
        band=str(Band.parsed(top.text("band"))) if "band" in top.values else None,
    )


def _member(fields: Fields, key: str, kind: type[E]) -> E:
    value = fields.get(key)
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(member.value) for member in kind)
        raise InputError(f"{shown(value)} is none of {allowed}", field=fields.at(key)) from None


def _metrics(
    value: object, schedule: AnySchedule | None, expected: AnyProblem | None
) -> dict[str, Fraction | int | None]:
    """The metrics that a file claims: those of its problem, or any where no schedule tells which it is."""
    if value is None:
        return {}
    names: Any = value if isinstance(value, dict) else ()
    if schedule is not None:
        of = (
            expected
            if expected and isinstance(schedule, expected.schedule)
            else problem_measured(schedule, names)
        )
        names = of.metrics.definitions
    fields = Fields(value, "metrics", [], names)
    metrics: dict[str, Fraction | int | None] = {}
    for key, number in fields.values.items():
        try:
            metrics[key] = None if number is None else to_fraction(number)
        except ValueError as error:
            raise InputError(str(error), field=f"metrics.{key}") from None
    return metrics


def write_with_certificate(instance: AnyInstance, result: R, path: str | os.PathLike[str]) -> R:
    """Write the certificate of a result that has one beside where its file will be, if it is a file.

    Parameters
    ----------
    instance : AnyInstance
    result : Result
    path : path
        Of the result; ``-`` has nothing beside it.

    Returns
    -------
    result
        The same result, naming the certificate file.
    """
    lower, certification = result.lower, problem_of(instance).certification
    if lower is None or lower.proof is not Proof.CERTIFICATE or lower.evidence is None:
        return result
    if certification is None or os.fspath(path) == STANDARD:  # there is nothing beside standard output
        return result
    target = Path(path)
    name = target.name.removesuffix(".gz").removesuffix(".json") + ".certificate.json.gz"
    write_certificate(instance, lower, target.with_name(name), certification)
    return replace(result, lower=replace(lower, certificate=name))


def read_schedule_or_claim(
    path: str | os.PathLike[str], expected: AnyProblem | None = None
) -> AnySchedule | Claim:
    """Read a schedule file or a result file, whichever it is, expected to be of that problem.

    A certificate that a result names is looked for from the folder of the result.
    """

    def parse(value: object) -> AnySchedule | Claim:
        schema = value.get("schema") if isinstance(value, dict) else None
        if schema == RESULT_SCHEMA:
            claim = claim_from_json(value, expected)
            if claim.certificate is None:
                return claim
            return replace(claim, certificate=os.path.join(os.path.dirname(path), claim.certificate))
        if schema == SCHEDULE_SCHEMA or not isinstance(value, dict):
            schedule: AnySchedule = any_schedule_from_json(value, "", expected)
            return schedule
        if "schema" not in value:
            raise InputError("is missing", field="schema")
        raise InputError(
            f"{shown(schema)} is neither {SCHEDULE_SCHEMA!r} nor {RESULT_SCHEMA!r}", field="schema"
        )

    return read_as(path, parse)


def read_subject(path: str | os.PathLike[str], instance: AnyInstance) -> AnySchedule | Claim:
    """Read a schedule file or a result file for an instance.

    Raises
    ------
    InputError
        Also if the schedule is one of another problem.
    """
    problem_here = problem_of(instance)
    subject = read_schedule_or_claim(path, problem_here)
    inside = isinstance(subject, Claim)
    schedule = subject.schedule if isinstance(subject, Claim) else subject
    if schedule is not None and not isinstance(schedule, problem_here.schedule):
        has, needs = problem_of(schedule).decisions, problem_here.decisions
        problem = f"schedules of the instance {instance.name!r} have {needs}"
        raise InputError(problem, field=f"schedule.{has}" if inside else has, source=os.fspath(path))
    return subject


def read_bound(path: str | os.PathLike[str]) -> LowerBound:
    """Read a lower bound from a certificate, or from a result with the certificate that it names.

    Whether it holds is the verifier's question.

    Raises
    ------
    InputError
        Naming file and field; also for a result without a lower bound.
    """

    def parse(value: object) -> LowerBound | Claim:
        if isinstance(value, dict) and value.get("schema") == CERTIFICATE_SCHEMA:
            return _bound_of_certificate(value)
        return claim_from_json(value)

    found = read_as(path, parse)
    if isinstance(found, LowerBound):
        return found
    if found.certificate is not None:
        found = replace(found, certificate=os.path.join(os.path.dirname(path), found.certificate))
    lower = claimed_bound(found)
    if lower is None:
        raise InputError("holds no lower bound", field="lower_bound", source=os.fspath(path))
    return lower


def claimed_bound(claim: Claim) -> LowerBound | None:
    """The lower bound of a result, of its certificate where it names one; None for none.

    Raises
    ------
    InputError
        If the certificate cannot be read.
    """
    if claim.lower_bound is None or claim.proof is None or claim.lower_source is None:
        return None
    named = (claim.instance_sha256,)
    if claim.certificate is None:
        return LowerBound(claim.lower_bound, claim.lower_source, claim.proof, made_for=named)
    certified = read_bound(claim.certificate)
    return replace(certified, made_for=named + certified.made_for)


def _bound_of_certificate(value: dict[str, Any]) -> LowerBound:
    names = [
        "schema",
        "instance",
        "instance_sha256",
        "objective",
        "cost",
        "lower_bound",
        "source",
        "evidence",
    ]
    fields = Fields(value, "", [*names, "sha256"])
    evidence = fields.get("evidence")
    if not isinstance(evidence, dict):
        raise InputError(f"{shown(evidence)} is not an object", field="evidence")
    text = fields.text("lower_bound")
    try:
        bound = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{shown(text)} is not a number", field="lower_bound") from None
    named = (fields.text("instance_sha256"),)
    return LowerBound(bound, fields.text("source"), Proof.CERTIFICATE, evidence=evidence, made_for=named)


def schedule_of(subject: AnySchedule | Claim) -> AnySchedule | None:
    """The schedule of what `read_subject` read, if there is one."""
    return subject.schedule if isinstance(subject, Claim) else subject
