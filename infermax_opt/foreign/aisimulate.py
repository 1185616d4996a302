"""aisimulate's ``requests.jsonl`` (``predict --capture-per-request``), in milliseconds."""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.files.rows import json_rows
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import MS, Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["AISIMULATE"]

ARRIVAL, FIRST, LAST, E2E = "arrival_time_ms", "first_token_ms", "last_token_ms", "e2e_latency_ms"
#: Seconds by which the latency may differ from the moments: they are rounded one by one.
TOLERANCE = Fraction(1, 10**6)


def _read(path: str, choices: Choices) -> Run:
    found = Collected(path, "aisimulate")
    short = hits = 0
    for line, row in json_rows(path, (ARRIVAL, "input_length", "output_length"), finite=False):
        values = Values(path, f"line {line}", row)
        if values.get(FIRST) is None or values.get(LAST) is None:
            found.leave_out("not finished (no last_token_ms)")
            continue
        arrival = values.time(ARRIVAL, MS)
        e2e = values.between(ARRIVAL, arrival, LAST, values.time(LAST, MS))
        said = values.maybe_time(E2E, MS)
        if said is not None and abs(said - e2e) > TOLERANCE:
            values.fault(E2E, f"{float(said / MS):g} is not 'last_token_ms' less 'arrival_time_ms'")
        outputs = values.tokens("output_length")
        short += outputs < (values.maybe_tokens("requested_output_length") or 0)
        cached = values.maybe_tokens("reused_input_tokens")
        hits += bool(cached)
        request = ForeignRequest(
            name=values.text("session_id", str(line)),
            line=line,
            arrival=arrival,
            input_tokens=values.tokens("input_length"),
            output_tokens=outputs,
            ttft=values.between(ARRIVAL, arrival, FIRST, values.time(FIRST, MS)),
            e2e=e2e,
            evictions=values.maybe_tokens("readmission_count"),
            cached_tokens=cached,
        )
        found.add(values, request)
    if short:
        found.say(f"{short} requests generated fewer tokens than were asked for.")
    if hits:
        found.say(f"{hits} requests found a part of their prompt in a prefix cache (reused_input_tokens).")
    return found.run()


def _known(head: Head) -> bool:
    return head.has(ARRIVAL, FIRST, "requested_output_length")


AISIMULATE = RunFormat("aisimulate", "aisimulate: requests.jsonl", _read, _known)
