"""aiperf's ``profile_export.jsonl``: a record a request, a unit beside each value.

A file can hold several profiling phases, one after the other, such as of rising load.

Source: ai-dynamo/aiperf, ``docs/tutorials/working-with-profile-exports.md`` and
``common/models/record_models.py`` of 0.13.
"""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.files.fields import shown
from infermax_opt.files.rows import json_rows
from infermax_opt.files.text import counted
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import MS, NS, US, Collected, S, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["AIPERF"]

UNITS = {"ns": NS, "us": US, "ms": MS, "s": S, "sec": S}
START, CREDIT = "metadata.request_start_ns", "metadata.credit_issued_ns"
#: Place of a record's phase among the profiling ones, from 0; absent where there is one.
PHASE = "metadata.profiling_index"
#: The phase whose records are of the measurement.
PROFILING = "profiling"


def _measured(values: Values, metric: str) -> Fraction | None:
    """A latency in seconds, by the unit beside it; None where it was not measured."""
    if values.get(f"metrics.{metric}") is None:
        return None
    unit = values.get(f"metrics.{metric}.unit")
    if not isinstance(unit, str) or unit not in UNITS:
        values.fault(f"metrics.{metric}.unit", f"{shown(unit)} is none of {', '.join(UNITS)}")
    return values.time(f"metrics.{metric}.value", UNITS[unit])


def _why_not(values: Values) -> str | None:
    """Why a record is not of a finished request of the measurement, if so."""
    phase = values.text("metadata.benchmark_phase", PROFILING)
    if phase != PROFILING:
        return f"of the phase {phase!r}, not {PROFILING!r}"
    if values.flag("metadata.was_cancelled"):
        return "cancelled"
    return None if values.get("error") is None else "failed"


def _check_phases(path: str, phases: set[int], chosen: int | None) -> None:
    """Check that one of the profiling phases of a file is chosen, or that there is one only."""
    count = max(phases, default=0) + 1
    if chosen is None and len(phases) > 1:
        problem = f"holds {count} profiling phases: choose one, from 1 to {count}, with --benchmark"
        raise InputError(problem, source=path)
    if chosen is not None and chosen - 1 not in phases:
        problem = f"is {chosen}; the file holds {count} profiling phases"
        raise InputError(problem, field="benchmark", source=path)


def _read(path: str, choices: Choices) -> Run:
    found = Collected(path, "aiperf")
    untimed, late, phases = 0, Fraction(0), set[int]()
    for line, row in json_rows(path, ("metadata", "metrics"), finite=False):
        values = Values(path, f"line {line}", row)
        reason = _why_not(values)
        if values.text("metadata.benchmark_phase", PROFILING) == PROFILING:
            phase = values.maybe_tokens(PHASE) or 0
            phases.add(phase)
            if choices.benchmark not in (None, phase + 1):
                continue
        if reason is not None:
            found.leave_out(reason)
            continue
        start, credit = values.time(START, NS), values.maybe_time(CREDIT, NS)
        late = max(late, start - credit if credit is not None else Fraction(0))
        ttft = _measured(values, "time_to_first_token")
        untimed += ttft is None
        e2e = _measured(values, "request_latency")
        request = ForeignRequest(
            name=values.text("metadata.x_request_id", str(line)),
            line=line,
            arrival=start,
            input_tokens=values.tokens("metrics.input_sequence_length.value"),
            output_tokens=values.tokens("metrics.output_sequence_length.value"),
            ttft=ttft,
            e2e=values.span(START, "metadata.request_end_ns", NS) if e2e is None else e2e,
        )
        found.add(values, request)
    if not found.count and not found.left_out and not phases:
        raise InputError("holds no record", source=path)
    _check_phases(path, phases, choices.benchmark)
    found.say(
        "Arrivals are the moments of sending (request_start_ns), seen by the client.",
        "Output lengths are output_sequence_length, which counts reasoning tokens, as output_token_count "
        "does not.",
    )
    if late:
        found.say(f"Requests were sent up to {float(late):g} s after the moment planned (credit_issued_ns).")
    if untimed:
        found.say(f"Not streamed, without time_to_first_token: {counted(untimed, 'requests')}.")
    return found.run()


def _known(head: Head) -> bool:
    return head.has(START, "metadata.benchmark_phase")


AIPERF = RunFormat("aiperf", "aiperf: profile_export.jsonl", _read, _known, ("benchmark",))
