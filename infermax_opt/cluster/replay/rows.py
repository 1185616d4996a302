"""What became of each request of a stream, a row each."""

from __future__ import annotations

from typing import Any

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.metrics import request_atgt, request_ttft
from infermax_opt.cluster.replay.replay import StreamReplay, replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.schedule import Placement

__all__ = ["placement_rows", "stream_rows"]


def stream_rows(replay: StreamReplay) -> list[dict[str, Any]]:
    """What became of each request of a replayed stream; times in s."""
    stream, slo = replay.stream, replay.stream.slo
    rows = []
    for request, worker, served, ttft, atgt in zip(
        stream.requests, replay.worker, replay.served, request_ttft(replay), request_atgt(replay), strict=True
    ):
        rows.append(
            {
                "id": request.id,
                "arrival": request.arrival,
                "placed": stream.beat(request) * stream.heartbeat,
                "worker": worker,
                "input_tokens": request.input_tokens,
                "predicted_output_tokens": request.predicted_output_tokens,
                "output_tokens": request.output_tokens,
                "ttft": ttft,
                "atgt": atgt,
                "evictions": served.evictions,
                "met": ttft <= slo.ttft and (atgt is None or atgt <= slo.atgt),
            }
        )
    return rows


def placement_rows(stream: Stream, placement: Placement) -> list[dict[str, Any]]:
    """What becomes of each request where a placement puts it.

    Raises
    ------
    InputError
        If a request has no worker.
    """
    for request in stream.requests:
        if request.id not in placement.workers:
            raise InputError("has no worker", field=request.id)
    return stream_rows(
        replay_stream(
            stream,
            lambda beat: {stream.requests[k].id: placement.workers[stream.requests[k].id] for k in beat.new},
        )
    )
