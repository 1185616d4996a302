"""Checks that the instances of every problem make of their values, and the hash of what they mean."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Protocol

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole, to_fraction

__all__ = [
    "MAX_REQUESTS",
    "MAX_TOKENS",
    "Meaning",
    "checked_decimal",
    "checked_ids",
    "checked_kind",
    "checked_number",
    "checked_path",
    "checked_seconds",
    "checked_text",
    "checked_texts",
    "checked_total",
    "checked_whole",
]

#: Largest token count a field may hold; keeps every sum of the compiled replay inside int64.
MAX_TOKENS = 10**9
#: Most requests of an instance of any problem, and so the largest ``count``.
MAX_REQUESTS = 10**6
#: Most characters of the names of all requests.
MAX_NAMES = 2**28


def checked_text(value: object, field: str) -> None:
    """Check that a value is a non-empty text that can be written.

    Raises
    ------
    InputError
        Naming `field`, as all of these do.
    """
    if not isinstance(value, str) or not value:
        raise InputError(f"{value!r} is not a non-empty text", field=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{value!r} is not Unicode text", field=field) from None


def checked_whole(value: object, field: str, least: int, most: int) -> int:
    """Read a whole number from `least` to `most`.

    Parameters
    ----------
    value : object
        What was given.
    field : str
        Names it in an error.
    least, most : int
        Limits.
    """
    if type(value) is int and least <= value <= most:  # nearly always; a million requests count
        return value
    number = read_whole(value, field)
    if not least <= number <= most:
        raise InputError(f"{value} is not between {least} and {most}", field=field)
    return number


def checked_kind(value: object, kind: type, field: str) -> None:
    """Check that a value is what a function takes.

    Parameters
    ----------
    value : object
    kind : class
        What it takes.
    field : str
        Names the value in an error.
    """
    if not isinstance(value, kind):
        raise InputError(f"a {type(value).__name__} is no {kind.__name__}", field=field)


def checked_texts(values: object, field: str) -> tuple[str, ...]:
    """Read a list of texts, such as names; one text alone is none.

    Parameters
    ----------
    values : object
        What was given.
    field : str
        Names it in an error.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"{values!r} is no list of texts", field=field)
    found = tuple(values)
    for k, value in enumerate(found):
        checked_kind(value, str, f"{field}[{k}]")
    return found


def checked_seconds(value: object, field: str = "time_limit", *, positive: bool = False) -> None:
    """Check that a limit is a number of seconds.

    Parameters
    ----------
    value : object
        What was given; None is no limit.
    field : str
        Names it in an error.
    positive : bool
        Whether 0 is too few.
    """
    if value is None:
        return
    number = isinstance(value, int | float | Fraction) and not isinstance(value, bool)
    if number and value == math.inf:
        raise InputError(f"{value!r} is no limit; say None", field=field)
    if not number or not value >= 0 or (positive and value == 0):  # type: ignore[operator]
        wanted = "a positive number of seconds" if positive else "a number of seconds, 0 or more"
        raise InputError(f"{value!r} is not {wanted}", field=field)


def checked_path(value: object, field: str) -> str:
    """Check that it names a file, and return its path.

    Raises
    ------
    InputError
        If it is something else, such as what the file would hold.
    """
    if not isinstance(value, str | os.PathLike):
        raise InputError(f"a {type(value).__name__} is no path of a file", field=field)
    return os.fspath(value)


def checked_decimal(value: object, field: str) -> Fraction:
    """Read a decimal of 0 or more, exactly."""
    try:
        number = to_fraction(value)
    except ValueError as error:
        raise InputError(str(error), field=field) from None
    if number.numerator < 0:
        raise InputError(f"{value} is negative; the least is 0", field=field)
    return number


def checked_total(groups: Sequence[Named]) -> None:
    """Check that the requests are neither none nor too many, before they are told one by one."""
    if not groups:
        raise InputError("holds no request; at least 1 is needed", field="requests")
    checked_number(sum(group.count or 1 for group in groups))
    names = sum((group.count or 1) * len(group.id) for group in groups)
    if names > MAX_NAMES:
        raise InputError(f"{names} characters of ids in all; the most is {MAX_NAMES}", field="requests")


def checked_number(total: int) -> None:
    """Check that there are not too many requests."""
    if total > MAX_REQUESTS:
        raise InputError(f"{total} requests in all; the most is {MAX_REQUESTS}", field="requests")


def checked_ids(groups: Iterable[Iterable[str]]) -> None:
    """Check that no two requests have the same id, those of each entry of ``requests`` given.

    The ids of one entry differ, as each has a number of its own.
    """
    seen = set[str]()
    for index, names in enumerate(groups):
        given = tuple(names)
        if not seen.isdisjoint(given):
            name = next(name for name in given if name in seen)
            raise InputError(f"id {name!r} is used twice", field=f"requests[{index}].id")
        seen.update(given)


class Named(Protocol):
    """An entry of ``requests``: `count` requests that are named after `id`, or one of that name."""

    @property
    def id(self) -> str:
        """Name, or what all names begin with."""

    @property
    def count(self) -> int | None:
        """How many; None is one."""


class Meaning:
    """Hash of what an instance means, whatever its notation.

    Fed with one line per field and per request, decimals in lowest terms; every part has its length before
    it, so that no two instances share a text.
    """

    def __init__(self, problem: str, *parts: object) -> None:
        self._digest = hashlib.sha256()
        self.feed("infermax-opt/instance/1", problem, *parts)

    def feed(self, *parts: object) -> None:
        """Add a line."""
        self._digest.update((" ".join(f"{len(str(p))}:{p}" for p in parts) + "\n").encode())

    def hexdigest(self) -> str:
        """The hash of all lines so far."""
        return self._digest.hexdigest()
