"""Suite of pipelining instances: queues of three traces on two models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from infermax_opt.core.suite import Case
from infermax_opt.pipelining.data.queues import queue

__all__ = ["SUITES"]

#: Requests of each trace, as many as overfill the reservation several times.
REQUESTS = {"sharegpt": 300, "alpaca": 1200, "bookcorpus": 100}
SEEDS = (0, 1)


def _pipelining(data: Path | None) -> list[Case]:
    return [
        Case(f"{name}-{requests}-{model}-s{seed}", partial(queue, name, requests, seed, model))
        for model in ("opt-13b", "llama-33b")
        for name, requests in REQUESTS.items()
        for seed in SEEDS
    ]


SUITES: Mapping[str, Callable[[Path | None], Sequence[Case]]] = {"pipelining": _pipelining}
"""By name."""
