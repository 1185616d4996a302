"""Paths backwards in time against every choice of start rounds, and their certificates."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds._backwards_search import BackwardPaths, Start, Timing
from infermax_opt.infermax.bounds._backwards_states import (
    Relaxation,
    _Listed,
    linked_relaxations,
    relaxations,
)
from infermax_opt.infermax.bounds.backwards import _bound, backwards_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import altered, shown
from tests.support import FLAT, certificate_to_json, check_evidence, few

#: By how much more than the best value prices aim for, as a share, at first and at last.
AIMS = 0.1, 0.0002
ROUNDS = Policy(hybrid_batching=True, chunked_prefill=False, preemption=False)


def in_rounds(seed: int, most: int = 6) -> Instance:
    """A random instance of at most six requests in rounds of some length."""
    rng = random.Random(seed)
    capacity, alpha = rng.randint(4, 12), Fraction(rng.choice(["1", "0.3", "7"]))
    groups = []
    for k in range(rng.randint(1, most)):
        i = rng.randint(1, rng.choice([2, capacity // 2]))
        o = rng.randint(1, capacity + 1 - i)
        arrival = alpha * rng.choice([0, rng.randint(0, 8)]) if seed % 2 else 0
        groups.append(RequestGroup(f"q{k}", i, o, arrival, count=rng.choice([None, None, None, 1])))
    twice = groups[0]
    if rng.random() < 0.3 and len(groups) < most:
        groups.append(RequestGroup("again", twice.input_tokens, twice.output_tokens, twice.arrival))
    system = System(capacity, capacity, capacity, rng.choice([None, len(groups)]))
    cost = CostModel([(str(float(alpha)), "0")], ("0", "0"), ("0", "0"))
    return Instance(f"rounds-{seed}", tuple(groups), system, cost, ROUNDS, "mean_e2e")  # type: ignore[arg-type]


def least_latency(of: Instance) -> Fraction:
    """The least mean latency over all choices of start rounds."""
    alpha = of.cost.seconds.alpha[0]
    todo = sorted(of.requests, key=lambda r: -r.peak_kv)
    horizon = sum(r.output_tokens for r in todo) + max(int(r.arrival / alpha) for r in todo) + 1
    used = [0] * horizon
    least = [sum(r.output_tokens for r in todo[k:]) for k in range(len(todo) + 1)]
    best = [horizon * len(todo)]

    def place(k: int, late: int) -> None:
        if late + least[k] >= best[0]:
            return
        if k == len(todo):
            best[0] = late
            return
        i, o, first = todo[k].input_tokens, todo[k].output_tokens, int(todo[k].arrival / alpha)
        for start in range(first, horizon - o + 1):
            if late + start - first + least[k] >= best[0]:
                return
            if all(used[start + t] + i + t <= of.system.kv_capacity for t in range(o)):
                for t in range(o):
                    used[start + t] += i + t
                place(k + 1, late + start - first + o)
                for t in range(o):
                    used[start + t] -= i + t

    place(0, 0)
    return alpha * Fraction(best[0], len(todo))


@in_blocks(campaign(9, 5_000), 36)
def test_no_bound_exceeds_the_best_start_rounds(seeds: range) -> None:
    shares = []
    for seed in seeds:
        of = in_rounds(seed)
        best = least_latency(of)
        bounds = list(backwards_bounds(of))
        assert bounds, seed
        for bound in bounds:
            assert bound.value <= best, seed
            assert check_evidence(of, bound) == bound.value, seed
        shares.append(bounds[-1].value / best)
    assert sum(shares) > Fraction(96, 100) * len(shares)


@in_blocks(campaign(12, 1_000, first=1000), 30)
def test_no_prices_and_no_relaxation_exceed_it(seeds: range) -> None:
    for seed in seeds:
        of, rng = in_rounds(seed), random.Random(seed)
        best, timing = least_latency(of), Timing.of(of)
        total = (best * len(of.requests) + sum(r.arrival for r in of.requests)) / of.cost.seconds.alpha[0]
        for relaxation in relaxations(of):
            paths = BackwardPaths(relaxation, timing)
            for _ in range(4):
                prices = [rng.randint(0, timing.rounds * timing.unit) for _ in of.types]
                assert paths.least(prices) <= total * timing.unit, (seed, relaxation.leave)
        for relaxation in linked_relaxations(of):
            paths = BackwardPaths(relaxation, timing)
            for most in (1, timing.unit, 4 * timing.unit, timing.rounds * timing.unit // 2):
                prices = [rng.randint(0, timing.rounds * timing.unit // 2) for _ in of.types]
                exits = [[rng.randint(0, most) for _ in range(timing.rounds + 1)] for _ in relaxation.exits]
                assert paths.least(prices, exits) <= total * timing.unit, (seed, relaxation.leave)


@in_blocks(campaign(16, 1_000, first=3000), 40)
def test_prices_of_leaving_are_worth_more_than_few_classes(seeds: range) -> None:
    """The checker says the same, and prices of zero say what the one hold of the last class says."""
    better = linked = 0
    for seed in seeds:
        of = in_rounds(seed)
        timing, best = Timing.of(of), least_latency(of)
        for relaxation in linked_relaxations(of):
            paths, one = BackwardPaths(relaxation, timing), Relaxation(of, relaxation.leave[-1:])
            prices = np.rint(timing.prices * timing.unit).astype(np.int64).tolist()
            assert paths.least(prices) >= BackwardPaths(one, timing).least(prices), seed
            least, found = paths.search(Start(timing.prices, {}), AIMS, None)
            bound = _bound(of, paths, least, found)
            assert check_evidence(of, bound) == bound.value <= best, seed
            coarse = BackwardPaths(one, timing).search(Start(timing.prices, {}), AIMS, None)[0]
            better, linked = better + (least > coarse), linked + 1
    assert better > linked / 3, (better, linked)


@in_blocks(campaign(18, 1_000, first=5000), 30)
def test_memories_lead_where_their_parts_say(seeds: range) -> None:
    """Against multisets that are listed one by one."""
    for seed in seeds:
        of = in_rounds(seed)
        for relaxation in [*relaxations(of), *linked_relaxations(of)]:
            links, parts = relaxation.links(), relaxation.parts
            states: set[tuple[tuple[int, int], ...]] = {()}
            for part in parts:
                for state in list(states):
                    times = (relaxation.capacity - sum(hold for hold, _ in state)) // part[0]
                    states |= {tuple(sorted((*state, *[part] * k))) for k in range(times + 1)}
            found = _Listed(np.array([hold for hold, _ in parts], np.int64), relaxation.capacity)
            named = [tuple(parts[k] for k in row if k >= 0) for row in found.parts]
            assert set(named) == states
            assert len(named) == len(states) == relaxation.totals[-1]
            assert [sum(hold for hold, _ in state) for state in named] == sorted(found.total)
            leave = relaxation.leave
            for k, state in enumerate(named):
                rest = tuple((hold - 1, c) for hold, c in state if hold - 1 > leave[c])
                assert named[links.shrunk[k]] == rest
                for j, part in enumerate(state):
                    assert named[links.less[k, j]] == (*state[:j], *state[j + 1 :])
                    known = relaxation.sorts.index(part) if part in relaxation.sorts else -1
                    assert links.sort[k, j] == known
            for number, part in enumerate(relaxation.sorts):
                low, high = links.offset[number], links.offset[number + 1]
                for state, to in zip(named, links.grown[low:high], strict=False):
                    assert named[to] == (tuple(sorted((*state, part))) if part[1] >= 0 else state)
                assert high - low == sum(total + part[0] <= relaxation.capacity for total in found.total)
            for c, d in enumerate(relaxation.exits):
                pairs = slice(links.ends[c], links.ends[c + 1])
                told = {
                    (named[a], named[b]) for a, b in zip(links.leaving[pairs], links.left[pairs], strict=True)
                }
                gone = [(s, s.index((d + 1, 0))) for s in named if (d + 1, 0) in s]
                assert told == {(s, (*s[:j], *s[j + 1 :])) for s, j in gone}
                assert list(links.leaving[pairs]) == sorted(links.leaving[pairs], reverse=True)
                for k, state in enumerate(named):
                    assert links.tally[c, :, k].tolist() == [state.count((d + 1, 0)), state.count((d, 0))]


def test_prices_that_take_too_many_rounds_are_rejected_before_the_first() -> None:
    """A path of a million rounds took six seconds to come to the limit of the work."""
    groups = [RequestGroup("a", 1, 4, count=3), RequestGroup("b", 2, 2, count=2)]
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
    of = Instance("rounds", groups, System(6, 50, 50), cost, policy=ROUNDS, objective="mean_e2e")
    evidence = {"kind": "backwards", "piece": 0, "unit": 1024, "leave": [0, 1], "prices": [10238, 10**9]}
    bound = LowerBound(Fraction(5), "backwards paths", Proof.CERTIFICATE, evidence=evidence)
    began = time.process_time()
    with pytest.raises(Rejected, match="takes more than 70000000 steps to check, the limit"):
        check(shown(of), json.loads(json.dumps(certificate_to_json(of, bound))))
    assert time.process_time() - began < 1


def test_prices_far_too_high_give_what_the_checker_gives() -> None:
    """Paths then hold requests in every round, and their costs are beyond 32 bits."""
    pairs = [(1 + k % 3, 1 + 2 * k % 37) for k in range(60)]
    of = Instance.of_requests("many", pairs, System(45, 45, 45), FLAT, policy=ROUNDS, objective="mean_e2e")
    timing = Timing.of(of)
    for relaxation in list(relaxations(of))[10:14]:
        paths = BackwardPaths(relaxation, timing)
        prices = [timing.rounds * timing.unit] * len(of.types)
        value = Fraction(paths.least(prices), timing.unit * len(of.requests))
        assert value * len(of.requests) < -(2**31) / timing.unit
        evidence = {"kind": "backwards", "piece": 0, "unit": timing.unit, "prices": prices}
        evidence["leave"] = list(relaxation.leave)
        bound = LowerBound(value, "backwards paths", Proof.CERTIFICATE, evidence=evidence)
        assert check_evidence(of, bound) == value
        more = replace(bound, value=value + Fraction(1, 10**9))
        with pytest.raises(Rejected, match="claims"):
            check(shown(of), json.loads(json.dumps(certificate_to_json(of, more))))


@pytest.mark.parametrize("seed", campaign(12, 400, first=2000))
def test_pauses_do_not_help(seed: int) -> None:
    of = in_rounds(seed, most=4)
    assert staged_search(of).upper == least_latency(of)


def linked_bounds(of: Instance) -> list[LowerBound]:
    """With prices of leaving, not very good ones."""
    timing, found = Timing.of(of), []
    for relaxation in linked_relaxations(of):
        paths = BackwardPaths(relaxation, timing)
        found.append(_bound(of, paths, *paths.search(Start(timing.prices, {}), AIMS, few(30))))
    return found


def test_prices_of_leaving_that_are_none_are_refused() -> None:
    rows = 0
    for bound in linked_bounds(CASE):
        evidence = bound.evidence or {}
        exits = evidence["exits"]
        rows += len(exits)
        for other in (
            exits[1:],
            [*exits, [1]],
            [[-1], *exits[1:]],
            [[2**40], *exits[1:]],
            7,
            [7] * len(exits),
        ):
            certificate = certificate_to_json(
                CASE, replace(bound, value=Fraction(0), evidence={**evidence, "exits": other})
            )
            with pytest.raises(Rejected, match="exits"):
                check(shown(CASE), json.loads(json.dumps(certificate)))
    assert rows > 0


@pytest.mark.parametrize("seed", campaign(10, 100))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    of, rng = in_rounds(seed), random.Random(seed)
    false = least_latency(of) * (1 + Fraction(1, 10**9))
    for bound in [*backwards_bounds(of, stop=few(60)), *linked_bounds(of)]:
        for evidence in altered(dict(bound.evidence or {}), rng):
            certificate = certificate_to_json(of, replace(bound, value=false, evidence=evidence))
            with pytest.raises(Rejected):
                check(shown(of), json.loads(json.dumps(certificate)))


def other_system(**limits: object) -> Callable[[Instance], Instance]:
    return lambda of: replace(of, system=replace(of.system, **limits))  # type: ignore[arg-type]


def other_policy(**flags: bool) -> Callable[[Instance], Instance]:
    return lambda of: replace(of, policy=replace(of.policy, **flags))


def other_cost(batch: list[tuple[str, str]], decode: str, prefill: str) -> Callable[[Instance], Instance]:
    return lambda of: replace(of, cost=CostModel(batch, ("0", decode), ("0", prefill)))


def late(of: Instance) -> Instance:
    groups = (*of.groups[:-1], replace(of.groups[-1], arrival=Fraction(1, 2)))
    return replace(of, groups=groups)


CASE = Instance.of_requests(
    "case", [(1, 3), (2, 4), (2, 2)], System(6, 6, 6), FLAT, policy=ROUNDS, objective="mean_e2e"
)
OUTSIDE = {
    "evictions": other_policy(preemption=True),
    "chunks": other_policy(chunked_prefill=True),
    "no hybrid batches": other_policy(hybrid_batching=False),
    "blocks": other_system(block_size=2),
    "few tokens": other_system(max_batch_tokens=5),
    "few prompt tokens": other_system(max_prefill_tokens=5),
    "few running": other_system(max_running=2),
    "a time for each token": other_cost([("1", "0.1")], "0", "0"),
    "a time for KV": other_cost([("1", "0")], "0.1", "0"),
    "a time for prompts": other_cost([("1", "0")], "0", "0.1"),
    "two pieces": other_cost([("1", "0"), ("0.5", "0")], "0", "0"),
    "no time": other_cost([("0", "0")], "0", "0"),
    "an arrival within a round": late,
}


@pytest.mark.parametrize("change", OUTSIDE.values(), ids=OUTSIDE.keys())
def test_a_certificate_for_an_instance_outside_the_class_is_rejected(
    change: Callable[[Instance], Instance],
) -> None:
    *_, bound = backwards_bounds(CASE)
    assert check_evidence(CASE, bound) == bound.value
    outside = change(CASE)
    assert list(backwards_bounds(outside)) == []
    certificate = certificate_to_json(outside, replace(bound, value=Fraction(0)))
    with pytest.raises(Rejected, match=r"rounds|policy|system|arrival|division"):
        check(shown(outside), json.loads(json.dumps(certificate)))


def test_prompts_longer_than_the_last_hold_to_leave_at_are_refused() -> None:
    *_, bound = backwards_bounds(CASE)
    for leave in ([], [0], [2, 1], [-1, 5]):
        evidence = {**(bound.evidence or {}), "leave": leave}
        certificate = certificate_to_json(CASE, replace(bound, value=Fraction(0), evidence=evidence))
        with pytest.raises(Rejected, match="leave"):
            check(shown(CASE), json.loads(json.dumps(certificate)))


def test_the_objective_matters() -> None:
    assert list(backwards_bounds(replace(CASE, objective="makespan"))) == []
