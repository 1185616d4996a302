"""inference-perf's ``per_request_lifecycle_metrics.json``: a list of requests, in seconds of a clock of
its own.

Source: kubernetes-sigs/inference-perf, ``inference_perf/reportgen/base.py`` and
``inference_perf/apis/base.py``.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["INFERENCE_PERF"]

INFO = "info"
RESPONSE = "info.response_metrics"
USAGE = f"{RESPONSE}.server_usage"
FIRST = f"{RESPONSE}.first_token"
#: Long, and not needed.
UNREAD = ("response_chunks", "chunk_times", "extra_info", "labels")


def _response(walk: JsonWalk) -> Any:
    """What is needed of ``response_metrics``: of the moments of its tokens, the first."""
    if not walk.is_object:
        return walk.scalar()
    kept: dict[str, Any] = {}
    for key in walk.members():
        if key == "output_token_times":
            for position in walk.items():
                if not position:
                    kept["first_token"] = walk.scalar()
        elif key not in UNREAD:
            kept[key] = walk.value()
    return kept


def _item(walk: JsonWalk) -> dict[str, Any]:
    """What is needed of a request."""
    kept: dict[str, Any] = {}
    for key in walk.members():
        if key == INFO and walk.is_object:
            kept[INFO] = {
                inner: _response(walk) if inner == "response_metrics" else walk.value(UNREAD)
                for inner in walk.members()
                if inner not in UNREAD
            }
        elif key == "error":
            kept[key] = None if walk.is_null else True
        elif key in ("start_time", "end_time"):
            kept[key] = walk.scalar()
    return kept


def _request(values: Values, number: int) -> ForeignRequest:
    start = values.time("start_time")
    first = values.maybe_time(FIRST)
    inputs = values.maybe_tokens("info.request_metrics.text.input_tokens")
    outputs = values.maybe_tokens(f"{USAGE}.completion_tokens")
    return ForeignRequest(
        name=str(number),
        line=number,
        arrival=start,
        input_tokens=values.tokens("info.input_tokens") if inputs is None else inputs,
        output_tokens=values.tokens(f"{RESPONSE}.output_tokens") if outputs is None else outputs,
        ttft=None if first is None else values.between("start_time", start, FIRST, first),
        e2e=values.span("start_time", "end_time"),
        cached_tokens=values.maybe_tokens(f"{USAGE}.prompt_tokens_details.cached_tokens"),
    )


def _read(path: str, choices: Choices) -> Run:
    found, walk = Collected(path, "inference-perf"), JsonWalk(path)
    counted = drifted = prompts = hits = 0
    for number in walk.documents():
        if number > 1:
            raise InputError(f"holds {number} values; the report is one list", source=path)
        for position in walk.items():
            values = Values(path, walk.place, _item(walk))
            if values.get("error") is not None or values.get(RESPONSE) is None:
                found.leave_out("failed")
                continue
            request = _request(values, position + 1)
            said = values.maybe_tokens(f"{USAGE}.completion_tokens")
            counted += said is None
            drifted += said is not None and said != (values.maybe_tokens(f"{RESPONSE}.output_tokens") or said)
            prompts += (
                values.maybe_tokens(f"{USAGE}.prompt_tokens") or request.input_tokens
            ) != request.input_tokens
            hits += bool(request.cached_tokens)
            found.add(values, request)
    found.say(
        "Arrivals are the moments of sending (start_time), seen by the client; the planned ones are not "
        "in the file."
    )
    if counted:
        found.say(
            f"Output lengths of {counted} requests are the client's, which tokenizes again and can drift."
        )
    if drifted:
        found.say(
            f"The client counted other output lengths than the server in {drifted} requests; the server's "
            "count."
        )
    if prompts:
        found.say(
            f"The server counted other prompt lengths than the client in {prompts} requests; the client's "
            "count."
        )
    if hits:
        found.say(f"{hits} requests found a part of their prompt in a prefix cache.")
    return found.run()


def _known(head: Head) -> bool:
    return head.has("[].start_time", "[].end_time", "[].request")


INFERENCE_PERF = RunFormat(
    "inference-perf", "inference-perf: per_request_lifecycle_metrics.json", _read, _known
)
