"""Vidur's ``request_metrics.csv``.

Source: microsoft/vidur, ``vidur/metrics/metrics_store.py``.  Times are seconds.  Lengths are those with
which a request arrived, whether it was restarted or not.
"""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.files.rows import csv_rows
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["VIDUR", "read_metrics"]

DELAY = "request_inter_arrival_delay"
E2E = "request_e2e_time"
COLUMNS = (
    "Request Id", E2E, "prefill_e2e_time", DELAY, "request_num_prefill_tokens", "request_num_decode_tokens",
    "request_num_restarts",
)  # fmt: skip


def read_metrics(path: str, form: str) -> Run:
    """Read a file of that layout; `form` is what the run calls its format.

    Raises
    ------
    InputError
        Naming line and column.
    """
    found = Collected(path, form)
    arrival: Fraction | None = None
    for line, row in csv_rows(path, COLUMNS):
        values = Values(path, f"line {line}", row)
        delay = values.maybe_time(DELAY)
        if arrival is None and delay is not None:
            values.fault(DELAY, "is given for the first request: rows are not in the order of arrivals")
        if arrival is not None and delay is None:
            values.fault(DELAY, "is empty, which it may be for the first request only")
        arrival = Fraction(0) if arrival is None else arrival + (delay or 0)
        e2e = values.maybe_time(E2E)
        if e2e is None:
            found.leave_out("not finished (no request_e2e_time)")
            continue
        request = ForeignRequest(
            name=values.text("Request Id", str(line)),
            line=line,
            arrival=arrival,
            input_tokens=values.tokens("request_num_prefill_tokens"),
            output_tokens=values.tokens("request_num_decode_tokens"),
            ttft=values.maybe_time("prefill_e2e_time"),
            e2e=e2e,
            evictions=values.maybe_tokens("request_num_restarts"),
        )
        found.add(values, request)
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
