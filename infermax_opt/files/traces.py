"""Request traces of other tools: read exactly, cut to a window, made into instances.

Arrivals are seconds after the first usable request of the trace.  Output lengths count the first
token, which every format here does too (Vidur's ``num_decode_tokens`` included).
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from infermax_opt.core.checks import checked_whole
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, to_fraction
from infermax_opt.files.fields import shown
from infermax_opt.files.rows import MAX_ROWS, Row, csv_rows, fault, json_rows, number, token_count

__all__ = [
    "FORMATS",
    "Trace",
    "TraceRequest",
    "check_fit",
    "cut_trace",
    "keep_fit",
    "read_trace",
]

UNITS = {"s": Fraction(1), "ms": Fraction(1, 1000)}


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace: where it stood, when it arrived, its lengths in tokens."""

    line: int
    arrival: Fraction
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True)
class Trace:
    """Requests of a trace file by arrival, and what was left out of them.

    Attributes
    ----------
    path : str
    requests : tuple of TraceRequest
    dropped : mapping of reason to int
        Requests left out because an instance cannot hold them.
    offline : bool
        Whether all arrivals were set to 0.
    remarks : tuple of str
        What must be said beside its numbers, a sentence each.
    """

    path: str
    requests: tuple[TraceRequest, ...]
    dropped: Mapping[str, int] = field(default_factory=dict)
    offline: bool = False
    remarks: tuple[str, ...] = ()


Misfit = Callable[[TraceRequest], str | None]
"""Says why no schedule can serve a request, if so."""


# --- one value ----------------------------------------------------------------------------------


_DATE = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d)"
    r"(?:\.(?P<decimals>\d{1,12}))?(?P<zone>Z|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _date(value: object) -> Fraction:
    """Seconds since 1970 of a timestamp with any number of decimals; no zone means UTC."""
    match = _DATE.fullmatch(str(value).strip())
    try:
        if match is None:
            raise ValueError
        zone = "+00:00" if match["zone"] in (None, "Z") else match["zone"]
        whole = datetime.datetime.fromisoformat(f"{match['day']} {match['clock']}{zone}") - _EPOCH
    except (ValueError, OverflowError):
        raise ValueError(f"{shown(value)} is not a date and time like 2023-11-16 18:17:03.9799600") from None
    decimals = match["decimals"] or "0"
    return whole.days * 86400 + whole.seconds + Fraction(int(decimals), 10 ** len(decimals))


