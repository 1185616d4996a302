"""Fewest workers over time: lower and upper bound at each heartbeat of a stream.

Three numbers belong to a heartbeat, in rising order:

- *any policy*: no policy that keeps limits a to e at every heartbeat uses fewer workers then, whatever it
  did before (`infermax_opt.cluster.bounds.any_policy`);
  for their mean there is another bound, from the work there is (`infermax_opt.cluster.bounds.mean_workers`);
- *lower*: no placement of the new requests uses fewer, with the ongoing ones where this run put them;
- *upper*: what this run uses; all its placements keep the limits.

The first holds for every policy that keeps these limits, but is loose where much depends on what was done
before; the second is close to the third, but belongs to this run.

The limits a to e are not quite TTFT and ATGT: some requests that keep the former miss the latter.  So there
is a policy beside these that keeps the latter themselves (`infermax_opt.cluster.policies.look_ahead`).  It
belongs to another class: it need not keep limits a to e, and may use fewer workers than either lower bound.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.cluster.bounds.any_policy import any_policy_bounds
from infermax_opt.cluster.bounds.mean_workers import WorkBound, mean_workers_bound
from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.policies.by_name import Fewest, fewest_at, make_policy, workers_of
from infermax_opt.cluster.replay.check import check_stream
from infermax_opt.cluster.replay.metrics import StreamMetrics, measure_stream
from infermax_opt.cluster.replay.replay import Beat, replay_stream
from infermax_opt.core.checks import checked_kind, checked_seconds
from infermax_opt.core.errors import InputError
from infermax_opt.core.interrupts import Patience
from infermax_opt.core.progress import Progress, Teller
from infermax_opt.core.shown import ShownRows
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics.place import place

__all__ = ["BeatBounds", "WorkerSeries", "worker_series"]

#: Heartbeats between two lines of progress.
NEWS = 200


@dataclass(frozen=True, slots=True)
class BeatBounds:
    """Fewest workers at one heartbeat.

    Attributes
    ----------
    beat : int
    new : int
        Requests placed then.
    used : int
        Workers in use before.
    any_policy, lower, upper : int
        See the module's text.
    any_limit : str
        Limit that `any_policy` comes from, by the paper's letter; ``-``: one worker because there is work.
    binds : str
        What `lower` comes from: ``ongoing``, a row (``iteration time``, ``prefill``, ``KV``, or a sum of
        rows) with the kind of bound, ``search`` where every placement was looked at.
    reason : str
        A sentence; empty where no new worker is needed.
    """

    beat: int
    new: int
    used: int
    any_policy: int
    any_limit: str
    lower: int
    upper: int
    binds: str
    reason: str


@dataclass(frozen=True)
class WorkerSeries(ShownRows):
    """Fewest workers over time.

    Attributes
    ----------
    stream : Stream
    beats : tuple of BeatBounds
        Every heartbeat from the first with a request to the last one.
    placement : Placement
        Worker of every request: what the upper bounds are made of.
    metrics : StreamMetrics
        Of the replayed placement.
    look_ahead : StreamMetrics or None
        Of the replay of the policy that keeps TTFT and ATGT; None if it finds a request that cannot.
    work : WorkBound
        On the mean, for any policy that keeps limits a to e.
    verified : bool
        Whether the verifier found all limits kept at every heartbeat, and `upper` workers in use.
    cut_short : int or None
        Heartbeat from which on the time was up, and best-fit placed; the bounds of a formula still hold.
    """

    stream: Stream
    beats: tuple[BeatBounds, ...]
    placement: Placement
    metrics: StreamMetrics
    look_ahead: StreamMetrics | None
    work: WorkBound
    verified: bool
    cut_short: int | None

    lower_facts = frozenset({"mean_lower", "mean_any_policy"})

    def facts(self) -> Mapping[str, Any]:
        """Largest and mean number of workers, and of both bounds."""
        return {
            "stream": self.stream.name,
            "heartbeats": len(self.beats),
            **{f"peak_{name}": self.peak(name) for name in ("upper", "lower", "any_policy")},
            **{f"mean_{name}": self.mean(name) for name in ("upper", "lower", "any_policy")},
            "open_heartbeats": self.open_beats,
        }

    def rows_shown(self) -> Iterable[Mapping[str, Any]]:
        """A row for each heartbeat; `seconds` is its time."""
        for beat in self.beats:
            yield {"seconds": beat.beat * self.stream.heartbeat, **asdict(beat)}

    def peak(self, name: str) -> int:
        """Largest of ``lower`` or ``upper`` over the heartbeats, or the best bound on it for ``any_policy``.

        A policy uses at least its mean number of workers at some heartbeat, and a whole number of them.  So
        no policy has its peak below the bound on the mean, rounded up, whatever single heartbeats tell.
        """
        most = max(int(getattr(beat, name)) for beat in self.beats)
        return max(most, math.ceil(self.mean(name)))

    def mean(self, name: str) -> Fraction:
        """Mean of ``lower`` or ``upper`` over the heartbeats, or the best bound on it for ``any_policy``."""
        mean = Fraction(sum(getattr(beat, name) for beat in self.beats), len(self.beats))
        return max(mean, self.work.workers) if name == "any_policy" else mean

    @property
    def binding(self) -> dict[str, int]:
        """At how many heartbeats with new requests what binds."""
        return dict(Counter(beat.binds for beat in self.beats if beat.new).most_common())

    @property
    def open_beats(self) -> int:
        """Heartbeats at which `lower` and `upper` differ."""
        return sum(beat.lower < beat.upper for beat in self.beats)


def worker_series(
    stream: Stream,
    *,
    time_limit: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    patience: Patience | None = None,
) -> WorkerSeries:
    """Find the fewest workers at each heartbeat, as far as the time goes.

    Parameters
    ----------
    stream : Stream
    time_limit : float, optional
        Seconds after which heartbeats are no longer searched.  Ctrl-C does the same.
    seed : int
    progress : callable, optional
        As in `infermax_opt.solve`.
    patience : Patience, optional
        Says at each heartbeat whether to search on.

    Raises
    ------
    InputError
        If a request fits on no worker; `stream_unplaceable` says which ones.
    """
    checked_kind(stream, Stream, "stream")
    checked_seconds(time_limit)
    run = _Run(stream, time_limit, seed, progress, patience or Patience())
    replay = replay_stream(stream, run.decide)
    free = {bound.beat: bound for bound in any_policy_bounds(stream)}
    rows = []
    for record in replay.beats:
        found = run.found.get(record.number)
        bound = free[record.number]
        # Without new requests nothing is decided: the workers in use are in use.
        lower = record.workers if found is None else found.lower
        rows.append(
            BeatBounds(
                beat=record.number,
                new=record.new,
                used=record.workers if found is None else found.used,
                any_policy=bound.workers,
                any_limit=bound.limit,
                lower=lower,
                upper=record.workers,
                binds="ongoing" if found is None else found.binds,
                reason="" if found is None else found.reason,
            )
        )
    check = check_stream(stream, replay.placement)
    if check.metrics is None:
        raise RuntimeError("a request was left without a worker")
    return WorkerSeries(
        stream=stream,
        beats=tuple(rows),
        placement=replay.placement,
        metrics=check.metrics,
        look_ahead=_look_ahead(stream),
        work=mean_workers_bound(stream),
        verified=check.ok and check.beats == replay.beats,
        cut_short=run.cut_short,
    )


def _look_ahead(stream: Stream) -> StreamMetrics | None:
    try:
        return measure_stream(replay_stream(stream, make_policy("look-ahead")))
    except InputError:
        return None


@dataclass(frozen=True, slots=True)
class _Found:
    """What is kept of a heartbeat."""

    used: int
    lower: int
    binds: str
    reason: str

    @classmethod
    def of(cls, instance: PlacementInstance, found: Fewest) -> _Found:
        used = len(instance.in_use)
        if found.lower <= used:
            return cls(used, found.lower, "ongoing", "")
        if found.exhausted:
            reason = f"every placement on {found.lower - 1} workers breaks a limit"
            return cls(used, found.lower, "search", reason)
        # At whichever iteration: that is in the reason.
        row = re.sub(r"KV at iteration \d+", "KV", str(found.bound.detail.get("row", found.bound.source)))
        kind = "" if found.bound.source in ("continuous", row) else f" ({found.bound.source})"
        return cls(used, found.lower, f"{row}{kind}", found.bound.reason)


class _Run:
    """The policy of a series, with a memory."""

    def __init__(
        self,
        stream: Stream,
        time_limit: float | None,
        seed: int,
        progress: Progress | None,
        patience: Patience,
    ):
        self.stream, self.seed, self.tell, self.patience = stream, seed, Teller(progress), patience
        self.end = None if time_limit is None else time.monotonic() + time_limit
        self.found: dict[int, _Found] = {}
        self.cut_short: int | None = None

    def decide(self, beat: Beat) -> Mapping[str, int]:
        """Place the new requests of a heartbeat."""
        late = self.end is not None and time.monotonic() > self.end
        if self.cut_short is None and (late or self.patience.stopped):
            self.cut_short = beat.number
        try:
            if (len(self.found) + 1) % NEWS == 0:
                self.tell(f"heartbeat {beat.number} of {max(self.stream.beats)}", "heartbeat")
            if self.cut_short is None:
                self.patience.searching = True
                found = fewest_at(beat.instance, seed=self.seed)
                self.found[beat.number] = _Found.of(beat.instance, found)
                return found.placement.workers
        except KeyboardInterrupt:
            self.cut_short = beat.number
        finally:
            self.patience.searching = False
        return self.quick(beat)

    def quick(self, beat: Beat) -> Mapping[str, int]:
        """Best-fit, and what is in use as the bound."""
        instance = beat.instance
        placement = place(instance, "best-fit")
        used, workers = len(instance.in_use), workers_of(instance, placement)
        binds = "ongoing" if workers == used else "not searched"
        self.found[beat.number] = _Found(used, max(used, 1), binds, "")
        return placement.workers
