"""aisimulate's ``requests.jsonl`` (``predict --capture-per-request``), in milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.files.rows import Row, json_rows
from infermax_opt.files.text import counted
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import MS, Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

if TYPE_CHECKING:
    from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["AISIMULATE"]

ARRIVAL, FIRST, LAST, E2E = "arrival_time_ms", "first_token_ms", "last_token_ms", "e2e_latency_ms"
NAME = "session_id"
#: Counts: of tokens, and how often a request was admitted again.
COUNTS = (
    "input_length", "output_length", "requested_output_length", "reused_input_tokens", "readmission_count",
)  # fmt: skip
#: Seconds by which the latency may differ from the moments: they are rounded one by one.
TOLERANCE = Fraction(1, 10**6)


class _Reader:
    """Reads rows, and counts what is said beside them."""

    def __init__(self, path: str):
        self.found = Collected(path, "aisimulate")
        self.short = self.hits = 0

    def plain(self, rows: Sequence[Row]) -> RequestColumns | None:
        """Requests of rows that are plain, as `single` reads them."""
        from infermax_opt.foreign.blocks import plain_columns, plain_names
        from infermax_opt.foreign.columns import Times, plain_times, plain_tokens

        lines, values = zip(*rows, strict=True)
        times = [plain_times([row.get(key) for row in values], 3) for key in (ARRIVAL, FIRST, LAST, E2E)]
        counts = [plain_tokens([row.get(key) for row in values]) for key in COUNTS]
        if any(column is None for column in (*times, *counts)):
            return None
        arrivals, first, last, said = (column for column in times if column is not None)
        inputs, outputs, wanted, cached, evictions = (column for column in counts if column is not None)
        e2e, tolerance = last - arrivals, Times.of([TOLERANCE])
        if any(((some - other) - tolerance).ticks.max() > 0 for some, other in ((said, e2e), (e2e, said))):
            return None
        names = plain_names([row.get(NAME) for row in values], lines)
        latencies = first - arrivals, e2e
        found = plain_columns(
            lines, names, arrivals, (inputs, outputs), latencies, evictions=evictions, cached=cached
        )
        if found is not None:
            self.short += int((outputs < wanted).sum())
            self.hits += int((cached > 0).sum())
        return found

    def single(self, row: Row) -> None:
        """Read a row by itself."""
        line, found = row[0], self.found
        values = Values(found.path, f"line {line}", row[1])
        if values.get(FIRST) is None or values.get(LAST) is None:
            found.leave_out("not finished (no last_token_ms)")
            return
        arrival = values.time(ARRIVAL, MS)
        e2e = values.between(ARRIVAL, arrival, LAST, values.time(LAST, MS))
        said = values.maybe_time(E2E, MS)
        if said is not None and abs(said - e2e) > TOLERANCE:
            values.fault(E2E, f"{float(said / MS):g} is not 'last_token_ms' less 'arrival_time_ms'")
        outputs = values.tokens("output_length")
        self.short += outputs < (values.maybe_tokens("requested_output_length") or 0)
        cached = values.maybe_tokens("reused_input_tokens")
        self.hits += bool(cached)
        request = ForeignRequest(
            name=values.text(NAME, str(line)),
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


def _read(path: str, choices: Choices) -> Run:
    from infermax_opt.foreign.blocks import read_rows

    reader = _Reader(path)
    rows = json_rows(path, (ARRIVAL, "input_length", "output_length"), finite=False)
    read_rows(reader.found, rows, reader.plain, reader.single)
    found, short, hits = reader.found, reader.short, reader.hits
    if short:
        found.say(f"{counted(short, 'requests')} generated fewer tokens than were asked for.")
    if hits:
        found.say(
            f"{counted(hits, 'requests')} found a part of the prompt in a prefix cache (reused_input_tokens)."
        )
    return found.run()


def _known(head: Head) -> bool:
    return head.has(ARRIVAL, FIRST, "requested_output_length")


AISIMULATE = RunFormat("aisimulate", "aisimulate: requests.jsonl", _read, _known)
