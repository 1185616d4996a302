"""Schedules: the offset of each selected request in the reservation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from infermax_opt.core.checks import MAX_TOKENS, checked_text, checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownSchedule
from infermax_opt.files.fields import SCHEDULE_SCHEMA, Fields, shown
from infermax_opt.files.json import under

__all__ = ["Pipelining", "pipelining_from_json", "pipelining_to_json"]


@dataclass(frozen=True)
class Pipelining(ShownSchedule):
    """Where in the reservation each selected request begins, in tokens; those not named wait.

    Raises
    ------
    InputError
        If an offset is no whole number from 0 on.  Whether the schedule is valid is the verifier's question.
    """

    instance: str
    offsets: Mapping[str, int]

    def __post_init__(self) -> None:
        checked_text(self.instance, "instance")
        if not isinstance(self.offsets, Mapping):
            raise InputError(
                f"{shown(self.offsets)} is not an object of request id to tokens", field="offsets"
            )
        checked = {
            name: checked_whole(value, f"offsets.{name}", 0, MAX_TOKENS)
            for name, value in self.offsets.items()
        }
        object.__setattr__(self, "offsets", MappingProxyType(checked))


def pipelining_from_json(value: object, path: str) -> Pipelining:
    """Build a schedule from parsed JSON.

    Raises
    ------
    InputError
        Naming the field below `path`.
    """
    fields = Fields(value, path, ["schema", "instance", "offsets"])
    fields.schema(SCHEDULE_SCHEMA)
    with under(path) if path else nullcontext():
        return Pipelining(fields.text("instance"), fields.get("offsets"))


def pipelining_to_json(schedule: Pipelining) -> dict[str, Any]:
    """Return the JSON value that `pipelining_from_json` reads."""
    return {"schema": SCHEDULE_SCHEMA, "instance": schedule.instance, "offsets": dict(schedule.offsets)}
