"""Spans of vLLM's requests as OTLP JSON: one object, or one a line.

Source: vllm-project/vllm, ``SpanAttributes`` of its tracing; OpenTelemetry's JSON encoding, which writes
64-bit
integers as texts.
"""

from __future__ import annotations

from typing import Any

from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import NS, Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["VLLM_OTLP"]

START = "startTimeUnixNano"
#: Attributes by the names under which values are read here.
ATTRIBUTES = {
    "gen_ai.request.id": "request_id",
    "gen_ai.request.n": "n",
    "gen_ai.usage.prompt_tokens": "prompt_tokens",
    "gen_ai.usage.completion_tokens": "completion_tokens",
    "gen_ai.usage.cached_tokens": "cached_tokens",
    "gen_ai.latency.time_to_first_token": "time_to_first_token",
    "gen_ai.latency.e2e": "e2e",
}
#: Status of a span that failed.
FAILED = (2, "STATUS_CODE_ERROR")


def _flat(span: dict[str, Any]) -> dict[str, Any]:
    """A span with those of its attributes that are needed as values of its own."""
    kept = {START: span.get(START), "status": span.get("status")}
    attributes = span.get("attributes")
    for attribute in attributes if isinstance(attributes, list) else []:
        name = attribute.get("key") if isinstance(attribute, dict) else None
        if isinstance(name, str) and name in ATTRIBUTES:
            value = attribute.get("value")
            # One key with the type of the value: intValue, doubleValue, stringValue.
            kept[ATTRIBUTES[name]] = next(iter(value.values()), None) if isinstance(value, dict) else value
    return kept


def _add(found: Collected, values: Values, number: int) -> bool:
    """Add the request of a span; false where it is none of a request."""
    if values.get("e2e") is None and values.get("completion_tokens") is None:
        return False
    if values.get("status.code") in FAILED:
        found.leave_out("failed")
    elif values.get("e2e") is None or values.get("completion_tokens") is None:
        found.leave_out("not finished (no length or no latency)")
    elif (values.maybe_tokens("n") or 1) > 1:
        found.leave_out("asked for several outputs at once")
    else:
        request = ForeignRequest(
            name=values.text("request_id", str(number)),
            line=number,
            arrival=values.time(START, NS),
            input_tokens=values.tokens("prompt_tokens"),
            output_tokens=values.tokens("completion_tokens"),
            ttft=values.maybe_time("time_to_first_token"),
            e2e=values.time("e2e"),
            cached_tokens=values.maybe_tokens("cached_tokens"),
        )
        found.add(values, request)
    return True


def _spans(walk: JsonWalk) -> Any:
    """Values of all spans of the object that begins here."""
    for resources in walk.members():
        if resources == "resourceSpans":
            for _ in walk.items():
                for scopes in walk.members():
                    if scopes == "scopeSpans":
                        for _ in walk.items():
                            for key in walk.members():
                                if key == "spans":
                                    for _ in walk.items():
                                        place = walk.place
                                        yield place, walk.value(("events", "links"))


def _read(path: str, choices: Choices) -> Run:
    found, walk = Collected(path, "vllm-otlp"), JsonWalk(path)
    number = others = 0
    for document in walk.documents():
        for place, span in _spans(walk):
            number += 1
            if not isinstance(span, dict):
                walk.fault("is not an object")
            where = place if document == 1 else f"value {document}: {place}"
            others += not _add(found, Values(path, where, _flat(span)), number)
    if others:
        found.say(f"{others} spans are not of requests (no gen_ai.latency.e2e) and were passed over.")
    return found.run()


def _known(head: Head) -> bool:
    return head.has(f"resourceSpans[].scopeSpans[].spans[].{START}") and b"gen_ai.latency." in head.data


VLLM_OTLP = RunFormat("vllm-otlp", "vLLM: spans of its requests, OTLP as JSON", _read, _known)
