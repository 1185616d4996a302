"""The bound by prices of requests: its sets against all sets, and the bound against all placements."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.api import solve, verify
from infermax_opt.core.result import Proof, Status
from infermax_opt.placement.bounds import _heaviest_kernel as kernel
from infermax_opt.placement.bounds import configurations
from infermax_opt.placement.bounds.closed_form import placement_bounds
from infermax_opt.placement.bounds.configurations import ENOUGH, ONE, configurations_bound
from infermax_opt.placement.bounds.rows import open_workers, placeable
from infermax_opt.placement.data.generate import WORKER_13B, generate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.heuristics.place import place
from tests.campaign import campaign
from tests.placement.oracle import fewest_workers, tiny_placement


def thirds(requests: int, seed: int) -> PlacementInstance:
    """Requests of about a third of the KV, most of it there from the start, which end at various times."""
    rng = random.Random(seed)
    groups = []
    for k in range(requests):
        output = max(1, round(350 * rng.lognormvariate(0, 0.5)))
        groups.append(PlacementGroup(f"r{k}", round(rng.gauss(1000, 100)), output, output))
    worker = replace(WORKER_13B, kv_capacity=Fraction(4100))
    slo = Slo(Fraction(20), Fraction("0.2"))
    return PlacementInstance(f"thirds-{requests}-s{seed}", tuple(groups), worker, slo)


def usable(instance: PlacementInstance) -> bool:
    limits = Limits.of(instance)
    return bool(limits.new) and placeable(limits) == limits.new


@pytest.mark.parametrize("small", [True, False])
def test_the_dearest_set_is_that_of_all_sets(small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configurations, "FEW", 40 if small else 0)
    rng, tried = random.Random(7), 0
    for seed in campaign(100, 3_000):
        instance = tiny_placement(random.Random(seed))
        if not usable(instance):
            continue
        limits = Limits.of(instance)
        search = configurations._PriceSearch(limits, lambda: False)
        prices = np.zeros(len(limits.context))
        prices[list(limits.new)] = [rng.choice([0.0, rng.random(), 0.5]) for _ in limits.new]
        priced = search.priced(prices, 10**6)
        assert priced is not None
        assert priced.complete
        whole = configurations._whole(prices)
        most = []
        for worker in (*open_workers(limits), None):
            sizes = range(len(limits.new) + 1)
            sets = itertools.chain.from_iterable(itertools.combinations(limits.new, n) for n in sizes)
            fit = (list(some) for some in sets if not limits.excesses(some, worker))
            most.append(max(int(whole[some].sum()) for some in fit))
        assert priced.fresh == max(ENOUGH, most[-1]), seed
        assert priced.taken == sum(most[:-1]), seed
        for key, members in priced.sets:
            worker = None if key is None else open_workers(limits)[key]
            assert not limits.excesses(members, worker)
        tried += 1
    assert tried > 60


def test_never_above_the_optimum() -> None:
    met = 0
    for seed in campaign(150, 5_000):
        instance = tiny_placement(random.Random(seed))
        least = fewest_workers(instance)
        if least is None or not usable(instance):
            continue
        bound = configurations_bound(instance, place(instance, "best-fit"), known=0, enough=10**6)
        if bound is None:  # those in use may take all, in parts
            continue
        assert bound.proof is Proof.SOLVER
        assert bound.value <= least, seed
        met += bound.value == least
    assert met > 70


def test_any_prices_prove_no_more_than_is_true() -> None:
    """The prices of the linear program are only good ones."""
    rng = random.Random(3)
    for seed in campaign(60, 2_000):
        instance = tiny_placement(random.Random(seed))
        least = fewest_workers(instance)
        if least is None or not usable(instance):
            continue
        limits = Limits.of(instance)
        search = configurations._PriceSearch(limits, lambda: False)
        prices = np.array([rng.random() * rng.choice([0, 1, 3]) for _ in limits.context])
        prices[[k for k in range(len(prices)) if k not in limits.new]] = 0
        priced = search.priced(prices, 10**6)
        assert priced is not None
        assert len(limits.ongoing) + search.bound(prices, priced) <= least, seed


def test_what_closed_forms_and_programs_leave_open_is_proved() -> None:
    instance = thirds(60, 1)
    result = solve(instance, time_limit=60)
    assert result.status is Status.OPTIMAL
    assert result.lower is not None
    assert (result.lower.source, result.lower.proof) == ("configurations", Proof.SOLVER)
    assert result.lower.value > placement_bounds(instance)[0].value
    assert "worth more than 1" in str(result.lower.reason)
    assert verify(instance, result).ok


def test_requests_that_are_there_count() -> None:
    instance = generate("long-prompts", requests=12, seed=1, ongoing=0.34)
    assert placement_bounds(instance)[0].value == 3
    bound = configurations_bound(instance, place(instance, "multi-start"), known=3, enough=4)
    assert bound is not None
    assert bound.value == 4
    assert "beyond what the" in str(bound.reason)


def test_where_a_worker_takes_many_it_gives_up() -> None:
    instance = generate("paper", requests=200)
    assert configurations_bound(instance, place(instance, "best-fit"), known=0, enough=200) is None


def test_it_stops_when_told_to() -> None:
    instance = thirds(60, 1)
    start = place(instance, "best-fit")
    assert configurations_bound(instance, start, known=0, enough=60, stop=lambda: True) is None
    asked = itertools.count()
    early = configurations_bound(instance, start, known=0, enough=60, stop=lambda: next(asked) > 2)
    late = configurations_bound(instance, start, known=0, enough=60)
    assert early is not None
    assert late is not None
    assert early.value < late.value


def test_sums_beyond_64_bits_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = thirds(9, 1)
    monkeypatch.setattr(configurations, "MOST_SUM", 100)
    assert configurations_bound(instance, place(instance, "best-fit"), known=0, enough=9) is None


def test_a_search_without_steps_says_that_it_is_not_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits.of(thirds(12, 1))
    search = configurations._PriceSearch(limits, lambda: False)
    before = [part.copy() for part in search.workers]
    priced = search.priced(np.full(12, 0.4), 2)
    assert priced is not None
    assert not priced.complete
    # Workers are as they were: what was put on them is gone.
    assert all((part == old).all() for part, old in zip(search.workers, before, strict=True))
    monkeypatch.setattr(configurations, "WIDEST", 2)
    priced = search.priced(np.full(12, 0.4), 10**6)
    assert priced is not None
    assert not priced.complete
    assert kernel.UNKNOWN < 0 < ONE < ENOUGH
