"""The format of streams, and streams cut from traces.

An instance of a stream is an object with ``schema`` (that of all instances), ``problem`` (``"stream"``),
``name``, and

- ``requests``: list of ``id``, ``arrival`` (seconds), ``input_tokens``, ``output_tokens`` and optionally
  ``predicted_output_tokens`` (the truth, if not given);
- ``worker`` and ``slo``, as in placement instances;
- optionally ``theta`` (1 if not given), ``gamma`` (0.5), ``heartbeat`` (1 second) and ``split_phase``
  (false).

Its schedule is a placement: the worker of each request.
"""

from __future__ import annotations

import os
import random
from fractions import Fraction
from functools import cache
from typing import Any

from infermax_opt.cluster.data.stream import Stream, StreamRequest, stream_unplaceable
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.lengths import check_error, estimate
from infermax_opt.files.fields import INSTANCE_SCHEMA, Fields, check_format, shown
from infermax_opt.files.json import read_as
from infermax_opt.files.traces import Trace, TraceRequest, check_fit, keep_fit
from infermax_opt.files.writing import dump_json
from infermax_opt.placement.data.formats import worker_from_json, worker_to_json
from infermax_opt.placement.data.instance import Slo, Worker

__all__ = [
    "STREAM",
    "read_stream",
    "stream_from_json",
    "stream_of_trace",
    "stream_to_json",
    "write_stream",
]

#: What instances name as their problem.
STREAM = "stream"

_OPTIONS = ("theta", "gamma", "heartbeat", "split_phase")


def stream_of_trace(
    trace: Trace,
    name: str,
    worker: Worker,
    slo: Slo,
    *,
    error: float = 0.0,
    seed: int = 0,
    skip_unfit: bool = False,
    **options: Any,
) -> tuple[Trace, Stream]:
    """Make a stream of a trace; its requests are named ``r1``, ``r2``, ... by arrival.

    Parameters
    ----------
    trace : Trace
    name : str
    worker : Worker
    slo : Slo
    error : float
        Standard deviation of the logarithm of predicted over true output tokens; 0: they are known.
    seed : int
        Of the predictions.
    skip_unfit : bool
        Whether to leave out, and count, the requests that fit on no worker by themselves.
    **options
        ``theta``, ``gamma``, ``heartbeat`` and ``split_phase`` of the stream.

    Returns
    -------
    Trace
        The requests that are left.
    Stream

    Raises
    ------
    InputError
        If a number is out of range, or a request does not fit on a worker, naming its line.
    """
    check_error(error)

    @cache
    def unfit(input_tokens: int, output_tokens: int) -> str | None:
        alone = StreamRequest("r", Fraction(0), input_tokens, output_tokens, output_tokens)
        try:
            found = stream_unplaceable(Stream(name, (alone,), worker, slo, **options))
        except InputError as misfit:
            if misfit.field != "requests[0]":
                raise
            return f"its KV alone exceeds a worker's: {misfit.problem.partition(' ')[2]}"
        return found[0].partition(": ")[2] if found else None

    def misfit(request: TraceRequest) -> str | None:
        return unfit(request.input_tokens, request.output_tokens)

    if skip_unfit:
        trace = keep_fit(trace, misfit)
    else:
        check_fit(trace, misfit)
    rng = random.Random(seed)

    def predicted(request: TraceRequest) -> int:
        tokens = estimate(request.output_tokens, error, rng) if error else request.output_tokens
        # A prediction knows what fits at all.
        while unfit(request.input_tokens, tokens) is not None:
            tokens //= 2
        return tokens

    requests = tuple(
        StreamRequest(f"r{k}", r.arrival, r.input_tokens, predicted(r), r.output_tokens)
        for k, r in enumerate(trace.requests, 1)
    )
    return trace, Stream(name, requests, worker, slo, **options)


def stream_from_json(value: object) -> Stream:
    """Build a stream from parsed JSON.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    check_format(value, INSTANCE_SCHEMA)
    problem = value.get("problem") if isinstance(value, dict) else None
    if problem == "placement":
        raise InputError("is a single heartbeat, which `solve` and `bound` take", field="problem")
    if isinstance(problem, str) and problem != STREAM:
        raise InputError(f"{shown(problem)} is not {STREAM!r}", field="problem")
    top = Fields(value, "", ["schema", "problem", "name", "requests", "worker", "slo"], _OPTIONS)
    top.schema(INSTANCE_SCHEMA)
    if top.get("problem") != STREAM:
        raise InputError(f"{shown(top.get('problem'))} is not {STREAM!r}", field="problem")
    requests = []
    for index, item in enumerate(top.items("requests")):
        path = f"requests[{index}]"
        fields = Fields(
            item, path, ["id", "arrival", "input_tokens", "output_tokens"], ["predicted_output_tokens"]
        )
        output = fields.get("output_tokens")
        requests.append(
            StreamRequest(
                fields.get("id"),
                fields.decimal("arrival"),
                fields.get("input_tokens"),
                fields.get("predicted_output_tokens", output),
                output,
            )
        )
    slo = Fields(top.get("slo"), "slo", ["ttft", "atgt"])
    given = {key: top.get(key) for key in _OPTIONS if key in top.values}
    worker = worker_from_json(top.get("worker"))
    return Stream(
        top.text("name"), tuple(requests), worker, Slo(slo.decimal("ttft"), slo.decimal("atgt")), **given
    )


def stream_to_json(stream: Stream) -> dict[str, Any]:
    """Return the JSON value that `stream_from_json` reads."""

    def entry(r: StreamRequest) -> dict[str, Any]:
        predicted = {"predicted_output_tokens": r.predicted_output_tokens}
        return {
            "id": r.id,
            "arrival": r.arrival,
            "input_tokens": r.input_tokens,
            "output_tokens": r.output_tokens,
            **({} if r.predicted_output_tokens == r.output_tokens else predicted),
        }

    return {
        "schema": INSTANCE_SCHEMA,
        "problem": STREAM,
        "name": stream.name,
        "requests": [entry(r) for r in stream.requests],
        "worker": worker_to_json(stream.worker),
        "slo": {"ttft": decimal_text(stream.slo.ttft), "atgt": decimal_text(stream.slo.atgt)},
        "theta": decimal_text(stream.theta),
        "gamma": decimal_text(stream.gamma),
        "heartbeat": decimal_text(stream.heartbeat),
        "split_phase": stream.split_phase,
    }


def read_stream(path: str | os.PathLike[str]) -> Stream:
    """Read a stream file."""
    return read_as(path, stream_from_json)


def write_stream(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write a stream file."""
    dump_json(stream_to_json(stream), path)
