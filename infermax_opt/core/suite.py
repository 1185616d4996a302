"""Cases of suites: the named instances that tables are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from infermax_opt.core.errors import InputError
from infermax_opt.core.values import AnyInstance

__all__ = ["Case", "check_name"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_name(name: str, field: str) -> None:
    """Check that a name can be part of a file name.

    Raises
    ------
    InputError
        Naming `field`.
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is not a name of letters, digits, '.', '_' and '-'", field=field)


@dataclass(frozen=True)
class Case:
    """One instance of a suite: its name (also a file name) and how to build it."""

    name: str
    build: Callable[[], AnyInstance]

    def __post_init__(self) -> None:
        check_name(self.name, "case")

    @property
    def instance(self) -> AnyInstance:
        """The instance, built anew each time."""
        return self.build()
