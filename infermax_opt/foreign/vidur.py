"""Vidur's ``request_metrics.csv``.

Source: microsoft/vidur, ``vidur/metrics/metrics_store.py``.  Times are seconds.  Lengths are those with
which a request arrived, whether it was restarted or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.files.rows import Cells, csv_cells
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

if TYPE_CHECKING:
    from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["VIDUR", "read_metrics"]

DELAY = "request_inter_arrival_delay"
E2E = "request_e2e_time"
COLUMNS = (
    "Request Id", E2E, "prefill_e2e_time", DELAY, "request_num_prefill_tokens", "request_num_decode_tokens",
    "request_num_restarts",
)  # fmt: skip


class _Reader:
    """Reads rows, each of which counts from the one before it."""

    def __init__(self, path: str, form: str):
        self.found = Collected(path, form)
        self.arrival: Fraction | None = None

    def plain(self, rows: Sequence[Cells]) -> RequestColumns | None:
        """Requests of rows that are plain, as `single` reads them; not of the first, which has no delay."""
        import numpy as np

        from infermax_opt.foreign.blocks import plain_columns, plain_names
        from infermax_opt.foreign.columns import Times, plain_times, plain_tokens

        lines, names, *columns = zip(*rows, strict=True)
        e2e, ttft, delays = map(plain_times, columns[:3])
        inputs, outputs, restarts = map(plain_tokens, columns[3:])
        if self.arrival is None or delays is None or restarts is None:
            return None
        # Sums of thousands may not fit where each of them does.
        later = Times(np.cumsum(delays.ticks.astype(object)), delays.unit)
        arrivals = later + Times.of([self.arrival])
        known, tokens, latencies = plain_names(names, lines), (inputs, outputs), (ttft, e2e)
        found = plain_columns(lines, known, arrivals, tokens, latencies, evictions=restarts)
        if found is not None:
            self.arrival = arrivals[-1]
        return found

    def single(self, row: Cells) -> None:
        """Read a row by itself."""
        line, *cells = row
        found, values = (
            self.found,
            Values(self.found.path, f"line {line}", dict(zip(COLUMNS, cells, strict=True))),
        )
        delay = values.maybe_time(DELAY)
        if self.arrival is None and delay is not None:
            values.fault(DELAY, "is given for the first request: rows are not in the order of arrivals")
        if self.arrival is not None and delay is None:
            values.fault(DELAY, "is empty, which it may be for the first request only")
        self.arrival = Fraction(0) if self.arrival is None else self.arrival + (delay or 0)
        e2e = values.maybe_time(E2E)
        if e2e is None:
            found.leave_out("not finished (no request_e2e_time)")
            return
        request = ForeignRequest(
            name=values.text("Request Id", str(line)),
            line=line,
            arrival=self.arrival,
            input_tokens=values.tokens("request_num_prefill_tokens"),
            output_tokens=values.tokens("request_num_decode_tokens"),
            ttft=values.maybe_time("prefill_e2e_time"),
            e2e=e2e,
            evictions=values.maybe_tokens("request_num_restarts"),
        )
        found.add(values, request)


def read_metrics(path: str, form: str) -> Run:
    """Read a file of that layout; `form` is what the run calls its format.

    Raises
    ------
    InputError
        Naming line and column.
    """
    from infermax_opt.foreign.blocks import read_rows

    reader = _Reader(path, form)
    read_rows(reader.found, csv_cells(path, COLUMNS), reader.plain, reader.single)
    found = reader.found
    found.say(
        "Arrivals are the sums of the delays between them.",
        "decode_time_execution_plus_preemption_normalized is not TPOT: it divides by all output tokens, "
        "the first included.",
    )
    return found.run()


def _read(path: str, choices: Choices) -> Run:
    return read_metrics(path, "vidur")


def _known(head: Head) -> bool:
    return head.has("Request Id", E2E, DELAY, "request_num_restarts")


VIDUR = RunFormat("vidur", "Vidur: request_metrics.csv", _read, _known)
