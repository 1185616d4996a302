"""Metrics of a replayed schedule, exact, and the objective formed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from infermax_opt.core.values import SHARE
from infermax_opt.infermax.data.instance import Instance, Objective

if TYPE_CHECKING:
    from infermax_opt.infermax.replay.plain import Replay

__all__ = ["DEFINITIONS", "Metrics", "measure", "objective_value"]

DEFINITIONS = {
    "makespan": "end of the last batch, s",
    "mean_ttft": "mean of (first token - arrival), s",
    "mean_tpot": "mean of (last token - first token) / (output tokens - 1) over requests with at "
    "least two output tokens, s",
    "mean_e2e": "mean of (last token - arrival), s",
    "tokens_per_second": "generated tokens / makespan",
    "batches": "batches run",
    "evictions": "KV caches dropped before their request finished",
    "refill_tokens": "prefill tokens processed by requests that were evicted before",
    "recompute_tax": "refill tokens / processed tokens",
    "mean_kv_use": "KV occupied after a batch / kv_capacity, weighted by batch time",
    "peak_kv": "most KV tokens occupied after a batch",
    "mean_batch_size": "mean requests processed per batch",
}
"""Definition of every metric, as printed beside it."""

UNITS = {
    "makespan": "s",
    "mean_ttft": "s",
    "mean_tpot": "s",
    "mean_e2e": "s",
    "tokens_per_second": "tokens/s",
    "refill_tokens": "tokens",
    "recompute_tax": SHARE,
    "mean_kv_use": SHARE,
    "peak_kv": "tokens",
    "mean_batch_size": "requests",
}
"""Units of the metrics that have one."""


@dataclass(frozen=True)
class Metrics:
    """Metrics of one schedule; `DEFINITIONS` says what each one means.

    Times are exact seconds; None where a metric is undefined (``mean_tpot`` when no request has
    two output tokens).
    """

    definitions: ClassVar[Mapping[str, str]] = DEFINITIONS
    units: ClassVar[Mapping[str, str]] = UNITS

    makespan: Fraction
    mean_ttft: Fraction
    mean_tpot: Fraction | None
    mean_e2e: Fraction
    tokens_per_second: Fraction | None
    batches: int
    evictions: int
    refill_tokens: int
    recompute_tax: Fraction
    mean_kv_use: Fraction | None
    peak_kv: int
    mean_batch_size: Fraction

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


def measure(instance: Instance, replay: Replay) -> Metrics:
    """Compute the metrics of a complete replay.

    Raises
    ------
    ValueError
        If the replay has violations: an incomplete schedule has no latency.
    """
    if not replay.valid:
        raise ValueError("metrics need a valid schedule")
    ends = replay.ends
    ttft = e2e = tpot = Fraction(0)
    first_sum = last_sum = 0
    arrivals = Fraction(0)
    multi: dict[int, int] = {}  # output tokens - 1 -> sum of (last - first) in ticks
    several = 0
    for request, first, last in zip(instance.requests, replay.first_batch, replay.last_batch, strict=True):
        first_sum += ends[first]
        last_sum += ends[last]
        if request.arrival:
            arrivals += request.arrival
        if request.output_tokens > 1:
            several += 1
            steps = request.output_tokens - 1
            multi[steps] = multi.get(steps, 0) + ends[last] - ends[first]
    n = len(instance.requests)
    ttft = (replay.seconds(first_sum) - arrivals) / n
    e2e = (replay.seconds(last_sum) - arrivals) / n
    for steps, span in multi.items():
        tpot += replay.seconds(span) / steps
    makespan = replay.seconds(ends[-1])
    durations = [end - start for start, end in zip(replay.starts, ends, strict=True)]
    busy = sum(durations)
    weighted = sum(t * kv for t, kv in zip(durations, replay.kv_used, strict=True))
    processed = sum(f.tokens for f in replay.features)
    return Metrics(
        makespan=makespan,
        mean_ttft=ttft,
        mean_tpot=tpot / several if several else None,
        mean_e2e=e2e,
        tokens_per_second=instance.output_tokens / makespan if makespan else None,
        batches=len(ends),
        evictions=replay.evictions,
        refill_tokens=replay.refill_tokens,
        recompute_tax=Fraction(replay.refill_tokens, processed),
        mean_kv_use=Fraction(weighted, busy * instance.system.kv_capacity) if busy else None,
        peak_kv=max(replay.kv_used),
        mean_batch_size=Fraction(sum(f.decodes + f.prefills for f in replay.features), len(ends)),
    )


def objective_value(objective: Objective, metrics: Metrics) -> Fraction:
    """Value of the objective in seconds; an undefined metric counts as 0."""
    total = Fraction(0)
    for metric, weight in objective.weights:
        value = getattr(metrics, metric.value)
        if value is not None:
            total += weight * value
    return total
