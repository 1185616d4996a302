"""Instances of the iteration problem: the requests of a moment, and the machine for one batch of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from infermax_opt.core.checks import (
    MAX_REQUESTS,
    MAX_TOKENS,
    Meaning,
    checked_decimal,
    checked_ids,
    checked_text,
    checked_total,
    checked_whole,
)
from infermax_opt.core.errors import InputError
from infermax_opt.core.shown import ShownInstance
from infermax_opt.files.fields import shown
from infermax_opt.infermax.data.cost import Attention, CostModel

__all__ = [
    "BE_TOKENS", "DECODE", "OBJECTIVES", "PREFILL", "VALUES", "IterationGroup", "IterationInstance",
    "IterationRequest", "Machine",
]  # fmt: skip

REAL_TIME, BEST_EFFORT = "rt", "be"
PREFILL, DECODE = "prefill", "decode"
#: Objectives: seconds of the batch for each best-effort token, or for each unit of value.
BE_TOKENS, VALUES = "seconds_per_be_token", "seconds_per_value"
OBJECTIVES = {
    BE_TOKENS: ("s per BE token", "s per BE token"),
    VALUES: ("s per unit of value", "s per unit of value"),
}


#: Most requests of a snapshot: what is answered within seconds.
MOST_WAITING = 20_000


def _one_of(value: object, field: str, first: str, second: str) -> None:
    if value not in (first, second):
        raise InputError(f"{shown(value)} is neither {first!r} nor {second!r}", field=field)


@dataclass(frozen=True, slots=True)
class IterationRequest:
    """One request; see `IterationGroup`."""

    id: str
    real_time: bool
    prefills: bool
    input: int
    context: int
    waited: Fraction
    new_blocks: int
    host_blocks: int
    value: Fraction
    group: int

    @property
    def cached(self) -> int:
        """Tokens in the KV cache before the batch."""
        return self.context - self.input


@dataclass(frozen=True)
class IterationGroup:
    """A request, or `count` equal ones named ``id.1`` to ``id.count``.

    Parameters
    ----------
    id : str
    kind : {"rt", "be"}
        Real-time or best-effort; ``class`` in files.
    phase : {"prefill", "decode"}
    context : int
        Tokens that it attends to: those processed now and those cached (L^a).
    input : int, optional
        Tokens processed now (L^n): 1 of a decode; of a prefill all of `context`, if not given.
    waited : decimal
        Seconds since its last token, since its arrival if it has none (t); of real-time requests only.
    new_blocks, host_blocks : int
        KV blocks that it needs now (M^new), and those of it on the host (M^cpu).
    value : decimal, optional
        What its token is worth for the objective ``seconds_per_value``: ``weight`` of a real-time request
        (0), ``value`` of a best-effort one (1).
    group : int
        Tokens left in its token group (k).
    count : int, optional
    """

    id: str
    kind: str
    phase: str
    context: int
    input: int | None = None
    waited: Fraction = Fraction(0)
    new_blocks: int = 0
    host_blocks: int = 0
    value: Fraction | None = None
    group: int = 1
    count: int | None = None

    def __post_init__(self) -> None:
        checked_text(self.id, "id")
        _one_of(self.kind, "class", REAL_TIME, BEST_EFFORT)
        _one_of(self.phase, "phase", PREFILL, DECODE)
        self._check_tokens()
        for name, least in (("new_blocks", 0), ("host_blocks", 0), ("group", 1)):
            object.__setattr__(self, name, checked_whole(getattr(self, name), name, least, MAX_TOKENS))
        if self.count is not None:
            object.__setattr__(self, "count", checked_whole(self.count, "count", 1, MAX_REQUESTS))
        object.__setattr__(self, "waited", checked_decimal(self.waited, "waited"))
        real_time = self.kind == REAL_TIME
        value = int(not real_time) if self.value is None else self.value
        object.__setattr__(self, "value", checked_decimal(value, "weight" if real_time else "value"))
        if not real_time and (self.waited or self.group != 1):
            field = "waited" if self.waited else "group"
            raise InputError("is of real-time requests only", field=field)

    def _check_tokens(self) -> None:
        whole = 1 if self.phase == DECODE else self.context
        given = whole if self.input is None else self.input
        object.__setattr__(self, "context", checked_whole(self.context, "context", 1, MAX_TOKENS))
        object.__setattr__(self, "input", checked_whole(given, "input", 1, MAX_TOKENS))
        assert self.input is not None
        if self.phase == DECODE and self.input != 1:
            raise InputError(f"{self.input} is not 1, which a decode processes", field="input")
        if self.input > self.context:
            raise InputError(f"{self.input} is more than the context, {self.context}", field="input")

    def expand(self) -> Iterator[IterationRequest]:
        """Yield the requests it stands for."""
        assert self.input is not None
        assert self.value is not None
        names = [self.id] if self.count is None else [f"{self.id}.{k}" for k in range(1, self.count + 1)]
        for name in names:
            yield IterationRequest(
                name, self.kind == REAL_TIME, self.phase == PREFILL, self.input, self.context, self.waited,
                self.new_blocks, self.host_blocks, self.value, self.group,
            )  # fmt: skip


@dataclass(frozen=True)
class Machine:
    """The machine at this moment.

    Parameters
    ----------
    batch : int
        Most requests of the batch (B_curr).
    blocks : int
        Empty KV blocks (M^ept).
    t_avg : decimal
        Moving average of the time of an iteration, seconds (T_avg).
    ttft, tpot : decimal
        Limits for a first token (a prefill) and a later one (a decode), seconds.
    cost : CostModel
    group : int, optional
        G: tokens of a token group, whose limit is G times `tpot`; None: a limit for each token, as in (6).
    swap : (decimal, decimal), optional
        [s0, s1]: copying H blocks from the host takes s0 + s1 H seconds beside the computation.
    product : bool
        Whether attention work is the product of the batch's totals, tokens times contexts (section 4.1 of the
        paper), for each phase; else it adds up over requests as in `cost`.
    """

    batch: int
    blocks: int
    t_avg: Fraction
    ttft: Fraction
    tpot: Fraction
    cost: CostModel
    group: int | None = None
    swap: tuple[Fraction, Fraction] | None = None
    product: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", checked_whole(self.batch, "machine.batch", 1, MAX_REQUESTS))
        object.__setattr__(self, "blocks", checked_whole(self.blocks, "machine.blocks", 0, MAX_TOKENS))
        for name in ("t_avg", "ttft", "tpot"):
            object.__setattr__(self, name, checked_decimal(getattr(self, name), f"machine.{name}"))
        if self.group is not None:
            object.__setattr__(self, "group", checked_whole(self.group, "machine.group", 1, MAX_TOKENS))
        if self.swap is not None:
            given = self.swap
            if isinstance(given, str) or not isinstance(given, list | tuple) or len(given) != 2:
                raise InputError(f"{given!r} is not a pair of numbers", field="machine.swap")
            pair = tuple(checked_decimal(value, f"machine.swap[{k}]") for k, value in enumerate(given))
            object.__setattr__(self, "swap", pair)
        if self.product:  # which counts cached tokens as contexts do
            object.__setattr__(self, "cost", replace(self.cost, attention=Attention.EXACT))
        if self.cost.prefix:
            raise InputError("is not known to this problem; leave it out", field="machine.cost.prefix")
        if not any(alpha for alpha, _ in self.cost.batch):
            text = "no piece has an overhead above 0, so a batch may take no time"
            raise InputError(text, field="machine.cost.batch")


@dataclass(frozen=True)
class IterationInstance(ShownInstance):
    """Requests that wait at one moment, of which the next batch takes some.

    Parameters
    ----------
    name : str
    groups : iterable of IterationGroup
    machine : Machine
    objective : {"seconds_per_be_token", "seconds_per_value"}

    Raises
    ------
    InputError
        If two requests share an id, or a field is out of range.
    """

    name: str
    groups: tuple[IterationGroup, ...]
    machine: Machine
    objective: str = BE_TOKENS

    def __post_init__(self) -> None:
        checked_text(self.name, "name")
        object.__setattr__(self, "groups", tuple(self.groups))
        checked_total(self.groups)
        total = sum(entry.count or 1 for entry in self.groups)
        if total > MOST_WAITING:
            raise InputError(f"{total} requests in all; the most is {MOST_WAITING}", field="requests")
        if self.objective not in OBJECTIVES:
            known = " nor ".join(map(repr, OBJECTIVES))
            raise InputError(f"{shown(self.objective)} is neither {known}", field="objective")
        most = self.machine.group
        for index, entry in enumerate(self.groups):
            if most is not None and entry.group > most:
                text = f"{entry.group} tokens are left of a group of {most}"
                raise InputError(text, field=f"requests[{index}].group")
        checked_ids([request.id for request in entry.expand()] for entry in self.groups)

    @property
    def unit(self) -> tuple[str, str]:
        """Unit of the objective."""
        return OBJECTIVES[self.objective]

    @property
    def objective_name(self) -> str:
        """The objective."""
        return self.objective

    @cached_property
    def requests(self) -> tuple[IterationRequest, ...]:
        """All requests."""
        return tuple(request for entry in self.groups for request in entry.expand())

    @cached_property
    def index(self) -> dict[str, int]:
        """Position of each request by its id."""
        return {request.id: k for k, request in enumerate(self.requests)}

    @cached_property
    def sha256(self) -> str:
        """Hash of what the instance means."""
        machine = self.machine
        meaning = Meaning("iteration", self.name, self.objective, machine.batch, machine.blocks)
        meaning.feed(machine.t_avg, machine.ttft, machine.tpot, machine.group or 0, int(machine.product))
        cost, swap = machine.cost, machine.swap
        meaning.feed(*(value for pair in cost.batch for value in pair))
        meaning.feed(*cost.decode, *cost.prefill, *cost.mixed, cost.attention.value)
        meaning.feed("none" if swap is None else "swap", *(swap or ()))
        for r in self.requests:
            meaning.feed(
                r.id, int(r.real_time), int(r.prefills), r.input, r.context, r.waited, r.new_blocks,
                r.host_blocks, r.value, r.group,
            )  # fmt: skip
        return meaning.hexdigest()
