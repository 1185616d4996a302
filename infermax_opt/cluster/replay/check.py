"""What a placement of a stream does: replayed over all heartbeats, with the limits checked at each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.metrics import StreamMetrics, measure_stream
from infermax_opt.cluster.replay.replay import Beat, BeatRecord, replay_stream
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import PlacementRule, PlacementViolation, check_placement

__all__ = ["BeatViolation", "StreamCheck", "check_stream"]


@dataclass(frozen=True, slots=True)
class BeatViolation:
    """A rule that the placement of a heartbeat breaks."""

    heartbeat: int | None
    rule: PlacementRule
    worker: int | None
    request: str | None
    message: str

    @classmethod
    def of(cls, heartbeat: int | None, found: PlacementViolation) -> Self:
        """The same violation, of one heartbeat or of the whole stream."""
        return cls(heartbeat, found.rule, found.worker, found.request, found.message)

    def __str__(self) -> str:
        place = "stream" if self.heartbeat is None else f"heartbeat {self.heartbeat}"
        return f"{place}, {PlacementViolation(self.rule, self.worker, self.request, self.message)}"


@dataclass(frozen=True)
class StreamCheck:
    """Outcome of the replay of a placement.

    Attributes
    ----------
    violations : tuple of BeatViolation
        Requests without a worker or unknown ones; limits exceeded at a heartbeat.
    beats : tuple of BeatRecord
        Workers in use at each heartbeat; empty if a request has no worker.
    metrics : StreamMetrics or None
        Of the replay, SLO attainment among them; None if a request has no worker.
    """

    violations: tuple[BeatViolation, ...]
    beats: tuple[BeatRecord, ...]
    metrics: StreamMetrics | None

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations

    @property
    def rules(self) -> dict[str, int]:
        """How often each rule is broken."""
        return dict(Counter(some.rule.value for some in self.violations))


def check_stream(stream: Stream, placement: Placement) -> StreamCheck:
    """Replay a stream with the workers that a placement gives its requests; nothing is raised."""
    unknown = [name for name in placement.workers if name not in stream.index]
    missing = [request.id for request in stream.requests if request.id not in placement.workers]
    found = [
        BeatViolation(None, rule, None, name, message)
        for rule, names, message in (
            (PlacementRule.UNKNOWN_REQUEST, unknown, "is not in the instance"),
            (PlacementRule.NOT_PLACED, missing, "has no worker"),
        )
        for name in names
    ]
    if missing:
        return StreamCheck(tuple(found), (), None)

    def decide(beat: Beat) -> Mapping[str, int]:
        names = [stream.requests[k].id for k in beat.new]
        chosen = {name: placement.workers[name] for name in names}
        check = check_placement(beat.instance, Placement(beat.instance.name, chosen))
        found.extend(BeatViolation.of(beat.number, some) for some in check.violations)
        return chosen

    replay = replay_stream(stream, decide)
    return StreamCheck(tuple(found), replay.beats, measure_stream(replay))
