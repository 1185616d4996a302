"""Results of the serving benchmarks of vLLM and SGLang: one object a run, a list for each value of its
requests.

Both descend from one program, so the keys are the same; what they leave out differs.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.files.text import counted
from infermax_opt.files.traces import Trace
from infermax_opt.foreign.columns import Column, Mask, Times, exact_times, read_times, read_tokens
from infermax_opt.foreign.formats import Choices
from infermax_opt.foreign.requests import Collected
from infermax_opt.foreign.run import Run
from infermax_opt.foreign.run_columns import RequestColumns
from infermax_opt.foreign.summary import LONGER, SUMMED, read_summary

__all__ = ["read_serving"]

TOKENS = ("input_lens", "output_lens")
TIMES = ("ttfts", "latencies", "start_times", "queue_times")
#: Facts about the run that are needed.
FACTS = ("request_rate", "max_concurrency", "duration", *SUMMED)
#: Seconds that a run may last besides by the arrivals of a trace: the clocks start at different moments.
TRACED = 1
GAPS, ERRORS = "itls", "errors"
#: Digits that sums of gaps may have: those of its numbers and some more.
DIGITS = 200


@dataclass
class _Gaps:
    """Gaps between the tokens of each request: how many, and how long they are in all."""

    counts: Any
    totals: Times


@dataclass
class _Results:
    """What a run's object holds, as far as it is needed.

    Attributes
    ----------
    facts : dict
        Single values.
    tokens, times : dict of Column
        A value for each request.
    gaps : _Gaps or None
    failed : list of bool
        Which requests ended with an error.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    tokens: dict[str, Column[Any]] = field(default_factory=dict)
    times: dict[str, Column[Times]] = field(default_factory=dict)
    gaps: _Gaps | None = None
    failed: list[bool] = field(default_factory=list)


def _total(walk: JsonWalk) -> tuple[int, Decimal]:
    """Number and sum of the gaps that stand here."""
    numbers = walk.column()
    if not {*map(type, numbers)} <= {int, Decimal}:
        walk.fault("holds what is no number")
    try:
        least = min(numbers, default=0)
        total = sum(numbers, Decimal(0))
    except (ArithmeticError, ValueError):
        total = None
    # NaN does not compare, and Infinity is no time.
    if total is None or not total.is_finite():
        walk.fault("holds a number that is not finite, or of hundreds of digits")
    if least < 0:
        walk.fault(f"{shown(least)} is negative; the least is 0")
    return len(numbers), total


def _gaps(walk: JsonWalk) -> _Gaps | None:
    """The gaps of all requests; None where there are none."""
    counts, totals = array("q"), list[Decimal]()
    with localcontext() as context:
        context.prec = DIGITS
        context.traps[Inexact] = True
        for _ in walk.items():
            count, total = _total(walk)
            counts.append(count)
            totals.append(total)
    return _Gaps(np.array(counts), exact_times(totals)) if totals else None


def _results(walk: JsonWalk) -> _Results:
    found = _Results()
    for key in walk.members():
        if key in FACTS:
            found.facts[key] = walk.scalar()
        elif key in TOKENS:
            found.tokens[key] = read_tokens(key, walk.column())
        elif key in TIMES:
            found.times[key] = read_times(key, walk.column())
        elif key == GAPS:
            found.gaps = _gaps(walk)
        elif key == ERRORS:
            # Texts of errors are long; that there is one is enough.
            found.failed = walk.column(bool)
    return found


def _chosen(path: str, choice: int | None) -> _Results:
    """The object of one run of the file."""
    walk = JsonWalk(path)
    count, found = 0, None
    for number in walk.documents():
        count = number
        if number == (choice or 1):
            found = _results(walk)
    if choice is None and count > 1:
        raise InputError(
            f"holds {count} runs, one a line: choose one, from 1 to {count}, with --benchmark", source=path
        )
    if found is None:
        raise InputError(f"is {choice}; the file holds {count} runs", field="benchmark", source=path)
    return found


def _check(path: str, results: _Results) -> int:
    """Number of requests; all lists must be of that length."""
    if "output_lens" not in results.tokens:
        raise InputError("has no 'output_lens': it is no benchmark of generation", source=path)
    count = len(results.tokens["input_lens"])
    lengths = {name: len(column) for name, column in {**results.tokens, **results.times}.items()}
    lengths |= {GAPS: len(results.gaps.totals)} if results.gaps else {}
    lengths |= {ERRORS: len(results.failed)} if results.failed else {}
    for name, length in lengths.items():
        if length != count:
            raise InputError(f"holds {length} values, 'input_lens' {count}", field=name, source=path)
    return count


def _at_once(results: _Results) -> bool:
    """Whether all requests were issued at the start."""
    rate = results.facts.get("request_rate")
    return rate == "inf" or (isinstance(rate, Decimal) and rate.is_infinite() and rate > 0)


def _of_trace(path: str, trace: Trace, count: int) -> Times:
    if len(trace.requests) != count:
        raise InputError(
            f"holds {count} requests, {trace.path} {len(trace.requests)}: they cannot be matched", source=path
        )
    return Times.of([request.arrival for request in trace.requests])


@dataclass
class _Arrivals:
    """When requests arrived, and how much later each was sent.

    Attributes
    ----------
    at : Times
        Of any clock.
    waited : bool
        Whether the moment of sending is unknown, and with it every latency from the arrival on.
    """

    at: Times
    waited: bool = False


