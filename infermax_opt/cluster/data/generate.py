"""Streams like those of the paper's evaluation (section 6.1): Poisson arrivals, lengths like ShareGPT's."""

from __future__ import annotations

import random
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream, StreamRequest
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, to_fraction
from infermax_opt.core.lengths import check_error, estimate
from infermax_opt.placement.data.generate import MODELS

__all__ = ["poisson_stream"]

#: Arrivals are in whole milliseconds.
MILLISECOND = Fraction(1, 1000)


def poisson_stream(
    rate: Number,
    seconds: int,
    *,
    model: str = "13b",
    seed: int = 0,
    error: float = 0.0,
    theta: Number = 1,
    gamma: Number = "0.5",
    heartbeat: Number = 1,
    split_phase: bool = False,
) -> Stream:
    """Draw a stream for a model of the paper on its A100 workers, with the limits of Table 2.

    Parameters
    ----------
    rate : decimal
        Arrivals per second, on average.
    seconds : int
        Requests arrive before this moment.
    model : {"13b", "70b"}
    seed : int
    error : float
        Standard deviation of the logarithm of predicted over true output tokens; arrivals and true lengths
        do not depend on it.
    theta, gamma, heartbeat, split_phase
        As in `Stream`.

    Raises
    ------
    InputError
        If there is no such model, a number is out of range, or nothing arrives.
    """
    if model not in MODELS:
        raise InputError(f"{model!r} is none of {', '.join(MODELS)}", field="model")
    mean = to_fraction(rate)
    if mean <= 0:
        raise InputError(f"{rate} is not above 0", field="rate")
    check_error(error)
    family = MODELS[model]
    ((_, prompts, outputs),) = family.kinds
    rng, predictions = random.Random(f"{rate} {seed}"), random.Random(f"predictions {rate} {seed}")
    requests, now = list[StreamRequest](), Fraction(0)
    while (now := now + int(1000 * rng.expovariate(float(mean))) * MILLISECOND) < seconds:
        tokens, true = prompts.draw(rng), outputs.draw(rng)
        # A prediction knows the most that a request can generate.
        predicted = min(outputs.most, estimate(true, error, predictions)) if error else true
        requests.append(StreamRequest(f"r{len(requests) + 1}", now, tokens, predicted, true))
    name = f"poisson-{model}-{float(mean):g}-{seconds}s-s{seed}" + (f"-e{error:g}" if error else "")
    return Stream(
        name, tuple(requests), family.worker, family.slo,
        theta=to_fraction(theta), gamma=to_fraction(gamma), heartbeat=to_fraction(heartbeat),
        split_phase=split_phase,
    )  # fmt: skip
