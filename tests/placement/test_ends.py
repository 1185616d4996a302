"""The bound by ends: never above the optimum, stronger than the rows where outputs are long."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction

from infermax_opt.placement.bounds.closed_form import placement_bounds
from infermax_opt.placement.bounds.first_ends import refuted, workers_by_ends
from infermax_opt.placement.bounds.rows import open_workers, placeable
from infermax_opt.placement.data.generate import generate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limits
from tests.campaign import campaign
from tests.placement.oracle import fewest_workers


def kv_only(rng: random.Random) -> PlacementInstance:
    """A tiny instance in which nothing but the KV binds; at times with requests under way."""
    capacity = rng.randint(12, 40)
    groups = [
        PlacementGroup(f"n{k}", rng.randint(1, 8), rng.randint(1, capacity // 2))
        for k in range(rng.randint(2, 6))
    ]
    for k in range(rng.choice((0, 0, 1, 2, 3))):
        done = rng.randint(0, 3)
        groups.append(
            PlacementGroup(
                f"o{k}",
                rng.randint(1, 6),
                rng.randint(1, 8),
                generated_tokens=done,
                decode_seconds=Fraction(0),
                worker=rng.randint(1, 2),
            )
        )
    free = Fraction(1, 10**6)
    worker = Worker(
        Fraction(capacity), Fraction(rng.choice((1, 1, 2))), Fraction(rng.choice((0, 0, 1))),
        Fraction(0), Fraction(0), free, free, free,
    )  # fmt: skip
    horizon = rng.choice((None, None, rng.randint(1, 12)))
    return PlacementInstance("kv", tuple(groups), worker, Slo(Fraction(9), Fraction(9)), horizon=horizon)


def test_never_above_the_optimum() -> None:
    best, stronger, met, seeds = Counter[str](), 0, 0, campaign(400, 5_000)
    for seed in seeds:
        instance = kv_only(random.Random(seed))
        least = fewest_workers(instance)
        if least is None:
            continue
        bounds = placement_bounds(instance)
        assert bounds[0].value <= least, (seed, bounds[0])
        met += bounds[0].value == least
        values = {bound.source: bound.value for bound in bounds}
        best[bounds[0].source] += 1
        stronger += "ends" in values and values["ends"] > max(
            value for source, value in values.items() if source != "ends"
        )
    assert stronger > len(seeds) / 240
    assert met > len(seeds) * 2 / 3


def test_any_start_gives_what_is_refuted() -> None:
    for seed in campaign(80, 200):
        instance = kv_only(random.Random(seed))
        limits = Limits.of(instance)
        new, workers = placeable(limits), open_workers(limits)
        least = fewest_workers(instance)
        if not new or least is None:
            continue
        found = workers_by_ends(limits, new, workers, 0)
        if found is not None:
            assert found.workers + len(limits.ongoing) - len(workers) < least


def test_one_worker_by_hand() -> None:
    # Two requests of 3, growing by 1: when the first ends, 4 iterations on, they hold 14.
    assert refuted([3, 3], [4], 13)
    assert not refuted([3, 3], [4], 14)
    # Two workers, of which one has to hold two of the three: 2 * (3 + 0) at least.
    assert not refuted([3, 3, 3], [0, 0], 6)
    assert refuted([3, 3, 3], [0, 5], 6)
    assert not refuted([0, 0], [0], 1)


def test_it_closes_what_rows_leave_open() -> None:
    instance = generate("kv-tight", requests=200, seed=1)
    values = {bound.source: bound.value for bound in placement_bounds(instance)}
    assert values["ends"] == max(values.values()) == values["continuous"] + 1
