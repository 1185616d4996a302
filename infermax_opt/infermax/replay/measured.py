"""Metrics of a run on another system, from what it measured of each request."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from operator import sub
from typing import overload

from infermax_opt.core.errors import InputError
from infermax_opt.core.measured import Measured
from infermax_opt.files.text import seconds
from infermax_opt.foreign.run import ForeignRequest, Run
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import NEVER, Latencies
from infermax_opt.infermax.data.objective import BY_COUNT, LINEAR, QUANTILES, Latency, Metric
from infermax_opt.infermax.data.requests import Request
from infermax_opt.infermax.replay.latencies import LatencyMetrics
from infermax_opt.infermax.replay.summarised import measure_summary

__all__ = ["latencies_by_name", "measure_run"]

#: Measured times are rounded to so many ticks a second: clocks of systems are no finer.
TICKS = 10**9


def measure_run(instance: Instance, run: Run) -> Measured:
    """Metrics of a run whose requests are those of the instance.

    The run need not have started when the instance does: it is moved so that no request comes before its
    arrival in the instance.  What a request comes later than that counts as waiting.  So the numbers are
    those of a schedule of the instance, and bounds hold for them.

    Raises
    ------
    InputError
        If the requests are others.
    """
    if run.summary is not None:
        return measure_summary(instance, run, run.summary)
    pairs = _matched(instance, run)
    made, late = _latencies(instance, run, pairs)
    known = {
        Latency.TTFT: all(came.ttft is not None for came in pairs),
        Latency.E2E: all(came.e2e is not None for came in pairs),
    }
    known[Latency.TPOT] = all(known.values())
    remarks = [*run.remarks]
    if late * TICKS >= 1:
        text = f"requests came up to {seconds(late)} later than in the instance; that counts as waiting"
        remarks.append(text)
    return Measured(_metrics(made, known, pairs), latencies_by_name(made, known), tuple(remarks))


def _latencies(instance: Instance, run: Run, pairs: Sequence[ForeignRequest]) -> tuple[Latencies, Fraction]:
    """Latencies after the run was moved, and seconds by which requests come later than in the instance."""
    unit = lcm(TICKS, *{Fraction(request.arrival).denominator for request in instance.requests})
    arrivals = [came.arrival for came in pairs]
    after = [came.ttft for came in pairs], [came.e2e for came in pairs]
    fine = lcm(
        unit, *{time.denominator for times in (arrivals, *after) for time in times if time is not None}
    )
    at = _exact(arrivals, fine)
    ahead = list(map(sub, _exact([request.arrival for request in instance.requests], fine), at))
    shift = max(ahead)
    late = Fraction(shift - min(ahead), fine)
    firsts, lasts = (
        [
            0 if time is None else _nearest(came + shift + ticks, fine // unit)
            for time, came, ticks in zip(times, at, _exact(times, fine), strict=True)
        ]
        for times in after
    )
    for ends in (firsts, lasts):
        _check_ends(run, pairs, ends, unit)
    return Latencies(instance, unit, firsts, lasts), late


def _check_ends(run: Run, pairs: Sequence[ForeignRequest], ends: Sequence[int], unit: int) -> None:
    """Check that no request ends later than can be told from never."""
    if max(ends) >= NEVER:
        k = next(k for k, tick in enumerate(ends) if tick >= NEVER)
        text = f"ends {ends[k] / unit:g} s after the start, which is too long"
        raise InputError(f"request {pairs[k].name!r} {text}", source=run.path)


def _exact(times: Sequence[Fraction | None], unit: int) -> list[int]:
    """Ticks of times that are whole numbers of them; 0 where there is none."""
    sizes = {time.denominator: unit // time.denominator for time in times if time is not None}
    return [0 if time is None else time.numerator * sizes[time.denominator] for time in times]


def _nearest(time: int, parts: int) -> int:
    """Ticks of a time in parts of a tick, rounded as `round` does."""
    ticks, rest = divmod(time, parts)
    return ticks + (2 * rest > parts or (2 * rest == parts and ticks % 2 == 1))


def latencies_by_name(
    made: Latencies, known: Mapping[Latency, bool] | None = None
) -> dict[str, Sequence[Fraction]]:
    """Latencies of single requests that there are, s."""
    ticks = {Latency.TTFT: made.ttft, Latency.E2E: made.e2e}
    return {
        latency.value: _Seconds([some for some in found if some < NEVER], made.unit)
        for latency, found in ticks.items()
        if known is None or known[latency]
    }


@dataclass(frozen=True)
class _Seconds(Sequence[Fraction]):
    """Times of many requests; a fraction is formed when it is asked for."""

    ticks: Sequence[int]
    unit: int

    def __len__(self) -> int:
        return len(self.ticks)

    @overload
    def __getitem__(self, k: int) -> Fraction: ...

    @overload
    def __getitem__(self, k: slice) -> _Seconds: ...

    def __getitem__(self, k: int | slice) -> Fraction | _Seconds:
        if isinstance(k, slice):
            return _Seconds(self.ticks[k], self.unit)
        return Fraction(self.ticks[k], self.unit)


# --- metrics ------------------------------------------------------------------------------------


def _needed(metric: Metric) -> tuple[Latency, ...]:
    """The latencies that a metric is formed of."""
    if metric in QUANTILES:
        return (QUANTILES[metric][1],)
    if metric in LINEAR:
        return (LINEAR[metric],)
    return (Latency.TTFT, Latency.E2E) if metric in BY_COUNT else (Latency.E2E,)


def _metrics(
    made: Latencies, known: Mapping[Latency, bool], pairs: Sequence[ForeignRequest]
) -> dict[str, Fraction | int | None]:
    found: dict[str, Fraction | int | None] = {
        metric.value: made.metric(metric) if all(known[one] for one in _needed(metric)) else None
        for metric in Metric
    }
    makespan = found[Metric.MAKESPAN.value]
    tokens = made.instance.output_tokens
    found["tokens_per_second"] = tokens / Fraction(makespan) if makespan else None
    formed = LatencyMetrics(made) if known[Latency.TPOT] else None
    found["goodput"] = formed.kept_per_second(Fraction(makespan or 0)) if formed else None
    found["attainment"] = formed.attainment if formed else None
    evictions = [came.evictions for came in pairs if came.evictions is not None]
    found["evictions"] = sum(evictions) if len(evictions) == len(pairs) else None
    return found


# --- the requests of the run --------------------------------------------------------------------


def _matched(instance: Instance, run: Run) -> list[ForeignRequest]:
    """What the run saw of each request: by name where all agree, else by lengths and order of arrival.

    Requests of equal lengths are told apart by nothing but their arrivals, terms aside.

    Raises
    ------
    InputError
        If these are not the requests of the instance.
    """
    named = {came.name: came for came in run.requests}
    if len(named) == len(run.requests) and {r.id for r in instance.requests} == named.keys():
        for request in instance.requests:
            _same(run, named[request.id], request)
        return [named[request.id] for request in instance.requests]
    return _by_lengths(instance, run)


def _same(run: Run, came: ForeignRequest, request: Request) -> None:
    if (came.input_tokens, came.output_tokens) != (request.input_tokens, request.output_tokens):
        text = f"has {came.input_tokens} + {came.output_tokens} tokens"
        here = f"in the instance {request.input_tokens} + {request.output_tokens}"
        raise InputError(f"{text}; {here}", field=f"request {came.name!r}", source=run.path)


def _by_lengths(instance: Instance, run: Run) -> list[ForeignRequest]:
    kinds: dict[tuple[int, int], list[ForeignRequest]] = defaultdict(list)
    for came in run.requests:
        kinds[came.input_tokens, came.output_tokens].append(came)
    wanted: dict[tuple[int, int], list[int]] = defaultdict(list)
    arrivals = [request.arrival for request in instance.requests]
    # To compare fractions takes long: whole ticks are in the same order.
    ticks = _exact(arrivals, lcm(*{arrival.denominator for arrival in arrivals}))
    for index in sorted(range(len(ticks)), key=ticks.__getitem__):
        request = instance.requests[index]
        wanted[request.input_tokens, request.output_tokens].append(index)
    found: dict[int, ForeignRequest] = {}
    for lengths in [*wanted, *(kinds.keys() - wanted.keys())]:
        here, there = len(kinds.get(lengths, ())), len(wanted.get(lengths, ()))
        if here != there:
            text = f"has {here} requests of {lengths[0]} + {lengths[1]} tokens; the instance has {there}"
            without = "".join(f"; left out: {count} ({reason})" for reason, count in run.left_out.items())
            raise InputError(f"{text}: not the same workload{without}", source=run.path)
        found.update(zip(wanted[lengths], kinds[lengths], strict=True))
    return [found[index] for index in range(len(instance.requests))]
