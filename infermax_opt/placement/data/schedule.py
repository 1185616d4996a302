"""Placements, and their check: every limit of every worker, exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole
from infermax_opt.core.shown import ShownSchedule
from infermax_opt.placement.data.instance import MAX_WORKERS

__all__ = [
    "Placement",
]


@dataclass(frozen=True)
class Placement(ShownSchedule):
    """Worker of each new request, from 1; ongoing ones stay where they are and may be named or not.

    Raises
    ------
    InputError
        If a worker is no whole number from 1 on.  Whether the placement is valid is the verifier's question.
    """

    instance: str
    workers: Mapping[str, int]

    def __post_init__(self) -> None:
        if not isinstance(self.workers, Mapping):
            raise InputError(f"{self.workers!r} is not a mapping of request id to worker", field="workers")
        checked = {}
        for name, value in self.workers.items():
            number = read_whole(value, f"workers.{name}")
            if not 1 <= number <= MAX_WORKERS:
                raise InputError(f"{value} is not between 1 and {MAX_WORKERS}", field=f"workers.{name}")
            checked[name] = number
        object.__setattr__(self, "workers", MappingProxyType(checked))
