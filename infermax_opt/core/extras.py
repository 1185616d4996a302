"""What is installed on demand: packages that only some commands need, and what to say without them."""

from __future__ import annotations

from importlib.util import find_spec

from infermax_opt.core.errors import InputError

__all__ = ["EXTRAS", "absent", "missing_extras", "remedy", "require"]

#: The packages that each extra brings and that are imported by name, as `pyproject.toml` lists them.
EXTRAS: dict[str, tuple[str, ...]] = {
    "fast": ("numba",),
    "milp": ("pyomo", "ortools", "networkx"),
    "plot": ("matplotlib",),
    "frames": ("pandas",),
    "cluster": ("distributed",),
    "calibrate": ("aiconfigurator_core",),
}


def absent(module: str) -> bool:
    """Whether the package of a module is not installed; nothing is imported to find out."""
    try:
        return find_spec(module.partition(".")[0]) is None
    except ValueError:  # a stand-in that somebody put among the modules
        return False


def remedy(module: str) -> str:
    """What to install where a module is missing, in words."""
    package = module.partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "all")
    return f"{package} is not installed; pip install 'infermax-opt[{extra}]'"


def require(module: str, what: str) -> None:
    """Find out before the work that a package is there; nothing is imported.

    Parameters
    ----------
    module : str
        The package, or a module of it.
    what : str
        What needs it, such as ``pictures``.

    Raises
    ------
    InputError
        If it is not installed: one line that says what to install.
    """
    if absent(module):
        raise InputError(f"{what} cannot be had: {remedy(module)}")


def missing_extras() -> dict[str, tuple[str, ...]]:
    """The extras that are not installed whole, each with the packages that it lacks."""
    lacking = {extra: tuple(filter(absent, packages)) for extra, packages in EXTRAS.items()}
    return {extra: packages for extra, packages in lacking.items() if packages}
