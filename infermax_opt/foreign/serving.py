"""Results of the serving benchmarks of vLLM and SGLang: one object a run, a list for each value of its
requests.

Both descend from one program, so the keys are the same; what they leave out differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, Inexact, localcontext
from fractions import Fraction
from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.files.traces import Trace
from infermax_opt.foreign.formats import Choices
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run
from infermax_opt.foreign.summary import SUMMED, read_summary

__all__ = ["read_serving"]

COLUMNS = ("input_lens", "output_lens", "ttfts", "latencies", "start_times", "queue_times")
#: Facts about the run that are needed.
FACTS = ("request_rate", "max_concurrency", "duration", *SUMMED)
#: Times its duration that a run may last by its requests: the clocks start at different moments.
LONGER = Fraction(11, 10)
GAPS, ERRORS, NEEDED = "itls", "errors", ("input_lens", "output_lens", "ttfts")
#: Digits that sums of gaps may have: those of its numbers and some more.
DIGITS = 200


@dataclass
class _Results:
    """What a run's object holds, as far as it is needed.

    Attributes
    ----------
    facts : dict
        Single values.
    columns : dict of lists
        A value for each request.
    gaps : list of (int, Fraction)
        How many gaps between tokens each request has, and how long they are in all; seconds.
    failed : list of bool
        Which requests ended with an error.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    gaps: list[tuple[int, Fraction]] = field(default_factory=list)
    failed: list[bool] = field(default_factory=list)

    def columns_at(self, k: int) -> dict[str, Any]:
        """Values of a request by column."""
        return {name: column[k] for name, column in self.columns.items()}


def _total(walk: JsonWalk) -> tuple[int, Fraction]:
    """Number and sum of the gaps that stand here."""
    numbers = walk.column()
    if not {type(value) for value in numbers} <= {int, Decimal}:
        walk.fault("holds what is no number")
    try:
        with localcontext() as context:
            context.prec = DIGITS
            context.traps[Inexact] = True
            least = min(numbers, default=0)
            total = Fraction(sum(numbers, Decimal(0)))
    except (ArithmeticError, ValueError):
        # NaN does not compare, and Infinity is no fraction.
        walk.fault("holds a number that is not finite, or of hundreds of digits")
    if least < 0:
        walk.fault(f"{shown(least)} is negative; the least is 0")
    return len(numbers), total


def _results(walk: JsonWalk) -> _Results:
    found = _Results()
    for key in walk.members():
        if key in FACTS:
            found.facts[key] = walk.scalar()
        elif key in COLUMNS:
            found.columns[key] = walk.column()
        elif key == GAPS:
            found.gaps = [_total(walk) for _ in walk.items()]
        elif key == ERRORS:
            # Texts of errors are long; that there is one is enough.
            found.failed = [bool(walk.scalar()) for _ in walk.items()]
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
    columns = results.columns
    if "output_lens" not in columns:
        raise InputError("has no 'output_lens': it is no benchmark of generation", source=path)
    count = len(columns["input_lens"])
    lengths = {name: len(column) for name, column in columns.items()}
    lengths |= {GAPS: len(results.gaps)} if results.gaps else {}
    lengths |= {ERRORS: len(results.failed)} if results.failed else {}
    for name, length in lengths.items():
        if length != count:
            raise InputError(f"holds {length} values, 'input_lens' {count}", field=name, source=path)
    return count


def _at_once(results: _Results) -> bool:
    """Whether all requests were issued at the start."""
    rate = results.facts.get("request_rate")
    return rate == "inf" or (isinstance(rate, Decimal) and rate.is_infinite() and rate > 0)


def _of_trace(path: str, trace: Trace, count: int) -> list[Fraction]:
    if len(trace.requests) != count:
        raise InputError(
            f"holds {count} requests, {trace.path} {len(trace.requests)}: they cannot be matched", source=path
        )
    return [request.arrival for request in trace.requests]


@dataclass
class _Arrivals:
    """When requests arrived, and how much later each was sent.

    Attributes
    ----------
    at : callable
        Takes the position and the values of a request, returns its arrival in seconds.
    waited : bool
        Whether the moment of sending is unknown, and with it every latency from the arrival on.
    """

    at: Callable[[int, Values], Fraction]
    waited: bool = False


