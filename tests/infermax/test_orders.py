"""Local search over orders: plans as the planner makes them, best orders of few requests, worth, limits."""

from __future__ import annotations

import functools
import itertools
import random
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.data.suites import paper_cost
from infermax_opt.infermax.planners import anytime, sequence
from infermax_opt.infermax.planners.lives.planner import lives_help
from infermax_opt.infermax.planners.orders import planner
from infermax_opt.infermax.planners.orders._kernel import FAR, change, climb
from infermax_opt.infermax.planners.orders.planner import orders_help, orders_plans
from infermax_opt.infermax.planners.plan import _kernel as plan_kernel
from infermax_opt.infermax.planners.plan._early_evictions import Early, attention
from infermax_opt.infermax.planners.plan._options import (
    EarlyWay,
    PlannerOptions,
    decide,
    rules_of,
    widths_of,
)
from infermax_opt.infermax.planners.plan._placement import Kernels, place
from infermax_opt.infermax.planners.plan._profile import Profiles
from infermax_opt.infermax.planners.plan._write import batches_of
from infermax_opt.infermax.planners.plan.planner import Planner
from infermax_opt.infermax.planners.polish._kernel import regroup
from infermax_opt.infermax.replay.fast import replay
from tests.campaign import campaign, examples
from tests.infermax.strategies import instances
from tests.support import PAPER, case, value

#: A knee at 10 tokens, up to which prompts ride along.
KNEE = CostModel([("0.02", "0.00001"), ("0.01", "0.001")], ("0.0004", "1e-7"), ("0.0003", "1e-9"))


def different(seed: int, count: int = 40, cost: CostModel = PAPER) -> Instance:
    """Requests of many lengths, of which about ten fit at once."""
    rng = random.Random(seed)
    sizes = [(rng.randint(2, 40), rng.randint(20, 50)) for _ in range(count)]
    return Instance.of_requests("different", sizes, System(500, 64, 64), cost)


def placed(instance: Instance, options: PlannerOptions, order: list[int]) -> float:
    """Seconds of the plan that places requests in this order, as the planner makes it in plain Python."""
    kernels = Kernels(plan_kernel.plan_loop, regroup, list, list)
    rules = rules_of(instance, options)
    return float(place(instance, rules, order, widths_of(instance, options), None, kernels).seconds)


def searched(instance: Instance, options: PlannerOptions, seed: int = 0) -> planner._Search:
    order = planner._first_order(instance, None)
    return planner._Search(instance, options.in_order(), order, seed)


@examples(80, 2000)
@given(instance=instances(arrivals=False, max_requests=6, max_tokens=20))
def test_a_plan_takes_as_long_as_the_planner_says(instance: Instance) -> None:
    """Blocks, pieces, chunks, groups and limits; also where only the end of the order is placed anew."""
    if not orders_help(instance):
        return
    for options in (PlannerOptions(), PlannerOptions(chunk=0.3, group=3, reserve=0.0, fill=0.5)):
        search = searched(instance, options)
        while search.seconds >= FAR:  # where the profiles were too short
            search.step(0)
        order = search.order.tolist()
        expected = placed(instance, options.in_order(), order)
        assert search.seconds == pytest.approx(expected, rel=1e-12)
        assert search.step(0) == search.seconds
        assert search.step(12) <= search.seconds
        assert sorted(search.order) == list(range(len(order)))
        expected = placed(instance, options.in_order(), search.order.tolist())
        assert search.seconds == pytest.approx(expected, rel=1e-12)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "ROUNDS", 32)
    monkeypatch.setattr(planner, "SPELLS", 5)


@pytest.mark.usefixtures("quick")
@examples(40, 1000)
@given(instance=instances(arrivals=False, max_requests=6, max_tokens=20))
def test_plans_are_valid_and_ever_better(instance: Instance) -> None:
    start = Planner(instance)
    *_, (_, known) = start.improve(time.monotonic())
    plans = list(itertools.islice(orders_plans(instance, start, known=known), 3))
    assert orders_help(instance) or not plans
    for name, schedule in plans:
        assert name == "orders"
        value(instance, schedule)


