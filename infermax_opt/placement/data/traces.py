"""Heartbeats of a trace as placement instances: the requests that arrive within a span of time.

A heartbeat at the moment T of length h holds the requests that arrived after T - h and up to T; all of them
are new.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import partial

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, to_fraction
from infermax_opt.core.lengths import check_error, estimate
from infermax_opt.files.traces import Trace, TraceRequest, check_fit, keep_fit
from infermax_opt.placement.data.instance import (
    MAX_TOKENS,
    PlacementGroup,
    PlacementInstance,
    Slo,
    Worker,
)
from infermax_opt.placement.data.limits import unplaceable

__all__ = ["busiest_heartbeat", "heartbeat_instance", "heartbeat_of", "without_unplaceable"]


def busiest_heartbeat(trace: Trace, heartbeat: Number = 1) -> Fraction:
    """The multiple of the length at which the heartbeat with the most input tokens ends, in seconds.

    Raises
    ------
    InputError
        If the length is not above 0.
    """
    length = _length(heartbeat)
    tokens: dict[int, int] = defaultdict(int)
    for request in trace.requests:
        tokens[math.ceil(request.arrival / length)] += request.input_tokens
    # Of equal ones the first.
    return length * min(tokens, key=lambda number: (-tokens[number], number))


def heartbeat_of(trace: Trace, at: Number | None = None, heartbeat: Number = 1) -> Trace:
    """The requests of one heartbeat.

    Parameters
    ----------
    trace : Trace
    at : decimal, optional
        Moment at which it ends, in seconds after the first request; default: `busiest_heartbeat`.
    heartbeat : decimal
        Length in seconds.

    Raises
    ------
    InputError
        If no request arrives in it, or the length is not above 0.
    """
    length = _length(heartbeat)
    end = busiest_heartbeat(trace, length) if at is None else _decimal(at, "at")
    kept = tuple(request for request in trace.requests if end - length < request.arrival <= end)
    if not kept:
        problem = f"no request arrives after {float(end - length):g} s and up to {float(end):g} s"
        raise InputError(problem, field="at", source=trace.path)
    return replace(trace, requests=kept)


def without_unplaceable(
    trace: Trace,
    worker: Worker,
    slo: Slo,
    *,
    theta: Number = 1,
    gamma: Number = "0.5",
    error: float = 0.0,
    seed: int = 0,
) -> Trace:
    """Leave out, and count, the requests that fit on no worker; parameters as in `heartbeat_instance`."""
    check_error(error)
    misfit = partial(_misfit, worker=worker, slo=slo, theta=theta, gamma=gamma, error=error, seed=seed)
    return keep_fit(trace, misfit)


def heartbeat_instance(
    trace: Trace,
    name: str,
    worker: Worker,
    slo: Slo,
    *,
    at: Number | None = None,
    heartbeat: Number = 1,
    theta: Number = 1,
    gamma: Number = "0.5",
    error: float = 0.0,
    seed: int = 0,
) -> PlacementInstance:
    """Make an instance of a heartbeat; its requests are named ``r1``, ``r2``, ... by arrival.

    Parameters
    ----------
    trace : Trace
    name : str
    worker : Worker
    slo : Slo
    at, heartbeat : decimal
        As in `heartbeat_of`.
    theta, gamma : decimal
        As in `PlacementInstance`.
    error : float
        Standard deviation of the logarithm of predicted over true output lengths; 0: they are known.
    seed : int
        Of the predictions; that of a request depends on no other request.

    Raises
    ------
    InputError
        If a number is out of range, no request arrives in the heartbeat, or one fits on no worker, naming
        its line.
    """
    check_error(error)
    cut = heartbeat_of(trace, at, heartbeat)
    check_fit(cut, partial(_misfit, worker=worker, slo=slo, theta=theta, gamma=gamma, error=error, seed=seed))
    groups = tuple(_group(f"r{k}", request, error, seed) for k, request in enumerate(cut.requests, 1))
    return PlacementInstance(name, groups, worker, slo, _decimal(theta, "theta"), _decimal(gamma, "gamma"))


def _group(name: str, request: TraceRequest, error: float, seed: int) -> PlacementGroup:
    true = predicted = request.output_tokens
    if error:
        rng = random.Random(f"{seed} {request.line}")
        predicted = min(MAX_TOKENS, estimate(true, error, rng))
    return PlacementGroup(name, request.input_tokens, predicted, true)


def _misfit(
    request: TraceRequest, worker: Worker, slo: Slo, theta: Number, gamma: Number, error: float, seed: int
) -> str | None:
    """What the request exceeds by itself, if anything."""
    group = _group("r", request, error, seed)
    alone = PlacementInstance(
        "alone", (group,), worker, slo, _decimal(theta, "theta"), _decimal(gamma, "gamma")
    )
    found = unplaceable(alone)
    return found[0].partition(": ")[2] if found else None


def _length(value: Number) -> Fraction:
    length = _decimal(value, "heartbeat")
    if length <= 0:
        raise InputError(f"{value} is not above 0", field="heartbeat")
    return length


def _decimal(value: Number, field: str) -> Fraction:
    try:
        return to_fraction(value)
    except ValueError as error:
        raise InputError(str(error), field=field) from None
