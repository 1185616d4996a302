"""Metrics of a run on another system, from what it measured of each request."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from math import lcm
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from infermax_opt.core.errors import InputError
from infermax_opt.core.measured import Formed, Measured
from infermax_opt.files.text import seconds
from infermax_opt.foreign.columns import Times
from infermax_opt.foreign.names import is_among
from infermax_opt.foreign.run import Run
from infermax_opt.foreign.run_columns import RequestColumns, columns_of
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import NEVER, Latencies
from infermax_opt.infermax.data.objective import BY_COUNT, LINEAR, QUANTILES, Latency, Metric
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
    columns = columns_of(run.requests)
    arrivals = Times.of([request.arrival for request in instance.requests])
    seen = columns.take(_matched(instance, arrivals, run, columns))
    made, late = _latencies(instance, arrivals, run, seen)
    known = {Latency.TTFT: bool(seen.streamed.all()), Latency.E2E: bool(seen.ended.all())}
    known[Latency.TPOT] = all(known.values())
    evictions = int(seen.evictions.sum()) if (seen.evictions >= 0).all() else None
    del seen  # a million requests take 100 MB
    remarks = [*run.remarks]
    if late * TICKS >= 1:
        text = f"requests came up to {seconds(late)} later than in the instance; that counts as waiting"
        remarks.append(text)
    metrics = Formed({**_metrics(made, known), "evictions": lambda: evictions})
    return Measured(metrics, latencies_by_name(made, known), tuple(remarks))


def _latencies(
    instance: Instance, arrivals: Times, run: Run, seen: RequestColumns
) -> tuple[Latencies, Fraction]:
    """Latencies after the run was moved, and seconds by which requests come later than in the instance."""
    unit = lcm(TICKS, arrivals.unit)
    ahead = arrivals - seen.arrivals
    most, least = int(np.argmax(ahead.ticks)), int(np.argmin(ahead.ticks))
    came = seen.arrivals + ahead.take(slice(most, most + 1))
    firsts, lasts = (
        np.where(there, (came + times).rounded(unit), 0)
        for times, there in ((seen.ttft, seen.streamed), (seen.e2e, seen.ended))
    )
    for ends in (firsts, lasts):
        _check_ends(run, seen, ends, unit)
    return Latencies(instance, unit, _held(firsts), _held(lasts)), ahead[most] - ahead[least]


def _held(ticks: NDArray[Any]) -> Sequence[int]:
    """Python's whole numbers, which take 8 bytes each where they fit."""
    if ticks.dtype == object:
        return list(ticks.tolist())
    return array("q", ticks.astype(np.int64, copy=False).tobytes())


def _check_ends(run: Run, seen: RequestColumns, ends: NDArray[Any], unit: int) -> None:
    """Check that no request ends later than can be told from never."""
    if ends.max() >= NEVER:
        k = next(k for k, tick in enumerate(ends.tolist()) if tick >= NEVER)
        text = f"ends {ends[k] / unit:g} s after the start, which is too long"
        raise InputError(f"request {str(seen.names[k])!r} {text}", source=run.path)


def latencies_by_name(
    made: Latencies, known: Mapping[Latency, bool] | None = None
) -> Mapping[str, Sequence[Fraction]]:
    """Latencies of single requests that there are, s."""
    ticks = {Latency.TTFT: lambda: made.ttft, Latency.E2E: lambda: made.e2e}
    return Formed(
        {
            latency.value: partial(_finished, found, made.unit)
            for latency, found in ticks.items()
            if known is None or known[latency]
        }
    )


def _finished(ticks: Callable[[], Sequence[int]], unit: int) -> Sequence[Fraction]:
    return _Seconds([some for some in ticks() if some < NEVER], unit)


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
    made: Latencies, known: Mapping[Latency, bool]
) -> dict[str, Callable[[], Fraction | int | None]]:
    """What forms each metric."""
    whole = known[Latency.E2E]
    formed = LatencyMetrics(made) if known[Latency.TPOT] else None

    @cache
    def makespan() -> Fraction:
        return (made.metric(Metric.MAKESPAN) if whole else None) or Fraction(0)

    def tokens_per_second() -> Fraction | None:
        return made.instance.output_tokens / makespan() if makespan() else None

    return {
        **{
            metric.value: partial(made.metric, metric)
            if all(known[one] for one in _needed(metric))
            else _unknown
            for metric in Metric
        },
        "tokens_per_second": tokens_per_second,
        "goodput": lambda: formed.kept_per_second(makespan()) if formed else None,
        "attainment": lambda: formed.attainment if formed else None,
    }


def _unknown() -> None:
    return None


# --- the requests of the run --------------------------------------------------------------------


def _matched(instance: Instance, arrivals: Times, run: Run, columns: RequestColumns) -> NDArray[np.int64]:
    """Places in the run of the instance's requests: by name where all agree, else by lengths and arrival.

    Requests of equal lengths are told apart by nothing but their arrivals, terms aside.

    Raises
    ------
    InputError
        If these are not the requests of the instance.
    """
    requests = instance.requests
    inputs = np.array([request.input_tokens for request in requests])
    outputs = np.array([request.output_tokens for request in requests])
    if is_among(requests[0].id, columns.names):  # else a million need not be compared
        names = list(map(str, columns.names.tolist()))
        places = {name: k for k, name in enumerate(names)}
        if len(places) == len(names) and places.keys() == {request.id for request in requests}:
            found = np.array([places[request.id] for request in requests])
            wrong = (columns.inputs[found] != inputs) | (columns.outputs[found] != outputs)
            if wrong.any():
                k = int(np.flatnonzero(wrong)[0])
                came = columns[int(found[k])]
                text = f"has {came.input_tokens} + {came.output_tokens} tokens"
                here = f"in the instance {inputs[k]} + {outputs[k]}"
                raise InputError(f"{text}; {here}", field=f"request {came.name!r}", source=run.path)
            return found
    # The run is by arrival.
    theirs = np.lexsort((columns.outputs, columns.inputs))
    ours = np.lexsort((arrivals.ticks, outputs, inputs))
    pairs = (inputs, columns.inputs), (outputs, columns.outputs)
    if not all(np.array_equal(own[ours], other[theirs]) for own, other in pairs):
        _check_lengths(run, Counter(zip(inputs.tolist(), outputs.tolist(), strict=True)), columns)
    found = np.empty(len(requests), dtype=np.int64)
    found[ours] = theirs
    return found


def _check_lengths(run: Run, wanted: Mapping[tuple[int, int], int], columns: RequestColumns) -> None:
    """Check that the run has as many requests of each lengths as are wanted."""
    kinds = Counter(zip(columns.inputs.tolist(), columns.outputs.tolist(), strict=True))
    for lengths in [*wanted, *(kinds.keys() - wanted.keys())]:
        here, there = kinds.get(lengths, 0), wanted.get(lengths, 0)
        if here != there:
            text = f"has {here} requests of {lengths[0]} + {lengths[1]} tokens; the instance has {there}"
            without = "".join(f"; left out: {count} ({reason})" for reason, count in run.left_out.items())
            raise InputError(f"{text}: not the same workload{without}", source=run.path)
