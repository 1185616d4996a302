"""How Pyomo formulations are found: through groups of entry points, and never imported by name."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.plugins import blaming

__all__ = ["formulation_names", "load_formulation"]


def formulation_names(group: str) -> list[str]:
    """Names of the installed formulations of a group."""
    return sorted({point.name for point in entry_points(group=group)})


def load_formulation(name: str, group: str) -> Any:
    """Load a formulation of a group of entry points by name.

    Raises
    ------
    InputError
        If no formulation of that name is installed; the message lists those that are.
    """
    for point in entry_points(group=group):
        if point.name == name:
            with blaming(point):
                return point.load()()
    choices = ", ".join(formulation_names(group)) or "nothing"
    raise InputError(f"{name!r} is no installed formulation; there is {choices}", field="formulation")
