"""Packages that only some need: imported when they are used, and what to install where one is missing."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from infermax_opt.core.errors import InputError

__all__ = ["needed_package"]


def needed_package(package: str, extra: str, purpose: str) -> ModuleType:
    """Import a package of an extra.

    Parameters
    ----------
    package : str
        As it is imported.
    extra : str
        Extra of this package that holds it.
    purpose : str
        What needs it, in a few words.

    Raises
    ------
    InputError
        If it is not installed: one line that says what to install.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise
        text = f"{purpose} need the package {package}: pip install 'infermax-opt[{extra}]'"
        raise InputError(text, field=package) from None
