"""Files of any problem: what they hold says which one they are of."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.problem import INFERMAX, MAKESPAN, PLACEMENT, AnyInstance, AnySchedule, problem_of
from infermax_opt.files.json import dump_json
from infermax_opt.infermax.data.formats import (
    instance_from_json,
    instance_to_json,
    read_as,
    schedule_from_json,
    schedule_to_json,
)
from infermax_opt.makespan.data.formats import (
    bins_from_json,
    bins_to_json,
    makespan_instance_from_json,
    makespan_instance_to_json,
)
from infermax_opt.placement.data.formats import (
    placement_from_json,
    placement_instance_from_json,
    placement_instance_to_json,
    placement_to_json,
)

__all__ = [
    "STREAM_GIVEN",
    "any_schedule_from_json",
    "any_schedule_to_json",
    "read_instance",
    "write_instance",
    "write_schedule",
]


#: What is wrong with a stream where an instance is meant.
STREAM_GIVEN = "is a stream, which `workers` and `verify` take"


@dataclass(frozen=True)
class _Format:
    """How the instances and schedules of a problem are read and written as JSON values."""

    read_instance: Callable[[object], AnyInstance]
    write_instance: Callable[[Any], dict[str, Any]]
    read_schedule: Callable[[object, str], AnySchedule]
    write_schedule: Callable[[Any], dict[str, Any]]


_FORMATS = {
    INFERMAX: _Format(instance_from_json, instance_to_json, schedule_from_json, schedule_to_json),
    MAKESPAN: _Format(makespan_instance_from_json, makespan_instance_to_json, bins_from_json, bins_to_json),
    PLACEMENT: _Format(
        placement_instance_from_json, placement_instance_to_json, placement_from_json, placement_to_json
    ),
}


def read_instance(path: str | os.PathLike[str]) -> AnyInstance:
    """Read an instance file of any problem."""

    def parse(value: object) -> AnyInstance:
        named = value.get("problem") if isinstance(value, dict) else None
        if named == "stream":
            raise InputError(STREAM_GIVEN, field="problem")
        # What names no problem of ours is for the reader of the first one to refuse.
        problem = next((some for some in _FORMATS if some.name == named), INFERMAX)
        return _FORMATS[problem].read_instance(value)

    return read_as(path, parse)


def write_instance(instance: AnyInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    dump_json(_FORMATS[problem_of(instance)].write_instance(instance), path)


def any_schedule_from_json(value: object, path: str = "") -> AnySchedule:
    """Build a schedule of any problem from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the schedule is valid is the verifier's question.
    """
    keys = value if isinstance(value, dict) else {}
    problem = next((some for some in _FORMATS if some.decisions in keys), INFERMAX)
    return _FORMATS[problem].read_schedule(value, path)


def any_schedule_to_json(schedule: AnySchedule) -> dict[str, Any]:
    """Return the JSON value that `any_schedule_from_json` reads."""
    return _FORMATS[problem_of(schedule)].write_schedule(schedule)


def write_schedule(schedule: AnySchedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule file."""
    dump_json(any_schedule_to_json(schedule), path)
