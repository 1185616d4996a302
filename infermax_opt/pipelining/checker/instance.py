"""The instance: reserved lengths and values of the requests that are of use, and its hash."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from infermax_opt.checking.fields import Field, shown
from infermax_opt.checking.limits import MAX_REQUESTS
from infermax_opt.checking.meaning import Meaning
from infermax_opt.checking.work import Work

#: Most tokens of a length or the capacity.
MAX_TOKENS = 10**9
#: Largest buffer, as a share of a length.
MAX_BUFFER = 10
#: The metric that is minimised where something else is to be as much as possible.
OBJECTIVES = {
    "tokens": "capacity_per_token",
    "area": "capacity_per_area",
    "count": "capacity_per_request",
    "value": "capacity_per_value",
}


def read_reservation(top: Field) -> tuple[int, int, Fraction]:
    """Capacity, block size and buffer as they are written; blocks of one token and no buffer by default."""
    block = top["block_size"].whole(1, MAX_TOKENS) if "block_size" in top else 1
    buffer = top["buffer"].decimal() if "buffer" in top else Fraction(0)
    if buffer > MAX_BUFFER:
        top["buffer"].fail(f"more than {MAX_BUFFER}")
    return top["capacity"].whole(1, MAX_TOKENS), block, buffer


class Instance:
    """What the bounds need of an instance file: lengths and values of the requests that are of use.

    Raises `Rejected` where the file is no instance.
    """

    def __init__(self, data: Any):
        top, self.work = Field(data, "instance"), Work()
        for key, value in (("schema", "infermax-opt/instance/1"), ("problem", "pipelining")):
            if top[key].value != value:
                top[key].fail(f"{shown(top[key].value)} is not {value!r}")
        self.reservation = self.capacity, block, buffer = read_reservation(top)
        self.room = self.capacity - self.capacity % block
        self.objective = top["objective"].text() if "objective" in top else "tokens"
        if self.objective not in OBJECTIVES:
            top["objective"].fail(f"{shown(self.objective)} is none of {', '.join(OBJECTIVES)}")
        entries = top["requests"].items()
        if not 0 < len(entries) <= MAX_REQUESTS:
            top["requests"].fail(f"holds {len(entries)} requests, not 1 to {MAX_REQUESTS}")
        #: Reserved length and value of each request that fits by itself and is worth something.
        self.requests: list[tuple[int, Fraction]] = []
        meaning = Meaning()
        meaning.feed("infermax-opt/instance/1", "pipelining")
        meaning.feed("parts", 6)
        meaning.feed("str", top["name"].text())
        meaning.feed("parts", len(entries))
        self._read_requests(entries, meaning)
        meaning.feed("int", self.capacity)
        meaning.feed("str", self.objective)
        meaning.feed("int", block)
        meaning.feed("Fraction", buffer)
        self.sha256 = meaning.hexdigest()

    def _read_requests(self, entries: list[Field], meaning: Meaning) -> None:
        """Lengths and values, and the hash of each request."""
        _, block, buffer = self.reservation
        for entry in entries:
            length = entry["length"].whole(1, MAX_TOKENS)
            size = block * math.ceil((1 + buffer) * length / block)
            given = "value" in entry and entry["value"].value is not None
            worth = entry["value"].decimal() if given else None
            meaning.feed("parts", 3)
            meaning.feed("str", entry["id"].text())
            meaning.feed("int", length)
            meaning.feed("NoneType" if worth is None else "Fraction", worth)
            if self.objective == "value" and worth is None:
                entry["value"].fail("is missing; the objective is value")
            values = {"tokens": Fraction(size), "area": Fraction(size * (size + 1), 2), "count": Fraction(1)}
            own = values.get(self.objective, worth or Fraction(0))
            if size <= self.room and own > 0:
                self.requests.append((size, own))
