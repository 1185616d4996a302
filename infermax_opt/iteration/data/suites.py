"""Suite of iteration instances: the snapshots of `infermax_opt.iteration.data.generate`, three seeds each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from infermax_opt.core.suite import Case
from infermax_opt.iteration.data.generate import generate_snapshot

__all__ = ["SUITES"]

SEEDS = (0, 1, 2)
#: Real-time and best-effort requests, and what else: swap, late requests, every token worth 1.
SNAPSHOTS: Mapping[str, tuple[int, int, dict[str, Any]]] = {
    "rt20-be128": (20, 128, {}),
    "rt60-be128": (60, 128, {}),
    "rt120-be128": (120, 128, {}),
    "rt60-be128-swap40": (60, 128, {"swap": 0.4}),
    "rt120-be256-swap40": (120, 256, {"swap": 0.4}),
    "rt60-be128-late2": (60, 128, {"late": 0.02}),
    "rt100-be128-values": (100, 128, {"values": True}),
}


def _iteration(data: Path | None) -> list[Case]:
    return [
        Case(f"{name}-s{seed}", partial(generate_snapshot, real_time, best_effort, seed=seed, **rest))
        for name, (real_time, best_effort, rest) in SNAPSHOTS.items()
        for seed in SEEDS
    ]


SUITES: Mapping[str, Callable[[Path | None], Sequence[Case]]] = {"iteration": _iteration}
"""By name."""
