"""What distinguishes one scheduler that reserves KV from another."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any

from infermax_opt.core.checks import MAX_TOKENS
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import to_fraction

__all__ = ["Allocation", "Order", "ReservationOptions", "with_settings"]


class Allocation(enum.Enum):
    """What a request reserves when it is admitted.

    ``block``: the blocks of its prompt, then one at a time.  ``exact``: its prompt and its padded prediction.
    ``max``: the longest total sequence.
    """

    BLOCK = "block"
    EXACT = "exact"
    MAX = "max"


class Order(enum.Enum):
    """In which order waiting requests are taken.

    ``fcfs``: by arrival.  ``srtf``: fewest predicted tokens left.  ``spt``: least priced work left.
    ``mlfq``: five levels, by the tokens made.  ``multires``: nearest to what is free of compute and of KV.
    ``ordering``: by deadline, then KV held, then length, taking what is closest to what is free.
    """

    FCFS = "fcfs"
    SRTF = "srtf"
    SPT = "spt"
    MLFQ = "mlfq"
    MULTIRES = "multires"
    ORDERING = "ordering"


@dataclass(frozen=True)
class ReservationOptions:
    """Settings of a scheduler; `infermax_opt.infermax.schedulers.reservation.presets` names some.

    Parameters
    ----------
    allocation : Allocation
    queue : Order
    chunked : bool
        Split prompts to fill a batch; else only those that fit into none whole.
    cap : int, optional
        Most requests that are executed at a time.
    max_length : int
        Tokens of the longest total sequence, for ``max``.
    preemptive : bool
        Whether a waiting request takes the place of one that comes after it.
    decoupled : bool
        Prompts and generations queue apart; else a request reserves for both at once.
    synced : bool
        Requests of the same predicted length start together, when such a group has ended.
    pipelined : bool
        Generations also run in KV that others have reserved and will need later only.
    rehost : bool
        The same anywhere in it at any time, also where a guest has been.
    oracle : bool
        The true length of an output is known when its request arrives.
    padding : Fraction
        Share of a prediction that is added to it.
    reserve : Fraction
        Share of M that no generation reserves at its start: for prompts, and for those that outlive their
        prediction.
    buffer : Fraction
        Share of its predicted length by which a guest has to be gone before its host comes.
    gt_queue_kv : Fraction, optional
        Share of M left to prompts, in place of `reserve`, where that is less.
    quantum : int
        Output tokens of the first level of ``mlfq``; each level has twice those of the one before.
    max_running : int, optional
        Most requests that hold KV; the instance's limit holds beside it.
    """

    allocation: Allocation = Allocation.EXACT
    queue: Order = Order.FCFS
    chunked: bool = True
    cap: int | None = None
    max_length: int = 2048
    preemptive: bool = False
    decoupled: bool = False
    synced: bool = False
    pipelined: bool = False
    rehost: bool = False
    oracle: bool = False
    padding: Fraction = Fraction(15, 100)
    reserve: Fraction = Fraction(3, 100)
    buffer: Fraction = Fraction(15, 100)
    gt_queue_kv: Fraction | None = None
    quantum: int = 32
    max_running: int | None = None

    def __post_init__(self) -> None:
        for choice, kind in (("allocation", Allocation), ("queue", Order)):
            object.__setattr__(self, choice, _chosen(kind, getattr(self, choice), choice))
        for name in ("padding", "reserve", "buffer", "gt_queue_kv"):
            object.__setattr__(self, name, _share(getattr(self, name), name))
        for name in ("cap", "max_length", "quantum", "max_running"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MAX_TOKENS:
                raise InputError(f"{value} is not from 1 to {MAX_TOKENS}", field=name)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse settings that make no sense beside each other."""
        if self.decoupled and self.allocation is not Allocation.EXACT:
            raise InputError("goes with exact allocation only", field="decoupled")
        for name in ("pipelined", "rehost"):
            if getattr(self, name) and not self.decoupled:
                raise InputError("goes with decoupled only", field=name)
        if self.queue is Order.MULTIRES and (self.decoupled or self.synced):
            raise InputError("'multires' goes neither with decoupled nor with synced", field="queue")
        if self.preemptive and self.synced:  # a group would wait for those whom it made room for
            raise InputError("does not go with synced", field="preemptive")

    @property
    def prompts_share(self) -> Fraction:
        """Share of M that generations leave to prompts when they start."""
        return max(self.reserve, self.gt_queue_kv or Fraction(0))


def _chosen(kind: type[enum.Enum], value: object, field: str) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        allowed = ", ".join(repr(one.value) for one in kind)
        raise InputError(f"{value!r} is none of {allowed}", field=field) from None


def _share(value: Any, field: str) -> Fraction | None:
    """A share of at least 0; below 1 but for padding and buffer, which may double a prediction and more."""
    if value is None and field == "gt_queue_kv":
        return None
    try:
        share = to_fraction(value)
    except ValueError as error:
        raise InputError(str(error), field=field) from None
    most = 10 if field in ("padding", "buffer") else 1
    if not 0 <= share <= most or (most == 1 and share == 1):
        limit = "from 0 to 10" if most == 10 else "at least 0 and below 1"
        raise InputError(f"{value} is not {limit}", field=field)
    return share


def with_settings(options: ReservationOptions, text: str, name: str) -> ReservationOptions:
    """Options with settings such as ``padding=0.15,reserve=0.03,cap=16,synced=no,r64``.

    Parameters
    ----------
    options : ReservationOptions
    text : str
        Settings, separated by commas: ``NAME=VALUE`` by the names of the options, or ``rN`` for at most N
        that hold KV.
    name : str
        Of the scheduler, for messages.

    Raises
    ------
    InputError
        If one cannot be read; the message names it.
    """
    kinds = {field.name: str(field.type) for field in fields(ReservationOptions)}
    changes: dict[str, Any] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not equals and key[:1] == "r" and key[1:].isdecimal():
            key, equals, value = "max_running", "=", key[1:]
        if not equals or key not in kinds or key in changes:
            problem = "is there twice" if key in changes else f"is no setting; there are {', '.join(kinds)}"
            raise InputError(f"{name!r}: {part!r} {problem}, as NAME=VALUE, and rN", field="scheduler")
        changes[key] = _read(value, kinds[key], f"{name}: {key}")
    try:
        return replace(options, **changes)
    except InputError as error:
        raise InputError(f"{name!r}: {error}", field="scheduler") from None


def _read(value: str, kind: str, where: str) -> Any:
    """A value of an option by its annotation; `ReservationOptions` checks texts and shares itself."""
    if kind == "bool":
        words = {"yes": True, "true": True, "no": False, "false": False}
        if value not in words:
            raise InputError(f"{where}: {value!r} is not yes or no", field="scheduler")
        return words[value]
    if kind.startswith("int"):
        if not (value.isascii() and value.isdecimal() and len(value) <= 18):
            raise InputError(f"{where}: {value!r} is not a whole number", field="scheduler")
        return int(value)
    return value
