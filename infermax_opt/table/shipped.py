"""Instances that come with the package: small ones as files, and the cases of all suites."""

from __future__ import annotations

import os
from importlib.resources import files

from infermax_opt.core.checks import checked_text
from infermax_opt.core.errors import InputError
from infermax_opt.core.values import AnyInstance
from infermax_opt.files.instances import read_instance
from infermax_opt.table.suites import get_suite

__all__ = ["load_instance", "shipped_names"]

#: Where the files lie: the folder `instances` of the repository.
HOME = "infermax_opt.instances"
SUFFIX = ".json"
#: Folders there that hold rows of the suite of that name.
SUITES = ("vllm-runs",)


def shipped_names() -> tuple[str, ...]:
    """Names of the instances that come as files."""
    found = (entry.name for entry in files(HOME).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX)))


def _rows() -> set[tuple[str, str]]:
    """Rows of suites that come as files, too: what they are made of does not."""
    found = (files(HOME) / suite for suite in SUITES)
    return {
        (home.name, entry.name.removesuffix(SUFFIX))
        for home in found
        for entry in home.iterdir()
        if entry.name.endswith(SUFFIX)
    }


def load_instance(name: str, data: str | os.PathLike[str] | None = None) -> AnyInstance:
    """Return an instance that comes with the package.

    Parameters
    ----------
    name : str
        One of `shipped_names`, such as ``toy``, or ``SUITE/ROW``.
    data : path, optional
        Folder of the trace files, for suites that need some; see `infermax_opt.table.suites.get_suite`.

    Raises
    ------
    InputError
        If there is no such instance, or a trace that it is made of is missing.
    """
    checked_text(name, "instance")
    suite, slash, row = name.partition("/")
    if not slash and name not in shipped_names():
        listed = ", ".join(shipped_names())
        raise InputError(f"{name!r} is none of {listed}, and no SUITE/ROW", field="instance")
    if not slash or (suite, row) in _rows():
        shipped: AnyInstance = read_instance(str(files(HOME) / f"{name}{SUFFIX}"))
        return shipped
    made: AnyInstance = get_suite(suite, data)[row].build()
    return made
