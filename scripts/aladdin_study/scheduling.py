"""Figure 13: how long a placement takes, against the arrival rate.

Heartbeats of the second half of a stream, when its workers have filled.  Timed one by one: building the
instance of a heartbeat, best-fit on it, best-fit on all ongoing requests with but one new one, and
look-ahead as a whole.  Nothing else runs meanwhile in the process; the tables give medians and the largest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from infermax_opt.cluster.policies.by_name import make_policy
from infermax_opt.cluster.replay.metrics import measure_stream
from infermax_opt.cluster.replay.replay import Beat, replay_stream
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.heuristics.place import place
from scripts.aladdin_study.runs import verified
from scripts.aladdin_study.workload import Workload

__all__ = ["scheduling_rows"]

Row = dict[str, str]
T = TypeVar("T")


def scheduling_rows(workload: Workload) -> Iterator[Row]:
    """Best-fit and look-ahead on a workload."""
    stream = workload.stream()
    last = max(stream.beats)
    for policy, watch in (("aladdin", _BestFit()), ("look-ahead", _LookAhead())):
        watch.since = last // 2
        done = replay_stream(stream, watch)
        verified(stream, policy, done.worker, measure_stream(done))
        times = {
            f"{name}_{kind}": f"{value:.4f}"
            for name, values in watch.times.items()
            for kind, value in _summary(values).items()
        }
        yield workload.row() | {
            "policy": policy,
            "heartbeats": str(len(watch.sizes)),
            **{
                name: f"{statistics.median(size[k] for size in watch.sizes):g}"
                for k, name in enumerate(("new", "ongoing", "workers"))
            },
            **times,
            "per_request_ms": f"{_per_request(watch):.4f}",
        }


def _summary(seconds: list[float]) -> dict[str, float]:
    return {"median_ms": 1000 * statistics.median(seconds), "max_ms": 1000 * max(seconds)}


@dataclass
class _Timed:
    """A policy that notes how long it takes; sizes are new, ongoing requests and workers in use."""

    since: int = 0
    sizes: list[tuple[int, int, int]] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=dict)

    def timed(self, beat: Beat, name: str, act: Callable[[], T]) -> T:
        """Do something, and note its time if the heartbeat counts."""
        began = time.perf_counter()
        found = act()
        spent = time.perf_counter() - began
        if beat.number >= self.since:
            self.times.setdefault(name, []).append(spent)
        return found

    def note(self, beat: Beat, instance: PlacementInstance) -> None:
        if beat.number >= self.since:
            ongoing = len(instance.requests) - len(beat.new)
            self.sizes.append((len(beat.new), ongoing, len(beat.workers)))


def _per_request(watch: _Timed) -> float:
    """Milliseconds per new request, median over the heartbeats."""
    times = watch.times["place"]
    return statistics.median(1000 * t / size[0] for t, size in zip(times, watch.sizes, strict=True))


class _BestFit(_Timed):
    def __call__(self, beat: Beat) -> Mapping[str, int]:
        instance = self.timed(beat, "build", lambda: _expanded(beat.instance))
        self.note(beat, instance)
        found = self.timed(beat, "place", lambda: place(instance, "best-fit"))
        # All ongoing requests and the first of the new ones, in an instance of its own.
        first = len(instance.groups) - len(beat.new) + 1
        lone = _expanded(replace(instance, groups=instance.groups[:first]))
        self.timed(beat, "lone", lambda: place(lone, "best-fit"))
        return found.workers


class _LookAhead(_Timed):
    def __init__(self) -> None:
        super().__init__()
        self.policy = make_policy("look-ahead")

    def __call__(self, beat: Beat) -> Mapping[str, int]:
        found = self.timed(beat, "place", lambda: self.policy(beat))
        self.note(beat, beat.instance)
        return found


def _expanded(instance: PlacementInstance) -> PlacementInstance:
    """The instance, its requests written out, which is part of building it."""
    assert instance.requests
    return instance
