"""Heartbeats of a stream as placement instances, with the requests that are under way by then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.replay.replay import Beat, replay_stream
from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import PlacementInstance

__all__ = ["stream_heartbeat"]


def stream_heartbeat(stream: Stream, beat: int, *, policy: str = "aladdin") -> PlacementInstance:
    """The placement problem at a heartbeat, all requests before it having been placed by a policy.

    Parameters
    ----------
    stream : Stream
    beat : int
        Number of the heartbeat.
    policy : str
        One that needs no number of workers.

    Raises
    ------
    InputError
        If no request is placed at that heartbeat, or one before it fits on no worker.
    """
    if beat not in stream.beats:
        raise InputError(f"no request is placed at heartbeat {beat}", field="beat")
    until = tuple(request for request in stream.requests if stream.beat(request) <= beat)
    found: list[PlacementInstance] = []

    def watch(at: Beat, chosen: Mapping[str, int]) -> None:
        if at.number == beat:
            found.append(at.instance)

    replay_stream(replace(stream, requests=until), make_policy(policy), watch=watch)
    return found[0]
