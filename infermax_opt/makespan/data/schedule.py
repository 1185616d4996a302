"""Schedules of the makespan problem: decisions only; times come from replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import read_whole
from infermax_opt.core.shown import ShownSchedule

__all__ = ["MAX_BINS", "Bin", "MakespanSchedule", "merged"]

#: Most bins of a schedule, and rounds of a bin.
MAX_BINS, MAX_ROUNDS = 10**6, 10**12

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Bin:
    """One prefill stage and the decode stage after it.

    Parameters
    ----------
    prefill : mapping of request id to int
        Client, from 1, on which each request starts.
    rounds : int
        Length of the decode stage.
    decode : mapping of request id to int
        Tokens that the named requests generate in this stage; all others that are under way
        generate one a round until they are done.

    Raises
    ------
    InputError
        If a number is no whole number of 0 or more.  Whether the decisions are valid is the
        verifier's question.
    """

    prefill: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    rounds: int = 0
    decode: Mapping[str, int] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        for name in ("prefill", "decode"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise InputError(f"{given!r} is not a mapping of request id to a number", field=name)
            object.__setattr__(self, name, {k: _whole(v, f"{name}.{k}") for k, v in given.items()})
        object.__setattr__(self, "rounds", _whole(self.rounds, "rounds"))

    def tokens(self, request: str, left: int) -> int:
        """Tokens that a request under way generates, with so many left."""
        return self.decode.get(request, min(self.rounds, left))


def _whole(value: object, where: str) -> int:
    number = read_whole(value, where)
    if not 0 <= number <= MAX_ROUNDS:
        raise InputError(f"{value} is not between 0 and {MAX_ROUNDS}", field=where)
    return number


@dataclass(frozen=True)
class MakespanSchedule(ShownSchedule):
    """Bins for the instance named `instance`."""

    instance: str
    bins: tuple[Bin, ...]

    def __init__(self, instance: str, bins: Iterable[Bin]):
        object.__setattr__(self, "instance", instance)
        object.__setattr__(self, "bins", tuple(bins))
        if len(self.bins) > MAX_BINS:
            raise InputError(f"{len(self.bins)} bins; the most is {MAX_BINS}", field="bins")


def merged(bins: Iterable[Bin]) -> list[Bin]:
    """Bins that prefill; the rounds of another one belong to the bin before, if anything is under way."""
    found: list[Bin] = []
    for some in bins:
        if some.prefill:
            found.append(some)
        elif found:
            found[-1] = Bin(found[-1].prefill, found[-1].rounds + some.rounds)
    return found
