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
    shares = [least_latency(of) / plans(of)[-1] for of in map(in_rounds, campaign(15, 60))]
    assert max(shares) <= 1
    assert sum(shares) > Fraction(99, 100) * len(shares)


def test_each_starts_as_soon_as_it_fits() -> None:
    """Serial generation against every round looked at on its own."""
    for seed in campaign(60, 150):
        rng = np.random.default_rng(seed)
        n, capacity = int(rng.integers(1, 12)), int(rng.integers(5, 20))
        inputs = rng.integers(1, capacity // 2 + 1, n)
        outputs = np.array([rng.integers(1, capacity + 2 - i) for i in inputs])
        arrival = rng.integers(0, 20, n) * (seed % 2)
        order = rng.permutation(n)
        requests = _kernel.Requests(inputs, outputs, arrival, int(outputs.max()))
        starts, placed = np.zeros(n, np.int64), _kernel.Placed(*np.zeros((4, n), np.int64))
        total = _kernel.generate(requests, capacity, order, 0, starts, _kernel.NO_LIMIT, placed, starts)
        used = np.zeros(20 + outputs.sum() + 1, np.int64)
        for k in order:
            holds, start = inputs[k] + np.arange(outputs[k]), arrival[k]
            while (used[start : start + outputs[k]] + holds > capacity).any():
                start += 1
            assert starts[k] == start, seed
            used[start : start + outputs[k]] += holds
        assert total == (starts + outputs - arrival).sum()
        known = starts.copy()
        assert _kernel.generate(requests, capacity, order, n // 2, known, total, placed, starts) == total
        assert (starts == known).all()


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
    found = solve(replace(some, name="solved", groups=some.groups[:24]), time_limit=2)
    assert found.upper is not None
    assert found.lower is not None
    assert found.upper.source.startswith("rounds:")
    assert found.lower.source == "backwards paths"
    assert found.upper.value * Fraction(9, 10) < found.lower.value <= found.upper.value