# --- one format ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Format:
    """Columns of a trace format.

    Attributes
    ----------
    arrival, input, output : str
    unit : str or None
        Unit of the arrival; None where files of that layout differ, so that the user must say.
    dated : bool
        Whether arrivals are dates, not numbers.
    ones : str or None
        A column in which only 1 is understood.
    no_output : str
        What a request without output tokens is.
    """

    arrival: str
    input: str
    output: str
    unit: str | None = "s"
    dated: bool = False
    ones: str | None = None
    rows: Callable[[str, tuple[str, ...]], Iterator[Row]] = csv_rows
    no_output: str = "no output tokens"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that must be there; others are ignored."""
        return (self.arrival, self.input, self.output, *([self.ones] if self.ones else []))


FORMATS: Mapping[str, _Format] = {
    "azure": _Format("TIMESTAMP", "ContextTokens", "GeneratedTokens", dated=True),
    "vidur": _Format("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "burstgpt": _Format(
        "Timestamp", "Request tokens", "Response tokens", no_output="failed (no response tokens)"
    ),
    "mooncake": _Format("timestamp", "input_length", "output_length", unit=None, rows=json_rows),
    "splitwise": _Format("arrival_timestamp", "prompt_size", "token_size", ones="batch_size"),
}
"""Trace formats by name."""


def _unit(name: str, form: _Format, time_unit: str | None) -> Fraction:
    if time_unit is not None and time_unit not in UNITS:
        raise InputError(f"{time_unit!r} is none of {', '.join(UNITS)}", field="time unit")
    if form.dated:
        if time_unit is not None:
            raise InputError(f"{name} arrivals are dates, which have no unit", field="time unit")
        return UNITS["s"]
    unit = time_unit or form.unit
    if unit is None:
        raise InputError(
            f"{name} files give '{form.arrival}' in ms or in s (guidellm writes the same keys in s): "
            "say --time-unit ms or --time-unit s",
            field="time unit",
        )
    return UNITS[unit]


def read_trace(
    path: str | os.PathLike[str],
    format: str,
    *,
    time_unit: str | None = None,
    first: int | None = None,
    window: tuple[Number, Number] | None = None,
    offline: bool = False,
) -> Trace:
    """Read a trace file (``.gz`` accepted).

    Parameters
    ----------
    path : path
    format : str
        A key of `FORMATS`.
    time_unit : {"s", "ms"}, optional
        Unit of numeric arrivals; needed for "mooncake", whose files differ.
    first : int, optional
        Keep the first so many requests (of the window).
    window : pair of numbers, optional
        Keep arrivals from the first up to, not including, the second number of seconds after the
        trace's first request; arrivals then count from the window's start.
    offline : bool
        Set all arrivals to 0.

    Raises
    ------
    InputError
        Naming file, line, column and value.
    """
    name = os.fspath(path)
    if format not in FORMATS:
        raise InputError(f"{format!r} is none of {', '.join(FORMATS)}", field="format")
    form = FORMATS[format]
    requests, dropped = _read(name, form, _unit(format, form, time_unit))
    if not requests:
        raise InputError("holds no usable request", source=name)
    requests.sort(key=lambda r: r.arrival)
    return cut_trace(Trace(name, tuple(requests), dropped), first=first, window=window, offline=offline)


def cut_trace(
    trace: Trace,
    *,
    first: int | None = None,
    window: tuple[Number, Number] | None = None,
    offline: bool = False,
) -> Trace:
    """Keep a part of a trace; arrivals count from its first request, or from the window's start.

    Parameters
    ----------
    trace : Trace
        By arrival; arrivals of any clock.
    first, window, offline
        See `read_trace`.

    Raises
    ------
    InputError
        If no request arrives in the window.
    """
    requests = list(trace.requests)
    origin = requests[0].arrival
    if window is not None:
        begin, end = _span(window)
        requests = [r for r in requests if begin <= r.arrival - origin < end]
        if not requests:
            raise InputError(
                f"no request arrives in the window {float(begin):g}:{float(end):g} s", source=trace.path
            )
        origin += begin
    if first is not None:
        requests = requests[: checked_whole(first, "first", 1, MAX_ROWS)]
    if offline:
        requests = [replace(r, arrival=Fraction(0)) for r in requests]
    elif origin:
        requests = [replace(r, arrival=r.arrival - origin) for r in requests]
    return replace(trace, requests=tuple(requests), offline=offline)


def _span(window: tuple[Number, Number]) -> tuple[Fraction, Fraction]:
    if isinstance(window, str) or len(window) != 2:
        raise InputError(f"{window!r} is no pair of seconds", field="window")
    try:
        return to_fraction(window[0]), to_fraction(window[1])
    except ValueError as error:
        raise InputError(str(error), field="window") from None


def _read(path: str, form: _Format, unit: Fraction) -> tuple[list[TraceRequest], dict[str, int]]:
    requests: list[TraceRequest] = []
    dropped: dict[str, int] = {}
    when = _date if form.dated else number
    for line, row in form.rows(path, form.columns):
        column = form.arrival
        try:
            arrival = when(row[column]) * unit
            column = form.input
            inputs = token_count(row[column])
            column = form.output
            outputs = token_count(row[column])
            if form.ones:
                column = form.ones
                if number(row[column]) != 1:
                    raise ValueError(f"{shown(row[column])} is not 1")
        except ValueError as error:
            fault(path, line, column, str(error))
        if inputs and outputs:
            requests.append(TraceRequest(line, arrival, inputs, outputs))
        else:
            reason = form.no_output if not outputs else "no input tokens"
            dropped[reason] = dropped.get(reason, 0) + 1
        if len(requests) > MAX_ROWS:
            raise InputError(f"more than {MAX_ROWS} requests", source=path)
    return requests, dropped


# --- instances ----------------------------------------------------------------------------------


def keep_fit(trace: Trace, misfit: Misfit) -> Trace:
    """Leave out, and count, the requests that do not fit.

    Raises
    ------
    InputError
        If none is left.
    """
    kept = tuple(r for r in trace.requests if misfit(r) is None)
    if not kept:
        raise InputError("holds no request that fits the system", source=trace.path)
    unfit = len(trace.requests) - len(kept)
    dropped = {**trace.dropped, **({"can never fit": unfit} if unfit else {})}
    return replace(trace, requests=kept, dropped=dropped)


def check_fit(trace: Trace, misfit: Misfit) -> None:
    """Check that all requests fit.

    Raises
    ------
    InputError
        Naming the line of one that does not.
    """
    for request in trace.requests:
        problem = misfit(request)
        if problem is not None:
            fault(trace.path, request.line, None, f"the request can never fit: {problem}")
