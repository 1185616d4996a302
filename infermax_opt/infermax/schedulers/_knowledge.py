"""What schedulers with keys of their own know of each request before it runs."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from infermax_opt.infermax.data.cost import Coefficients, batch_time, prefill_work
from infermax_opt.infermax.data.instance import Instance, Request

__all__ = ["Dates", "lone_prefill", "promised_dates", "quality_orders"]

#: Orders whose beginnings Sorted-F compares: by a * output tokens + b * peak KV.  The first is by output
#: alone, in which a batch is admitted.
QUALITY_WEIGHTS = ((1, 0), (16, 1), (4, 1), (1, 1), (0, 1))


class Dates(NamedTuple):
    """When a request has to start and to have its tokens, in float seconds; see `RequestColumns`."""

    latest: float
    first_due: float
    last_due: float
    pace: float
    step: float
    promised: int


def promised_dates(instance: Instance, chunk: int) -> list[Dates]:
    """The dates of each request by its service level, as an online scheduler knows them.

    It knows the cost model and what a prompt or a decode step takes alone.  Of the output it knows what
    was predicted; where nothing was, it thinks of each token as the last one.

    Parameters
    ----------
    instance : Instance
    chunk : int
        Most prefill tokens that the scheduler puts into a batch.
    """
    unit = instance.cost.floats
    exact = int(instance.cost.exact_attention)
    return [_dates(request, unit, exact, min(chunk, request.input_tokens)) for request in instance.requests]


def _dates(request: Request, cost: Coefficients, exact: int, chunk: int) -> Dates:
    slo, arrival, prompt = request.terms.slo, float(request.arrival), request.input_tokens
    prefill = lone_prefill(cost, exact, chunk, prompt)
    step = batch_time(*cost, 1, 1, prompt, 0, 0)
    first_due = arrival + (inf if slo.ttft is None else float(slo.ttft))
    last_due = arrival + (inf if slo.e2e is None else float(slo.e2e))
    more = max((request.predicted_output_tokens or 1) - 1, 0)
    latest = min(first_due, last_due - more * step) - prefill
    pace = inf if slo.tpot is None else float(slo.tpot)
    return Dates(latest, first_due, last_due, pace, step, int(bool(slo)))


def lone_prefill(cost: Coefficients, exact: int, chunk: int, prompt: int) -> float:
    """Seconds of a prompt alone, in chunks.

    Parameters
    ----------
    cost : Coefficients
        As floats.
    exact : int
        Whether attention is "exact".
    chunk, prompt : int
        Tokens.
    """
    whole, rest = divmod(prompt, chunk)
    # Time grows evenly with the cached tokens, so that chunks may be counted with their mean.
    prefill = whole * _lone_chunk(cost, exact, chunk, (whole - 1) * chunk / 2)
    if rest:
        prefill += _lone_chunk(cost, exact, rest, prompt - rest)
    return prefill


def _lone_chunk(cost: Coefficients, exact: int, tokens: int, cached: float) -> float:
    seconds: float = batch_time(*cost, tokens, 0, 0, 1, prefill_work(exact, tokens, cached))
    return seconds


def quality_orders(instance: Instance) -> list[int]:
    """Orders of all requests, one behind the other, in whose beginnings Sorted-F looks for its batches."""
    requests = instance.requests
    peaks = [instance.system.held(request.peak_kv) for request in requests]
    orders: list[int] = []
    for output, peak in QUALITY_WEIGHTS:
        weights = [output * r.output_tokens + peak * kv for r, kv in zip(requests, peaks, strict=True)]
        orders += sorted(range(len(requests)), key=weights.__getitem__)
    return orders