def _arrivals(found: Collected, results: _Results, kept: Mask, choices: Choices) -> _Arrivals:
    limit = results.facts.get("max_concurrency")
    if "start_times" in results.times:
        sent = results.times["start_times"].check(found.path, kept)
        if "queue_times" in results.times:
            found.say(
                "start_times are send times; a request arrives its queue_time before, and its latencies "
                "count from there."
            )
            return _Arrivals(_before_queue(found.path, sent, results.times["queue_times"], kept))
        found.say(
            "start_times are send times, taken as arrivals: the file has no queue_times"
            + (f", and at most {limit} requests were under way at once." if limit else ".")
        )
        return _Arrivals(sent)
    if choices.trace is not None:
        arrivals = _Arrivals(_of_trace(found.path, choices.trace, len(kept)))
        found.say(f"Arrivals are those of {choices.trace.path}, in its order.")
    elif _at_once(results):
        found.say("The file has no start_times; request_rate is infinite, so all requests arrived at once.")
        arrivals = _Arrivals(Times.zero(len(kept)))
    else:
        rate = results.facts.get("request_rate")
        raise InputError(
            f"has no start_times, and request_rate is {shown(rate)}: arrivals are unknown, unless the "
            "trace that was replayed is given, too",
            source=found.path,
        )
    if limit is not None:
        arrivals.waited = True
        found.say(
            f"At most {limit} requests were under way at once, and the file does not say when each was sent: "
            "latencies from the arrival on are unknown."
        )
    return arrivals


def _before_queue(path: str, sent: Times, column: Column[Times], kept: Mask) -> Times:
    """Arrivals of requests that waited before they were sent."""
    arrived = sent - column.check(path, kept)
    early = np.flatnonzero((arrived.ticks < 0) & kept)
    if len(early):
        first = int(early[0])
        problem = f"is {-float(arrived[first]):g} s before 'queue_times'"
        raise InputError(problem, field=f"request {first + 1}.start_times", source=path)
    return arrived


@dataclass
class _Latencies:
    """Latencies of requests since they were sent, and where they are known."""

    ttft: Times
    streamed: Mask
    e2e: Times
    ended: Mask


def _latencies(found: Collected, results: _Results, kept: Mask) -> _Latencies:
    ttft = results.times["ttfts"].check(found.path, kept)
    # The answer did not come as a stream where there is no time.
    streamed = ttft.ticks != 0
    e2e, ended = Times.zero(len(kept)), np.zeros(len(kept), dtype=bool)
    if "latencies" in results.times:
        column = results.times["latencies"]
        e2e, ended = column.check(found.path, kept, needed=False), ~column.absent
    if results.gaps:
        summed = streamed & ~ended
        e2e, ended = (ttft + results.gaps.totals).where(summed, e2e), ended | summed
    return _Latencies(ttft, streamed, e2e, ended)


def read_serving(path: str, form: str, choices: Choices, option: str) -> Run:
    """Read a run.

    Parameters
    ----------
    path, form : str
        The file and the name of its format.
    choices : Choices
    option : str
        With which the benchmark writes values of each request.

    Raises
    ------
    InputError
        Naming the request and the key.
    """
    results = _chosen(path, choices.benchmark)
    if "input_lens" not in results.tokens or "ttfts" not in results.times:
        missing = (
            f"is a summary without the lengths and times of its requests: run the benchmark with {option}"
        )
        waits = results.times.get("latencies"), results.times.get("queue_times")
        return read_summary(path, form, results.facts, waits, _at_once(results), missing)
    count = _check(path, results)
    found = Collected(path, form)
    kept = ~np.array(results.failed, dtype=bool) if results.failed else np.ones(count, dtype=bool)
    outputs = results.tokens["output_lens"].check(path, kept)
    kept &= outputs != 0
    found.leave_out("failed (an error, or no output tokens)", count - int(kept.sum()))
    inputs = results.tokens["input_lens"].check(path, kept)
    arrivals, latencies = _arrivals(found, results, kept, choices), _latencies(found, results, kept)
    if results.gaps:
        bundled = int((kept & latencies.streamed & (results.gaps.counts < outputs - 1)).sum())
        if bundled:
            found.say(
                f"Fewer itls than tokens, as an entry can bundle several: {counted(bundled, 'requests')}."
            )
    unstreamed = int((kept & ~latencies.streamed).sum())
    if unstreamed:
        found.say(
            "Not streamed, with a time to first token of 0, which is taken as unknown: "
            f"{counted(unstreamed, 'requests')}."
        )
    if "queue_times" in results.times:
        queued = results.times["queue_times"].check(path, kept, needed=False)
        latencies.ttft, latencies.e2e = latencies.ttft + queued, latencies.e2e + queued
    lines = np.arange(1, count + 1)
    columns = RequestColumns(
        names=lines,
        lines=lines,
        arrivals=arrivals.at,
        inputs=inputs,
        outputs=outputs,
        ttft=latencies.ttft,
        streamed=latencies.streamed & (not arrivals.waited),
        e2e=latencies.e2e,
        ended=latencies.ended & (not arrivals.waited),
        evictions=np.full(count, -1),
        cached=np.full(count, -1),
    )
    ordered = found.ordered(columns.of(kept))
    traced = choices.trace is not None and "start_times" not in results.times
    _check_duration(path, ordered, results, TRACED if traced else 0)
    return found.made(ordered)


def _check_duration(path: str, columns: RequestColumns, results: _Results, slack: int) -> None:
    """Check that the requests take no longer than the file says that all of it took.

    A file whose times are not in seconds is found here.  Both tools take all times of one clock, the duration
    from before the first request is sent until the last has ended.
    """
    said, last = results.facts.get("duration"), columns.last_end
    if not isinstance(said, int | Decimal) or isinstance(said, bool) or last is None:
        return
    if Decimal(said).is_finite() and last > LONGER * Fraction(said) + slack:
        problem = f"is {float(said):g} s, but the last request ends {float(last):g} s after the first came"
        raise InputError(problem, field="duration", source=path)
