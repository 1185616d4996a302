"""The best batch of tiny snapshots by trying every one, each rule and cost from its definition."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.iteration.data.instance import (
    BE_TOKENS,
    VALUES,
    IterationGroup,
    IterationInstance,
    IterationRequest,
    Machine,
)


def batch_seconds(machine: Machine, batch: Sequence[IterationRequest]) -> Fraction:
    """(2) to (5): the larger of computation and swap."""
    if not batch:
        return Fraction(0)
    cost = machine.cost
    prefills = [r for r in batch if r.prefills]
    decodes = [r for r in batch if not r.prefills]
    tokens = sum(r.input for r in batch)
    if machine.product:
        read = Fraction(len(decodes) * sum(r.context for r in decodes))
        work = Fraction(sum(r.input for r in prefills) * sum(r.context for r in prefills))
    else:
        read = Fraction(sum(r.context - 1 for r in decodes))
        square = cost.attention.value == "square"
        work = Fraction(
            sum(r.input**2 if square else r.input * (2 * (r.context - r.input) + r.input) for r in prefills)
        )
    seconds = max(Fraction(alpha) + Fraction(beta) * tokens for alpha, beta in cost.batch)
    if decodes:
        seconds += Fraction(cost.decode[0]) + Fraction(cost.decode[1]) * read
    if prefills:
        seconds += Fraction(cost.prefill[0]) + Fraction(cost.prefill[1]) * work
    if decodes and prefills:
        seconds += Fraction(cost.mixed[0]) + Fraction(cost.mixed[1]) * read
    if machine.swap is not None:
        seconds = max(seconds, machine.swap[0] + machine.swap[1] * sum(r.host_blocks for r in batch))
    return seconds


def allowed(machine: Machine, request: IterationRequest, selected: bool) -> Fraction:
    """(6): most seconds of the batch for the sake of a real-time request."""
    limit = machine.ttft if request.prefills else machine.tpot * (machine.group or 1)
    return limit - request.waited - (request.group - int(selected)) * machine.t_avg


@dataclass(frozen=True)
class Found:
    """The most savable requests that are kept, and then the best rate; None if nothing has a value."""

    kept: int
    rate: Fraction


def best_batch(instance: IterationInstance) -> Found:
    """Try every batch."""
    machine, requests = instance.machine, instance.requests
    savable = [
        r
        for r in requests
        if r.real_time and batch_seconds(machine, [r]) <= allowed(machine, r, selected=True)
    ]
    best = (-1, Fraction(0))
    for size in range(min(machine.batch, len(requests)) + 1):
        for batch in itertools.combinations(requests, size):
            if sum(r.new_blocks for r in batch) > machine.blocks:
                continue
            seconds = batch_seconds(machine, batch)
            kept = sum(seconds <= allowed(machine, r, r in batch) for r in savable)
            by_token = instance.objective == BE_TOKENS
            worth = sum(Fraction(int(not r.real_time)) if by_token else r.value for r in batch)
            best = max(best, (kept, worth / seconds if seconds else Fraction(0)))
    return Found(*best)


def tiny(seed: int) -> IterationInstance:
    """A snapshot of up to 8 requests in which everything that can be there sometimes is."""
    rng = random.Random(seed)

    def tenths(most: int) -> Fraction:
        return Fraction(rng.randint(0, most), 10)

    pieces = [(Fraction(rng.randint(1, 20)), Fraction(rng.randint(0, 5)))]
    if rng.random() < 0.4:
        pieces.append((Fraction(rng.randint(0, 5)), Fraction(rng.randint(1, 9))))
    cost = CostModel(
        pieces,
        (rng.randint(0, 5), tenths(5)),
        (rng.randint(0, 5), tenths(3)),
        rng.choice(["exact", "square"]),  # type: ignore[arg-type]
        mixed=(rng.randint(0, 3), tenths(3)) if rng.random() < 0.3 else (0, 0),
    )
    grouped = rng.choice([None, None, 2])
    groups, left = [], rng.randint(1, 8)
    while left:
        # Equal requests, too.
        count = rng.randint(2, left) if left > 1 and rng.random() < 0.2 else None
        left -= count or 1
        groups.append(_request(rng, f"r{len(groups)}", count))
    machine = Machine(
        rng.randint(1, 5),
        rng.randint(0, 6),
        Fraction(rng.randint(0, 30)),
        Fraction(rng.randint(20, 90)),
        Fraction(rng.randint(20, 90)),
        cost,
        group=grouped,
        swap=(Fraction(rng.randint(0, 9)), Fraction(rng.randint(1, 9))) if rng.random() < 0.4 else None,
        product=rng.random() < 0.2,
    )
    return IterationInstance(
        f"tiny-{seed}", tuple(groups), machine, rng.choice([BE_TOKENS, BE_TOKENS, VALUES])
    )


def _request(rng: random.Random, name: str, count: int | None) -> IterationGroup:
    real_time, prefills = rng.random() < 0.5, rng.random() < 0.3
    context = rng.randint(1, 6)
    return IterationGroup(
        name,
        "rt" if real_time else "be",
        "prefill" if prefills else "decode",
        context,
        rng.randint(1, context) if prefills else 1,
        # Up to beyond any limit: some are late.
        Fraction(rng.randint(0, 100)) if real_time else Fraction(0),
        rng.randint(0, 3),
        rng.choice([0, 0, 1, 3]),
        Fraction(rng.randint(0, 6), 2) if rng.random() < 0.8 else None,
        rng.randint(1, 2) if real_time else 1,
        count,
    )
