"""Seeded tiny instances with arrivals a few ticks away, so that waiting may be worthwhile."""

from __future__ import annotations

import random
from fractions import Fraction

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System

__all__ = ["OBJECTIVES", "waiting"]

TICK = Fraction(1, 10)
#: Ticks until the last arrival, at most.
LATEST = 50
#: Every objective, alone and in sums.
OBJECTIVES = (
    "makespan",
    "throughput",
    "mean_ttft",
    "mean_tpot",
    "mean_e2e",
    {"makespan": "0.5", "mean_ttft": "2"},
    {"makespan": "0.1", "mean_tpot": "3"},
    {"mean_ttft": "0.25", "mean_tpot": "4"},
    {"mean_e2e": "1", "mean_tpot": "0.7"},
    {"makespan": "1", "mean_ttft": "0.5", "mean_tpot": "2", "mean_e2e": "0.3"},
)


def waiting(seed: int) -> Instance:
    """A random instance of at most four requests whose times are whole ticks, small enough to enumerate."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.4, rng.random() < 0.7)
    requests = rng.choice([1, 2, 3, 3, 3, 3] + [4, 4] * (not policy.chunked_prefill))
    most = {1: 4, 2: 4, 3: 3, 4: 3}[requests] - policy.chunked_prefill
    early = rng.choice([0, 8, LATEST])  # before the last one
    groups: list[RequestGroup] = []
    while len(groups) < requests:
        i, o = rng.randint(1, most), rng.randint(1, most)
        arrival = TICK * rng.randint(0, LATEST if len(groups) + 1 == requests else early)
        if groups and rng.random() < 0.3:
            i, o = groups[-1].input_tokens, groups[-1].output_tokens
            arrival = rng.choice([arrival, Fraction(groups[-1].arrival)])
        groups.append(RequestGroup(f"q{len(groups)}", i, o, arrival))
    block = rng.choice([1, 1, 1, 2, 3])
    peaks = [-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups]
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    capacity = rng.choice([max(peaks), max(peaks) + block, sum(peaks) - block, sum(peaks)])

    def limit() -> int:
        return rng.choice([50, prompt + rng.randint(0, 3)])

    system = System(max(capacity, *peaks), limit(), limit(), rng.choice([None, None, None, 1, 2]), block)
    objective = Objective.of(OBJECTIVES[seed % len(OBJECTIVES)])
    return Instance(f"waiting-{seed}", tuple(groups), system, _cost(rng), policy, objective)


def _cost(rng: random.Random) -> CostModel:
    """Coefficients in whole ticks, free ones and large constants included."""

    def pick(*ticks: int) -> str:
        return str(float(TICK * rng.choice(ticks)))

    batch = [(pick(0, 2, 3, 5, 7), pick(0, 0, 1, 3)) for _ in range(rng.choice([1, 1, 2, 3]))]
    decode = pick(0, 0, 1, 4, 13), pick(0, 0, 1, 2)
    prefill = pick(0, 0, 1, 4, 13), pick(0, 0, 1, 2)
    return CostModel(batch, decode, prefill, rng.choice(["square", "exact"]))
