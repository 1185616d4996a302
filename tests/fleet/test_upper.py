"""Routes and their replay: simulated clocks agree with exact ones, and upper bounds with lower ones."""

from __future__ import annotations

import random
from fractions import Fraction
from functools import partial

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import members_of, replay_fleet
from infermax_opt.fleet.routing import policies
from infermax_opt.fleet.routing.policies import ABOUT, POLICIES, Router
from infermax_opt.fleet.upper import fewest_machines
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.schedulers import algorithm1
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset
from tests.campaign import campaign, in_blocks
from tests.fleet.tiny import fewest, tiny_fleet
from tests.infermax.vector_oracle import TooMany
from tests.support import PAPER


def stream(seed: int, requests: int = 60) -> FleetQuestion:
    """Requests of some seconds, of which a machine keeps some."""
    rng = random.Random(seed)
    slo = {"ttft": "0.2", "tpot": "0.03"}
    arrival, groups = Fraction(0), []
    for k in range(requests):
        arrival += Fraction(rng.randint(0, 60), 1000)
        groups.append(RequestGroup(f"r{k}", rng.randint(50, 900), rng.randint(1, 40), arrival, slo=slo))
    policy = Policy(rng.random() < 0.8, True, rng.random() < 0.8)
    system = System(rng.choice([3_000, 8_000]), 1024, 512, rng.choice([None, 6]))
    return FleetQuestion(
        Instance(f"s{seed}", tuple(groups), system, PAPER, policy, "missed"), Fraction(9, 10)
    )


@pytest.mark.parametrize("slo", [{"ttft": "0.01", "tpot": "0.01"}, {"e2e": "0.04"}])
def test_who_meets_a_limit_exactly_is_in_time(slo: dict[str, str]) -> None:
    """At a thirtieth of them or more, clocks of floats are late by a hair."""
    groups = tuple(RequestGroup(f"r{k}", 10, 4, k, slo=slo) for k in range(30))
    cost = CostModel([("0.01", "0")], ("0", "0"), ("0", "0"))
    each = Instance("exact", groups, System(1000, 100, 100), cost, Policy(), "missed")
    found = fewest_machines(FleetQuestion(each, Fraction(1)), 1)
    assert found is not None
    assert found.machines == 1
    assert set(found.attained.values()) == {30}


def test_a_number_of_machines_that_needs_too_long_a_schedule_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two requests far apart take thirty batches of one machine, fifteen of each of two."""
    monkeypatch.setattr(algorithm1, "MAX_BATCHES", 20)
    groups = tuple(RequestGroup(f"r{k}", 10, 15, 100 * k, slo={"ttft": "1"}) for k in range(2))
    each = Instance("far", groups, System(1000, 100, 100), PAPER, Policy(), "missed")
    question = FleetQuestion(each, Fraction(1))
    run = partial(schedule, options=preset("sarathi"))
    assert not replay_fleet(question, [0, 0], run).good
    assert replay_fleet(question, [0, 1], run).keeps(question)
    found = fewest_machines(question, 1)
    assert found is not None
    assert found.machines == 2


def test_limits_do_not_tell_policies_who_has_one_output() -> None:
    groups = tuple(RequestGroup(f"r{o}", 10, o, 5, slo={"tpot": "0.01"}) for o in (1, 2, 3))
    cost = CostModel([("0.001", "0")], ("0", "0"), ("0", "0"))
    each = Instance("alike", groups, System(1000, 100, 100), cost, Policy(), "missed")
    for wary in (False, True):
        limits = policies.Limits(FleetQuestion(each, Fraction(1)), wary=wary)
        assert limits.tpot == pytest.approx([0.01] * 3)
        assert (limits.tpot < 0.01).tolist() == [wary] * 3


@in_blocks(campaign(4, 200), 4)
def test_simulated_clocks_are_those_of_the_replay(seeds: range) -> None:
    for seed in seeds:
        question, rng = stream(seed), random.Random(seed)
        name = rng.choice(["sarathi", "vllm", "vllm_v1", "deadline", "rank_input", "rank_output_ef"])
        router = Router(question, preset(name))
        for policy in POLICIES:
            machines = rng.randint(1, 4)
            refused = rng.sample(range(60), 5)
            pilot = router.route(machines, policy, refused)
            assert all(pilot.routes[i] == -1 for i in refused)
            assert set(pilot.routes) <= set(range(-1, machines))
            done = replay_fleet(question, pilot.routes, lambda one, name=name: schedule(one, preset(name)))  # type: ignore[misc]
            assert done.good == set(range(60)) - set(pilot.missed), (seed, policy)


def test_each_routing_in_plain_python_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search routes over and over: it compiles once all of that took long enough."""
    question, asked = stream(1), list[int]()
    monkeypatch.setattr(policies, "worthwhile", lambda _, steps, *__: bool(asked.append(steps)))
    router = Router(question, preset("sarathi"))
    for machines in (1, 2, 3):
        router.route(machines, "jsq")
    assert asked == [question.workload.output_tokens] * 3


def test_policies_deal_out_as_they_say() -> None:
    question = stream(1)
    router = Router(question, preset("sarathi"))
    routes = router.route(3, "round_robin").routes
    assert routes == [k % 3 for k in range(60)]
    assert set(ABOUT) == set(POLICIES)
    assert {len(members_of(router.route(3, policy).routes)) for policy in POLICIES} == {3}
    assert any(route == -1 for route in router.route(1, "slo_aware").routes)


def test_compiled_routes_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    question = stream(2)
    plain = [Router(question, preset("sarathi")).route(2, policy) for policy in POLICIES]
    monkeypatch.setattr(policies, "PLAIN_WORK", 0)
    router = Router(question, preset("sarathi"))
    assert [router.route(2, policy) for policy in POLICIES] == plain


def test_sorted_f_is_for_one_machine() -> None:
    with pytest.raises(InputError, match="single machine"):
        Router(stream(1), preset("sorted_f"))


@in_blocks(campaign(2, 100), 2)
def test_upper_bounds_reach_the_share_and_lie_above_the_lower_ones(seeds: range) -> None:
    for seed in seeds:
        question = stream(seed)
        lower, found = pooled_bound(question).machines, fewest_machines(question, 1)
        assert lower is not None
        assert found is not None
        assert found.replay.keeps(question)
        assert found.machines >= lower
        assert 0 <= found.refused <= question.may_miss


@in_blocks(campaign(12, 1_000), 20)
def test_upper_bounds_lie_above_the_optimum(seeds: range) -> None:
    for seed in seeds:
        question = tiny_fleet(seed)
        try:
            best = fewest(question)
        except TooMany:
            continue
        found = fewest_machines(question, 1)
        assert found is None or (best is not None and best <= found.machines), seed
