"""Identical parallel machines: against every assignment of tiny instances, and proofs at the size of use."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.core.errors import InputError
from infermax_opt.makespan.machines import _bounds as bounds
from infermax_opt.makespan.machines import _split as splits
from infermax_opt.makespan.machines._arcflow import decide
from infermax_opt.makespan.machines._columns import Columns
from infermax_opt.makespan.machines._kernel import pack, repair_loop
from infermax_opt.makespan.machines._knapsack import most_worth
from infermax_opt.makespan.machines._search import Search
from infermax_opt.makespan.machines.solve import Assignment, solve_parallel_machines
from tests.campaign import campaign, examples

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=8)


def oracle(lengths: list[int], machines: int) -> int:
    """Least makespan, by all sets of loads that can be reached."""
    states = {(0,) * machines}
    for length in lengths:
        states = {
            tuple(sorted((*loads[:k], loads[k] + length, *loads[k + 1 :])))
            for loads in states
            for k in range(machines)
        }
    return min(max(loads) for loads in states)


def checked(result: Assignment, lengths: list[int], machines: int) -> Assignment:
    load = [0] * machines
    assert len(result.machine) == len(lengths)
    for length, k in zip(lengths, result.machine, strict=True):
        load[k] += length
    assert max(load) == result.makespan >= result.lower_bound
    assert result.optimal == (result.makespan == result.lower_bound)
    return result


def tiny(seed: int) -> tuple[list[int], int]:
    rng = random.Random(seed)
    low, high = rng.choice([(1, 5), (1, 20), (10, 20), (1, 100), (50, 100), (900, 1000)])
    return [rng.randint(low, high) for _ in range(rng.randint(1, 8))], rng.randint(1, 4)


def jobs(parts: list[list[int]]) -> list[int]:
    return sorted(itertools.chain.from_iterable(parts))


def kinds(lengths: list[int]) -> tuple[list[int], list[int]]:
    counted = Counter(sorted(lengths, reverse=True))
    return list(counted), list(counted.values())


@examples(36, 150)
@given(LENGTHS, st.integers(1, 4))
def test_optimal_on_tiny_instances(lengths: list[int], machines: int) -> None:
    result = checked(solve_parallel_machines(lengths, machines), lengths, machines)
    assert result.makespan == result.lower_bound == oracle(lengths, machines)


def test_optimal_on_many_tiny_instances() -> None:
    for seed in range(400):
        lengths, machines = tiny(seed)
        result = checked(solve_parallel_machines(lengths, machines, seed=seed), lengths, machines)
        assert result.makespan == result.lower_bound == oracle(lengths, machines), (lengths, machines)


def test_every_closed_bound_is_one() -> None:
    for seed in campaign(200, 500):
        lengths, machines = tiny(seed)
        lengths.sort(reverse=True)
        best = oracle(lengths, machines)
        assert bounds.average(lengths, machines) <= best
        assert bounds.longest(lengths, machines) <= best
        assert bounds.counting(lengths, machines)[0] <= best
        assert bounds.quick(lengths, machines)[0] <= best
        assert bounds.lifted(lengths, machines) <= best
        assert bounds.packing(*kinds(lengths), machines, 1, sum(lengths)) <= best
        sizes, copies = (np.array(column, np.int64) for column in kinds(lengths))
        for load in range(best, best + 30):
            assert not bounds.does_not_fit(sizes, copies, machines, load), (lengths, machines, load)


@pytest.mark.parametrize("intervals", [None, 1, 2])
def test_the_relaxation_is_a_bound(intervals: int | None) -> None:
    reached = 0
    for seed in range(150):
        lengths, machines = tiny(seed)
        best = oracle(lengths, machines)
        low = max(max(lengths), -(-sum(lengths) // machines))
        columns = Columns(*kinds(lengths), machines, None)
        columns.start(low)
        columns.regroup(intervals)
        value, _ = columns.raise_bound(low, sum(lengths) + 1, 200)
        assert low <= value <= best, (lengths, machines)
        reached += value == best
        if intervals is None:
            parts = columns.dive(low, best + 1 + seed % 3, np.random.default_rng(seed))
            assert jobs(parts) == sorted(lengths)
            assert len(parts) == machines
    assert reached > 100


def test_the_search_is_exact() -> None:
    for seed in range(400):
        lengths, machines = tiny(seed)
        best = oracle(lengths, machines)
        items = np.array(sorted(lengths, reverse=True), np.int64)
        where = np.zeros(len(items), np.int64)
        for load in range(max(lengths), best + 3):
            fits, placed = pack(items, machines, load, 10**6, where)
            assert fits == (load >= best), (lengths, machines, load)
            if fits:
                assert np.bincount(where, items).max() <= load
                assert where.max() < machines
            assert pack(items, machines, load, 1, where)[0] in (-1, fits)
            assert placed >= 0


def test_the_arc_flow_model_is_exact() -> None:
    for seed in range(60):
        lengths, machines = tiny(seed)
        best = oracle(lengths, machines)
        for load in range(max(max(lengths), best - 2), best + 2):
            fits, parts = decide(*kinds(lengths), machines, load, seed=0, deadline=None)
            assert fits is (load >= best), (lengths, machines, load)
            if fits:
                assert jobs(parts) == sorted(lengths)
                assert len(parts) == machines
                assert max(map(sum, parts)) <= load


def test_the_knapsack_counts_copies() -> None:
    sizes, copies, worth = (np.array(c, np.int64) for c in ([7, 5, 2], [1, 2, 3], [9, 7, 2]))
    value, taken = most_worth(sizes, copies, worth, 20)
    best = [
        max(
            9 * a + 7 * b + 2 * c
            for a in range(2)
            for b in range(3)
            for c in range(4)
            if 7 * a + 5 * b + 2 * c <= load
        )
        for load in range(21)
    ]
    assert value.tolist() == best
    assert (taken <= copies[:, None]).all()


def test_repair_keeps_all_jobs() -> None:
    rng = random.Random(3)
    lengths = np.array(sorted((rng.randint(20, 90) for _ in range(24)), reverse=True), np.int64)
    machine = np.arange(24) % 8
    load = np.bincount(machine, lengths).astype(np.int64)
    before = load.max()
    top = repair_loop(lengths, machine, load, -(-lengths.sum() // 8), 4, 500, 20_000, np.array([1]))
    assert (np.bincount(machine, lengths, 8) == load).all()
    assert top == load.max() < before


def test_splits_keep_all_jobs() -> None:
    rng = random.Random(5)
    lengths = sorted((rng.randint(1, 90) for _ in range(60)), reverse=True)
    start = splits.longest_first(lengths, 7)
    parts = splits.balance(start, 0, seed=1, rounds=300, deadline=None)
    assert jobs(parts) == sorted(lengths)
    assert max(map(sum, parts)) <= max(map(sum, start))


@pytest.mark.parametrize(
    ("lengths", "machines", "makespan", "proof"),
    [
        ([3, 1, 2], 1, 6, "average"),
        ([9, 1, 2], 5, 9, "longest"),
        ([5, 5, 5, 4, 4], 4, 8, "pair"),
        ([5, 5, 5, 5, 5, 4, 4], 3, 13, "counting"),
        ([2, 4, 6], 10**6, 6, "longest"),
        ([10**30, 10**30, 10**30 + 7], 2, 2 * 10**30, "pair"),
    ],
)
def test_known(lengths: list[int], machines: int, makespan: int, proof: str) -> None:
    result = checked(solve_parallel_machines(lengths, machines), lengths, machines)
    assert (result.makespan, result.lower_bound, result.proof) == (makespan, makespan, proof)


def test_no_jobs() -> None:
    assert solve_parallel_machines([], 3) == Assignment((), 0, 0, "average")


@pytest.mark.parametrize(
    ("lengths", "machines", "field"),
    [
        ([1, 2], 0, "machines"),
        ([1, 2], -1, "machines"),
        ([1, 2], 1.0, "machines"),
        ([1, 2], True, "machines"),
        ([1, 0], 2, "lengths[1]"),
        ([-1, 5], 2, "lengths[0]"),
        ([1, 2.0], 2, "lengths[1]"),
        ([1, "2"], 2, "lengths[1]"),
        ([True, 2], 2, "lengths[0]"),
    ],
)
def test_bad_input(lengths: list[int], machines: int, field: str) -> None:
    with pytest.raises(InputError) as caught:
        solve_parallel_machines(lengths, machines)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("limit", [-1.0, float("nan")])
def test_bad_time_limit(limit: float) -> None:
    with pytest.raises(InputError):
        solve_parallel_machines([1, 2], 2, time_limit=limit)


def few(kind: str, n: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    if kind == "normal":
        return [max(1, round(rng.gauss(100, 50))) for _ in range(n)]
    low, high = {"1-100": (1, 100), "50-100": (50, 100), "100-200": (100, 200), "100-800": (100, 800)}[kind]
    return [rng.randint(low, high) for _ in range(n)]


@pytest.mark.parametrize("limit", [0, 0.0, 1e-9])
def test_no_time_at_all(limit: float) -> None:
    for kind in ("1-100", "100-800"):
        lengths = few(kind, 90, 1)
        result = checked(solve_parallel_machines(lengths, 40, time_limit=limit), lengths, 40)
        assert result.lower_bound >= bounds.average(lengths, 40)


def test_the_time_limit_is_kept() -> None:
    lengths = few("100-800", 900, 0)
    solve_parallel_machines(few("100-800", 45, 0), 20)  # Kernels are compiled by now.
    for limit in (0.05, 0.5):
        begun = time.monotonic()
        checked(solve_parallel_machines(lengths, 400, time_limit=limit), lengths, 400)
        assert time.monotonic() - begun < limit + 1.5


@pytest.mark.parametrize("kind", ["1-100", "50-100", "100-200", "100-800", "normal"])
@pytest.mark.parametrize(("n", "machines"), [(41, 20), (90, 40), (180, 80)])
def test_few_jobs_per_machine_are_proved(kind: str, n: int, machines: int) -> None:
    lengths = few(kind, n, n)
    result = checked(solve_parallel_machines(lengths, machines, time_limit=20), lengths, machines)
    assert result.optimal, result.lower_bound


@pytest.mark.parametrize("kind", ["normal", "uniform", "exponential"])
def test_output_tokens_are_proved_without_numpy_code(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: Search) -> None:
        raise AssertionError("the splits should have been enough")

    monkeypatch.setattr(Search, "_numeric", never)
    rng = random.Random(7)
    lengths = {
        "normal": [max(1, min(512, round(rng.gauss(345, 188)))) for _ in range(1319)],
        "uniform": [rng.randint(1, 512) for _ in range(1319)],
        "exponential": [max(1, round(rng.expovariate(1 / 345))) for _ in range(1319)],
    }[kind]
    assert checked(solve_parallel_machines(lengths, 200), lengths, 200).optimal


def test_no_slack_at_all() -> None:
    """Loads can only be equal; the splits must not get stuck."""
    for seed in range(4):
        rng = random.Random(seed)
        lengths = []
        for _ in range(50):
            cuts = [0, *sorted(rng.sample(range(1, 2280), 6)), 2280]
            lengths += [b - a for a, b in itertools.pairwise(cuts)]
        result = checked(solve_parallel_machines(lengths, 50), lengths, 50)
        assert result.makespan == result.lower_bound == 2280


def test_the_same_seed_gives_the_same_result() -> None:
    for kind, n, machines in [("100-800", 55, 20), ("50-100", 90, 40), ("1-100", 82, 40)]:
        lengths = few(kind, n, 4)
        first = solve_parallel_machines(lengths, machines, seed=3)
        assert first == solve_parallel_machines(lengths, machines, seed=3)
        assert solve_parallel_machines(lengths, machines, seed=-(10**12)).makespan == first.makespan


def test_scaled_lengths_give_the_same_assignment() -> None:
    lengths = few("50-100", 45, 2)
    lengths += [1]
    plain = solve_parallel_machines(lengths, 20)
    scaled = solve_parallel_machines([p * 1000 for p in lengths], 20)
    assert scaled == Assignment(plain.machine, 1000 * plain.makespan, 1000 * plain.lower_bound, plain.proof)


def test_huge_lengths_take_no_huge_memory() -> None:
    rng = random.Random(1)
    lengths = [rng.randint(10**11, 10**12) for _ in range(40)]
    result = checked(solve_parallel_machines(lengths, 15, time_limit=1), lengths, 15)
    assert result.makespan <= 1.1 * result.lower_bound
    lengths = [p * 10**20 + 1 for p in lengths]
    checked(solve_parallel_machines(lengths, 15, time_limit=1), lengths, 15)


def test_importing_is_cheap() -> None:
    code = (
        "import sys, infermax_opt.makespan.machines.solve\n"
        "print([m for m in ('numpy', 'numba', 'highspy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