def _arrivals(found: Collected, results: _Results, count: int, choices: Choices) -> _Arrivals:
    limit = results.facts.get("max_concurrency")
    if "start_times" in results.columns:
        if "queue_times" in results.columns:
            found.say(
                "start_times are send times; a request arrives its queue_time before, and its latencies "
                "count from there."
            )
            return _Arrivals(_before_queue)
        found.say(
            "start_times are send times, taken as arrivals: the file has no queue_times"
            + (f", and at most {limit} requests were under way at once." if limit else ".")
        )
        return _Arrivals(lambda k, values: values.time("start_times"))
    if choices.trace is not None:
        known = _of_trace(found.path, choices.trace, count)
        found.say(f"Arrivals are those of {choices.trace.path}, in its order.")
        arrivals = _Arrivals(lambda k, values: known[k])
    elif _at_once(results):
        found.say("The file has no start_times; request_rate is infinite, so all requests arrived at once.")
        arrivals = _Arrivals(lambda k, values: Fraction(0))
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


def _before_queue(k: int, values: Values) -> Fraction:
    return values.between(
        "queue_times", values.time("queue_times"), "start_times", values.time("start_times")
    )


def _latencies(values: Values, results: _Results, k: int) -> tuple[Fraction | None, Fraction | None]:
    """TTFT and end-to-end latency of a request since it was sent, in seconds."""
    ttft = values.time("ttfts")
    e2e = values.maybe_time("latencies")
    if not ttft:
        # The answer did not come as a stream.
        return None, e2e
    if e2e is None and results.gaps:
        e2e = ttft + results.gaps[k][1]
    return ttft, e2e


def _finished(found: Collected, results: _Results, count: int) -> Iterator[tuple[int, Values]]:
    """Requests that did not fail."""
    for k in range(count):
        values = Values(found.path, f"request {k + 1}", results.columns_at(k))
        if (results.failed and results.failed[k]) or not values.tokens("output_lens"):
            found.leave_out("failed (an error, or no output tokens)")
        else:
            yield k, values


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
    columns = results.columns
    if "input_lens" not in columns or "ttfts" not in columns:
        missing = (
            f"is a summary without the lengths and times of its requests: run the benchmark with {option}"
        )
        waits = columns.get("latencies", []), columns.get("queue_times", [])
        return read_summary(path, form, results.facts, waits, _at_once(results), missing)
    count = _check(path, results)
    found = Collected(path, form)
    arrivals = _arrivals(found, results, count, choices)
    bundled = unstreamed = 0
    for k, values in _finished(found, results, count):
        ttft, e2e = _latencies(values, results, k)
        unstreamed += ttft is None
        outputs = values.tokens("output_lens")
        bundled += bool(results.gaps) and ttft is not None and results.gaps[k][0] < outputs - 1
        queued = values.maybe_time("queue_times") or Fraction(0)
        request = ForeignRequest(
            name=str(k + 1),
            line=k + 1,
            arrival=arrivals.at(k, values),
            input_tokens=values.tokens("input_lens"),
            output_tokens=outputs,
            ttft=None if ttft is None or arrivals.waited else ttft + queued,
            e2e=None if e2e is None or arrivals.waited else e2e + queued,
        )
        found.add(values, request)
    if bundled:
        found.say(f"{bundled} requests have fewer itls than tokens: an entry can bundle several tokens.")
    if unstreamed:
        found.say(
            f"{unstreamed} requests have a time to first token of 0: they were not streamed, it is unknown."
        )
    run = found.run()
    _check_duration(run, results)
    return run


def _check_duration(run: Run, results: _Results) -> None:
    """Check that the requests take about as long as the file says that all of it took.

    A file whose times are not in seconds is found here.
    """
    said = results.facts.get("duration")
    ends = [request.arrival + request.e2e for request in run.requests if request.e2e is not None]
    if not isinstance(said, int | Decimal) or isinstance(said, bool) or not ends:
        return
    if Decimal(said).is_finite() and max(ends) > LONGER * Fraction(said) + 1:
        problem = (
            f"is {float(said):g} s, but the last request ends {float(max(ends)):g} s after the first came"
        )
        raise InputError(problem, field="duration", source=run.path)
