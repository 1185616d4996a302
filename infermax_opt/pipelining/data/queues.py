"""Queues with the output lengths of the paper's traces (EcoServe, section 2 and Table 2).

The paper gives mean, least and most output tokens of each trace, and no more.  Lengths are drawn from the
distribution of greatest entropy with these three: probabilities proportional to exp(-t x).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from infermax_opt.core.errors import InputError
from infermax_opt.pipelining.data.instance import PipeliningInstance, PipeliningRequest

__all__ = ["BLOCK", "CAPACITIES", "TRACES", "QueueTrace", "padded", "queue"]

#: Tokens of a KV block in the paper.
BLOCK = 32
#: KV tokens of the paper's models: memory for KV / (4 * layers * hidden size) bytes.
CAPACITIES = {"opt-13b": 14_648, "llama-33b": 12_019, "opt-175b": 55_949}


@dataclass(frozen=True)
class QueueTrace:
    """Output lengths of a trace: their mean and range in tokens; padding and buffer as shares of a length."""

    mean: float
    least: int
    most: int
    padding: Fraction
    buffer: Fraction


TRACES = {
    "sharegpt": QueueTrace(337.99, 19, 991, Fraction("0.15"), Fraction("0.15")),
    "alpaca": QueueTrace(58.41, 13, 292, Fraction("0.10"), Fraction("0.15")),
    "bookcorpus": QueueTrace(681.2, 32, 1041, Fraction("0.20"), Fraction("0.10")),
}
"""Those of the paper."""


def padded(length: int, padding: Fraction) -> int:
    """A predicted length with its padding, in whole tokens."""
    return math.ceil(length * (1 + padding))


@cache
def _weights(name: str) -> list[float]:
    """Probability of each length of a trace, up to a factor."""
    trace = TRACES[name]
    lengths = range(trace.least, trace.most + 1)
    low, high = -1.0, 1.0
    for _ in range(80):
        rate = (low + high) / 2
        # The largest is 1, whatever the sign of the rate.
        shift = trace.least if rate > 0 else trace.most
        weights = [math.exp(-rate * (x - shift)) for x in lengths]
        mean = sum(x * w for x, w in zip(lengths, weights, strict=True)) / sum(weights)
        low, high = (rate, high) if mean > trace.mean else (low, rate)
    return weights


def queue(
    name: str, requests: int, seed: int, model: str = "opt-13b", objective: str = "tokens"
) -> PipeliningInstance:
    """A queue for one reservation of all KV tokens of a model.

    Parameters
    ----------
    name : str
        One of `TRACES`.
    requests, seed : int
    model : str
        One of `CAPACITIES`.
    objective : str
        ``tokens``, ``area`` or ``count``.

    Raises
    ------
    InputError
        If there is no such trace or model.
    """
    for given, known, field in ((name, TRACES, "trace"), (model, CAPACITIES, "model")):
        if given not in known:
            raise InputError(f"{given!r} is none of {', '.join(known)}", field=field)
    trace = TRACES[name]
    rng = random.Random(f"{name} {requests} {seed}")
    drawn = rng.choices(range(trace.least, trace.most + 1), weights=_weights(name), k=requests)
    return PipeliningInstance(
        f"{name}-{requests}-{model}-s{seed}",
        tuple(PipeliningRequest(f"r{k}", padded(x, trace.padding)) for k, x in enumerate(drawn, 1)),
        CAPACITIES[model],
        objective,
        BLOCK,
        trace.buffer,
    )
