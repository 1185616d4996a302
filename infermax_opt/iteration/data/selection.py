"""Selections: which requests the batch takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownSchedule

__all__ = ["Selection"]


@dataclass(frozen=True)
class Selection(ShownSchedule):
    """The requests that the batch takes, by id.

    Raises
    ------
    InputError
        If one is no text, or named twice.  Whether the selection is valid is the verifier's question.
    """

    instance: str
    select: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.select, str) or not isinstance(self.select, Iterable):
            raise InputError(f"{self.select!r} is not a list of ids", field="select")
        object.__setattr__(self, "select", tuple(self.select))
        seen = set[str]()
        for k, name in enumerate(self.select):
            if not isinstance(name, str):
                raise InputError(f"{name!r} is not a text", field=f"select[{k}]")
            if name in seen:
                raise InputError(f"{name!r} is selected twice", field=f"select[{k}]")
            seen.add(name)
