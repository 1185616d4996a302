"""Planning at a coarse scale, where few requests with long outputs fit into the KV.

A coarse instance has one token of KV and one batch for each `scale` tokens and batches.  A request is
held there as if it had all the tokens it makes by the end of a coarse batch, so whatever fits there
fits here: each coarse batch becomes `scale` batches, the first of which also prefills.  A beam search
can follow outputs that are so short.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule

__all__ = ["coarse_instance", "coarse_plans", "coarse_scale", "refined"]

#: Output tokens of the longest requests at the coarse scale.
LEVEL = 32


def coarse_instance(instance: Instance, scale: int, most: int | None = None) -> Instance:
    """The instance with `scale` tokens and batches for each one.

    Parameters
    ----------
    instance : Instance
    scale : int
    most : int, optional
        Requests that may hold KV at a time: then prompts are rounded down, and so many rests are
        reserved.  Else they are rounded up.

    Raises
    ------
    InputError
        If a request does not fit any more.
    """
    system, cost, extra = instance.system, instance.cost.seconds, instance.cost.extra

    def shrunk(tokens: int) -> int:
        return -(-tokens // scale)

    # With n tokens at this scale a request holds I - 1 + n scale tokens or less.
    capacity, running = system.kv_capacity, system.max_running
    if most is not None:
        capacity -= most * max((g.input_tokens - 1) % scale for g in instance.groups)
        running = most if running is None else min(most, running)
    groups = tuple(
        RequestGroup(
            g.id,
            (shrunk(g.input_tokens - 1) if most is None else (g.input_tokens - 1) // scale) + 1,
            shrunk(g.output_tokens),
            count=g.count,
        )
        for g in instance.groups
    )
    return Instance(
        name=instance.name,
        groups=groups,
        system=System(
            kv_capacity=max(1, capacity // scale),
            max_batch_tokens=max(1, system.max_batch_tokens // scale),
            max_prefill_tokens=max(1, system.max_prefill_tokens // scale),
            max_running=running,
        ),
        cost=CostModel(
            batch=[(scale * a, scale * b) for a, b in zip(cost.alpha, cost.beta, strict=True)],
            decode=(scale * cost.d0, scale**2 * cost.d1),
            prefill=(cost.p0, scale**2 * cost.p1),
            attention=instance.cost.attention,
            mixed=(scale * extra.e0, scale**2 * extra.e1),
            prefix=scale**2 * extra.p2,
        ),
        policy=Policy(instance.policy.hybrid_batching, False, instance.policy.preemption),
    )


def _roomiest(instance: Instance, scale: int) -> Instance | None:
    """The coarse instance, of several roundings, in which most tokens fit beside the prompts."""
    from infermax_opt.infermax.planners.plan._options import typical_slots

    slots = math.ceil(typical_slots(instance))
    best: tuple[float, Instance] | None = None
    for most in (None, slots + 1, slots + 2):
        try:
            coarse = coarse_instance(instance, scale, most)
        except InputError:
            continue
        prompts = sum(r.input_tokens - 1 for r in coarse.requests) / len(coarse.requests)
        room = coarse.system.kv_capacity - slots * prompts
        if best is None or room > best[0]:
            best = room, coarse
    return None if best is None else best[1]


def refined(instance: Instance, scale: int, schedule: Schedule) -> Schedule:
    """The schedule of the coarse instance as one of the instance itself.

    Parameters
    ----------
    instance : Instance
    scale : int
    schedule : Schedule
        Of `coarse_instance`.
    """
    writer = _Refiner(instance, scale)
    for coarse in schedule.batches:
        writer.batch(coarse, coarse.evict)
        for _ in range(coarse.repeat - 1):
            writer.batch(coarse, ())
    return Schedule(instance.name, tuple(writer.batches))


class _Refiner:
    """Writes the batches that coarse ones stand for."""

    def __init__(self, instance: Instance, scale: int):
        self.scale = scale
        self.left = {request.id: request.output_tokens for request in instance.requests}
        #: Tokens to process for the next one, by a request that holds nothing.
        self.missing = {request.id: request.input_tokens for request in instance.requests}
        #: Who holds KV, in the order in which they came.
        self.held: dict[str, None] = {}
        self.batches: list[Batch] = []

    def batch(self, coarse: Batch, evict: Sequence[str]) -> None:
        """Write one coarse batch, without its repetitions: a batch that may prefill, then others."""
        for name in evict:
            self.held.pop(name, None)
        active = list(coarse.tokens)
        if coarse.decode_all:
            active += [name for name in self.held if name not in coarse.tokens]
        tokens = {name: 1 if name in self.held else self.missing[name] for name in active}
        self.batches.append(Batch(tokens, tuple(evict)))
        self.held.update(dict.fromkeys(active))
        self.go_on(active)
        for name in active:
            made = min(self.scale, self.left[name])
            self.missing[name] += made
            self.left[name] -= made
            if self.left[name] == 0:
                del self.held[name]

    def go_on(self, active: list[str]) -> None:
        """Let those that made a token make the others of the coarse batch, one each in every batch."""
        done = 1
        while done < self.scale:
            active = [name for name in active if self.left[name] > done]
            if not active:
                return
            # All of them make a token in every batch until one has finished.
            steps = min(self.scale - done, *(self.left[name] - done for name in active))
            if len(active) == sum(self.left[name] > done for name in self.held):
                self.batches.append(Batch({}, decode_all=True, repeat=steps))
            else:
                self.batches.append(Batch(dict.fromkeys(active, 1), repeat=steps))
            done += steps


def coarse_scale(instance: Instance) -> int:
    """Tokens for each one at the scale of `coarse_plans`; 1 where there are no such plans."""
    if not instance.offline or instance.system.block_size > 1:
        return 1
    return max(1, max(request.output_tokens for request in instance.requests) // LEVEL)


def coarse_plans(
    instance: Instance, *, upper: float | None = None, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Plans by beam search at a coarse scale, each better there than those before.

    Parameters
    ----------
    instance : Instance
        Offline, in blocks of one token, with long outputs; others have no such plans.
    upper : float, optional
        Makespan in seconds that is known already.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop.

    Yields
    ------
    name : str
        Where the schedule comes from.
    schedule : Schedule
    """
    from infermax_opt.infermax.planners.beam.beam import beam_plans

    scale = coarse_scale(instance)
    if scale <= 1:
        return
    coarse = _roomiest(instance, scale)
    if coarse is None:
        return
    for name, schedule in beam_plans(coarse, upper=upper, seed=seed, deadline=deadline):
        yield f"{name} at 1:{scale}", refined(instance, scale, schedule)
