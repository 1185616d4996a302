"""Instances of the makespan problem: requests, clients, prefill levels and the decode round."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from infermax_opt.core.checks import (
    MAX_REQUESTS,
    Meaning,
    checked_decimal,
    checked_ids,
    checked_text,
    checked_total,
    checked_whole,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, common_denominator
from infermax_opt.core.shown import ShownInstance

__all__ = ["ClientRequest", "ClientRequestGroup", "MakespanInstance", "PrefillLevel", "linear_levels"]

#: Largest token count, number of clients and of levels.
MAX_TOKENS, MAX_CLIENTS, MAX_LEVELS = 10**9, 10**6, 10**5


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """One request.

    `output_tokens` is what it will generate; `estimated_output_tokens` is what an online method
    may know of it beforehand.
    """

    id: str
    input_tokens: int
    output_tokens: int
    estimated_output_tokens: int


@dataclass(frozen=True)
class ClientRequestGroup:
    """A request, or `count` equal ones named ``id.1`` to ``id.count``; no estimate: the truth."""

    id: str
    input_tokens: int
    output_tokens: int
    estimated_output_tokens: int | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        checked_text(self.id, "id")
        for name in ("input_tokens", "output_tokens", "estimated_output_tokens"):
            if getattr(self, name) is not None or name != "estimated_output_tokens":
                object.__setattr__(self, name, checked_whole(getattr(self, name), name, 1, MAX_TOKENS))
        if self.count is not None:
            object.__setattr__(self, "count", checked_whole(self.count, "count", 1, MAX_REQUESTS))

    def expand(self) -> Iterator[ClientRequest]:
        """Yield the requests it stands for."""
        estimate = self.estimated_output_tokens or self.output_tokens
        names = [self.id] if self.count is None else [f"{self.id}.{k}" for k in range(1, self.count + 1)]
        for name in names:
            yield ClientRequest(name, self.input_tokens, self.output_tokens, estimate)


@dataclass(frozen=True)
class PrefillLevel:
    """A level of the prefill stage: it takes at most `tokens` input tokens, and `seconds`."""

    tokens: int
    seconds: Fraction


def linear_levels(
    overhead: Number, token: Number, tokens: Iterable[int], field: str = "prefill"
) -> tuple[PrefillLevel, ...]:
    """Levels of so many tokens that take an overhead and a time per token of capacity (section V-A).

    Parameters
    ----------
    overhead : decimal
        Seconds of every stage.
    token : decimal
        Seconds per input token that the level takes.
    tokens : iterable of int
        Input tokens that each level takes.
    field : str
        Name of the times in error messages.

    Raises
    ------
    InputError
        If a time is no decimal of 0 or more.
    """
    fixed, each = checked_decimal(overhead, f"{field}.overhead"), checked_decimal(token, f"{field}.token")
    return tuple(PrefillLevel(some, fixed + each * some) for some in tokens)


@dataclass(frozen=True)
class MakespanInstance(ShownInstance):
    """Requests to be served by clients that take turns between prefill and decode stages.

    A bin is one prefill stage and one decode stage after it; all clients are in the same stage.  A
    prefill stage at level l takes T_l seconds and at most N_l input tokens.  A decode stage is a whole
    number of rounds, in each of which every client that serves a request generates a token of it; a
    round takes ``decode_overhead + decode_token * clients`` seconds, however many clients are idle
    (section III-B, 1).

    Parameters
    ----------
    name : str
    groups : iterable of ClientRequestGroup
    clients : int
        Requests that can be served at a time.
    levels : iterable of PrefillLevel
        In any order.  Levels that another one beats in both respects are never used.
    decode_overhead, decode_token : decimal
        Seconds of a round, and per client.

    Raises
    ------
    InputError
        If a number is out of range, two requests share an id, or a prompt exceeds every level.
    """

    unit: ClassVar[tuple[str, str]] = ("s", "s")

    name: str
    groups: tuple[ClientRequestGroup, ...]
    clients: int
    levels: tuple[PrefillLevel, ...]
    decode_overhead: Fraction
    decode_token: Fraction

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        object.__setattr__(self, "groups", tuple(self.groups))
        object.__setattr__(self, "clients", checked_whole(self.clients, "clients", 1, MAX_CLIENTS))
        for name, field in (("decode_overhead", "decode.overhead"), ("decode_token", "decode.token")):
            object.__setattr__(self, name, checked_decimal(getattr(self, name), field))
        if self.round_seconds <= 0:
            raise InputError("a round takes no time; the least is above 0", field="decode")
        object.__setattr__(self, "levels", self._check_levels(tuple(self.levels)))
        checked_total(self.groups)
        most = self.levels[-1].tokens
        for index, group in enumerate(self.groups):
            if group.input_tokens > most:
                problem = f"{group.input_tokens} exceeds the largest prefill level of {most} tokens"
                raise InputError(problem, field=f"requests[{index}].input_tokens")
        checked_ids((request.id for request in group.expand()) for group in self.groups)

    @staticmethod
    def _check_levels(levels: Sequence[PrefillLevel]) -> tuple[PrefillLevel, ...]:
        if not 1 <= len(levels) <= MAX_LEVELS:
            raise InputError(f"holds {len(levels)} levels, not 1 to {MAX_LEVELS}", field="prefill.levels")
        checked = []
        for index, level in enumerate(levels):
            field = f"prefill.levels[{index}]"
            tokens = checked_whole(level.tokens, field, 1, MAX_TOKENS)
            checked.append(PrefillLevel(tokens, checked_decimal(level.seconds, field)))
        return tuple(sorted(checked, key=lambda level: (level.tokens, -level.seconds)))

    @classmethod
    def of_requests(
        cls,
        name: str,
        requests: Iterable[tuple[int, int]],
        clients: int,
        levels: Iterable[PrefillLevel],
        decode: tuple[Number, Number],
    ) -> MakespanInstance:
        """Build an instance from (input, output) token pairs, named ``r1``, ``r2``, ...

        Parameters
        ----------
        name : str
        requests : iterable of (int, int)
        clients : int
        levels : iterable of PrefillLevel
        decode : pair of decimals
            Seconds of a round, and those that each client adds to it.
        """
        groups = tuple(ClientRequestGroup(f"r{k}", i, o) for k, (i, o) in enumerate(requests, 1))
        overhead, token = (checked_decimal(value, "decode") for value in decode)
        return cls(name, groups, clients, tuple(levels), overhead, token)

    @property
    def objective_name(self) -> str:
        """The objective, as results name it."""
        return "makespan"

    @cached_property
    def requests(self) -> tuple[ClientRequest, ...]:
        """All requests, groups expanded."""
        return tuple(request for group in self.groups for request in group.expand())

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each request id in `requests`."""
        return {request.id: k for k, request in enumerate(self.requests)}

    @property
    def round_seconds(self) -> Fraction:
        """Seconds of a decode round."""
        return self.decode_overhead + self.decode_token * self.clients

    @cached_property
    def useful_levels(self) -> tuple[PrefillLevel, ...]:
        """Levels that no other one beats, smallest first: both tokens and seconds rise."""
        kept: list[PrefillLevel] = []
        for level in reversed(self.levels):
            if not kept or level.seconds < kept[-1].seconds:
                kept.append(level)
        return tuple(reversed(kept))

    @cached_property
    def ticks_per_second(self) -> int:
        """Ticks in which every level and the round are whole numbers."""
        return common_denominator([self.round_seconds, *(level.seconds for level in self.levels)])

    @cached_property
    def round_ticks(self) -> int:
        """Ticks of a decode round."""
        return int(self.round_seconds * self.ticks_per_second)

    @cached_property
    def level_ticks(self) -> tuple[tuple[int, int], ...]:
        """Tokens and ticks of `useful_levels`."""
        unit = self.ticks_per_second
        return tuple((level.tokens, int(level.seconds * unit)) for level in self.useful_levels)

    def prefill_ticks(self, tokens: int) -> int | None:
        """Ticks of the cheapest prefill stage that takes so many tokens; None if none does.

        An empty stage is at a level, too (eq 7).
        """
        at = bisect_left(self.level_ticks, (tokens, 0))
        return self.level_ticks[at][1] if at < len(self.level_ticks) else None

    @cached_property
    def sha256(self) -> str:
        """Hash of the meaning: equal for files that differ only in notation."""
        meaning = Meaning("makespan", self.name, self.clients)
        feed = meaning.feed
        feed(self.decode_overhead, self.decode_token)
        feed(*(value for level in self.levels for value in (level.tokens, level.seconds)))
        for r in self.requests:
            feed(r.id, r.input_tokens, r.output_tokens, r.estimated_output_tokens)
        return meaning.hexdigest()
