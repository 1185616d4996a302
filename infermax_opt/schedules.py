"""Schedules: decisions only.  Times come from replay, and only from replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType

__all__ = ["Batch", "Schedule", "run_length"]

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Batch:
    """One entry of a schedule: a batch, or `repeat` equal ones in a row.

    Parameters
    ----------
    tokens : mapping of request id to int
        Tokens that each named request processes.
    evict : tuple of str
        Requests whose KV is dropped at the start of the (first) batch.
    start : Fraction or None
        Earliest start of the (first) batch in seconds; None starts it when the one before ends.
    decode_all : bool
        Every request in decode that the entry does not name also processes its one token.
    repeat : int
        Batches in a row that the entry stands for.
    """

    tokens: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    evict: tuple[str, ...] = ()
    start: Fraction | None = None
    decode_all: bool = False
    repeat: int = 1


@dataclass(frozen=True)
class Schedule:
    """A sequence of batches for the instance of that name."""

    instance: str
    batches: tuple[Batch, ...]

    @property
    def length(self) -> int:
        """Batches in all, repetitions counted."""
        return sum(batch.repeat for batch in self.batches)


def run_length(batches: Iterable[Batch]) -> tuple[Batch, ...]:
    """Merge equal batches in a row into one entry with `repeat`.

    Evictions and a start belong to the first batch of an entry, so only a batch without either
    can join the one before it.
    """
    merged: list[Batch] = []
    for batch in batches:
        last = merged[-1] if merged else None
        if (
            last is not None
            and not batch.evict
            and batch.start is None
            and batch.decode_all == last.decode_all
            and batch.tokens == last.tokens
        ):
            merged[-1] = replace(last, repeat=last.repeat + batch.repeat)
        else:
            merged.append(batch)
    return tuple(merged)
