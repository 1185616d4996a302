"""Leaving out optional requests: what is dropped from a schedule makes no batch longer and no token later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.latencies import Latencies
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay

__all__ = ["in_vain", "optional_ones", "without"]


def optional_ones(instance: Instance) -> set[str]:
    """Ids of the requests that may be left unfinished."""
    return {request.id for request in instance.requests if request.terms.optional}


def in_vain(instance: Instance, schedule: Schedule, latencies: Latencies) -> set[str]:
    """Ids of the optional requests that a schedule serves, but not to their end, or not by the horizon.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    latencies : Latencies
        Of that schedule.
    """
    served = {name for batch in schedule.batches for name in batch.tokens}
    return {name for name in served & optional_ones(instance) if latencies.late(instance.index[name])}


def without(instance: Instance, schedule: Schedule, names: Collection[str]) -> Schedule:
    """A valid schedule without these requests; batches that then do nothing are left out.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
    names : collection of str
        Ids of optional requests.
    """
    batches, arrived = [], set(names)
    for batch in schedule.batches:
        tokens = {name: count for name, count in batch.tokens.items() if name not in names}
        evict = tuple(name for name in batch.evict if name not in names)
        if tokens or evict or batch.decode_all:
            # What came before it may have taken until somebody arrived.
            new = [name for name in tokens if name not in arrived]
            arrived.update(new)
            awaited = max((instance.requests[instance.index[name]].arrival for name in new), default=0)
            start = max(awaited, batch.start or 0) or None
            batches.append(replace(batch, tokens=tokens, evict=evict, start=start and Fraction(start)))
    return _busy(instance, Schedule(schedule.instance, tuple(batches)))


def _busy(instance: Instance, schedule: Schedule) -> Schedule:
    """The schedule without batches in which everybody should decode and nobody does."""
    features = replay(instance, schedule).features
    batches, position = [], 0
    for batch in schedule.batches:
        count = batch.repeat
        if not batch.tokens and not batch.evict:
            count = sum(features[position + k].tokens > 0 for k in range(batch.repeat))
        if count:
            batches.append(replace(batch, repeat=count))
        position += batch.repeat
    return Schedule(schedule.instance, tuple(batches))
