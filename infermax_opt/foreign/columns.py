"""Columns of a file, a value for each request: exact, and a few bytes for each.

A time is a whole number of ticks, so that millions of them are added and compared at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import lcm
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import MAX_DIGITS
from infermax_opt.files.rows import number, token_count

__all__ = [
    "Column",
    "Mask",
    "Times",
    "exact_times",
    "plain_times",
    "plain_tokens",
    "read_times",
    "read_tokens",
]

Mask = NDArray[np.bool_]
#: Ticks below this are held in 64 bits: two of them can be added there.
SMALL = 2**62
#: Digits of such ticks.
SMALL_DIGITS = 18
#: What is wrong where a value is needed and nothing is said.
MISSING = "is missing"

V = TypeVar("V", "Times", "NDArray[np.int64]")


class Times:
    """Times, exact: whole numbers of ticks.

    Parameters
    ----------
    ticks : array of whole numbers
        Of 64 bits, or Python's own where they may not fit.
    unit : int
        Ticks a second.
    """

    __slots__ = ("ticks", "unit")

    def __init__(self, ticks: NDArray[Any], unit: int):
        self.ticks = ticks.astype(np.int64 if _most(ticks) < SMALL else object, copy=False)
        self.unit = unit

    @classmethod
    def of(cls, times: Sequence[Fraction]) -> Times:
        """Times, s."""
        unit = lcm(*{time.denominator for time in times})
        ticks = [time.numerator * (unit // time.denominator) for time in times]
        return cls(np.array(ticks, dtype=object), unit)

    @classmethod
    def joined(cls, parts: Sequence[Times]) -> Times:
        """All of several, of which there is at least one."""
        unit = lcm(*{part.unit for part in parts})
        return cls(np.concatenate([part.at(unit) for part in parts]), unit)

    @classmethod
    def zero(cls, count: int) -> Times:
        """So many times of 0 s."""
        return cls(np.zeros(count, dtype=np.int64), 1)

    def __len__(self) -> int:
        return len(self.ticks)

    def __getitem__(self, k: int) -> Fraction:
        return Fraction(int(self.ticks[k]), self.unit)

    def list(self) -> list[Fraction]:
        """All of them, s."""
        found, before = list[Fraction](), -1
        for ticks in self.ticks.tolist():
            # Requests that come together share one.
            if ticks != before or not found:
                before, time = ticks, Fraction(ticks, self.unit)
            found.append(time)
        return found

    def at(self, unit: int) -> NDArray[Any]:
        """Their ticks in a unit that is a multiple of its own."""
        factor = unit // self.unit
        if factor == 1:
            return self.ticks
        # The factor itself must fit, too, where all ticks are 0.
        fits = max(_most(self.ticks), 1) * factor < SMALL
        ticks: NDArray[Any] = (self.ticks if fits else self.ticks.astype(object)) * factor
        return ticks

    def rounded(self, unit: int) -> NDArray[Any]:
        """The nearest ticks in any unit, of two the even one."""
        fine = lcm(self.unit, unit)
        found, parts = self.at(fine), fine // unit
        if parts >= SMALL:
            found = found.astype(object)
        ticks, twice = found // parts, 2 * (found % parts)
        nearest: NDArray[Any] = ticks + ((twice > parts) | ((twice == parts) & (ticks % 2 == 1)))
        return nearest

    def floored(self, unit: int) -> Times:
        """Rounded down to ticks of any unit."""
        fine = lcm(self.unit, unit)
        found, parts = self.at(fine), fine // unit
        return Times((found if parts < SMALL else found.astype(object)) // parts, unit)

    def take(self, where: NDArray[Any] | slice) -> Times:
        """Some of them."""
        return Times(self.ticks[where], self.unit)

    def __add__(self, other: Times) -> Times:
        unit = lcm(self.unit, other.unit)
        return Times(self.at(unit) + other.at(unit), unit)

    def __sub__(self, other: Times) -> Times:
        unit = lcm(self.unit, other.unit)
        return Times(self.at(unit) - other.at(unit), unit)

    def where(self, chosen: Mask, other: Times) -> Times:
        """These where they are chosen, and the others elsewhere."""
        unit = lcm(self.unit, other.unit)
        return Times(np.where(chosen, self.at(unit), other.at(unit)), unit)


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
            wrong |= dict.fromkeys(np.flatnonzero(self.absent & counted)[:1].tolist(), MISSING)
        if wrong:
            first = min(wrong)
            raise InputError(wrong[first], field=f"request {first + 1}.{self.name}", source=path)
        return self.values

    @property
    def plain(self) -> bool:
        """Whether all values are there and in order."""
        return not self.faults and not self.absent.any()

    @property
    def first_fault(self) -> tuple[int, str] | None:
        """Place of the first value that is not in order or missing, and what is wrong with it."""
        wrong = dict.fromkeys(np.flatnonzero(self.absent)[:1].tolist(), MISSING) | self.faults
        return min(wrong.items(), default=None)


def exact_times(values: Sequence[Any]) -> Times:
    """Finite numbers, `int` or `Decimal`, of at least 0, as seconds."""
    return _plain(values) or Times.of([Fraction(value) for value in values])


def plain_times(values: Sequence[Any], places: int = 0) -> Times | None:
    """Times as `number` reads them; None where one is no plain number of at least 0.

    Parameters
    ----------
    values : sequence
    places : int
        They are in units of ``10**-places`` s.
    """
    found = _plain(values) if {*map(type, values)} <= {int, Decimal, str} else None
    return None if found is None else Times(found.ticks, found.unit * 10**places)


def plain_tokens(values: Sequence[Any]) -> NDArray[np.int64] | None:
    """Numbers of tokens as `token_count` reads them; None where one is no plain number."""
    kinds = {*map(type, values)}
    if kinds == {int} and min(values) >= 0 and max(values) <= MAX_TOKENS:
        return np.array(values, dtype=np.int64)
    plain = _plain(values) if kinds == {str} else None
    whole = plain is not None and plain.unit == 1 and _most(plain.ticks) <= MAX_TOKENS
    return plain.ticks if plain is not None and whole else None


def read_times(name: str, values: Sequence[Any], places: int = 0) -> Column[Times]:
    """Read times as `number` does.

    Parameters
    ----------
    name : str
    values : sequence
    places : int
        They are in units of ``10**-places`` s.
    """
    found = plain_times(values)
    absent, faults = np.zeros(len(values), dtype=bool), dict[int, str]()
    if found is None:
        numbers, absent, faults = _one_by_one(values, number)
        found = Times.of(list(map(Fraction, numbers)))
    return Column(name, Times(found.ticks, found.unit * 10**places), absent, faults)


def read_tokens(name: str, values: Sequence[Any]) -> Column[NDArray[np.int64]]:
    """Read numbers of tokens as `token_count` does."""
    plain = plain_tokens(values)
    if plain is not None:
        return Column(name, plain, np.zeros(len(values), dtype=bool), {})
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
    """Times where all are numbers of at least 0, of digits and a point alone, and not too long; else None."""
    text = "\n".join(map(str, values))
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    breaks, points = data == ord("\n"), data == ord(".")
    dots = np.flatnonzero(points)
    # Signs, exponents, NaN and what no number is are other signs.
    if not values or not (breaks | points | ((data >= ord("0")) & (data <= ord("9")))).all():
        return None
    ends = np.append(np.flatnonzero(breaks), len(data))
    dotted = np.searchsorted(ends, dots)
    places = np.zeros(len(ends), dtype=np.int64)
    places[dotted] = ends[dotted] - dots - 1
    lengths = np.diff(ends, prepend=-1) - 1
    lengths[dotted] -= 1
    most, whole = int(places.max()), int((lengths - places).max())
    # A text can hold a line break or two points, or be empty.
    wrong = len(ends) != len(values) or (dotted[1:] == dotted[:-1]).any() or not lengths.all()
    if wrong or most > MAX_DIGITS or whole > MAX_DIGITS:
        return None
    figures, more = text.replace(".", ""), most - places
    if most + whole <= SMALL_DIGITS:
        return Times(np.fromstring(figures, dtype=np.int64, sep="\n") * 10**more, 10**most)
    powers = [10**k for k in range(most + 1)]
    pairs = zip(figures.split("\n"), more.tolist(), strict=True)
    return Times(np.array([int(some) * powers[k] for some, k in pairs], dtype=object), 10**most)
