"""What batches of both kinds, and chunks behind others, take longer than the terms that bounds know.

Replayed, enumerated, left out of bounds, refused by searches.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from infermax_opt import api
from infermax_opt.api import check_certificate, verify, write_certificate
from infermax_opt.core.errors import InputError
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import Status
from infermax_opt.infermax.bounds.exhaustive import least
from infermax_opt.infermax.checker import instance as checker_instance
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.formats import (
    instance_from_json,
    instance_to_json,
    read_instance,
    write_instance,
)
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.mcsf import MODELS, mcsf_instance
from infermax_opt.infermax.data.rounds import in_rounds
from infermax_opt.infermax.formulation import EXTRA, get_formulation, refusal
from infermax_opt.infermax.planners.anytime import anytime_plans
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.schedulers.classed import CLASSED
from infermax_opt.infermax.schedulers.reservation.presets import RESERVATION
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_optimum import OBJECTIVES
from tests.infermax.test_waiting import check_search
from tests.infermax.tiny import tiny
from tests.infermax.vector_oracle import TooMany, vector_optimum
from tests.support import ROOT

COST = CostModel([("0.007", "0.00007")], ("0.0003", "2e-7"), ("0.0004", "1e-9"), mixed=("0.001", "5e-7"))
HAIR = Fraction(1, 10**9)
ONLINE = ("makespan", "mean_ttft", "mean_e2e")


def mixing(seed: int, *, arrivals: bool = False, objective: object = "makespan") -> Instance:
    """A tiny instance whose mixed batches take much longer, and so do chunks behind others."""
    instance = tiny(seed, arrivals=arrivals, objective=objective)
    rng = random.Random(-1 - seed)
    mixed = (Fraction(rng.randint(0, 200), 100), Fraction(rng.randint(0, 100), 100))
    prefix = Fraction(rng.choice((0, rng.randint(1, 100))), 100)
    policy = replace(instance.policy, hybrid_batching=True)
    cost = replace(instance.cost, mixed=mixed, prefix=prefix)
    return replace(instance, name=f"mixing-{seed}", policy=policy, cost=cost)


def few(calls: int) -> Callable[[], bool]:
    """Asks to stop after so many calls."""
    left = [calls]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    return stop


def test_only_batches_of_both_kinds_take_longer() -> None:
    plain = replace(COST, mixed=(0, 0))
    for features in (BatchFeatures(5, 5, 700, 0, 0), BatchFeatures(9, 0, 0, 2, 81)):
        assert COST.to_seconds(COST.batch_ticks(features)) == plain.to_seconds(plain.batch_ticks(features))
    both = BatchFeatures(14, 5, 700, 2, 81)
    more = COST.to_seconds(COST.batch_ticks(both)) - plain.to_seconds(plain.batch_ticks(both))
    assert more == Fraction("0.001") + 700 * Fraction("5e-7")
    assert COST.many_batch_ticks([both, [5, 5, 700, 0, 0]])[0] == COST.batch_ticks(both)


def test_chunks_take_longer_behind_others() -> None:
    plain = replace(COST, mixed=(0, 0))
    some = replace(plain, prefix="3e-8")
    for features in (BatchFeatures(5, 5, 700, 0, 0), BatchFeatures(9, 0, 0, 2, 81)):
        assert some.to_seconds(some.batch_ticks(features)) == plain.to_seconds(plain.batch_ticks(features))
    behind = BatchFeatures(14, 5, 700, 2, 81, 400)
    more = some.to_seconds(some.batch_ticks(behind)) - plain.to_seconds(plain.batch_ticks(behind))
    assert more == 400 * Fraction("3e-8")
    assert some.many_batch_ticks([behind]) == [some.batch_ticks(behind)]
    groups = (RequestGroup("a", 10, 2), RequestGroup("b", 7, 1))
    instance = Instance("chunks", groups, System(40, 8, 8), some)
    replayed = replay_plain(instance, api.schedule(instance, "sarathi"))
    # Eight of a; two of a behind them beside six of b; the last of b behind these.
    assert [f.prefill_kv for f in replayed.features] == [0, 8, 6]


def test_a_term_of_0_is_none() -> None:
    """Files, hashes and certificates of before stay as they are."""
    toy = read_instance(ROOT / "instances" / "toy.json")
    assert toy.sha256 == "abdd92d08cd743285ccb8ba063320fe22fb926f499851b6365dbb534622c96e8"
    value = instance_to_json(toy)
    assert {"mixed", "prefix"}.isdisjoint(value["cost"])
    zero = {**value, "cost": {**value["cost"], "mixed": ["0", "0.0"], "prefix": "0.0"}}
    assert instance_from_json(zero).sha256 == toy.sha256
    assert instance_to_json(instance_from_json(zero)) == value


def test_the_term_is_in_file_and_hash_and_the_checker_agrees(tmp_path: Path) -> None:
    toy = read_instance(ROOT / "instances" / "toy.json")
    hashes = {toy.sha256}
    extra = (
        (("0.001", "0"), 0),
        (("0", "0.001"), 0),
        (("0.0000001", "3e-9"), 0),
        ((0, 0), "3e-9"),
        (("0", "0.001"), "1"),
    )
    for mixed, prefix in extra:
        some = replace(toy, cost=replace(toy.cost, mixed=mixed, prefix=prefix))
        path = tmp_path / "some.json"
        write_instance(some, path)
        again = read_instance(path)
        assert again == some
        given = json.loads(path.read_text(), parse_float=str)
        assert checker_instance.Instance(given, None).sha256 == some.sha256 == again.sha256
        hashes.add(some.sha256)
    assert len(hashes) == 6


@pytest.mark.parametrize(
    ("mixed", "message"),
    [
        (["-1", "0"], r"cost\.mixed\[0\]: -1 is negative; the least is 0"),
        (["1"], r"cost\.mixed: \['1'\] is not a pair of numbers"),
        (None, r"cost\.mixed: None is not a pair of numbers"),
        (["x", "0"], r"cost\.mixed\[0\]: 'x' is not a decimal number"),
    ],
)
def test_terms_that_are_wrong(mixed: object, message: str) -> None:
    value = instance_to_json(read_instance(ROOT / "instances" / "toy.json"))
    with pytest.raises(InputError, match=message):
        instance_from_json({**value, "cost": {**value["cost"], "mixed": mixed}})


def test_both_replays_take_it() -> None:
    longer = 0
    for seed in range(40):
        instance = mixing(seed, arrivals=seed % 2 > 0)
        plain = replace(instance, cost=replace(instance.cost, mixed=(0, 0), prefix=0))
        for name in ("vllm", "sarathi"):
            schedule = api.schedule(instance, name)
            slow, fast = replay_plain(instance, schedule), replay(instance, schedule)
            assert slow.valid
            assert slow == fast
            ends = [measure(i, replay_plain(i, schedule)).makespan for i in (instance, plain)]
            longer += ends[0] > ends[1]
    assert longer >= 8


def test_the_optimum_may_keep_both_kinds_apart() -> None:
    """What rules of searches rely on does not hold: a batch of both may take longer than one of each."""
    groups = (RequestGroup("a", 1, 3), RequestGroup("b", 4, 1))
    cost = CostModel([("0.1", "0.01")], (0, 0), (0, 0), mixed=("1", "0"))
    instance = Instance("apart", groups, System(20, 20, 2), cost)
    assert optimum(instance) > optimum(replace(instance, cost=replace(cost, mixed=(0, 0))))
    assert optimum(instance) < optimum(replace(instance, cost=replace(cost, mixed=(0, 0)))) + 1


@pytest.mark.parametrize(("both", "leader"), [("0.5", "apart"), ("0.0001", "backlog")])
def test_plans_keep_both_kinds_apart_where_that_is_cheaper(both: str, leader: str) -> None:
    """All of them are valid, and the best one is of the planner that fits the cost."""
    rng = random.Random(1)
    sizes = [(rng.randint(5, 90), rng.randint(4, 30)) for _ in range(120)]
    knee = CostModel(
        [("0.02", "0.00001"), ("0.01", "0.00051")], ("0.0004", "1e-7"), ("0", "0"), mixed=(both, "0")
    )
    instance = Instance.of_requests("many", sizes, System(600, 256, 256), knee)
    best, names = None, {}
    for name, schedule in anytime_plans(instance, deadline=time.monotonic() + 4):
        check = verify(instance, schedule)
        assert check.ok, name
        assert check.metrics is not None
        if best is None or check.metrics.makespan < best:
            best, names = check.metrics.makespan, {name.partition(":")[0]}
    assert names == {leader}


@in_blocks(campaign(28, 3_000), 16)
def test_no_bound_exceeds_the_optimum(seeds: range, tmp_path: Path) -> None:
    """Closed forms and searched bounds, each with its certificate; arrivals, evictions, every objective."""
    certified = 0
    for seed in seeds:
        arrivals = seed % 3 == 1
        objective = ONLINE[seed // 3 % 3] if arrivals else ("makespan", *OBJECTIVES)[seed % 5]
        instance = mixing(seed, arrivals=arrivals, objective=objective)
        if arrivals and len(instance.requests) > 2 and objective != "makespan":
            continue
        best = optimum(instance)
        for bound in problem_of(instance).bounds(instance, stop=few(60)):
            assert bound.value <= best, (seed, bound.source)
            if bound.evidence is not None:
                path = tmp_path / "certificate.json"
                write_certificate(instance, bound, path)
                assert check_certificate(instance, path) == bound.value, (seed, bound.source)
                certified += 1
    assert certified


@in_blocks(campaign(18, 3_000), 10)
def test_search_and_enumeration_are_exact(seeds: range) -> None:
    for seed in seeds:
        arrivals = seed % 3 == 1
        objective = ONLINE[seed // 3 % 3] if arrivals else ("makespan", *OBJECTIVES)[seed % 5]
        instance = mixing(seed, arrivals=arrivals, objective=objective)
        if arrivals and len(instance.requests) > 2 and objective != "makespan":
            continue
        best = optimum(instance)
        assert least(instance, best + HAIR, 3_000_000) == best
        check_search(instance, best)


@pytest.mark.parametrize("objective", ["max_ttft", "p99_e2e"])
def test_search_and_enumeration_of_times_are_exact(objective: str) -> None:
    tried = 0
    for seed in campaign(8, 300):
        instance = mixing(seed, arrivals=seed % 2 > 0, objective=objective)
        try:
            best = vector_optimum(instance, 5_000)
        except TooMany:
            continue
        assert least(instance, best + HAIR, 3_000_000) == best, seed
        check_search(instance, best)
        tried += 1
    assert tried > 3


@pytest.mark.parametrize("seed", campaign(4, 8))
def test_solve_proves_the_optimum(seed: int) -> None:
    instance = mixing(seed, objective=("makespan", "mean_e2e")[seed % 2])
    result = api.solve(instance, time_limit=20, threads=1)
    best = optimum(instance)
    assert result.upper is not None
    assert result.lower is not None
    assert result.lower.value <= best <= result.upper.value
    assert result.status is Status.OPTIMAL
    assert verify(instance, result).ok


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "highs"},
        {"solver": "cpsat"},
        {"formulation": "csp"},
        {"formulation": "flow", "solver": "highs"},
    ],
)
def test_formulations_refuse_it_in_a_line(options: dict[str, str]) -> None:
    groups = (RequestGroup("a", 2, 3, count=3), RequestGroup("b", 3, 2))
    instance = Instance("refused", groups, System(9, 20, 20), COST)
    line = r"batches take longer than the terms say that it knows \(cost\.mixed, cost\.prefix\)$"
    for cost in (COST, replace(COST, mixed=(0, 0), prefix="0.001")):
        with pytest.raises(InputError, match=line):
            api.solve(replace(instance, cost=cost), time_limit=5, **options)  # type: ignore[arg-type]


def test_formulations_take_it_without_hybrid_batches_and_chunks() -> None:
    for seed in range(12):
        instance = mixing(seed)
        instance = replace(instance, policy=replace(instance.policy, hybrid_batching=False))
        if instance.policy.chunked_prefill:
            instance = replace(instance, cost=replace(instance.cost, prefix=0))
        assert EXTRA not in (refusal(get_formulation("csp"), instance) or "")


def test_rounds_are_not_taken_for_equally_long() -> None:
    instance = mcsf_instance(MODELS[0], 0)
    assert in_rounds(instance)
    assert not in_rounds(replace(instance, cost=replace(instance.cost, mixed=(1, 0))))
    assert not in_rounds(replace(instance, cost=replace(instance.cost, prefix=1)))


def test_a_result_is_of_the_cost_with_the_term() -> None:
    groups = (RequestGroup("a", 40, 6, count=4), RequestGroup("b", 30, 9, Fraction("0.02")))
    instance = Instance("r", groups, System(120, 64, 64), COST, Policy())
    result = api.solve(instance, time_limit=1, threads=1)
    assert verify(instance, result).ok
    assert not verify(replace(instance, cost=replace(COST, mixed=(0, 0))), result).ok


@pytest.mark.parametrize("name", [*CLASSED, *RESERVATION])
def test_schedulers_with_a_clock_of_their_own_know_the_true_time(name: str) -> None:
    for seed in range(24):
        instance = mixing(seed, arrivals=True)
        assert replay_plain(instance, api.schedule(instance, name)).valid, seed
