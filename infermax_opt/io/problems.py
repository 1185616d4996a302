"""Files of any problem: what they hold says which one they are of."""

from __future__ import annotations

import os
from typing import Any

from infermax_opt.io.files import dump_json
from infermax_opt.io.formats import (
    instance_from_json,
    instance_to_json,
    read_as,
    schedule_from_json,
    schedule_to_json,
)
from infermax_opt.io.makespan import (
    bins_from_json,
    bins_to_json,
    makespan_instance_from_json,
    makespan_instance_to_json,
)
from infermax_opt.makespan.instance import MakespanInstance
from infermax_opt.makespan.schedule import MakespanSchedule
from infermax_opt.problems import MAKESPAN, AnyInstance, AnySchedule

__all__ = [
    "any_schedule_from_json",
    "any_schedule_to_json",
    "read_instance",
    "write_instance",
    "write_schedule",
]


def read_instance(path: str | os.PathLike[str]) -> AnyInstance:
    """Read an instance file of any problem."""

    def parse(value: object) -> AnyInstance:
        if isinstance(value, dict) and value.get("problem") == MAKESPAN:
            return makespan_instance_from_json(value)
        return instance_from_json(value)

    return read_as(path, parse)


def write_instance(instance: AnyInstance, path: str | os.PathLike[str]) -> None:
    """Write an instance file."""
    if isinstance(instance, MakespanInstance):
        dump_json(makespan_instance_to_json(instance), path)
    else:
        dump_json(instance_to_json(instance), path)


def any_schedule_from_json(value: object, path: str = "") -> AnySchedule:
    """Build a schedule of any problem from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.  Whether the schedule is valid is the verifier's question.
    """
    if isinstance(value, dict) and "bins" in value:
        return bins_from_json(value, path)
    return schedule_from_json(value, path)


def any_schedule_to_json(schedule: AnySchedule) -> dict[str, Any]:
    """Return the JSON value that `any_schedule_from_json` reads."""
    return bins_to_json(schedule) if isinstance(schedule, MakespanSchedule) else schedule_to_json(schedule)


def write_schedule(schedule: AnySchedule, path: str | os.PathLike[str]) -> None:
    """Write a schedule file."""
    dump_json(any_schedule_to_json(schedule), path)
