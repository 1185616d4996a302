"""The order in which a schedule takes up requests: what other serving systems can be told of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

__all__ = ["Admission"]


@dataclass(frozen=True, slots=True)
class Admission:
    """A request, as a schedule first serves it.

    Attributes
    ----------
    id : str
    arrival : Fraction
        Seconds after the start of the instance.
    input_tokens, output_tokens : int
        The first output token is counted.
    """

    id: str
    arrival: Fraction
    input_tokens: int
    output_tokens: int
