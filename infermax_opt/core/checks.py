"""Checks that the instances of every problem make of their values, and the hash of what they mean."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole, to_fraction

__all__ = ["Meaning", "checked_decimal", "checked_ids", "checked_text", "checked_whole"]


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
    """Read a whole number from `least` to `most`."""
    if type(value) is int and least <= value <= most:  # nearly always; a million requests count
        return value
    number = read_whole(value, field)
    if not least <= number <= most:
        raise InputError(f"{value} is not between {least} and {most}", field=field)
    return number


def checked_decimal(value: object, field: str) -> Fraction:
    """Read a decimal of 0 or more, exactly."""
    try:
        number = to_fraction(value)
    except ValueError as error:
        raise InputError(str(error), field=field) from None
    if number < 0:
        raise InputError(f"{value} is negative; the least is 0", field=field)
    return number


def checked_ids(groups: Iterable[Iterable[str]]) -> None:
    """Check that no two requests have the same id, those of each entry of ``requests`` given."""
    seen = set[str]()
    for index, names in enumerate(groups):
        for name in names:
            if name in seen:
                raise InputError(f"id {name!r} is used twice", field=f"requests[{index}].id")
            seen.add(name)


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
