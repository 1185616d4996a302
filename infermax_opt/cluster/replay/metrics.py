"""What users of a replayed stream saw, and what it took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from infermax_opt.core.shown import ShownMetrics
from infermax_opt.core.values import SHARE_REACHED
from infermax_opt.placement.data.instance import Slo

if TYPE_CHECKING:
    from infermax_opt.cluster.replay.replay import StreamReplay

__all__ = [
    "STREAM_DEFINITIONS",
    "StreamMetrics",
    "measure_stream",
    "percentile",
    "request_atgt",
    "request_ttft",
]

STREAM_DEFINITIONS = {
    "requests": "requests served",
    "peak_workers": "workers in use at a heartbeat, most",
    "mean_workers": "workers in use at a heartbeat, mean over the heartbeats up to the last arrival",
    "peak_gpus": "GPUs of peak_workers",
    "attainment": "share of the requests with TTFT and ATGT within their limits",
    "attainment_from_arrival": "the same with TTFT from the arrival, wait for the heartbeat included",
    "late_ttft": "requests whose TTFT is above its limit",
    "late_atgt": "requests whose ATGT is above its limit",
    "mean_ttft": "first token - heartbeat at which it was placed, mean, s",
    "p99_ttft": "the same, 99th percentile, s",
    "mean_wait": "heartbeat at which it was placed - arrival, mean, s",
    "mean_atgt": "(last - first token) / (output tokens - 1), mean over requests of 2 tokens or more, s",
    "p99_atgt": "the same, 99th percentile, s",
    "preemptions": "times that a request lost its KV for want of room",
    "makespan": "last token of all, from 0, s",
}
"""Definition of every metric, as printed beside it."""

UNITS = {
    "requests": "requests",
    "peak_workers": "workers",
    "mean_workers": "workers",
    "peak_gpus": "GPUs",
    "attainment": SHARE_REACHED,
    "attainment_from_arrival": SHARE_REACHED,
    "late_ttft": "requests",
    "late_atgt": "requests",
    "mean_ttft": "s",
    "p99_ttft": "s",
    "mean_wait": "s",
    "mean_atgt": "s",
    "p99_atgt": "s",
    "makespan": "s",
}
"""Units of the metrics that have one."""


@dataclass(frozen=True)
class StreamMetrics(ShownMetrics):
    """Metrics of a replayed stream; `STREAM_DEFINITIONS` says what each one means.  Times in seconds."""

    definitions: ClassVar[Mapping[str, str]] = STREAM_DEFINITIONS
    units: ClassVar[Mapping[str, str]] = UNITS

    requests: int
    peak_workers: int
    mean_workers: Fraction
    peak_gpus: int
    attainment: Fraction
    attainment_from_arrival: Fraction
    late_ttft: int
    late_atgt: int
    mean_ttft: Fraction
    p99_ttft: Fraction
    mean_wait: Fraction
    mean_atgt: Fraction | None
    p99_atgt: Fraction | None
    preemptions: int
    makespan: Fraction

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(f.name, getattr(self, f.name)) for f in fields(self)]


def request_ttft(replay: StreamReplay) -> list[Fraction]:
    """Seconds from the heartbeat to the first token, per request."""
    stream, ticks = replay.stream, replay.units.ticks_per_second
    return [
        Fraction(served.first or 0, ticks) - stream.beat(request) * stream.heartbeat
        for request, served in zip(stream.requests, replay.served, strict=True)
    ]


def request_atgt(replay: StreamReplay) -> list[Fraction | None]:
    """Seconds of decode time per output token but the first, per request; None with one token."""
    ticks = replay.units.ticks_per_second
    return [
        Fraction((served.last or 0) - (served.first or 0), ticks * (served.output_tokens - 1))
        if served.output_tokens > 1
        else None
        for served in replay.served
    ]


def measure_stream(replay: StreamReplay) -> StreamMetrics:
    """Compute the metrics of a replay."""
    stream, slo = replay.stream, replay.stream.slo
    ttft, atgt = request_ttft(replay), request_atgt(replay)
    slow = [value for value in atgt if value is not None]
    waits = [stream.beat(request) * stream.heartbeat - request.arrival for request in stream.requests]
    since_arrival = [first + wait for first, wait in zip(ttft, waits, strict=True)]
    used = [beat.workers for beat in replay.beats]
    return StreamMetrics(
        requests=len(ttft),
        peak_workers=max(used),
        mean_workers=Fraction(sum(used), len(used)),
        peak_gpus=max(used) * stream.worker.gpus,
        attainment=_attainment(slo, ttft, atgt),
        attainment_from_arrival=_attainment(slo, since_arrival, atgt),
        late_ttft=sum(value > slo.ttft for value in ttft),
        late_atgt=sum(value > slo.atgt for value in slow),
        mean_ttft=_mean(ttft),
        p99_ttft=percentile(ttft, 99),
        mean_wait=_mean(waits),
        mean_atgt=_mean(slow) if slow else None,
        p99_atgt=percentile(slow, 99) if slow else None,
        preemptions=replay.preemptions,
        makespan=Fraction(max(served.last or 0 for served in replay.served), replay.units.ticks_per_second),
    )


def _attainment(slo: Slo, first: Sequence[Fraction], rest: Sequence[Fraction | None]) -> Fraction:
    """Share of the requests that keep both limits."""
    kept = (a <= slo.ttft and (b is None or b <= slo.atgt) for a, b in zip(first, rest, strict=True))
    return Fraction(sum(kept), len(first))


def percentile(values: Sequence[Fraction], share: int) -> Fraction:
    """The least value that so many percent of all do not exceed."""
    return sorted(values)[math.ceil(len(values) * share / 100) - 1]


def _mean(values: Sequence[Fraction]) -> Fraction:
    # Many fractions of many denominators: one common denominator first.
    scale = math.lcm(*{value.denominator for value in values})
    return Fraction(sum(int(value * scale) for value in values), scale * len(values))