@pytest.mark.parametrize("low", [0, 3, 5])
def test_what_comes_before_stays(low: int) -> None:
    search = searched(different(1, 8), PlannerOptions())
    before = search.order.copy()
    kernels, rules = search.kernels, search.rules
    columns = (search.columns, *search_profiles(search))
    found, _ = climb(
        rules, *columns, search.trial, kernels.cost(search.instance), search.order, low,
        search.reads, search.work, 50, 0.01, 0.001, 3,
    )  # fmt: skip
    assert found < FAR
    assert search.order[:low].tolist() == before[:low].tolist()
    assert sorted(search.order) == sorted(before)


def search_profiles(search: planner._Search) -> tuple[Profiles, Profiles]:
    zeros = functools.partial(search.kernels.zeros, search.horizon)
    one, other = (Profiles(*(zeros() for _ in range(4))) for _ in range(2))
    return one, other


def test_compiled_code_finds_the_same() -> None:
    instance = different(4, 12)
    found = []
    for loop in (climb, planner._climb()):
        search = searched(instance, PlannerOptions(), 7)
        search.kernels = search.kernels._replace(loop=loop)
        for _ in range(3):
            search.step(20)
        found.append((search.seconds, search.order.tolist()))
    assert found[0] == found[1]


def test_profiles_that_are_too_short_grow() -> None:
    search = searched(different(2, 10), PlannerOptions())
    enough, search.horizon = search.horizon, 4
    search.aim(0)
    assert search.step(3) >= FAR
    while search.seconds >= FAR:
        search.step(3)
    assert 4 < search.horizon <= 2 * enough


def test_moves_are_swaps_and_shifts() -> None:
    def moved(kind: float, a: float, b: float) -> list[int]:
        order = np.arange(6)
        change(order, 2, (kind, a, b))
        return order.tolist()

    assert moved(0.1, 0.0, 0.99) == [0, 1, 5, 3, 4, 2]
    assert moved(0.9, 0.0, 0.99) == [0, 1, 3, 4, 5, 2]
    assert moved(0.9, 0.99, 0.0) == [0, 1, 5, 2, 3, 4]
    assert moved(0.9, 0.3, 0.3) == [0, 1, 2, 3, 4, 5]


def test_best_orders_of_few_requests() -> None:
    best = tried = 0
    for seed in campaign(5, 200):
        instance = different(seed, 6)
        instance = replace(instance, system=System(130, 64, 64))
        options = PlannerOptions(reserve=0.0).in_order()
        search = planner._Search(instance, options, planner._first_order(instance, None), seed)
        for _ in range(30):
            search.step(100)
        least = min(placed(instance, options, list(order)) for order in itertools.permutations(range(6)))
        assert search.seconds >= least * (1 - 1e-12)
        tried += 1
        best += search.seconds <= least * (1 + 1e-12)
    assert best >= 0.9 * tried


@pytest.mark.parametrize("cost", [paper_cost(), KNEE])
def test_shorter_than_plans_by_priority(cost: CostModel) -> None:
    instance = different(5, 60, cost)
    start = Planner(instance)
    *_, (_, known) = start.improve()
    before = value(instance, known)
    *_, (_, schedule) = orders_plans(instance, start, known=known)
    assert value(instance, schedule) < before
    # The same seed plans the same.
    assert list(orders_plans(instance, Planner(instance), seed=3)) == list(
        orders_plans(instance, Planner(instance), seed=3)
    )


def test_begins_with_the_order_of_a_schedule() -> None:
    instance = Instance.of_requests("two", [(1, 2), (1, 3)], System(8, 8, 8), PAPER)
    names = [request.id for request in instance.requests]
    for order in ([0, 1], [1, 0]):
        batches = [Batch({names[i]: 1}, repeat=instance.requests[i].output_tokens) for i in order]
        known = Schedule("two", tuple(batches))
        value(instance, known)
        assert planner._first_order(instance, known) == order[::-1]
    assert planner._first_order(instance, None) == [1, 0]


