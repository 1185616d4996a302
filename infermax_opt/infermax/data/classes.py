"""Workloads of real-time requests beside best-effort ones, as in the study of BROS.

Real-time: prompts and outputs are drawn from log-normal distributions with the moments that the paper states
of ShareGPT and LMSYS, rounded, from 1 to `LONGEST` tokens; arrivals are Poisson, to the millisecond.  Limits:
0.4 s of the TTFT, 0.2 s of the TPOT.  Best-effort: 512 to 1024 prompt tokens and 32 to 128 output tokens,
uniformly; optional; released in sets of `SET` requests (the paper does not say how many).

How numbers are drawn is ours: by Python's `random.Random(seed)`, for each real-time request the time since
the one before, prompt, output; then prompt and output of each best-effort one.

The cost model by default is an estimate, not a measurement: of the magnitude of OPT-30B on four A100-40GB.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from fractions import Fraction
from math import log, sqrt
from typing import NamedTuple

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, to_fraction
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Release, RequestClass, RequestGroup, System

__all__ = ["MOMENTS", "SET", "Moments", "bros_instance"]


class Moments(NamedTuple):
    """Mean and standard deviation of tokens of prompts, and of outputs."""

    prompt: tuple[float, float]
    output: tuple[float, float]


#: Of the traces, from the paper.
MOMENTS: Mapping[str, Moments] = {
    "sharegpt": Moments((222.76, 256.36), (234.51, 268.50)),
    "lmsys": Moments((90.50, 148.52), (237.04, 228.21)),
}
#: Most tokens of a prompt or an output of a real-time request.
LONGEST = 2048
#: Best-effort requests that are released together.
SET = 128
PROMPTS, OUTPUTS = (512, 1024), (32, 128)
#: Best-effort requests a second that no machine of this size serves: enough that they never run out.
ENOUGH = 8
ESTIMATE = CostModel([("0.020", "0.0001")], ("0.0005", "3e-7"), ("0.0005", "2e-9"), Attention.EXACT)
#: KV tokens that go with it.
ESTIMATED_CAPACITY = 61_000
TOKENS = 8192


def bros_instance(
    workload: str,
    rate: Number,
    horizon: Number = 300,
    seed: int = 1,
    profile: str | None = None,
    backlog: Number = ENOUGH,
) -> Instance:
    """Real-time requests that arrive until the horizon, beside a best-effort backlog.

    Parameters
    ----------
    workload : str
        Of `MOMENTS`.
    rate : Number
        Real-time requests a second.
    horizon : Number
        Seconds.
    seed : int
    profile : str, optional
        Of the shipped ones; an estimate of OPT-30B by default.
    backlog : Number
        Best-effort requests a second of the horizon, in whole sets: more than are done, or they run out.

    Raises
    ------
    InputError
        If there is no such workload or profile, or nobody arrives.
    """
    if workload not in MOMENTS:
        raise InputError(f"{workload!r} is none of {', '.join(MOMENTS)}", field="workload")
    draw, until, moments = random.Random(seed), to_fraction(horizon), MOMENTS[workload]
    groups, now = list[RequestGroup](), draw.expovariate(float(rate))
    while now < until:
        lengths = _length(draw, *moments.prompt), _length(draw, *moments.output)
        arrival = Fraction(int(now * 1000), 1000)
        groups.append(RequestGroup(f"rt{len(groups)}", *lengths, arrival, class_name="rt"))
        now += draw.expovariate(float(rate))
    if not groups:
        raise InputError(f"nobody arrives within {float(until):g} s", field="horizon")
    for k in range(-(-int(to_fraction(backlog) * until) // SET) * SET):
        groups.append(RequestGroup(f"be{k}", draw.randint(*PROMPTS), draw.randint(*OUTPUTS), class_name="be"))
    cost, capacity = _machine(profile)
    return Instance(
        name=f"bros-{workload}-{float(rate):g}" + (f"-{profile}" if profile else ""),
        groups=tuple(groups),
        system=System(capacity, TOKENS, TOKENS, block_size=16),
        cost=cost,
        objective="missed",  # type: ignore[arg-type]
        classes=(
            RequestClass("rt", slo={"ttft": "0.4", "tpot": "0.2"}),
            RequestClass("be", optional=True),
        ),
        horizon=until,
        release=Release("be", SET),
    )


def _length(draw: random.Random, mean: float, deviation: float) -> int:
    """Tokens of a log-normal distribution."""
    variance = log(1 + (deviation / mean) ** 2)
    return min(LONGEST, max(1, round(draw.lognormvariate(log(mean) - variance / 2, sqrt(variance)))))


def _machine(profile: str | None) -> tuple[CostModel, int]:
    if profile is None:
        return ESTIMATE, ESTIMATED_CAPACITY
    from infermax_opt.infermax.data.profiles import load_profile

    found = load_profile(profile)
    return found.cost, found.capacity
