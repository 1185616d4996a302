"""Columns of a file that holds a list for each value: exact, and a few bytes for each request.

A time is a whole number of ticks, so that millions of them are added and compared at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import MAX_DIGITS, decimal_places
from infermax_opt.files.rows import number, token_count

__all__ = ["Column", "Mask", "Times", "exact_times", "read_times", "read_tokens"]

Mask = NDArray[np.bool_]
#: Ticks below this are held in 64 bits: two of them can be added there.
SMALL = 2**62
#: Digits of such ticks.
SMALL_DIGITS = 18

V = TypeVar("V", "Times", "NDArray[np.int64]")


class Times:
    """Times, exact: whole numbers of ticks of ``10**-places`` s.

    Parameters
    ----------
    ticks : array of whole numbers
        Of 64 bits, or Python's own where they may not fit.
    places : int
    """

    __slots__ = ("places", "ticks")

    def __init__(self, ticks: NDArray[Any], places: int):
        self.ticks = ticks.astype(np.int64 if _most(ticks) < SMALL else object, copy=False)
        self.places = places

    @classmethod
    def of(cls, times: Sequence[Fraction]) -> Times:
        """Times that are finite decimals, s."""
        places = max((decimal_places(some) or 0 for some in {time.denominator for time in times}), default=0)
        ticks = [time.numerator * (10**places // time.denominator) for time in times]
        return cls(np.array(ticks, dtype=object), places)

    @classmethod
    def zero(cls, count: int) -> Times:
        """So many times of 0 s."""
        return cls(np.zeros(count, dtype=np.int64), 0)

    def __len__(self) -> int:
        return len(self.ticks)

    def __getitem__(self, k: int) -> Fraction:
        return Fraction(int(self.ticks[k]), 10**self.places)

    def list(self) -> list[Fraction]:
        """All of them, s."""
        unit = 10**self.places
        return [Fraction(ticks, unit) for ticks in self.ticks.tolist()]

    def at(self, places: int) -> NDArray[Any]:
        """Their ticks of ``10**-places`` s, which are as fine as its own or finer."""
        factor = 10 ** (places - self.places)
        if factor == 1:
            return self.ticks
        # The factor itself must fit, too, where all ticks are 0.
        fits = max(_most(self.ticks), 1) * factor < SMALL
        ticks: NDArray[Any] = (self.ticks if fits else self.ticks.astype(object)) * factor
        return ticks

    def take(self, where: NDArray[Any] | slice) -> Times:
        """Some of them."""
        return Times(self.ticks[where], self.places)

    def __add__(self, other: Times) -> Times:
        places = max(self.places, other.places)
        return Times(self.at(places) + other.at(places), places)

    def __sub__(self, other: Times) -> Times:
        places = max(self.places, other.places)
        return Times(self.at(places) - other.at(places), places)

    def where(self, chosen: Mask, other: Times) -> Times:
        """These where they are chosen, and the others elsewhere."""
        places = max(self.places, other.places)
        return Times(np.where(chosen, self.at(places), other.at(places)), places)


def _most(ticks: NDArray[Any]) -> int:
    """The largest absolute value."""
    return max(int(ticks.max()), -int(ticks.min())) if len(ticks) else 0


@dataclass(frozen=True)
class Column(Generic[V]):
    """A value for each request, and which of them are none.

    Attributes
    ----------
    name : str
    values : Times or array of int
        0 where there is none.
    absent : array of bool
        Where nothing is said.
    faults : mapping of int to str
        What is wrong where something else is said, by place.
    """

    name: str
    values: V
    absent: Mask
    faults: dict[int, str]

    def __len__(self) -> int:
        return len(self.absent)

    def check(self, path: str, counted: Mask, *, needed: bool = True) -> V:
        """The values, of which those that count are in order.

        Parameters
        ----------
        path : str
        counted : array of bool
        needed : bool
            Whether something must be said.

        Raises
        ------
        InputError
            Naming the first request whose value is not.
        """
        wrong = {k: fault for k, fault in self.faults.items() if counted[k]}
        if needed:
            wrong |= dict.fromkeys(np.flatnonzero(self.absent & counted)[:1].tolist(), "is missing")
        if wrong:
            first = min(wrong)
            raise InputError(wrong[first], field=f"request {first + 1}.{self.name}", source=path)
        return self.values


def exact_times(values: Sequence[Any]) -> Times:
    """Finite numbers, `int` or `Decimal`, of at least 0, as seconds."""
    return _plain(values) or Times.of([Fraction(value) for value in values])


def read_times(name: str, values: Sequence[Any]) -> Column[Times]:
    """Read times as `number` does, s."""
    plain = _plain(values) if {*map(type, values)} <= {int, Decimal} else None
    if plain is not None:
        return Column(name, plain, np.zeros(len(values), dtype=bool), {})
    found, absent, faults = _one_by_one(values, number)
    return Column(name, Times.of(list(map(Fraction, found))), absent, faults)


def read_tokens(name: str, values: Sequence[Any]) -> Column[NDArray[np.int64]]:
    """Read numbers of tokens as `token_count` does."""
    if {*map(type, values)} == {int} and min(values) >= 0 and max(values) <= MAX_TOKENS:
        return Column(name, np.array(values, dtype=np.int64), np.zeros(len(values), dtype=bool), {})
    found, absent, faults = _one_by_one(values, token_count)
    return Column(name, np.array(found, dtype=np.int64), absent, faults)


def _one_by_one(
    values: Sequence[Any], read: Callable[[object], Any]
) -> tuple[list[Any], Mask, dict[int, str]]:
    """What is read of each, 0 where there is nothing; where that is; what is wrong, by place."""
    found, faults = [0] * len(values), dict[int, str]()
    absent = np.zeros(len(values), dtype=bool)
    for k, value in enumerate(values):
        if value is None or value == "":
            absent[k] = True
            continue
        try:
            found[k] = read(value)
        except ValueError as error:
            faults[k] = str(error)
    return found, absent, faults


def _plain(values: Sequence[Any]) -> Times | None:
    """Times where all are numbers of at least 0 without an exponent, and not too long; else None."""
    text = "\n".join(map(str, values))
    # Behind an exponent, in NaN and in Infinity there are letters.
    if not values or any(sign in text for sign in "-EIN"):
        return None
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
    dots = np.flatnonzero(data == ord("."))
    dotted = np.searchsorted(ends, dots)
    places = np.zeros(len(values), dtype=np.int64)
    places[dotted] = ends[dotted] - dots - 1
    lengths = np.diff(ends, prepend=-1) - 1
    lengths[dotted] -= 1
    most, whole = int(places.max()), int((lengths - places).max())
    if most > MAX_DIGITS or whole > MAX_DIGITS:
        return None
    figures, more = text.replace(".", ""), most - places
    if most + whole <= SMALL_DIGITS:
        return Times(np.fromstring(figures, dtype=np.int64, sep="\n") * 10**more, most)
    powers = [10**k for k in range(most + 1)]
    pairs = zip(figures.split("\n"), more.tolist(), strict=True)
    return Times(np.array([int(some) * powers[k] for some, k in pairs], dtype=object), most)
