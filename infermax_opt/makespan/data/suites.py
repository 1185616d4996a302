"""Suite of makespan instances: requests like GSM8K's on clients, 10 on 3 ... 1319 on 200; two seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from infermax_opt.core.suite import Case
from infermax_opt.makespan.data.generate import DISTRIBUTIONS, gsm8k_like

__all__ = ["SUITES"]

#: Requests and clients of the makespan cases: within reach of an exact engine, or like the paper's.
CLIENT_SIZES = ((10, 3), (15, 4), (100, 20), (1319, 200))
CLIENT_SEEDS = (0, 1)
#: Deviation of the estimates that their methods know, as in `scripts/makespan_study.py`.
CLIENT_ERROR = 0.2


def _makespan(data: Path | None) -> list[Case]:
    cases = []
    for requests, clients in CLIENT_SIZES:
        for distribution in DISTRIBUTIONS:
            for seed in CLIENT_SEEDS:
                build = partial(
                    gsm8k_like, seed=seed, distribution=distribution, requests=requests, clients=clients,
                    error=CLIENT_ERROR,
                )  # fmt: skip
                name = f"gsm8k-{distribution}-{requests}x{clients}-s{seed}-e{CLIENT_ERROR:g}"
                cases.append(Case(name, build))
    return cases


SUITES: Mapping[str, Callable[[Path | None], Sequence[Case]]] = {"makespan": _makespan}
"""By name."""