def test_ends_in_time_and_is_one_of_the_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = different(6, 80, KNEE)
    began = time.monotonic()
    list(orders_plans(instance, Planner(instance), deadline=began + 0.5))
    assert time.monotonic() - began < 20
    monkeypatch.setattr(sequence, "sequences_help", lambda _: False)
    assert not lives_help(instance)
    assert "orders" in [name for name, _ in anytime.anytime_plans(instance)]


def test_who_is_helped() -> None:
    instance = different(0, 5)
    assert orders_help(instance)
    alike = replace(case(8, 4, 8, 60), policy=Policy(preemption=False))
    assert orders_help(alike)  # but there is nothing to order
    assert not list(orders_plans(alike, Planner(alike)))
    assert not orders_help(replace(instance, objective=Objective.of("mean_ttft")))
    assert not orders_help(replace(instance, policy=Policy(hybrid_batching=False)))
    late = RequestGroup("late", 3, 3, 1)
    assert not orders_help(replace(instance, groups=(*instance.groups, late)))
    long = RequestGroup("long", 3, planner.MAX_TOKENS + 1)
    assert not orders_help(replace(instance, groups=(*instance.groups, long), system=System(2**21, 64, 64)))


# --- early starts ---


def scarce(count: int = 60, sizes: tuple[tuple[int, int], ...] = ((2, 40), (3, 24))) -> Instance:
    """Long outputs, of which few fit: early starts pay."""
    groups = tuple(
        RequestGroup(f"r{k}", inputs, outputs, count=count // len(sizes))
        for k, (inputs, outputs) in enumerate(sizes)
    )
    return Instance("scarce", groups, System(300, 256, 256), PAPER)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("sizes", [((2, 40), (3, 24)), ((2, 40),)])
def test_some_start_early_in_fewer_batches(sizes: tuple[tuple[int, int], ...]) -> None:
    instance = scarce(sizes=sizes)
    start = Planner(instance)
    assert start.early
    found = dict(orders_plans(instance, start))
    schedule = found["orders:early"]
    assert value(instance, schedule) == pytest.approx(start.best, rel=1e-12)
    assert replay(instance, schedule).evictions > 0
    whole = decide(instance, start.chosen.in_order(), 0)
    assert start.best < whole.seconds


def test_no_early_starts_where_plans_evict_all_the_time() -> None:
    instance = case(60, 2, 40, 100)
    assert Planner(instance).early
    assert not list(orders_plans(instance, Planner(instance)))


@examples(60, 1000)
@given(
    instance=instances(arrivals=False, max_requests=3, max_tokens=12),
    count=st.integers(2, 20),
    more=st.integers(0, 40),
    share=st.sampled_from([0.5, 1.0, 1.5]),
    fewer=st.integers(0, 2),
    seed=st.integers(0, 2**20),
)
def test_orders_with_early_starts_take_as_long_as_the_planner_says(
    instance: Instance, count: int, more: int, share: float, fewer: int, seed: int
) -> None:
    system = replace(instance.system, kv_capacity=instance.system.kv_capacity + more)
    groups = (replace(instance.groups[0], count=count), *instance.groups[1:])
    instance = replace(instance, groups=groups, system=system)
    if not (orders_help(instance) and instance.policy.preemption):
        return
    options = PlannerOptions().in_order()
    order = list(range(len(instance.requests)))
    plan = decide(instance, options.with_early(EarlyWay(room=share, young=0.0)), 0, None, order)
    if not any(plan.made):
        return
    search = planner._Search(instance, options, order, seed, Early(plan.made, plan.batches))
    search.step(0)
    assert search.batches == plan.batches
    search.aim(plan.batches - fewer)
    for _ in range(4):
        search.step(15)
    better = search.plan() if search.batches == search.least else None
    if better is None:
        return
    schedule = batches_of(instance, better)
    assert float(value(instance, schedule)) == pytest.approx(better.seconds, rel=1e-12)
    kernels = Kernels(plan_kernel.plan_loop, regroup, list, list)
    early = Early(search.made, search.least)
    seconds = place(instance, search.rules, search.order.tolist(), search.width, early, kernels).seconds
    assert seconds == pytest.approx(search.seconds + attention(instance, early), rel=1e-9)
