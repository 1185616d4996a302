"""How far machines may be from their cost model: factors of all times."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text, to_fraction

__all__ = ["Band", "require_band"]


@dataclass(frozen=True)
class Band:
    """Times of a machine are between `low` and `high` times those of the model.

    Raises
    ------
    InputError
        If a factor is not above 0, or `low` is above `high`.
    """

    low: Fraction
    high: Fraction

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.high:
            raise InputError(f"{self} is no band: it needs 0 < low <= high", field="band")

    @classmethod
    def one(cls) -> Band:
        """That of machines which are as their model says."""
        return cls(Fraction(1), Fraction(1))

    @classmethod
    def parsed(cls, text: str) -> Band:
        """Read ``LO:HI``.

        Raises
        ------
        InputError
            If it is something else.
        """
        low, colon, high = text.partition(":")
        try:
            if not colon:
                raise ValueError
            return cls(to_fraction(low.strip()), to_fraction(high.strip()))
        except ValueError:
            raise InputError(f"{text!r} is not LO:HI, such as 0.9:1.2", field="band") from None

    def __str__(self) -> str:
        return f"{decimal_text(self.low)}:{decimal_text(self.high)}"

    @property
    def words(self) -> str:
        """What it says of a machine."""
        low, high = decimal_text(self.low), decimal_text(self.high)
        return f"any machine whose batches take {low} to {high} times as long as the model's"


def require_band(value: object) -> None:
    """Check that it is a band, or None.

    Raises
    ------
    InputError
        If it is something else, such as a text.
    """
    if value is not None and not isinstance(value, Band):
        raise InputError(f"a {type(value).__name__} is no Band", field="band")
