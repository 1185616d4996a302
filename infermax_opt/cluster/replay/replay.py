"""Replay of a stream: heartbeat by heartbeat, requests are placed, and every worker goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.worker import Served, Units, WorkerReplay
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance
from infermax_opt.placement.data.schedule import Placement

__all__ = ["Beat", "BeatRecord", "Decide", "StreamReplay", "replay_stream"]


@dataclass(frozen=True)
class Beat:
    """A heartbeat: what a policy decides on.

    Attributes
    ----------
    stream : Stream
    number : int
    new : tuple of int
        Positions of the requests to be placed.
    workers : mapping of int to WorkerReplay
        Those in use, by number, replayed up to the first end of an iteration at or after the heartbeat.
    served : sequence of Served, one per request
        Also of those that have ended.
    """

    stream: Stream
    units: Units
    number: int
    new: tuple[int, ...]
    workers: Mapping[int, WorkerReplay]
    served: Sequence[Served]

    @cached_property
    def instance(self) -> PlacementInstance:
        """The placement problem at this heartbeat.

        A request that has generated what was predicted, or more, is predicted anew (section 4.3): the
        prediction doubles until it is above what there is.
        """
        stream, now = self.stream, self.number * self.units.heartbeat
        ticks = self.units.ticks_per_second
        groups, busy = [], {}
        for number, worker in self.workers.items():
            if worker.clock > now:
                busy[number] = Fraction(worker.clock - now, ticks)
            for key, served in worker.members():
                request = stream.requests[key]
                spent = 0 if served.first is None else worker.clock - served.first
                groups.append(
                    PlacementGroup(
                        request.id, request.input_tokens, prediction(request.predicted_output_tokens, served),
                        request.output_tokens, served.tokens, Fraction(spent, ticks), number,
                    )
                )  # fmt: skip
        for key in self.new:
            request = stream.requests[key]
            groups.append(
                PlacementGroup(
                    request.id, request.input_tokens, request.predicted_output_tokens, request.output_tokens
                )
            )
        return PlacementInstance(
            f"{stream.name}@{self.number}", tuple(groups), stream.worker, stream.slo, stream.theta,
            stream.gamma, None, busy, stream.split_phase,
        )  # fmt: skip


Decide = Callable[[Beat], Mapping[str, int]]
"""Worker of each new request of a heartbeat, from 1."""


@dataclass(frozen=True, slots=True)
class BeatRecord:
    """One heartbeat: its number, requests placed then, and workers in use with them."""

    number: int
    new: int
    workers: int


@dataclass(frozen=True)
class StreamReplay:
    """What happened.

    Attributes
    ----------
    stream : Stream
    units : Units
        Of all times.
    worker : tuple of int, one per request
    served : tuple of Served, one per request
    beats : tuple of BeatRecord
        From the first heartbeat with a request to the last one.
    preemptions : int
        Requests that lost their KV for want of room, in all.
    """

    stream: Stream
    units: Units
    worker: tuple[int, ...]
    served: tuple[Served, ...]
    beats: tuple[BeatRecord, ...]
    preemptions: int

    @cached_property
    def placement(self) -> Placement:
        """The worker of each request, by id."""
        pairs = zip(self.stream.requests, self.worker, strict=True)
        return Placement(self.stream.name, {request.id: worker for request, worker in pairs})


def prediction(predicted: int, served: Served) -> int:
    """Output tokens that a request is thought to generate in all, above what it has."""
    while predicted <= served.tokens:
        predicted *= 2
    return predicted


def replay_stream(
    stream: Stream,
    decide: Decide,
    *,
    watch: Callable[[Beat, Mapping[str, int]], None] | None = None,
) -> StreamReplay:
    """Replay a stream.

    Parameters
    ----------
    stream : Stream
    decide : callable
        Gives the worker of each new request; asked at each heartbeat that has any.
    watch : callable, optional
        Told of each of these heartbeats and what was decided, before anything goes on.
    """
    units = Units.of(stream)
    workers: dict[int, WorkerReplay] = {}
    worker_of = [0] * len(stream.requests)
    served = [Served(r.input_tokens, r.output_tokens) for r in stream.requests]
    records, preemptions = [], 0
    first, last = min(stream.beats), max(stream.beats)
    for number in range(first, last + 1):
        now = number * units.heartbeat
        for name in list(workers):
            worker = workers[name]
            worker.advance(now)
            if worker.idle and worker.clock <= now:
                preemptions += worker.preemptions
                del workers[name]
        new = stream.beats.get(number, ())
        if new:
            beat = Beat(stream, units, number, new, workers, served)
            chosen = decide(beat)
            if watch is not None:
                watch(beat, chosen)
            for key in new:
                name = worker_of[key] = chosen[stream.requests[key].id]
                if name not in workers:
                    workers[name] = WorkerReplay(units, now, split_phase=stream.split_phase)
                workers[name].add(key, served[key], now)
        records.append(BeatRecord(number, len(new), len(workers)))
    for worker in workers.values():
        worker.advance(None)
        preemptions += worker.preemptions
    return StreamReplay(stream, units, tuple(worker_of), tuple(served), tuple(records), preemptions)
