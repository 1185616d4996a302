"""KV that requests hold while they are not processed, in any valid schedule (the paper's Figure 6)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.plain import Replay
from infermax_opt.infermax.replay.timeline import Walk, each_batch

__all__ = ["KINDS", "Held", "held_kv"]

#: A prompt of which a part is cached; a generation that has made its first token; one that has made more.
KINDS = ("prompt", "new", "preempted")


@dataclass(frozen=True)
class Held:
    """What those of a kind hold while they wait.

    Attributes
    ----------
    tokens : Fraction
        KV tokens of one of them, a mean over time.
    share : Fraction
        KV of all of them / kv_capacity, a mean over the time of all batches.
    """

    tokens: Fraction
    share: Fraction


def held_kv(instance: Instance, schedule: Schedule, replayed: Replay) -> dict[str, Held]:
    """KV of those that hold some and are not processed, by kind.

    Parameters
    ----------
    instance : Instance
    schedule : Schedule
        A valid one.
    replayed : Replay
        Of it.
    """
    walk = Walk(instance)
    held, waits = dict.fromkeys(KINDS, 0), dict.fromkeys(KINDS, 0)
    holding: set[int] = set()
    times = zip(replayed.starts, replayed.ends, strict=True)
    state, size, total = walk.state, instance.system.held, 0
    for (batch, evict), (start, end) in zip(each_batch(instance, schedule.batches), times, strict=True):
        active = walk.step(batch, evict)
        holding.difference_update(evict)
        span = end - start
        total += span
        for i in holding.difference(active):
            kind = KINDS[min(state.generated[i], 2)]
            held[kind] += size(state.cached[i]) * span
            waits[kind] += span
        holding.update(active)
        holding.difference_update(walk.finished)
        walk.settle()
    area = total * instance.system.kv_capacity
    return {
        kind: Held(Fraction(held[kind], waits[kind] or 1), Fraction(held[kind], area or 1)) for kind in KINDS
    }
