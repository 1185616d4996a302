"""What other packages add, found through entry points; one that fails is named in a line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from numbers import Rational
from typing import Any

from infermax_opt.core.errors import InputError, PackageError
from infermax_opt.core.result import LowerBound, Proof

__all__ = ["blaming", "is_own", "loaded", "origin", "package_of", "sound", "unloadable"]

#: Where the entry points of this package lead.
_OWN = __name__.partition(".")[0] + "."
#: What `loaded` left out, and why.
_UNLOADABLE: dict[EntryPoint, InputError] = {}


def is_own(point: EntryPoint) -> bool:
    """Whether an entry point leads into this package."""
    return point.value.startswith(_OWN)


def package_of(point: EntryPoint) -> str:
    """The package that has an entry point."""
    return point.dist.name if point.dist else "a package"


def origin(point: EntryPoint, part: str = "") -> str:
    """What an entry point names, or a part of that such as ``.bounds``, and of which package it is."""
    return f"{point.value}{part} of {package_of(point)}"


@contextmanager
def blaming(point: EntryPoint, part: str = "", *, refusals: bool = False) -> Iterator[None]:
    """Load and call in this block what an entry point names, or a part of it.

    Parameters
    ----------
    point : EntryPoint
    part : str
        Such as ``.bounds``.
    refusals : bool
        Whether unusable input is named, too: for what is asked about an instance that has been read.

    Raises
    ------
    PackageError
        Naming the package, if that fails in any way but for memory, a closed output or who stops it.
    """
    try:
        yield
    except InputError as error:
        if not refusals or isinstance(error, PackageError):
            raise
        raise PackageError(f"{origin(point, part)}: {error}", field=point.name, source=point.group) from error
    except (MemoryError, BrokenPipeError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        text = f"{origin(point, part)} failed: {type(error).__name__}: {error}"
        raise PackageError(text, field=point.name, source=point.group) from error


def loaded(point: EntryPoint) -> Any:
    """What an entry point names; None where it cannot be loaded, which `unloadable` tells."""
    try:
        with blaming(point, refusals=True):
            return point.load()
    except PackageError as error:
        _UNLOADABLE[point] = error
    return None


def unloadable() -> tuple[InputError, ...]:
    """Why what this process left out could not be loaded."""
    return tuple(_UNLOADABLE.values())


def sound(bound: object) -> LowerBound:
    """What another package gives, if it is a bound with an exact value."""
    if not isinstance(bound, LowerBound):
        raise TypeError(f"{bound!r} is no LowerBound")
    if not isinstance(bound.value, Rational) or bound.value < 0:
        raise TypeError(f"the value of {bound.source!r} is {bound.value!r}, not a Fraction of at least 0")
    if not isinstance(bound.source, str) or not isinstance(bound.proof, Proof):
        raise TypeError(f"{bound!r} does not say its source and proof")
    return bound
