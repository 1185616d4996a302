"""What other packages add, found through entry points; a broken one is named in a line."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

from infermax_opt.core.errors import InputError

__all__ = ["load", "make"]


def load(point: EntryPoint) -> Any:
    """What an entry point names.

    Raises
    ------
    InputError
        Naming the package, if that cannot be loaded.
    """
    try:
        return point.load()
    except Exception as error:
        raise _unusable(point, "loaded", error) from error


def make(point: EntryPoint) -> Any:
    """What the class or function that an entry point names gives when called.

    Raises
    ------
    InputError
        Naming the package, if that cannot be loaded, or fails.
    """
    found = load(point)
    try:
        return found()
    except Exception as error:
        raise _unusable(point, "called", error) from error


def _unusable(point: EntryPoint, done: str, error: Exception) -> InputError:
    package = point.dist.name if point.dist else "a package"
    text = f"{point.value} of {package} cannot be {done}: {type(error).__name__}: {error}"
    return InputError(text, field=point.name, source=point.group)
