"""Versions of what computes."""

from __future__ import annotations

from functools import cache
from importlib import metadata

__all__ = ["package_versions"]


def package_versions() -> dict[str, str]:
    """Versions of this package and of the solvers and libraries behind it."""
    names = ("infermax-opt", "pyomo", "highspy", "ortools", "numpy", "numba")
    return {name: version for name in names if (version := _version(name)) is not None}


@cache
def _version(name: str) -> str | None:
    """Version of an installed distribution; each is read once, for it takes longer than a small search."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
