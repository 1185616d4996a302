"""Schedules: decisions only.  Times come from replay, and only from replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Self

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole, to_fraction
from infermax_opt.core.shown import ShownSchedule

__all__ = ["MAX_BATCHES", "Batch", "Schedule", "TooManyBatches", "add_decodes", "new_ones", "run_length"]

#: Most batches a schedule may hold, repetitions counted.
MAX_BATCHES = 10**7
#: Most entries of a schedule that is kept to be compared with others.
COMPARED = 10_000


class TooManyBatches(InputError):
    """A schedule would have more batches than any may hold."""

    @classmethod
    def than(cls, most: int) -> Self:
        """The error where it would have more than so many."""
        return cls(f"needs more than {most} batches, the most a schedule may hold")


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

    Raises
    ------
    InputError
        If a number is no whole number or decimal, `start` is negative or `repeat` is below 1.
        Whether the decisions are valid is the verifier's question.
    """

    tokens: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    evict: tuple[str, ...] = ()
    start: Fraction | None = None
    decode_all: bool = False
    repeat: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, Mapping):
            raise InputError(f"{self.tokens!r} is not a mapping of request id to tokens", field="tokens")
        if self.tokens and not all(type(count) is int for count in self.tokens.values()):
            whole = {name: read_whole(count, f"tokens.{name}") for name, count in self.tokens.items()}
            object.__setattr__(self, "tokens", whole)
        if isinstance(self.evict, str):
            raise InputError(f"{self.evict!r} is a text, not a list of request ids", field="evict")
        if type(self.evict) is not tuple:
            object.__setattr__(self, "evict", tuple(self.evict))
        if self.start is not None:
            object.__setattr__(self, "start", _read_start(self.start))
        if type(self.repeat) is not int:
            object.__setattr__(self, "repeat", read_whole(self.repeat, "repeat"))
        if self.repeat < 1:
            raise InputError(f"{self.repeat} is less than 1", field="repeat")


def _read_start(value: object) -> Fraction:
    """Check a start; an exact one may have any number of digits."""
    try:
        start = value if type(value) is Fraction else to_fraction(value)
    except ValueError as error:
        raise InputError(str(error), field="start") from None
    if start < 0:
        raise InputError(f"{start} is negative; the least is 0", field="start")
    return start


@dataclass(frozen=True)
class Schedule(ShownSchedule):
    """A sequence of batches for the instance of that name."""

    instance: str
    batches: tuple[Batch, ...]

    @property
    def length(self) -> int:
        """Batches in all, repetitions counted."""
        return sum(batch.repeat for batch in self.batches)


def add_decodes(batches: list[Batch]) -> None:
    """Add a batch in which everybody who can decodes, and nobody else does anything.

    Long stretches of such batches are counted, as `run_length` would take longer to compare them.
    """
    last = batches[-1] if batches else None
    if last is not None and last.decode_all and not last.tokens:
        batches[-1] = Batch(last.tokens, last.evict, last.start, True, last.repeat + 1)
    else:
        batches.append(Batch({}, decode_all=True))


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


def new_ones(run: Callable[[str], Schedule]) -> Callable[[str], Schedule | None]:
    """Run schedulers by name; None for what another one has made before.

    Of simple instances most make the same, and to compare takes less time than to verify.

    Parameters
    ----------
    run : callable
        Runs the scheduler of that name.
    """
    made: list[Schedule] = []

    def new(name: str) -> Schedule | None:
        schedule = run(name)
        if schedule in made:
            return None
        if len(schedule.batches) <= COMPARED:
            made.append(schedule)
        return schedule

    return new
