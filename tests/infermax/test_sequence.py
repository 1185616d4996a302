"""Orders on a scarce KV: what the search assumes of the KV, its best order, and the plans that follow."""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import pytest

from infermax_opt.infermax.data.instance import Instance, System
from infermax_opt.infermax.data.suites import paper_cost
from infermax_opt.infermax.planners._sequence_kernel import Queues, sequence_loop
from infermax_opt.infermax.planners.plan._options import AHEAD, decide
from infermax_opt.infermax.planners.plan.planner import Planner, PlannerOptions
from infermax_opt.infermax.planners.sequence import sequence_plans, sequences_help
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.table.suites import get_suite

STRICT = PlannerOptions(window=1, walk=1, choice=1, slack=AHEAD, reserve=0.0)


def batches_in_order(sizes: list[tuple[int, int]], capacity: int, seats: int) -> int:
    """Place one request after the other, batch by batch."""
    held: list[int] = []
    running: list[int] = []
    t = 0
    for inputs, outputs in sizes:
        while True:
            life = [inputs + outputs - 1 - k for k in range(outputs)]
            while len(held) < t + outputs:
                held.append(0)
                running.append(0)
            if held[t] + life[0] <= capacity and running[t] < seats:
                break
            t += 1
        for k, kv in enumerate(life):
            held[t + k] += kv
            running[t + k] += 1
            # What fits backwards fits for good.
            assert held[t + k] <= capacity
    return len(held)


def queues(kinds: list[tuple[int, int, int]], price: float) -> Queues:
    count = np.array([c for _, _, c in kinds], np.int64)
    inputs = np.repeat([i for i, _, _ in kinds], count)
    outputs = np.repeat([o for _, o, _ in kinds], count)
    return Queues(inputs, outputs, price * (outputs - 1.0) ** 2, np.cumsum(count) - count, count)


def random_kinds(rng: random.Random) -> tuple[list[tuple[int, int, int]], int, int]:
    kinds = list({(rng.randint(1, 9), rng.randint(1, 9)) for _ in range(rng.randint(1, 3))})
    capacity = max(i + o - 1 for i, o in kinds) + rng.randint(0, 25)
    return [(i, o, rng.randint(1, 2)) for i, o in kinds], capacity, rng.choice([1, 2, 3, 20])


@pytest.mark.parametrize("seed", range(60))
def test_a_wide_search_finds_the_best_order(seed: int) -> None:
    rng = random.Random(seed)
    kinds, capacity, seats = random_kinds(rng)
    columns = queues(kinds, rng.choice([0.0, 0.3]))
    batches, order = sequence_loop(capacity, seats, columns, 1000)
    rows = [(int(columns.inputs[i]), int(columns.outputs[i])) for i in range(len(columns.inputs))]
    assert sorted(order) == list(range(len(rows)))
    assert batches == batches_in_order([rows[i] for i in order], capacity, seats)
    assert batches == min(batches_in_order(list(p), capacity, seats) for p in itertools.permutations(rows))
    narrow, order = sequence_loop(capacity, seats, columns, 1)
    assert narrow == batches_in_order([rows[i] for i in order], capacity, seats) >= batches


@pytest.mark.parametrize("seed", range(20))
def test_plans_follow_the_order_in_as_many_batches(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [(rng.randint(1, 40), rng.randint(2, 40)) for _ in range(30)]
    capacity = max(i + o - 1 for i, o in sizes) + rng.randint(0, 200)
    order = list(range(len(sizes)))
    rng.shuffle(order)
    instance = Instance.of_requests("r", sizes, System(capacity, 4096, 4096), paper_cost())
    found = decide(instance, STRICT, 0, order=order)
    assert found.batches == batches_in_order([sizes[i] for i in order], capacity, len(sizes))


def mix(kind: str, count: int, capacity: int) -> Instance:
    return get_suite("mixes").select([f"mix-{kind}-b{count}-m{capacity}"])[0].build()


def test_an_order_beats_the_list_planner_on_a_mix() -> None:
    instance = mix("lilo", 128, 10_000)
    assert sequences_help(instance)
    planner = Planner(instance)
    list(planner.improve(time.monotonic()))  # one plan
    before = planner.best
    found = list(sequence_plans(instance, planner))
    assert found
    assert planner.best < 0.99 * before
    for name, schedule in found:
        assert name.startswith("sequence:")
        assert replay(instance, schedule).valid


def test_the_same_seed_gives_the_same_plans() -> None:
    instance = mix("all", 32, 10_000)

    def schedules() -> list[tuple[str, str]]:
        plans = sequence_plans(instance, Planner(instance), seed=3)
        return [(name, str(list(schedule.batches))) for name, schedule in plans][-1:]

    assert schedules() == schedules() != []


@pytest.mark.parametrize("seed", range(6))
def test_plans_of_many_types_are_valid(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [(rng.randint(1, 90), rng.randint(1, 90)) for _ in range(60)]
    system = System(600, rng.choice([40, 4096]), 4096, block_size=rng.choice([1, 16]))
    instance = Instance.of_requests("r", sizes, system, paper_cost())
    if not sequences_help(instance):
        return
    for _, schedule in sequence_plans(instance, Planner(instance, seed=seed), seed=seed):
        assert replay(instance, schedule).valid


def test_where_orders_do_not_help() -> None:
    alike = Instance.of_requests("r", [(5, 5)] * 20, System(100, 4096, 4096), paper_cost())
    assert not sequences_help(alike)
    roomy = Instance.of_requests("r", [(5, 5), (6, 6)] * 20, System(10_000, 4096, 4096), paper_cost())
    assert not sequences_help(roomy)
