"""Files of instances and schedules of any problem: what they hold says which one they are of."""

from __future__ import annotations

import os
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.garbage import uncollected
from infermax_opt.core.problem import AnyProblem
from infermax_opt.core.registry import first_problem, problem_named, problem_names, problem_of, problems
from infermax_opt.core.values import AnyInstance, AnySchedule
from infermax_opt.files.fields import INSTANCE_SCHEMA, SCHEDULE_SCHEMA, check_format, shown
from infermax_opt.files.json import OtherLayout, read_as
from infermax_opt.files.writing import dump_json

__all__ = [
    "any_schedule_from_json",
    "any_schedule_to_json",
    "instance_from_json",
    "read_instance",
    "write_instance",
    "write_schedule",
]


def read_instance(path: str | os.PathLike[str]) -> Any:
    """Read an instance file of any problem.

    Raises
    ------
    InputError
        Naming file, field, value and limit.
    """
    try:
        with uncollected():
            return read_as(path, instance_from_json)
    except OtherLayout as error:
        words = f"{error.problem}; `infermax-opt import` makes an instance of a trace"
        raise InputError(words, source=error.source) from None


def instance_from_json(value: Any) -> Any:
    """Build an instance of any problem from parsed JSON.

    Raises
    ------
    InputError
        Naming field, value and limit.
    """
    check_format(value, INSTANCE_SCHEMA)
    # The reader of the first problem refuses what is of none.
    named = value.get("problem") if isinstance(value, dict) and "problem" in value else first_problem().name
    problem = problem_named(named) if isinstance(named, str) else None
    if problem is None:
        raise InputError(f"{shown(named)} is none of {', '.join(problem_names())}", field="problem")
    return problem.instance_from_json(value)


def write_instance(instance: AnyInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    dump_json(problem_of(instance).instance_to_json(instance), path)


def _problem_of_schedule(value: object, path: str, expected: AnyProblem | None) -> AnyProblem:
    """The problem whose decisions a parsed schedule holds; where there are none, the expected one."""
    keys = value if isinstance(value, dict) else {}
    for problem in problems():
        if problem.decisions in keys:
            return problem
    if expected is None and keys.get("schema") == SCHEDULE_SCHEMA:
        known = " or ".join(dict.fromkeys(problem.decisions for problem in problems()))
        raise InputError(f"has no decisions, which are its {known}", field=path or None)
    return expected or first_problem()


def any_schedule_from_json(value: object, path: str = "", expected: AnyProblem | None = None) -> Any:
    """Build a schedule of any problem from parsed JSON.

    Parameters
    ----------
    value : object
    path : str
        Where it stands in its file.
    expected : AnyProblem, optional
        Whose key of decisions is missing where there is none.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the schedule is valid is the verifier's question.
    """
    return _problem_of_schedule(value, path, expected).schedule_from_json(value, path)


def any_schedule_to_json(schedule: AnySchedule) -> dict[str, Any]:
    """Return the JSON value that `any_schedule_from_json` reads."""
    return problem_of(schedule).schedule_to_json(schedule)


def write_schedule(schedule: AnySchedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule file."""
    if not isinstance(schedule, problem_of(schedule).schedule):
        raise InputError(f"a {type(schedule).__name__} is no schedule", field="schedule")
    dump_json(any_schedule_to_json(schedule), path)
