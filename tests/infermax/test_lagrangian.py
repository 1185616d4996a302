"""The Lagrangian bound on cases checked by hand, its limits and its search."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import _lagrangian_relaxation, closed_form_bounds, lagrangian
from infermax_opt.infermax.bounds._kernels_lagrangian import cheapest, retrace
from infermax_opt.infermax.bounds._lagrangian_relaxation import Prices, relaxation_of
from infermax_opt.infermax.bounds.lagrangian import lagrangian_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import cost_to_json, instance_to_json
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.suites import paper_cost
from infermax_opt.table.suites import get_suite
from tests.campaign import campaign, in_blocks
from tests.infermax.occupancy_adversary import signed
from tests.infermax.oracle import optimum
from tests.infermax.test_many_bounds import slight
from tests.infermax.tiny import cost_model
from tests.support import certificate_to_json, check_evidence


def equal(count: int, i: int, o: int, capacity: int, **changes: Any) -> Instance:
    fields = {"policy": Policy(), "cost": paper_cost(), **changes}
    return Instance("equal", (RequestGroup("r", i, o, count=count),), System(capacity, 4096, 4096), **fields)


def test_memory_fills_slowly() -> None:
    """Nine requests of three tokens, room for nine tokens of KV, no evictions: six batches by area.

    Six batches would have to be full, the first one with nine first tokens; the second would hold 18.
    """
    cost = CostModel([(1, 0)], (0, 0), (0, 0))
    instance = equal(9, 1, 3, 9, policy=Policy(preemption=False), cost=cost)
    closed = {bound.source: bound.value for bound in closed_form_bounds(instance)}
    assert closed.pop("KV spacing") == 7
    assert max(closed.values()) == 6
    bound = lagrangian_bound(instance)
    assert bound is not None
    assert 6 < bound.value <= 8
    assert check_evidence(instance, bound) == bound.value


def test_prompts_take_turns() -> None:
    """Two prompts of three tokens in a batch of six, and room for twelve tokens: three generations.

    By area seven batches hold eight requests; but each generation fills in two.
    """
    cost = CostModel([(1, 0)], (0, 0), (0, 0))
    policy = Policy(preemption=False)
    prompts = Instance("prompts", (RequestGroup("r", 3, 3, count=8),), System(12, 6, 6), cost, policy)
    wide = replace(prompts, system=System(12, 99, 99))
    bound, less = lagrangian_bound(prompts), lagrangian_bound(wide)
    assert bound is not None
    assert less is not None
    assert less.value < bound.value
    assert check_evidence(prompts, bound) == bound.value


@pytest.mark.parametrize(
    ("i", "o", "capacity", "least"),
    [(1, 8, 1000, "0.928"), (1, 32, 10000, "3.13"), (128, 32, 100000, "13.945")],
)
def test_cells_of_the_grid(i: int, o: int, capacity: int, least: str) -> None:
    """Known from linear programs over all paths: 0.9285, 3.144, and 13.888 without prices of tokens."""
    (case,) = [
        case for case in get_suite("paper-b1024").cases if case.name == f"b1024-i{i}-o{o}-m{capacity}-p4096"
    ]
    instance = case.build()
    bound = lagrangian_bound(instance)
    assert bound is not None
    assert Fraction(least) < bound.value < Fraction(least) * Fraction("1.005")
    assert check_evidence(instance, bound) == bound.value


def test_the_order_of_requests_does_not_matter() -> None:
    lengths = [(i, o) for i in (3, 8) for o in (5, 9) for _ in range(20)]
    values = set()
    for seed in range(3):
        random.Random(seed).shuffle(lengths)
        groups = tuple(RequestGroup(f"r{k}", i, o) for k, (i, o) in enumerate(lengths))
        instance = Instance("mixed", groups, System(200, 4096, 4096), paper_cost())
        bound = lagrangian_bound(instance)
        assert bound is not None
        values.add(bound.value)
    assert len(values) == 1


def test_a_coarse_scale_loses_little(monkeypatch: pytest.MonkeyPatch) -> None:
    from infermax_opt.infermax.bounds import _lagrangian_search as search

    instance = equal(100, 4, 32, 500)
    fine = lagrangian_bound(instance)
    monkeypatch.setattr(search, "COARSE", 16)
    coarse = lagrangian_bound(instance)
    assert fine is not None
    assert coarse is not None
    assert check_evidence(instance, coarse) == coarse.value
    assert coarse.value > fine.value * Fraction("0.99")
    assert coarse.value > closed_form_bounds(instance)[0].value


def test_asked_to_stop_at_once() -> None:
    instance = equal(200, 4, 64, 2000)
    bound = lagrangian_bound(instance, stop=lambda: True)
    if bound is not None:
        assert check_evidence(instance, bound) == bound.value


def test_too_many_kinds_or_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = tuple(RequestGroup(f"r{k}", k + 1, 4) for k in range(_lagrangian_relaxation.MAX_KINDS + 1))
    many = Instance("many", groups, System(100, 4096, 4096), paper_cost())
    assert lagrangian_bound(many) is None
    monkeypatch.setattr(lagrangian, "MAX_STATES", 100)
    assert lagrangian_bound(equal(200, 4, 64, 2000)) is None


def test_free_batches_have_no_bound() -> None:
    assert lagrangian_bound(equal(3, 1, 2, 9, cost=CostModel([(0, 1)], (0, 0), (0, 0)))) is None


def slowest(
    prices: list[int],
    entries: list[int],
    tokens: list[int],
    sizes: list[int],
    steps: list[int],
    refills: list[int],
    loads: list[int],
    evictions: bool,
) -> int:
    """Cheapest path by trying everything: a state is (tokens, held)."""
    states = {(0, False): 0}
    for price, entry, token in zip(prices, entries, tokens, strict=True):
        following: dict[tuple[int, bool], int] = {}

        def reach(
            state: tuple[int, bool], cost: int, following: dict[tuple[int, bool], int] = following
        ) -> None:
            following[state] = min(cost, following.get(state, cost))

        for (n, held), cost in states.items():
            if n == len(sizes) - 1:
                reach((n, held), cost)
                continue
            kv = price * sizes[n + 1]
            if held:
                reach((n + 1, True), cost + steps[n + 1] + token + kv)
                reach((n, True), cost + price * sizes[n])
                if evictions:
                    reach((n, False), cost)
            else:
                reach((n, False), cost)
                entered = refills[n + 1] + entry * loads[n + 1] + (token if n else 0)
                reach((n + 1, True), cost + entered + kv)
        states = following
    return min(cost for (n, _), cost in states.items() if n == len(sizes) - 1)


def test_the_kernel_finds_cheapest_paths() -> None:
    rng = random.Random(5)
    for seed in range(300):
        made, batches = rng.randint(1, 4), rng.randint(4, 9)
        sizes = [0, *sorted(rng.randint(1, 9) for _ in range(made))]
        refills = [0, 0, *(rng.randint(0, 20) for _ in range(made - 1))]
        steps = [0, *(min(rng.randint(0, 4), r) for r in refills[1:])]
        evictions = rng.random() < 0.6
        prices = [rng.choice([0, 0, 1, 2, 5]) for _ in range(batches)]
        prices = sorted(prices) if rng.random() < 0.3 else prices
        entries = [rng.choice([0, 0, 1, 3]) * (seed % 2) for _ in range(batches)]
        tokens = [rng.choice([0, 0, 1, 3]) * (seed % 3) for _ in range(batches)]
        loads = [0, *(rng.randint(1, 5) for _ in range(made))]
        lists = (prices, entries, tokens, sizes, steps, refills, loads)
        arrays = [np.array(values, np.int64) for values in lists]
        ends, rows = np.empty(batches + 1, np.int64), np.empty(batches, np.int64)
        choices = np.empty((batches, made + 1), np.int8)
        cheapest(*arrays, evictions, ends, choices, rows)
        for upto in range(made, batches + 1):
            first = (some[:upto] for some in lists[:3])
            assert ends[upto] == slowest(*first, *lists[3:], evictions)
        end = int(np.argmax(ends == ends[-1]))
        found = [np.empty(batches, np.int64) for _ in range(3)]
        paid = retrace(choices, rows, end, *arrays[3:], *found)
        assert paid + sum(int(some @ price) for some, price in zip(found, arrays, strict=False)) == ends[-1]


@in_blocks(campaign(60, 5_000), 100)
def test_any_prices_bound_the_makespan(seeds: range) -> None:
    """Random prices of KV and of tokens on tiny instances; the checker finds the same bound."""
    for seed in seeds:
        rng = random.Random(seed)
        instance = replace(slight(seed), cost=cost_model(rng))
        longest = max(i + o for i, o in ((g.input_tokens, g.output_tokens) for g in instance.groups))
        if rng.random() < 0.7:
            prompt = 1 if instance.policy.chunked_prefill else longest
            capacity = instance.system.kv_capacity
            limits = rng.choice([50, prompt + rng.randint(0, 2)]), prompt + rng.randint(0, 2)
            system = System(capacity, *limits, None, instance.system.block_size)
            instance = replace(instance, system=system)
        theta = rng.choice([0, min(instance.cost.ticks.d0, instance.cost.ticks.p0)])
        relaxation = relaxation_of(instance, 0, int(theta))
        if relaxation is None:
            continue
        best, keys = optimum(instance), ("prices", "tokens")
        for _ in range(4):
            horizon = longest + rng.randint(0, 9)
            drawn = [
                np.array([rng.choice([0, 0, 1, 2, 6]) * unit // 4 for _ in range(horizon)], np.int64)
                for unit in (relaxation.batch // relaxation.capacity, relaxation.batch // relaxation.budget)
            ]
            prices = Prices(*drawn)
            if horizon <= relaxation.least:
                continue
            value = relaxation.bound([relaxation.values(prices)])
            assert value <= best, seed
            evidence = {
                "kind": "lagrangian", "piece": 0, "theta": int(theta), "exponent": relaxation.exponent,
                **{key: [[[p, 1] for p in some.tolist()]] for key, some in zip(keys, drawn, strict=True)},
            }  # fmt: skip
            bound = LowerBound(value, "Lagrangian", Proof.CERTIFICATE, evidence=evidence)
            assert check_evidence(instance, bound) == value, seed


def submit(instance: Instance, certificate: dict[str, Any]) -> Fraction:
    shown = {**instance_to_json(instance), "cost": cost_to_json(instance.cost)}
    return check(json.loads(json.dumps(shown, default=str)), signed(certificate))


def test_what_the_checker_wants_of_the_prices() -> None:
    instance = equal(20, 2, 5, 30)
    bound = lagrangian_bound(instance)
    assert bound is not None
    original = json.loads(json.dumps(certificate_to_json(instance, bound)))
    first = original["evidence"]["prices"][0]
    price, times = first[-1]
    split = [*first[:-1], *[[price, 1]] * times]
    faults: list[Any] = [
        [], [[]], [[[-1, times]]], [[[price, times + 1]], first], [[[price, 10**9]]], [[[True, times]]],
        [[[0.5, times]]], [[["1", times]]], [[[price]]], [[price]], None, [[[price, -1], *first]],
    ]  # fmt: skip
    for prices in faults:
        altered = copy.deepcopy(original)
        altered["evidence"]["prices"] = prices
        with pytest.raises(Rejected):
            submit(instance, altered)
    for tokens in (*faults, [*original["evidence"]["tokens"], [[0, 1]]]):
        altered = copy.deepcopy(original)
        altered["evidence"]["tokens"] = tokens
        with pytest.raises(Rejected):
            submit(instance, altered)
    # Without prices of tokens it proves something, too.
    altered = copy.deepcopy(original)
    del altered["evidence"]["tokens"]
    altered["lower_bound"] = str(bound.value / 2)
    assert submit(instance, altered) == bound.value / 2
    # Runs may be split: they prove the same.
    altered = copy.deepcopy(original)
    altered["evidence"]["prices"][0] = split
    assert submit(instance, altered) == bound.value
    for theta in ("-1", str(10**12), "1/2"):
        altered = copy.deepcopy(original)
        altered["evidence"]["theta"] = theta
        with pytest.raises(Rejected):
            submit(instance, altered)
    with pytest.raises(Rejected, match="claims"):
        check_too_much(instance, replace(bound, value=bound.value + Fraction(1, 10**30)))


def check_too_much(instance: Instance, bound: Any) -> None:
    submit(instance, json.loads(json.dumps(certificate_to_json(instance, bound))))


def test_a_decode_of_any_cost_is_left_out() -> None:
    cost = CostModel([("0.007", "0.000075")], (10**12, "2.6e-7"), ("0.0003", "1.5e-9"))
    instance = Instance("odd", (RequestGroup("a", 8, 4, count=2),), System(100, 16, 16), cost)
    found = lagrangian_bound(instance)
    assert found is None or found.value >= 0
