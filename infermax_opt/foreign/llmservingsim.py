"""LLMServingSim's runs of vLLM: ``requests.jsonl``, in seconds of two clocks.

Source: casys-kaist/LLMServingSim, ``bench/examples/*/*/vllm/requests.jsonl``.
"""

from __future__ import annotations

from infermax_opt.files.rows import json_rows
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["LLMSERVINGSIM"]

COLUMNS = ("queued_ts", "input_toks", "output_toks")
FIRST, LAST = "first_token_ts", "last_token_ts"


def _read(path: str, choices: Choices) -> Run:
    found = Collected(path, "llmservingsim")
    timed = 0
    for line, row in json_rows(path, COLUMNS, finite=False):
        values = Values(path, f"line {line}", row)
        queued = values.time("queued_ts")
        first, last = values.maybe_time(FIRST), values.maybe_time(LAST)
        timed += last is not None
        request = ForeignRequest(
            name=values.text("request_id", str(line)),
            line=line,
            arrival=queued,
            input_tokens=values.tokens("input_toks"),
            output_tokens=values.tokens("output_toks"),
            ttft=None if first is None else values.between("queued_ts", queued, FIRST, first),
            e2e=None if last is None else values.between("queued_ts", queued, LAST, last),
        )
        found.add(values, request)
    found.say(
        "Arrivals are queued_ts: arrival_time is of another clock than the moments of the run.",
    )
    if timed < len(found.requests):
        found.say(
            f"{len(found.requests) - timed} requests have no last_token_ts: how long they took is unknown."
        )
    return found.run()


def _known(head: Head) -> bool:
    return head.has(*COLUMNS)


LLMSERVINGSIM = RunFormat("llmservingsim", "LLMServingSim's runs of vLLM: requests.jsonl", _read, _known)
