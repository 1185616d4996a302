"""LLMServingSim's runs of vLLM: ``requests.jsonl``, in seconds of two clocks.

Source: casys-kaist/LLMServingSim, ``bench/examples/*/*/vllm/requests.jsonl``.
"""

from __future__ import annotations

from fractions import Fraction

from infermax_opt.files.rows import json_rows
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["LLMSERVINGSIM"]

QUEUED, FIRST, LAST = "queued_ts", "first_token_ts", "last_token_ts"
COLUMNS = (QUEUED, "input_toks", "output_toks")


def _moment(values: Values, key: str) -> Fraction | None:
    """A moment in seconds; None where it is absent or 0, which is what vLLM says of what never came."""
    return values.maybe_time(key) or None


def _read(path: str, choices: Choices) -> Run:
    found = Collected(path, "llmservingsim")
    for line, row in json_rows(path, COLUMNS, finite=False):
        values = Values(path, f"line {line}", row)
        queued, last = values.time(QUEUED), _moment(values, LAST)
        if last is None:
            found.leave_out(f"not finished (no {LAST})")
            continue
        first = _moment(values, FIRST)
        request = ForeignRequest(
            name=values.text("request_id", str(line)),
            line=line,
            arrival=queued,
            input_tokens=values.tokens("input_toks"),
            output_tokens=values.tokens("output_toks"),
            ttft=None if first is None else values.between(QUEUED, queued, FIRST, first),
            e2e=values.between(QUEUED, queued, LAST, last),
        )
        found.add(values, request)
    found.say(
        "Arrivals are queued_ts: arrival_time is of another clock than the moments of the run.",
    )
    return found.run()


def _known(head: Head) -> bool:
    return head.has(*COLUMNS)


LLMSERVINGSIM = RunFormat("llmservingsim", "LLMServingSim's runs of vLLM: requests.jsonl", _read, _known)
