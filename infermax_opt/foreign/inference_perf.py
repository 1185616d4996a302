"""inference-perf's ``per_request_lifecycle_metrics.json``: a list of requests, in seconds of a clock of
its own.

Earlier versions call ``response_metrics`` ``response_info``, the first ones have what is in it in ``info``
itself.  Later ones can leave out ``info`` and write ``computed_metrics``.

Source: kubernetes-sigs/inference-perf, ``inference_perf/reportgen/base.py`` and
``inference_perf/apis/base.py``.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.core.errors import InputError
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.files.text import counted
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["INFERENCE_PERF"]

INFO = "info"
RESPONSE = "info.response_metrics"
USAGE = f"{RESPONSE}.server_usage"
FIRST = f"{RESPONSE}.first_token"
COMPUTED = "computed_metrics"
#: Names of what the response holds, one by version.
RESPONSES = ("response_metrics", "response_info")
TOKEN_TIMES = "output_token_times"
#: Long, and not needed.
UNREAD = ("response_chunks", "chunk_times", "extra_info", "labels", "inter_token_latencies")


def _first(walk: JsonWalk) -> Any:
    """The first of the moments that stand here."""
    found = None
    for position in walk.items():
        if not position:
            found = walk.scalar()
    return found


def _response(walk: JsonWalk) -> Any:
    """What is needed of a response: of the moments of its tokens, the first."""
    if not walk.is_object:
        return walk.scalar()
    kept: dict[str, Any] = {}
    for key in walk.members():
        if key == TOKEN_TIMES:
            kept["first_token"] = _first(walk)
        elif key not in UNREAD:
            kept[key] = walk.value()
    return kept


def _info(walk: JsonWalk) -> dict[str, Any]:
    """What is needed of ``info``, the response under its name of today."""
    kept: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key in walk.members():
        if key in RESPONSES:
            kept[RESPONSES[0]] = _response(walk)
        elif key == TOKEN_TIMES:
            own["first_token"] = _first(walk)
        elif key == "output_tokens":
            own[key] = walk.scalar()
        elif key not in UNREAD:
            kept[key] = walk.value(UNREAD)
    return {**kept, RESPONSES[0]: own} if own and RESPONSES[0] not in kept else kept


def _item(walk: JsonWalk) -> dict[str, Any]:
    """What is needed of a request."""
    kept: dict[str, Any] = {}
    for key in walk.members():
        if key == INFO:
            kept[key] = _info(walk) if walk.is_object else walk.scalar()
        elif key == COMPUTED:
            kept[key] = walk.value(UNREAD)
        elif key == "error":
            kept[key] = None if walk.is_null else True
        elif key in ("start_time", "end_time"):
            kept[key] = walk.scalar()
    return kept


def _tokens(values: Values, *keys: str) -> int:
    """The number of tokens that stands at the first of these places that has one."""
    for key in keys:
        found = values.maybe_tokens(key)
        if found is not None:
            return found
    return values.tokens(keys[0])


def _request(values: Values, number: int) -> ForeignRequest:
    start = values.time("start_time")
    first = values.maybe_time(FIRST)
    since = values.maybe_time(f"{COMPUTED}.time_to_first_token")
    inputs = "info.request_metrics.text.input_tokens", "info.input_tokens", f"{COMPUTED}.input_tokens"
    outputs = f"{USAGE}.completion_tokens", f"{RESPONSE}.output_tokens", f"{COMPUTED}.output_tokens"
    return ForeignRequest(
        name=str(number),
        line=number,
        arrival=start,
        input_tokens=_tokens(values, *inputs),
        output_tokens=_tokens(values, *outputs),
        ttft=since if first is None else values.between("start_time", start, FIRST, first),
        e2e=values.span("start_time", "end_time"),
        cached_tokens=values.maybe_tokens(f"{USAGE}.prompt_tokens_details.cached_tokens"),
    )


def _failed(values: Values) -> bool:
    """Whether there is an error, or no response."""
    if values.get("error") is not None:
        return True
    if values.get(COMPUTED) is None and INFO not in values.values:
        values.fault(INFO, "is missing: without it and 'computed_metrics' no lengths are known")
    return values.get(RESPONSE) is None and values.get(COMPUTED) is None


def _read(path: str, choices: Choices) -> Run:
    found, walk = Collected(path, "inference-perf"), JsonWalk(path)
    told = drifted = prompts = hits = 0
    for number in walk.documents():
        if number > 1:
            raise InputError(f"holds {number} values; the report is one list", source=path)
        for position in walk.items():
            values = Values(path, walk.place, _item(walk))
            if _failed(values):
                found.leave_out("failed")
                continue
            request = _request(values, position + 1)
            said = values.maybe_tokens(f"{USAGE}.completion_tokens")
            told += said is None
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
    if told:
        found.say(
            f"Output lengths of {counted(told, 'requests')} are the client's, which tokenizes again and can "
            "drift."
        )
    if drifted:
        found.say(
            f"The client counted other output lengths than the server in {counted(drifted, 'requests')}; the "
            "server's count."
        )
    if prompts:
        found.say(
            f"The server counted other prompt lengths than the client in {counted(prompts, 'requests')}; the "
            "client's count."
        )
    if hits:
        found.say(f"{counted(hits, 'requests')} found a part of the prompt in a prefix cache.")
    return found.run()


def _known(head: Head) -> bool:
    return head.has("[].start_time", "[].end_time") and any(
        head.has(f"[].{key}") for key in ("request", INFO, COMPUTED)
    )


INFERENCE_PERF = RunFormat(
    "inference-perf", "inference-perf: per_request_lifecycle_metrics.json", _read, _known
)
