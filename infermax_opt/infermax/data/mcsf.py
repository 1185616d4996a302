"""The two synthetic models of MC-SF's study (Jaillet et al., 2025), for any seed.

A round is a second.  M is uniform in 30 ... 50; a prompt has s tokens, uniform in 1 ... 5, and an output o,
uniform in 1 ... M - s.  In model 1 there are 40 ... 60 requests, uniformly, all there from the start.  In
model 2 requests arrive for 40 ... 60 rounds, uniformly: in each a Poisson number, its mean uniform in
0.5 ... 1.5.

There a request holds s + j tokens when its j-th is made, the prompt being there before; here it holds
I + j - 1, so I = s + 1.

How numbers are drawn is ours: whole numbers and the mean by Python's `random.Random(seed)`, in the order M,
number of requests or rounds, mean, then s and o of each request; arrivals by numpy's `default_rng(seed)`.
"""

from __future__ import annotations

import random

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System

__all__ = ["MODELS", "mcsf_instance"]

MODELS = (1, 2)
#: C and P, which never bind.
TOKENS = 100_000


def mcsf_instance(model: int, seed: int) -> Instance:
    """An instance of model 1 or 2, by its mean end-to-end latency in rounds."""
    draw = random.Random(seed)
    capacity, size = draw.randint(30, 50), draw.randint(40, 60)
    arrivals = [0] * size if model == 1 else _arrivals(size, draw.uniform(0.5, 1.5), seed)
    groups = []
    for k, arrival in enumerate(arrivals):
        s = draw.randint(1, 5)
        groups.append(RequestGroup(f"q{k}", s + 1, draw.randint(1, capacity - s), arrival))
    return Instance(
        name=f"mcsf-{model}-{seed}",
        groups=tuple(groups),
        system=System(capacity, TOKENS, TOKENS),
        policy=Policy(hybrid_batching=True, chunked_prefill=False, preemption=False),
        cost=CostModel([(1, 0)], (0, 0), (0, 0)),
        objective="mean_e2e",  # type: ignore[arg-type]
    )


def _arrivals(rounds: int, mean: float, seed: int) -> list[int]:
    """The round, from 1 on, in which each request arrives."""
    import numpy as np

    counts = np.random.default_rng(seed).poisson(mean, rounds).tolist()
    return [r for r, count in enumerate(counts, 1) for _ in range(count)]
