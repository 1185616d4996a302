"""Fewest workers of tiny placement instances, by trying every placement; every limit from its definition."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from fractions import Fraction

from infermax_opt.placement.data.instance import (
    PlacementGroup,
    PlacementInstance,
    PlacementRequest,
    Slo,
    Worker,
)


def kv_at(instance: PlacementInstance, request: PlacementRequest, iteration: int) -> Fraction:
    """Entry of the vector w of the paper: KV of a request, 0 where it has ended or the horizon has."""
    worker = instance.worker
    cached = request.input_tokens + request.generated_tokens
    left = request.predicted_output_tokens - request.generated_tokens
    if iteration > max(0, left) or (instance.horizon is not None and iteration >= instance.horizon):
        return Fraction(0)
    return worker.kv_token * (cached + iteration) + worker.kv_request


def kv_most(instance: PlacementInstance, members: Sequence[PlacementRequest]) -> Fraction:
    """Most KV that requests hold together, at any iteration."""
    longest = max((r.predicted_output_tokens for r in members), default=0)
    return max(sum(kv_at(instance, r, k) for r in members) + Fraction(0) for k in range(longest + 1))


def broken(
    instance: PlacementInstance,
    new: Sequence[PlacementRequest],
    ongoing: Sequence[PlacementRequest],
    busy: Fraction = Fraction(0),
) -> set[str]:
    """Limits, by the letters of the paper, that new requests break on a worker with these ongoing ones."""
    worker, slo, theta, gamma = instance.worker, instance.slo, instance.theta, instance.gamma
    if not new:
        return set()
    members = [*ongoing, *new]
    found = set()
    lengths = [r.input_tokens + gamma * max(r.predicted_output_tokens, r.generated_tokens) for r in members]
    room = slo.atgt - worker.decode_overhead - worker.decode_request * len(members)
    if worker.decode_context * sum(lengths) > theta * room:
        found.add("b")
    prefill = worker.prefill_token * sum(r.input_tokens for r in new) + worker.prefill_overhead
    if not instance.split_phase and busy + prefill > slo.ttft:
        found.add("c")
    if not instance.split_phase and any(
        prefill > theta * (slo.atgt * r.generated_tokens - r.decode_seconds) for r in ongoing
    ):
        found.add("d")
    if kv_most(instance, members) > worker.kv_capacity:
        found.add("e")
    return found


def fewest_workers(instance: PlacementInstance) -> int | None:
    """Least number of workers in use; None where there is no placement.

    Every partition of the new requests onto the workers in use and fresh ones is tried.  One that breaks a
    limit is not gone on with: more requests mend none.
    """
    on: dict[int, list[PlacementRequest]] = {worker: [] for worker in instance.busy}
    for request in instance.requests:
        if request.worker is not None:
            on.setdefault(request.worker, []).append(request)
    waits = [instance.busy.get(worker, Fraction(0)) for worker in on]
    new = [r for r in instance.requests if r.worker is None]
    places: list[list[PlacementRequest]] = [*on.values()]
    loads: list[list[PlacementRequest]] = [[] for _ in places]

    @functools.cache
    def fits(place: int | None, names: tuple[str, ...]) -> bool:
        members = [instance.requests[instance.index[name]] for name in names]
        if place is None:
            return not broken(instance, members, [])
        return not broken(instance, members, places[place], waits[place])

    def least(k: int) -> int | None:
        if k == len(new):
            return len(loads)
        found = None
        for j in range(len(loads) + 1):
            if j == len(loads):
                loads.append([])
            loads[j].append(new[k])
            if fits(j if j < len(places) else None, tuple(r.id for r in loads[j])):
                here = least(k + 1)
                if here is not None and (found is None or here < found):
                    found = here
            loads[j].pop()
            if j >= len(places) and not loads[j]:
                loads.pop()
        return found

    return least(0)


def tiny_placement(rng: random.Random) -> PlacementInstance:
    """A random instance: 1-6 new requests, 0-4 ongoing ones on up to two workers, tight limits."""
    longest = rng.choice([3, 8, 12])
    kinds = [(rng.randint(1, longest), rng.randint(1, longest)) for _ in range(rng.randint(1, 6))]
    groups = [PlacementGroup(f"r{k}", *rng.choice(kinds)) for k in range(rng.randint(1, 6))]
    workers = rng.sample(range(1, 5), rng.randint(0, 2))
    busy = {w: Fraction(rng.randint(0, longest), 10) for w in workers if rng.random() < 0.2}
    for k in range(rng.randint(1, 4) if workers else 0):
        generated = rng.randint(0, longest)
        groups.append(
            PlacementGroup(
                f"o{k}",
                rng.randint(1, longest),
                rng.randint(1, longest),
                None,
                generated,
                Fraction(rng.randint(0, 4 * generated), 8),
                rng.choice(workers),
            )
        )
    rng.shuffle(groups)
    loose = 10**4

    def limit(least: float, most: float) -> int:
        return loose if rng.random() < 0.4 else round(longest * rng.uniform(least, most))

    worker = Worker(
        kv_capacity=Fraction(max(1, limit(2.5, 8))),
        kv_token=Fraction(rng.choice(["0", "0.5", "1", "1", "1"])),
        kv_request=Fraction(rng.choice([0, 0, 1, 3])),
        prefill_token=Fraction(rng.choice(["0", "0.1", "0.1", "0.125"])),
        prefill_overhead=Fraction(rng.choice(["0", "0", "0.3"])),
        decode_context=Fraction(rng.choice(["0", "0.05", "0.1"])),
        decode_request=Fraction(rng.choice(["0", "0.1", "0.25"])),
        decode_overhead=Fraction(rng.choice(["0", "0.2"])),
    )
    slo = Slo(
        Fraction(limit(1.2, 4), 10) + Fraction(1, 10),
        Fraction(rng.choice([longest, loose, loose, round(longest * rng.uniform(2, 6))]), 10)
        + Fraction(1, 10),
    )
    return PlacementInstance(
        "tiny", tuple(groups), worker, slo,
        theta=Fraction(rng.choice(["1", "1", "0.9", "0.5"])),
        gamma=Fraction(rng.choice(["0", "0.5", "1"])),
        horizon=rng.choice([None, None, 1, rng.randint(2, longest)]),
        busy=busy,
        split_phase=rng.random() < 0.1,
    )  # fmt: skip
