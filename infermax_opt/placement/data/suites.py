"""Suite of placement instances: heartbeats of five families, 50 ... 400 requests, three seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from infermax_opt.core.suite import Case
from infermax_opt.placement.data.generate import generate

__all__ = ["SUITES"]

#: Families, requests and seeds of the placement cases.
HEARTBEATS = ("paper", "long-prompts", "kv-tight", "mixed", "strict")
HEARTBEAT_SIZES = (50, 100, 200, 400)
HEARTBEAT_SEEDS = (0, 1, 2)


def _placement(data: Path | None) -> list[Case]:
    return [
        Case(f"{family}-{size}-s{seed}", partial(generate, family, requests=size, seed=seed))
        for family in HEARTBEATS
        for size in HEARTBEAT_SIZES
        for seed in HEARTBEAT_SEEDS
    ]


SUITES: Mapping[str, Callable[[Path | None], Sequence[Case]]] = {"placement": _placement}
"""By name."""
