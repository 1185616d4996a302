"""Waits: when the batches of a schedule best start."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance, Metric
from infermax_opt.infermax.data.latencies import gains_by_waiting
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.plain import Replay

__all__ = ["after_arrivals", "with_best_waits"]


def with_best_waits(instance: Instance, schedule: Schedule) -> Schedule:
    """The same decisions with waits that no others beat, for the makespan and sums of latencies.

    A batch may start as soon as the requests that it names have arrived.  Where a TPOT counts, a wait may
    cost less before an earlier batch: each second of it counts what the objective weighs in the state before
    that batch.  What a batch has to wait, beyond what the ones before it had to, lies before it or before one
    of these, whatever the schedule; so it is put before the latest one with the least weight.
    """
    soonest = (replace(batch, start=_earliest(instance, batch)) for batch in schedule.batches)
    early = replace(schedule, batches=tuple(soonest))
    if gains_by_waiting(instance) is None or instance.objective.beyond_sums:
        return early
    replayed = replay(instance, early)
    return _starting(early, _best_starts(instance, replayed)) if replayed.valid else early


def after_arrivals(instance: Instance, schedule: Schedule) -> Schedule:
    """The same decisions, with batches that wait for those they name on a machine of any speed.

    Names that the instance has not are left for the replay to find.
    """

    def waiting(batch: Batch) -> Batch:
        earliest = max(batch.start or Fraction(0), _earliest(instance, batch) or Fraction(0))
        return replace(batch, start=earliest or None)

    return replace(schedule, batches=tuple(map(waiting, schedule.batches)))


def _earliest(instance: Instance, batch: Batch) -> Fraction | None:
    known = (instance.index.get(name) for name in batch.tokens)
    requests = (instance.requests[i] for i in known if i is not None)
    return max((request.arrival for request in requests), default=Fraction(0)) or None


def _weights(instance: Instance, replayed: Replay) -> list[Fraction]:
    """What the objective weighs a second in the state before each batch."""
    young, old = instance.objective.rates(instance.types)
    changes = [Fraction(0)] * (len(replayed.ends) + 1)
    changes[0] = instance.objective.weight(Metric.MAKESPAN)
    for kind, first, later in zip(instance.types, young, old, strict=True):
        for i in kind.members:
            changes[0] += first
            changes[replayed.first_batch[i] + 1] += later - first
            changes[replayed.last_batch[i] + 1] -= later
    weights = [changes[0]]
    for change in changes[1:-1]:
        weights.append(weights[-1] + change)
    return weights


def _best_starts(instance: Instance, replayed: Replay) -> list[Fraction | None]:
    """Start of every batch in seconds; None where it starts as soon as the one before ends."""
    waits = [0] * len(replayed.starts)
    weights = _weights(instance, replayed)
    place = end = 0
    for k, start in enumerate(replayed.starts):
        if weights[k] <= weights[place]:
            place = k
        waits[place] += start - end
        end = replayed.ends[k]
    starts: list[Fraction | None] = []
    now = 0
    for wait, start, end in zip(waits, replayed.starts, replayed.ends, strict=True):
        now += wait
        starts.append(replayed.seconds(now) if wait else None)
        now += end - start
    return starts


def _starting(schedule: Schedule, starts: list[Fraction | None]) -> Schedule:
    """The schedule with these starts; an entry is cut where one of its repetitions waits."""
    batches: list[Batch] = []
    position = 0
    for entry in schedule.batches:
        cuts = [k for k in range(entry.repeat) if k == 0 or starts[position + k] is not None]
        for cut, following in zip(cuts, [*cuts[1:], entry.repeat], strict=True):
            evict = () if cut else entry.evict
            batches.append(replace(entry, evict=evict, start=starts[position + cut], repeat=following - cut))
        position += entry.repeat
    return replace(schedule, batches=tuple(batches))
