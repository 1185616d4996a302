"""Plans for batches of one length: valid, and close to the best start rounds."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.api import solve, verify
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.planners.rounds import _kernel, planner
from infermax_opt.infermax.planners.rounds.planner import RoundsPlanner
from tests.campaign import campaign
from tests.infermax.test_backwards import ROUNDS, in_rounds, least_latency


def plans(of: Instance) -> list[Fraction]:
    """Mean latencies of all plans, which must be valid."""
    values = []
    for _, schedule in RoundsPlanner(of).plans():
        check = verify(of, schedule)
        assert check.ok, check.violations[:2]
        assert check.metrics is not None
        values.append(check.metrics.mean_e2e)
    assert values == sorted(values, reverse=True)
    return values


def test_plans_are_valid_and_nearly_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LOOKS", 3)
    shares = [least_latency(of) / plans(of)[-1] for of in map(in_rounds, campaign(9, 60))]
    assert max(shares) <= 1
    assert sum(shares) > Fraction(99, 100) * len(shares)


def test_each_starts_as_soon_as_it_fits() -> None:
    """Serial generation against every round looked at on its own."""
    for seed in campaign(36, 150):
        rng = np.random.default_rng(seed)
        n, capacity = int(rng.integers(1, 12)), int(rng.integers(5, 20))
        inputs = rng.integers(1, capacity // 2 + 1, n)
        outputs = np.array([rng.integers(1, capacity + 2 - i) for i in inputs])
        arrival = rng.integers(0, 20, n) * (seed % 2)
        order = rng.permutation(n)
        requests = planner.requests_of(inputs, outputs, arrival)
        starts, place = np.zeros(n, np.int64), np.zeros(n, np.int64)
        placed, none = _kernel.Placed(*np.zeros((4, n), np.int64)), (_kernel.NO_LIMIT, 0)
        soonest = _kernel.Known(arrival, outputs.sum())
        total = _kernel.generate(requests, capacity, order, (0, n - 1), soonest, none, placed, starts, place)
        used = np.zeros(20 + outputs.sum() + 1, np.int64)
        for k in order:
            holds, start = inputs[k] + np.arange(outputs[k]), arrival[k]
            while (used[start : start + outputs[k]] + holds > capacity).any():
                start += 1
            assert starts[k] == start, seed
            used[start : start + outputs[k]] += holds
        assert total == (starts + outputs - arrival).sum()
        known = _kernel.Known(starts.copy(), total)
        for first in range(n):
            for last in range(first, n):  # changed there and back
                place[:], starts[:] = 0, 0
                again = _kernel.generate(
                    requests, capacity, order, (first, last), known, (total, 0), placed, starts, place
                )
                assert again == total
                assert (starts == known.starts).all()


def test_a_changed_order_gives_what_it_gives_from_the_start() -> None:
    """Unless it is given up because the sum is too large half-way, which a large enough hope prevents."""
    given_up = 0
    for seed in campaign(36, 300):
        rng = np.random.default_rng(seed)
        n, capacity = int(rng.integers(2, 12)), int(rng.integers(5, 20))
        inputs = rng.integers(1, capacity // 2 + 1, n)
        outputs = np.array([rng.integers(1, capacity + 2 - i) for i in inputs])
        requests = planner.requests_of(inputs, outputs, rng.integers(0, 20, n) * (seed % 2))
        order, none = rng.permutation(n), (_kernel.NO_LIMIT, 0)
        placed, place = _kernel.Placed(*np.zeros((4, n), np.int64)), np.zeros(n, np.int64)
        starts, tried, whole = np.zeros((3, n), np.int64)
        soonest = _kernel.Known(requests.arrival, outputs.sum())
        total = _kernel.generate(requests, capacity, order, (0, n - 1), soonest, none, placed, starts, place)
        for _ in range(20):
            other = order.copy()
            places = _kernel.changed(rng.random(_kernel.CHANCES), other)
            right = _kernel.generate(
                requests, capacity, other, (0, n - 1), soonest, none, placed, whole, place
            )
            known = _kernel.Known(starts, total)
            found = _kernel.generate(requests, capacity, other, places, known, none, placed, tried, place)
            assert found == right, seed
            assert (tried == whole).all(), seed
            found = _kernel.generate(
                requests, capacity, other, places, known, (total, 0), placed, tried, place
            )
            assert found == right or found > total, seed
            given_up += found != right
    assert given_up > 0


def crowd(late: int) -> Instance:
    """Forty requests of which few fit at once, with arrivals far apart if `late`."""
    rng = random.Random(late)
    groups = [
        RequestGroup(f"q{k}", rng.randint(1, 6), rng.randint(1, 30), late * rng.randint(0, 40))
        for k in range(40)
    ]
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
    return Instance("crowd", tuple(groups), System(36, 36, 36), cost, ROUNDS, "mean_e2e")  # type: ignore[arg-type]


def test_gaps_between_arrivals_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "LOOKS", 20)
    for late in (0, 1, 20, 100):
        values = plans(crowd(late))
        assert values[-1] < values[0] or late == 100


def test_solve_uses_it_and_its_bound() -> None:
    some = crowd(0)
    found = solve(replace(some, name="solved", groups=some.groups[:24]), time_limit=8)
    assert found.upper is not None
    assert found.lower is not None
    assert found.upper.source.startswith("rounds:")
    assert found.lower.source == "backwards paths"
    assert found.upper.value * Fraction(9, 10) < found.lower.value <= found.upper.value
