"""What was measured of a run, by replay or on another system, as numbers that bounds are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

__all__ = ["Formed", "Measured"]

V = TypeVar("V")


class Formed(Mapping[str, V]):
    """Values by name, each formed when it is first asked for: of a million requests few are.

    Parameters
    ----------
    forms : mapping of name to callable
        What forms it.
    """

    def __init__(self, forms: Mapping[str, Callable[[], V]]):
        self._forms = forms
        self._found: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._found:
            self._found[name] = self._forms[name]()
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True)
class Measured:
    """Metrics of one run.

    Attributes
    ----------
    metrics : mapping of metric to value
        As the problem defines them, exact; None where a metric is not known.
    latencies : mapping of name to values
        Those of single requests, seconds, for pictures.
    remarks : tuple of str
        What must be said beside the numbers, a sentence each.
    """

    metrics: Mapping[str, Fraction | int | None]
    latencies: Mapping[str, Sequence[Fraction]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
