"""Seeded tiny instances for the exhaustive oracle: every flag, limit and cost shape."""

from __future__ import annotations

import random
from fractions import Fraction

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System


def tiny(seed: int, *, arrivals: bool = False, objective: object = "makespan") -> Instance:
    """A random instance of at most three requests, small enough to enumerate."""
    rng = random.Random(seed)
    requests = rng.choice([1, 2, 2, 3, 3])
    longest = 3 if requests == 3 else 4

    def size() -> int:
        return rng.randint(1, longest)

    groups = []
    while len(groups) < requests:
        same = groups and rng.random() < 0.4
        i, o = (groups[-1].input_tokens, groups[-1].output_tokens) if same else (size(), size())
        if requests == 3:
            o = min(o, 3)
        arrival = Fraction(rng.randint(0, 300), 100) if arrivals and rng.random() < 0.7 else 0
        groups.append(RequestGroup(f"q{len(groups)}", i, o, arrival))
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.75)
    block = rng.choice([1, 1, 1, 2, 3])
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    roomy = rng.random() < 0.4
    system = System(
        kv_capacity=peak + rng.choice([0, 1, 2, peak // 2, peak, 3 * peak]),
        max_batch_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_prefill_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_running=rng.choice([None, None, 1, 2]),
        block_size=block,
    )
    return Instance(
        f"tiny-{seed}", tuple(groups), system, cost_model(rng), policy, Objective.of(objective)  # type: ignore[arg-type]
    )  # fmt: skip


def cost_model(rng: random.Random) -> CostModel:
    """Coefficients of several shapes, degenerate ones included."""
    shape = rng.choice(["paper", "heavy attention", "anything", "anything", "flat"])
    pieces = rng.choice([1, 1, 2, 3])

    def pick(*values: str) -> str:
        return rng.choice(values)

    if shape == "paper":
        batch = [(pick("0.007", "0.01"), pick("0.000075", "0.001")) for _ in range(pieces)]
        rest = (("0.0003", "0.00000026"), ("0.0003", "0.0000000015"))
    elif shape == "heavy attention":
        batch = [(pick("0.5", "1"), pick("0.1", "0.2")) for _ in range(pieces)]
        rest = ((pick("0.1", "0.7"), pick("0.3", "1")), (pick("0.1", "0.9"), pick("0.05", "0.4")))
    elif shape == "flat":
        batch = [("1", "0") for _ in range(pieces)]
        rest = (("0", "0"), ("0", "0"))
    else:
        coin = ["0", "0.1", "0.25", "1", "2"]
        batch = [(pick("0.1", "0.5", "1", "3"), rng.choice(coin)) for _ in range(pieces)]
        rest = ((rng.choice(coin), rng.choice(coin)), (rng.choice(coin), rng.choice(coin)))
    return CostModel(batch, *rest, pick("square", "exact"))
