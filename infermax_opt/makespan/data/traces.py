"""Traces as instances of the makespan problem, in which all requests are there from the start."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number
from infermax_opt.core.lengths import check_error, estimate
from infermax_opt.files.traces import Trace, TraceRequest, check_fit, keep_fit
from infermax_opt.makespan.data.generate import block_levels
from infermax_opt.makespan.data.instance import (
    MAX_LEVELS,
    ClientRequestGroup,
    MakespanInstance,
    PrefillLevel,
    linear_levels,
)

__all__ = ["client_instance", "default_levels", "without_long_prompts"]


def default_levels(trace: Trace, clients: int) -> range:
    """Tokens of levels that take every prompt, and a block for each client.

    Raises
    ------
    InputError
        If these are too many.
    """
    tokens = block_levels(clients, max(request.input_tokens for request in trace.requests))
    if len(tokens) > MAX_LEVELS:
        problem = f"{len(tokens)} levels of {tokens.step} tokens would be needed; the most is {MAX_LEVELS}"
        raise InputError(problem, field="prefill levels", source=trace.path)
    return tokens


def without_long_prompts(trace: Trace, levels: Sequence[int]) -> Trace:
    """Leave out, and count, the requests whose prompt exceeds the largest level."""
    return keep_fit(trace, lambda request: _misfit(request, max(levels)))


def client_instance(
    trace: Trace,
    name: str,
    clients: int,
    levels: Sequence[int],
    prefill: tuple[Number, Number],
    decode: tuple[Fraction, Fraction],
    *,
    error: float = 0.0,
    seed: int = 0,
) -> MakespanInstance:
    """Make an instance of a trace; its requests are named ``r1``, ``r2``, ... by arrival.

    Parameters
    ----------
    trace : Trace
    name : str
    clients : int
    levels : sequence of int
        Tokens of each prefill level.
    prefill, decode : pair of decimals
        Overhead in seconds, and seconds per token of a level or per client of a decode round.
    error : float
        Standard deviation of the logarithm of estimated over true output lengths; 0: they are known.
    seed : int
        Of the estimates.

    Raises
    ------
    InputError
        If a number is out of range, or a prompt exceeds the largest level, naming its line.
    """
    check_error(error)
    made: tuple[PrefillLevel, ...] = linear_levels(*prefill, levels)
    if not made:
        raise InputError("holds no level", field="levels")
    check_fit(trace, lambda request: _misfit(request, max(levels)))
    rng = random.Random(seed)
    groups = tuple(
        ClientRequestGroup(
            f"r{k}",
            r.input_tokens,
            r.output_tokens,
            estimate(r.output_tokens, error, rng) if error else None,
        )
        for k, r in enumerate(trace.requests, 1)
    )
    return MakespanInstance(name, groups, clients, made, *decode)


def _misfit(request: TraceRequest, most: int) -> str | None:
    if request.input_tokens <= most:
        return None
    return f"its {request.input_tokens} input tokens exceed the largest prefill level of {most}"
