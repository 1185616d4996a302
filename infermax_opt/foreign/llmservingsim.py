"""LLMServingSim's runs of vLLM: ``requests.jsonl``, in seconds of two clocks.

Source: casys-kaist/LLMServingSim, ``bench/examples/*/*/vllm/requests.jsonl``.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from infermax_opt.files.rows import Row, json_rows
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

if TYPE_CHECKING:
    from infermax_opt.foreign.run_columns import RequestColumns

__all__ = ["LLMSERVINGSIM"]

QUEUED, FIRST, LAST = "queued_ts", "first_token_ts", "last_token_ts"
NAME, TOKENS = "request_id", ("input_toks", "output_toks")
COLUMNS = (QUEUED, *TOKENS)


def _moment(values: Values, key: str) -> Fraction | None:
    """A moment in seconds; None where it is absent or 0, which is what vLLM says of what never came."""
    return values.maybe_time(key) or None


def _plain(rows: Sequence[Row]) -> RequestColumns | None:
    from infermax_opt.foreign.blocks import plain_columns, plain_names
    from infermax_opt.foreign.columns import plain_times, plain_tokens

    lines, values = zip(*rows, strict=True)
    queued, first, last = (plain_times([row.get(key) for row in values]) for key in (QUEUED, FIRST, LAST))
    inputs, outputs = (plain_tokens([row.get(key) for row in values]) for key in TOKENS)
    if queued is None or first is None or last is None or not (first.ticks.all() and last.ticks.all()):
        return None
    names = plain_names([row.get(NAME) for row in values], lines)
    return plain_columns(lines, names, queued, (inputs, outputs), (first - queued, last - queued))


def _add(found: Collected, row: Row) -> None:
    values = Values(found.path, f"line {row[0]}", row[1])
    queued, last = values.time(QUEUED), _moment(values, LAST)
    if last is None:
        found.leave_out(f"not finished (no {LAST})")
        return
    first = _moment(values, FIRST)
    request = ForeignRequest(
        name=values.text(NAME, str(row[0])),
        line=row[0],
        arrival=queued,
        input_tokens=values.tokens("input_toks"),
        output_tokens=values.tokens("output_toks"),
        ttft=None if first is None else values.between(QUEUED, queued, FIRST, first),
        e2e=values.between(QUEUED, queued, LAST, last),
    )
    found.add(values, request)


def _read(path: str, choices: Choices) -> Run:
    from infermax_opt.foreign.blocks import read_rows

    found = Collected(path, "llmservingsim")
    read_rows(found, json_rows(path, COLUMNS, finite=False), _plain, partial(_add, found))
    found.say(
        "Arrivals are queued_ts: arrival_time is of another clock than the moments of the run.",
    )
    return found.run()


def _known(head: Head) -> bool:
    return head.has(*COLUMNS)


LLMSERVINGSIM = RunFormat("llmservingsim", "LLMServingSim's runs of vLLM: requests.jsonl", _read, _known)
