"""BLIS's metrics file (``--metrics-path``): arrivals in seconds, latencies in milliseconds.

Source: inference-sim/inference-sim, ``sim/metrics_utils.go`` and ``sim/metrics.go``.
"""

from __future__ import annotations

from infermax_opt.core.errors import InputError
from infermax_opt.files.json_walk import JsonWalk
from infermax_opt.foreign.formats import Choices, RunFormat
from infermax_opt.foreign.head import Head
from infermax_opt.foreign.requests import MS, Collected, Values
from infermax_opt.foreign.run import ForeignRequest, Run

__all__ = ["BLIS"]

PREEMPTIONS = "preemption_count"


def _add(found: Collected, walk: JsonWalk, number: int) -> None:
    values = Values(found.path, walk.place, walk.value())
    e2e = values.time("e2e_ms", MS)
    if not e2e:
        found.leave_out("not finished (e2e_ms 0)")
        return
    if values.flag("length_capped"):
        # num_decode_tokens is what was planned.
        found.leave_out("ended at the longest length of the model: what it generated is unknown")
        return
    request = ForeignRequest(
        name=values.text("requestID", str(number)),
        line=number,
        arrival=values.time("arrived_at"),
        input_tokens=values.tokens("num_prefill_tokens"),
        output_tokens=values.tokens("num_decode_tokens"),
        ttft=values.time("ttft_ms", MS),
        e2e=e2e,
    )
    found.add(values, request)


def _read(path: str, choices: Choices) -> Run:
    found, walk = Collected(path, "blis"), JsonWalk(path)
    listed = False
    for number in walk.documents():
        if number > 1:
            raise InputError(f"holds {number} values; a metrics file is one object", source=path)
        for key in walk.members():
            if key == PREEMPTIONS:
                count = walk.scalar()
                if count:
                    found.say(f"There were {count} preemptions; the file does not say of which requests.")
            elif key == "requests":
                listed = True
                for position in walk.items():
                    _add(found, walk, position + 1)
    if not listed:
        raise InputError(
            "holds no 'requests': the summary on standard output has none; run with --metrics-path",
            source=path,
        )
    return found.run()


def _known(head: Head) -> bool:
    return head.has("injected_requests", "vllm_estimated_duration_s")


BLIS = RunFormat("blis", "BLIS (inference-sim): file of --metrics-path", _read, _known)
