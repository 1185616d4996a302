"""Requests that are drawn, of which files are made."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["CLOCK", "CROWD", "EPOCH", "TINY", "TINY_CROWD", "USUAL", "Drawn", "Load", "drawn"]

#: When clocks begin: seconds since 1970, and since the machine was started.
EPOCH, CLOCK = 1790000000, 54321.5


class Load(NamedTuple):
    """What comes: whether requests are tiny, how many a second, and decimals of their times, None for all."""

    tiny: bool = False
    rate: int = 10
    digits: int | None = None

    def shown(self, time: float) -> float:
        """A time as a file holds it."""
        return time if self.digits is None else round(time, self.digits)


#: What one machine serves; and a hundred times as much as it can, which takes short rows.
USUAL, TINY = Load(), Load(tiny=True)
CROWD, TINY_CROWD = Load(rate=1000, digits=3), Load(tiny=True, rate=10**6, digits=6)


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


def drawn(load: Load = USUAL) -> Iterator[Drawn]:
    """Requests without end."""
    draw, at = random.Random(0), 0.0
    for k in range(10**9):
        outputs = 2 if load.tiny else draw.randint(2, 400)
        times = [draw.uniform(0.05, 2), *(draw.uniform(0.01, 0.05) for _ in range(outputs - 1))]
        at += draw.expovariate(load.rate)
        inputs = draw.randint(1, 9) if load.tiny else draw.randint(20, 2000)
        times = [load.shown(time) for time in times]
        yield Drawn(k, load.shown(at), inputs, outputs, times[0], times[1:])
