"""Requests that are drawn, of which files are made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["CLOCK", "EPOCH", "Drawn", "drawn"]

#: When clocks begin: seconds since 1970, and since the machine was started.
EPOCH, CLOCK = 1790000000, 54321.5


class Drawn(NamedTuple):
    """A request: its place, seconds from the start, tokens, seconds to the first token and between tokens."""

    k: int
    at: float
    inputs: int
    outputs: int
    ttft: float
    gaps: list[float]

    @property
    def e2e(self) -> float:
        """Seconds to the last token."""
        return self.ttft + sum(self.gaps)


def drawn(tiny: bool = False, digits: int | None = None) -> Iterator[Drawn]:
    """Requests without end; times have so many decimals."""
    draw, at = random.Random(0), 0.0
    for k in range(10**9):
        outputs = 2 if tiny else draw.randint(2, 400)
        times = [draw.uniform(0.05, 2), *(draw.uniform(0.01, 0.05) for _ in range(outputs - 1))]
        at += draw.expovariate(10)
        if digits is not None:
            times, at = [round(time, digits) for time in times], round(at, digits)
        yield Drawn(
            k, at, draw.randint(1, 9) if tiny else draw.randint(20, 2000), outputs, times[0], times[1:]
        )
