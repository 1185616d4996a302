"""What every request does in every batch of a valid schedule: the data behind a picture."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infermax_opt.files.figure import Phase
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.fast import valid_replay
from infermax_opt.infermax.replay.plain import Replay
from infermax_opt.infermax.replay.state import State

__all__ = ["Timeline", "Walk", "each_batch", "timeline"]


@dataclass(frozen=True)
class Timeline:
    """Phases over time.

    Attributes
    ----------
    replay : Replay
    starts, ends : list of float, one per batch
        Seconds.
    counts : mapping of Phase to list of int
        Requests in that phase, per batch; those that have not arrived or are done count nowhere.
    rows : list of dict, one per batch, or None
        Phase and tokens of every request that is neither done nor yet to arrive; None where only
        the counts were asked for.
    """

    replay: Replay
    starts: list[float]
    ends: list[float]
    counts: dict[Phase, list[int]]
    rows: list[dict[int, tuple[Phase, int]]] | None


def each_batch(instance: Instance, batches: Sequence[Batch]) -> Iterator[tuple[Batch, list[int]]]:
    """Every batch, repetitions one by one, and the requests evicted before it."""
    for batch in batches:
        yield batch, [instance.index[name] for name in batch.evict]
        for _ in range(batch.repeat - 1):
            yield batch, []


def timeline(instance: Instance, schedule: Schedule, *, rows: bool) -> Timeline:
    """Phases of a valid schedule.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    rows : bool
        Whether to tell what every request does, and not only how many do what.

    Raises
    ------
    ValueError
        If the schedule breaks a rule.
    """
    replayed = valid_replay(instance, schedule)
    unit = replayed.ticks_per_second
    starts = [tick / unit for tick in replayed.starts]
    ends = [tick / unit for tick in replayed.ends]
    walk = Walk(instance)
    counts: dict[Phase, list[int]] = {phase: [] for phase in Phase}
    by_arrival = sorted(float(r.arrival) for r in instance.requests)
    table: list[dict[int, tuple[Phase, int]]] | None = [] if rows else None
    for (batch, evict), start in zip(each_batch(instance, schedule.batches), starts, strict=True):
        active = walk.step(batch, evict)
        arrived = bisect_right(by_arrival, start)
        for phase, number in walk.tally(active, arrived).items():
            counts[phase].append(number)
        if table is not None:
            table.append(walk.row(active, start))
        walk.settle()
    return Timeline(replayed, starts, ends, counts, table)


class Walk:
    """Steps a `State` through the batches of a valid schedule.

    Attributes
    ----------
    state : State
    decoding, evicted, refilling, begun : set of int
        Requests in decode; without KV since an eviction; that make up for one; that were ever processed.
    cached : mapping of int to int
        Tokens that the requests of the last batch had cached before it.
    """

    def __init__(self, instance: Instance):
        self.instance = instance
        self.state = State(instance)
        self.decoding: set[int] = set()
        self.evicted: set[int] = set()  # their KV was dropped, and they did not resume
        self.refilling: set[int] = set()
        self.begun: set[int] = set()
        self.finished: list[int] = []
        self.cached: dict[int, int] = {}

    def step(self, batch: Batch, evict: list[int]) -> dict[int, tuple[Phase, int]]:
        """Run one batch; return what the processed requests do."""
        state = self.state
        for i in evict:
            state.set_cached(i, 0)
            self.decoding.discard(i)
            self.refilling.discard(i)
            self.evicted.add(i)
        index = self.instance.index
        chosen = {index[name]: tokens for name, tokens in batch.tokens.items()}
        if batch.decode_all:
            for i in self.decoding:
                chosen.setdefault(i, 1)
        active, self.cached = {}, {}
        for i, tokens in chosen.items():
            if i in self.evicted:
                self.evicted.remove(i)
                self.refilling.add(i)
            self.begun.add(i)
            if i in self.decoding:
                phase = Phase.DECODE
            else:
                phase = Phase.REFILL if i in self.refilling else Phase.PREFILL
            active[i] = (phase, tokens)
            self.cached[i] = state.cached[i]
            generates = tokens == state.missing(i)
            state.set_cached(i, state.cached[i] + tokens)
            state.generated[i] += generates
            if generates and state.finished(i):
                self.finished.append(i)
            if state.decoding(i):
                self.decoding.add(i)
                self.refilling.discard(i)
        return active

    def tally(self, active: dict[int, tuple[Phase, int]], arrived: int) -> dict[Phase, int]:
        """Requests per phase during the batch."""
        tally = dict.fromkeys(Phase, 0)
        for phase, _ in active.values():
            tally[phase] += 1
        tally[Phase.HOLDING] = self.state.running - len(active)
        tally[Phase.EVICTED] = len(self.evicted)
        tally[Phase.WAITING] = arrived - len(self.begun)
        return tally

    def row(self, active: dict[int, tuple[Phase, int]], start: float) -> dict[int, tuple[Phase, int]]:
        """Phase and tokens of every request that had arrived when the batch started."""
        row = dict(active)
        for i, request in enumerate(self.instance.requests):
            if i in row or self.state.finished(i):
                continue
            if i in self.evicted:
                row[i] = (Phase.EVICTED, 0)
            elif i in self.begun:
                row[i] = (Phase.HOLDING, 0)
            elif float(request.arrival) <= start:
                row[i] = (Phase.WAITING, 0)
        return row

    def settle(self) -> None:
        """Free the KV of the requests that the batch finished."""
        for i in self.finished:
            self.state.set_cached(i, 0)
            self.decoding.discard(i)
            self.refilling.discard(i)
        self.finished.clear()
