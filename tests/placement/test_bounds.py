"""Bounds on workers: never above the optimum, and of the stated size on instances made for them."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import networkx
import pytest

from infermax_opt.cluster.replay.replay import Beat, replay_stream
from infermax_opt.core import dual_feasible
from infermax_opt.placement.bounds.cliques import best_clique, excluding
from infermax_opt.placement.bounds.closed_form import WorkerBound, excluded, placement_bounds
from infermax_opt.placement.bounds.dual import Multiset, best_count, best_function
from infermax_opt.placement.bounds.rows import (
    Row,
    base_rows,
    combined,
    kv_iterations,
    kv_row,
    open_workers,
    placeable,
    tightened,
)
from infermax_opt.placement.data.generate import FAMILIES, generate
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limits
from infermax_opt.placement.heuristics.place import place
from tests.campaign import campaign
from tests.cluster.oracle import tight_stream
from tests.placement.oracle import broken, fewest_workers, tiny_placement

FUNCTIONS = ("cut", "steps", "parts")


def test_no_bound_exceeds_the_optimum() -> None:
    met, sources, seeds = 0, Counter[str](), campaign(150, 5_000)
    for seed in seeds:
        instance = tiny_placement(random.Random(seed))
        least = fewest_workers(instance)
        bounds = placement_bounds(instance)
        assert [bound.value for bound in bounds] == sorted((bound.value for bound in bounds), reverse=True)
        assert all(bound.value >= 0 and bound.reason for bound in bounds)
        if least is None:
            continue
        assert bounds[0].value <= least, (seed, bounds[0])
        met += bounds[0].value == least
        sources[bounds[0].source] += 1
    assert met > 0.8 * len(seeds)
    assert sources["continuous"] > len(seeds) / 20
    assert sources["function"] > len(seeds) / 200


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_superadditive_and_rising(name: str) -> None:
    function = getattr(dual_feasible, name)
    for capacity in range(1, 26):
        for parameter in range(1, {"cut": capacity // 2, "steps": capacity, "parts": 12}[name] + 1):
            values = [function(x, capacity, parameter) for x in range(capacity + 1)]
            assert values[0] == 0
            assert values == sorted(values)
            for x in range(capacity + 1):
                for y in range(capacity + 1 - x):
                    assert values[x] + values[y] <= values[x + y], (capacity, parameter, x, y)
            assert values[-1] == {
                "cut": capacity, "steps": 2 * (capacity // parameter), "parts": parameter * capacity,
            }[name]  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sums_of_functions(name: str) -> None:
    rng = random.Random(3)
    for _ in range(400):
        capacity = rng.randint(1, 40)
        values = [rng.randint(0, capacity) for _ in range(rng.randint(0, 12))]
        parameter = rng.randint(1, {"cut": max(1, capacity // 2), "steps": capacity, "parts": 9}[name])
        if name == "cut" and parameter > capacity // 2:
            continue
        one_by_one = sum(getattr(dual_feasible, name)(x, capacity, parameter) for x in values)
        assert getattr(Multiset(values), name)(capacity, parameter) == one_by_one


def test_rows_hold_for_all_that_fits() -> None:
    """Also what becomes of rows: sums, tightened rooms, counts."""
    tight, seeds = 0, campaign(300, 600)
    for seed in seeds:
        rng = random.Random(seed)
        instance = tiny_placement(rng)
        limits = Limits.of(instance)
        new, workers = placeable(limits), open_workers(limits)
        plain = base_rows(limits, new, workers)
        plain += [kv_row(limits, new, workers, k) for k in kv_iterations(limits, new, workers, 3)]
        rows = tightened(plain, plain)
        tight += any(row.rooms != one.rooms for row, one in zip(rows, plain, strict=True))
        if len(rows) > 1:
            rows.append(combined([(2, rows[0]), (1, rows[1])]))
        places = range(len(new))
        for number in (None, *limits.ongoing):
            ongoing = [r for r in instance.requests if r.worker == number is not None]
            for chosen in (rng.sample(places, rng.randint(1, len(places))) for _ in range(8) if places):
                members = [instance.requests[new[k]] for k in chosen]
                if broken(instance, members, ongoing, instance.busy.get(number or 0, Fraction(0))):
                    continue
                assert number is None or number in workers
                for row in rows:
                    end = row.capacity if number is None else row.rooms[workers.index(number)]
                    assert sum(row.weights[k] for k in chosen) <= end, (seed, row.name)
    assert tight > len(seeds) / 60


def test_pairs_that_exclude_each_other() -> None:
    for seed in range(300):
        instance = tiny_placement(random.Random(seed))
        limits = Limits.of(instance)
        excludes = excluding(limits)
        new = placeable(limits)
        for i in new:
            for k in new:
                if i < k:
                    pair = [instance.requests[i], instance.requests[k]]
                    assert excludes(i, k) == excludes(k, i) == bool(broken(instance, pair, []))


def test_functions_and_counts_by_hand() -> None:
    def row(weights: list[int], *rooms: int) -> Row:
        return Row("some", tuple(weights), 10, rooms)

    # Six and more take a worker each, with the four that fill them up: 28 / 10 says 3.
    assert row([7, 7, 7, 7]).fresh == 3
    found = best_function(row([7, 7, 7, 7]))
    assert found is not None
    assert found.fresh == 4
    # Threes: three a worker.
    weights = [3] * 10 + [1]
    assert row(weights).fresh == 4
    count = best_count(row([4] * 5))
    assert count is not None
    assert (count[0].fresh, count[0].capacity, count[1]) == (3, 2, 5)
    # Two of them go on the worker in use.
    count = best_count(row([4] * 5, 9))
    assert count is not None
    assert (count[0].fresh, count[0].lacking) == (2, 3)
    assert best_count(row([1, 1], 5)) is None
    assert best_count(row([4] * 5), 3) is None
    assert best_function(row([0, 0])) is None


def hand(groups: list[tuple[object, ...]], **limits: str) -> PlacementInstance:
    """k1 = 0.1; h = 1."""
    worker = Worker(Fraction(limits.get("kv", "1000")), *map(Fraction, ("1", "0", "0.1", "0", "0", "0", "0")))
    slo = Slo(Fraction(limits.get("ttft", "1000")), Fraction("1"))
    return PlacementInstance("hand", tuple(PlacementGroup(*some) for some in groups), worker, slo)  # type: ignore[arg-type]


def test_reasons() -> None:
    instance = hand([("a", 30, 1), ("b", 30, 1), ("c", 30, 1), ("o", 5, 9, None, 9, "7", 4)], ttft="4")
    # 9 s of prefill; o has saved 2 s: no prompt fits there.
    bounds = placement_bounds(instance)
    assert bounds[0].value == fewest_workers(instance) == 4
    assert {bound.source: bound.value for bound in bounds} == {
        "function": 4, "count": 4, "pairs": 4, "continuous": 4, "levels": 4, "in use": 1,
    }  # fmt: skip
    assert excluded(instance, 0) == "workers in use whatever is done: 1"
    assert excluded(instance, 3) == (
        "prefill: the new requests need 9 s, those in use (1) have room for 0 s, a fresh worker has 4 s"
    )
    with pytest.raises(ValueError, match="no bound excludes 4 workers"):
        excluded(instance, 4)


def test_levels_of_sizes_that_are_nearly_equal() -> None:
    # 10 requests of 17 to 19 on workers of 51: three fit only if all are of 17, of which there are four.
    groups = [(f"r{k}", 17 + k % 3, 1) for k in range(10)]
    instance = hand(groups, ttft="5.1")
    found = {bound.source: bound.value for bound in placement_bounds(instance)}
    assert found["levels"] == fewest_workers(instance) == 5
    assert found["continuous"] == 4


def test_mixed_pairs() -> None:
    # Long prompts exclude each other by prefill, long outputs by KV; each prompt excludes each output.
    groups = [("p", 60, 1, None, 0, 0, None, 3), ("q", 41, 60, None, 0, 0, None, 3)]
    instance = hand(groups, ttft="10", kv="105")
    clique = next(bound for bound in placement_bounds(instance) if bound.source == "pairs")
    assert clique.value == fewest_workers(instance) == 6
    assert set(clique.detail["requests"]) == {"p.1", "p.2", "p.3", "q.1", "q.2", "q.3"}  # type: ignore[call-overload]


def test_without_new_or_placeable_requests() -> None:
    only = hand([("o", 5, 9, None, 9, "7", 4), ("p", 5, 9, None, 9, "7", 2)])
    (bound,) = placement_bounds(only)
    assert (bound.value, bound.source) == (2, "in use")
    wide = hand([("a", 2000, 1), ("b", 10, 10)])
    assert fewest_workers(hand([("a", 1001, 1)], kv="1000")) is None
    assert placement_bounds(wide)[0].value == 1


@pytest.mark.parametrize("share", [0, 10])
def test_a_thousand_requests_take_less_than_a_second(share: int) -> None:
    rng = random.Random(1)
    groups: list[tuple[object, ...]] = [
        (f"r{k}", rng.randint(10, 3000), rng.randint(10, 3000)) for k in range(1000)
    ]
    groups += [(f"o{k}", rng.randint(10, 900), 500, None, 200, "150", k + 1) for k in range(share * 10)]
    instance = hand(groups, kv="12000", ttft="400")
    began = time.process_time()
    bounds = placement_bounds(instance)
    assert time.process_time() - began < 2.5, "twice what it takes on a slow core"
    assert bounds[0].value > 100
    assert isinstance(bounds[0], WorkerBound)


def test_weighted_cliques_need_no_more_fresh_workers() -> None:
    """On heartbeats with workers in use, requests that fit on none of these weigh more than all others."""
    compared, in_use = 0, 0

    def decide(beat: Beat) -> Mapping[str, int]:
        nonlocal compared, in_use
        limits = Limits.of(beat.instance)
        new, workers = placeable(limits), open_workers(limits)
        rows = base_rows(limits, new, workers)
        rows += [kv_row(limits, new, workers, k) for k in kv_iterations(limits, new, workers, 4)]
        best, excludes = best_clique(limits, new, rows), excluding(limits)
        if best is not None:
            fits = [
                any(all(row.weights[k] <= row.rooms[e] for row in rows) for e in range(len(rows[0].rooms)))
                for k in range(len(new))
            ]
            graph = networkx.Graph()
            graph.add_nodes_from((k, {"weight": 1 if fits[k] else 1 + len(new)}) for k in range(len(new)))
            pairs = itertools.combinations(range(len(new)), 2)
            graph.add_edges_from((i, k) for i, k in pairs if excludes(new[i], new[k]))
            heaviest, _ = networkx.max_weight_clique(graph)
            assert sum(not fits[k] for k in heaviest) <= best.fresh
            compared, in_use = compared + 1, in_use + bool(beat.instance.in_use)
        return place(beat.instance, "best-fit").workers

    for seed in range(20):
        replay_stream(tight_stream(random.Random(seed), requests=12, right=1.0), decide)
    assert compared > 20
    assert in_use > 10


@pytest.mark.parametrize("family", FAMILIES)
def test_cliques_are_cliques_and_nearly_the_largest(family: str) -> None:
    """Against all maximal cliques of the graph of requests that exclude each other."""
    found = largest = 0
    for seed in range(4):
        limits = Limits.of(generate(family, requests=60, seed=seed))
        new, workers = placeable(limits), open_workers(limits)
        rows = base_rows(limits, new, workers)
        rows += [kv_row(limits, new, workers, k) for k in kv_iterations(limits, new, workers, 4)]
        best, excludes = best_clique(limits, new, rows), excluding(limits)
        assert best is not None
        graph = networkx.Graph()
        graph.add_nodes_from(range(len(new)))
        graph.add_edges_from((i, k) for i, k in itertools.combinations(graph, 2) if excludes(new[i], new[k]))
        assert all(graph.has_edge(*pair) for pair in itertools.combinations(best.members, 2))
        most = max(map(len, networkx.find_cliques(graph)))
        assert len(best.members) <= most
        found, largest = found + len(best.members), largest + most
    assert found >= 0.9 * largest
