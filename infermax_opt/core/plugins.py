"""What other packages add, found through entry points; one that fails is named in a line."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from numbers import Rational
from typing import Any, TypeVar

from infermax_opt.core.errors import InputError, PackageError, told
from infermax_opt.core.result import LowerBound, Proof

__all__ = [
    "blamed_steps", "blaming", "is_own", "left_out", "loaded", "named_points", "of_one_name",
    "ordered_points", "origin", "package_of", "points_of", "refuse_left_out", "signed", "sound",
]  # fmt: skip

T = TypeVar("T")

#: Where the entry points of this package lead.
_OWN = __name__.partition(".")[0] + "."
#: What is left out, and why.
_LEFT_OUT: dict[EntryPoint, InputError] = {}


@cache
def _points() -> Any:
    """All entry points of all groups, in a class that depends on the version of Python.

    Who asks for one group alone has the files of all packages read, too: 4 ms each time.
    """
    return entry_points()


def points_of(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group; what is installed while the program runs is not seen."""
    return tuple(_points().select(group=group))


@cache
def named_points(group: str, own: tuple[str, ...] = ()) -> dict[str, EntryPoint]:
    """The entry points of a group by name.

    Those of other packages are left out, which `left_out` tells, where several have one name or this package
    has that name: nobody would know which one ran.

    Parameters
    ----------
    group : str
    own : tuple of str
        Names in this package that are no entry points.
    """
    points = ordered_points(group)
    wrong = of_one_name(points, own)
    for point, reason in wrong.items():
        _LEFT_OUT[point] = PackageError(reason, field=point.name, source=group)
    return {point.name: point for point in points if point not in wrong}


def ordered_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, each once: this package's own first, then by name."""
    points = set(points_of(group))
    return tuple(sorted(points, key=lambda point: (not is_own(point), point.name, point.value)))


def of_one_name(points: Sequence[EntryPoint], own: Collection[str] = ()) -> dict[EntryPoint, str]:
    """Those of other packages that have the name of another one, and what is told; the house's own keeps it.

    Parameters
    ----------
    points : sequence of EntryPoint
    own : collection of str
        Names in this package that are no entry points.
    """
    wrong = {}
    for point in points:
        others = (other for other in points if other.name == point.name and other.value != point.value)
        rivals = [*(["one of this package"] if point.name in own else []), *map(origin, others)]
        if rivals and not is_own(point):
            wrong[point] = f"{origin(point)} and {rivals[0]} have one name"
    return wrong


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
    except (MemoryError, BrokenPipeError, KeyboardInterrupt):
        raise
    except BaseException as error:
        text = f"{origin(point, part)} failed: {told(error)}"
        raise PackageError(text, field=point.name, source=point.group) from error


def blamed_steps(
    values: Iterable[T], point: EntryPoint, part: str = "", *, refusals: bool = False
) -> Iterator[T]:
    """What an iterable of another package gives, each step in a block of `blaming`.

    No such block stands around a `yield`: who stops listening raises GeneratorExit there, which is no fault
    of the package; one that the package raises is.

    Parameters
    ----------
    values : iterable
    point : EntryPoint
    part : str
    refusals : bool
        As in `blaming`.
    """
    with blaming(point, part, refusals=refusals):
        steps = iter(values)
    while True:
        with blaming(point, part, refusals=refusals):
            try:
                value = next(steps)
            except StopIteration:
                return
        yield value


def loaded(point: EntryPoint) -> Any:
    """What an entry point names; None where it cannot be loaded, which `left_out` tells."""
    try:
        with blaming(point, refusals=True):
            return point.load()
    except PackageError as error:
        _LEFT_OUT[point] = error
    return None


def refuse_left_out(group: str, name: str) -> None:
    """Say why an entry point is left out, to whoever asks for it.

    Raises
    ------
    PackageError
        If it is.
    """
    for point, error in _LEFT_OUT.items():
        if (point.group, point.name) == (group, name):
            raise error


def left_out() -> tuple[InputError, ...]:
    """Why what this process left out cannot be used."""
    return tuple(_LEFT_OUT.values())


def signed(bound: LowerBound, point: EntryPoint) -> LowerBound:
    """The bound with the package that vouches for it as part of its name."""
    return replace(bound, source=f"{bound.source} of {package_of(point)}")


def sound(bound: object, *, checked: bool = False) -> LowerBound:
    """What another package gives, if it is a bound with an exact value.

    Parameters
    ----------
    bound : object
    checked : bool
        Whether there is a checker of its certificates; without one, none is claimed.
    """
    if not isinstance(bound, LowerBound):
        raise TypeError(f"{bound!r} is no LowerBound")
    if not isinstance(bound.value, Rational) or bound.value < 0:
        raise TypeError(f"the value of {bound.source!r} is {bound.value!r}, not a Fraction of at least 0")
    if not isinstance(bound.source, str) or not isinstance(bound.proof, Proof):
        raise TypeError(f"{bound!r} does not say its source and proof")
    if bound.proof is Proof.CERTIFICATE and not checked:
        raise TypeError(f"{bound.source!r} claims a certificate, for which there is no checker")
    if bound.proof is Proof.CERTIFICATE and bound.evidence is None:
        raise TypeError(f"{bound.source!r} claims a certificate, and has no evidence for one")
    return bound
