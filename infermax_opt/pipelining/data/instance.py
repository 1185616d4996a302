"""Pipelining instances: a reservation of KV cache, and requests that may share it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from infermax_opt.core.checks import MAX_REQUESTS
from infermax_opt.core.errors import InputError
from infermax_opt.simple.records import InstanceRecord, Record

__all__ = ["OBJECTIVES", "PipeliningInstance", "PipeliningRequest", "area"]

#: What is to be as much as possible, and the metric that is minimised for it.
OBJECTIVES = {
    "tokens": "capacity_per_token",
    "area": "capacity_per_area",
    "count": "capacity_per_request",
    "value": "capacity_per_value",
}
#: Largest buffer, as a share of a length.
MAX_BUFFER = 10


@dataclass(frozen=True)
class PipeliningRequest(Record):
    """A request.

    Attributes
    ----------
    id : str
    length : int
        Tokens that it generates, as predicted and padded; 1 or more.
    value : Fraction, optional
        What selecting it is worth, for the objective ``value``.
    """

    id: str
    length: int
    value: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length < 1:
            raise InputError(f"{self.length} is less than 1", field="length")

    @property
    def input_tokens(self) -> int:
        """Tokens of its prompt here: none, for only growth shares a reservation."""
        return 0

    @property
    def output_tokens(self) -> int:
        """Its length."""
        return self.length


@dataclass(frozen=True)
class PipeliningInstance(InstanceRecord):
    """A reservation and requests, all of which could start now.

    Attributes
    ----------
    capacity : int
        Tokens of the reservation, M; 1 or more.
    objective : str
        One of `OBJECTIVES`.
    block_size : int
        Tokens of a KV block; lengths are rounded up to blocks.
    buffer : Fraction
        Share of its length by which a request may run late.
    """

    problem: ClassVar[str] = "pipelining"

    requests: tuple[PipeliningRequest, ...]
    capacity: int
    objective: str = "tokens"
    block_size: int = 1
    buffer: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("capacity", "block_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{getattr(self, name)} is less than 1", field=name)
        if self.buffer > MAX_BUFFER:
            raise InputError(f"{float(self.buffer):g} is more than {MAX_BUFFER}", field="buffer")
        if self.objective not in OBJECTIVES:
            raise InputError(f"{self.objective!r} is none of {', '.join(OBJECTIVES)}", field="objective")
        if len(self.requests) > MAX_REQUESTS:
            raise InputError(f"{len(self.requests)} requests; the most is {MAX_REQUESTS}", field="requests")
        if self.objective == "value":
            for index, request in enumerate(self.requests):
                if request.value is None:
                    raise InputError("is missing; the objective is value", field=f"requests[{index}].value")

    @property
    def objective_name(self) -> str:  # type: ignore[override]  # it differs from instance to instance
        """The metric to minimise: the capacity for each token, area, request or value that is packed."""
        return OBJECTIVES[self.objective]

    @property
    def unit(self) -> tuple[str, str]:  # type: ignore[override]
        """Unit of that metric."""
        one = f"tokens/{'token' if self.objective == 'tokens' else self.objective}"
        return one, one

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Reserved tokens of each request, g: its length and buffer, rounded up to blocks."""
        block, share = self.block_size, 1 + self.buffer
        return tuple(block * math.ceil(share * r.length / block) for r in self.requests)

    @property
    def room(self) -> int:
        """Tokens of whole blocks: offsets may be rounded down to blocks, so no more is of use."""
        return self.capacity - self.capacity % self.block_size

    @cached_property
    def values(self) -> tuple[Fraction, ...]:
        """What selecting each request adds to the objective that is maximised."""
        if self.objective == "value":
            return tuple(r.value or Fraction(0) for r in self.requests)
        if self.objective == "count":
            return (Fraction(1),) * len(self.requests)
        return tuple(Fraction(g if self.objective == "tokens" else area(g)) for g in self.sizes)

    @cached_property
    def index(self) -> dict[str, int]:
        """Place of each request by its id."""
        return {r.id: k for k, r in enumerate(self.requests)}

    @cached_property
    def useful(self) -> tuple[int, ...]:
        """Places of the requests that fit by themselves and are worth something."""
        sizes = enumerate(self.sizes)
        return tuple(k for k, g in sizes if g <= self.room and self.values[k] > 0)


def area(g: int) -> int:
    """Token-iterations of a request of g tokens: g cells, the first for g iterations, the last for one."""
    return g * (g + 1) // 2
