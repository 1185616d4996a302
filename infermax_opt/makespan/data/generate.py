"""Makespan instances like the paper's: GSM8K on LLaMA-65B, and the study of 100 cases (section V).

Only the number of requests and the mean and deviation of their lengths are published (Table III), so
lengths are drawn from distributions that have these moments once they are rounded into the range that a
length may have: outputs were cut at 512 tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from statistics import NormalDist

from infermax_opt.core.checks import MAX_REQUESTS, checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.core.lengths import check_error, estimate
from infermax_opt.makespan.data.instance import (
    MAX_CLIENTS,
    ClientRequestGroup,
    MakespanInstance,
    linear_levels,
)

__all__ = ["DECODE", "DISTRIBUTIONS", "PREFILL", "block_levels", "gsm8k_like"]

#: Mean and standard deviation of input and output tokens, most output tokens (section V-A).
INPUT, OUTPUT, MOST_OUTPUT = (68.43, 25.04), (344.83, 187.99), 512
#: Seconds: overhead and per token, of a prefill stage and of a decode round per client (section V-A).
PREFILL, DECODE = ("0.025", "0.00013"), ("0.029", "0.00021")
#: Tokens of a KV block (section V-A), and of a prefill level: one block for each client at most.
BLOCK = 128
#: Blocks of a prompt, at most, and hence of the largest level, at least.
LEAST_BLOCKS = 4
#: Points of the quantile function by which moments are fitted, and rounds of fitting.
POINTS, FITS = 2000, 200


def _normal(quantile: float, centre: float, spread: float) -> float:
    return centre + spread * NormalDist().inv_cdf(quantile)


def _lognormal(quantile: float, centre: float, spread: float) -> float:
    variance = math.log1p((spread / centre) ** 2)
    return math.exp(math.log(centre) - variance / 2 + math.sqrt(variance) * NormalDist().inv_cdf(quantile))


def _uniform(quantile: float, centre: float, spread: float) -> float:
    return centre + spread * math.sqrt(12) * (quantile - 0.5)


#: Quantile functions by name; each takes the quantile, a centre and a spread.
DISTRIBUTIONS: dict[str, Callable[[float, float, float], float]] = {
    "normal": _normal,
    "lognormal": _lognormal,
    "uniform": _uniform,
}


def gsm8k_like(
    *,
    seed: int = 0,
    distribution: str = "normal",
    requests: int = 1319,
    clients: int = 200,
    error: float = 0.0,
) -> MakespanInstance:
    """An instance with the moments of Table III.

    Parameters
    ----------
    seed : int
    distribution : {"normal", "lognormal", "uniform"}
        Of input and output lengths, before they are rounded and cut.
    requests, clients : int
    error : float
        Standard deviation of the logarithm of estimated over true output lengths.

    Raises
    ------
    InputError
        If there is no such distribution, or a number is out of range.
    """
    if distribution not in DISTRIBUTIONS:
        names = ", ".join(DISTRIBUTIONS)
        raise InputError(f"{distribution!r} is none of {names}", field="distribution")
    check_error(error)
    requests = checked_whole(requests, "requests", 1, MAX_REQUESTS)
    clients = checked_whole(clients, "clients", 1, MAX_CLIENTS)
    rng = random.Random(seed)
    # Prompt and output of a client share five blocks.
    draw_input = _lengths(distribution, INPUT, BLOCK * LEAST_BLOCKS)
    draw_output = _lengths(distribution, OUTPUT, MOST_OUTPUT)
    groups = []
    for k in range(1, requests + 1):
        inputs, outputs = draw_input(rng), draw_output(rng)
        groups.append(ClientRequestGroup(f"r{k}", inputs, outputs, estimate(outputs, error, rng)))
    name = f"gsm8k-{distribution}-{requests}x{clients}-s{seed}" + (f"-e{error:g}" if error else "")
    levels = linear_levels(*PREFILL, block_levels(clients, BLOCK * LEAST_BLOCKS))
    overhead, token = (Fraction(value) for value in DECODE)
    return MakespanInstance(name, tuple(groups), clients, levels, overhead, token)


def block_levels(clients: int, longest: int) -> range:
    """Tokens of prefill levels: multiples of a block, up to one for each client and the longest prompt.

    Parameters
    ----------
    clients : int
    longest : int
        Tokens of the longest prompt.
    """
    blocks = max(LEAST_BLOCKS, clients, -(-longest // BLOCK))
    return range(BLOCK, BLOCK * blocks + 1, BLOCK)


def _lengths(distribution: str, moments: tuple[float, float], most: int) -> Callable[[random.Random], int]:
    """A draw of lengths from 1 to `most` of nearly these moments."""
    quantile = DISTRIBUTIONS[distribution]
    centre, spread = _fitted(distribution, moments, most)
    return lambda rng: _cut(quantile(min(1 - 1e-12, max(1e-12, rng.random())), centre, spread), most)


def _cut(value: float, most: int) -> int:
    """The length that is drawn, from 1 to `most`."""
    return min(most, max(1, round(value)))


@cache
def _fitted(distribution: str, moments: tuple[float, float], most: int) -> tuple[float, float]:
    """Centre and spread by which lengths from 1 to `most` have nearly these moments."""
    quantile = DISTRIBUTIONS[distribution]
    mean, deviation = moments
    points = [(k + 0.5) / POINTS for k in range(POINTS)]
    centre, spread = mean, deviation
    for _ in range(FITS):
        values = [_cut(quantile(point, centre, spread), most) for point in points]
        found = sum(values) / POINTS
        around = math.sqrt(sum((value - found) ** 2 for value in values) / POINTS)
        if abs(found - mean) < 0.05 and abs(around - deviation) < 0.05:
            break
        centre = max(1.0, centre + mean - found)
        spread = min(1e4, max(1.0, spread * (deviation / around) ** 0.5))
    return centre, spread
