"""The state-flow bound on cases checked by hand, its limits and its search."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import _state_flow_search
from infermax_opt.infermax.bounds.levels import levels_bounds
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.bounds.state_flow import state_flow_bound
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from infermax_opt.table.suites import get_suite
from tests.support import FLAT, PAPER, case, check_evidence, few


def proved(instance: Instance) -> LowerBound:
    """The bound, its certificate accepted."""
    bound = state_flow_bound(instance)
    assert bound is not None
    assert bound.proof is Proof.CERTIFICATE
    assert check_evidence(instance, bound) == bound.value
    return bound


def test_one_slot_is_exact() -> None:
    """Where only one request fits, each takes O batches: 5 requests of 4 tokens take 20 batches."""
    instance = case(5, 3, 4, 6, cost=FLAT, preemption=False)
    assert Fraction("19.999") < proved(instance).value <= 20


def test_one_request_is_exact() -> None:
    instance = case(1, 5, 7, 50, cost=FLAT)
    assert Fraction("6.9999") < proved(instance).value <= 7


def test_no_more_requests_than_there_are() -> None:
    """Memory for hundreds serves two requests no faster: 9 batches, as few as one request takes."""
    instance = case(2, 2, 9, 1000, cost=FLAT)
    assert Fraction("8.999") < proved(instance).value <= 9


@pytest.mark.parametrize(
    ("count", "i", "o", "m", "preemption", "share"),
    [
        # Patterns that repeat from the first batch to the last: the bound is the optimum.
        (4, 8, 3, 25, False, "0.9999"),
        (6, 8, 3, 25, False, "0.9999"),
        (4, 16, 4, 50, False, "0.9999"),
        # The beginning and the end of a schedule are what the flow does not see.
        (6, 8, 3, 25, True, "0.96"),
        (4, 16, 4, 50, True, "0.96"),
        (5, 3, 4, 9, False, "0.94"),
        (6, 2, 3, 7, True, "0.89"),
    ],
)
def test_near_the_optimum(count: int, i: int, o: int, m: int, preemption: bool, share: str) -> None:
    instance = case(count, i, o, m, preemption=preemption)
    best = staged_search(instance).upper
    other = occupancy_bound(instance, stop=few(300), ends=False)
    assert best is not None
    assert other is not None
    assert max(other.value, best * Fraction(share)) <= proved(instance).value <= best


@pytest.mark.parametrize(("i", "o", "m"), [(32, 8, 100), (32, 32, 100), (128, 8, 1000)])
def test_dominates_occupancy(i: int, o: int, m: int) -> None:
    instance = case(32, i, o, m)
    bound, other = proved(instance), occupancy_bound(instance, stop=few(300), ends=False)
    assert other is not None
    assert bound.value > other.value


def test_a_thousand_requests() -> None:
    """A verified schedule takes 31.0152 s; the occupancy bound proves 30.17 s."""
    (case_,) = get_suite("paper-b1024").select(["b1024-i32-o8-m100-p4096"])
    assert Fraction("31.0107") < proved(case_.build()).value < Fraction("31.0152")


def test_without_hybrid_batching_prompts_have_batches_of_their_own() -> None:
    """So it is for all three bounds on what is in memory; without evictions, as refills make tokens."""
    cost = CostModel([("1", "0.1")], ("0.2", "0.01"), ("0.1", "0"))
    kept = Policy(preemption=False)
    instance = replace(case(3, 1, 3, 5, cost=cost), system=System(5, 20, 20), policy=kept)
    apart = replace(instance, policy=replace(kept, hybrid_batching=False))
    best = staged_search(apart).upper
    assert best is not None
    assert proved(instance).value * Fraction(11, 10) < proved(apart).value <= best
    for search in (occupancy_bound, narrowest):
        found, before = search(apart), search(instance)
        assert found is not None
        assert before is not None
        assert check_evidence(apart, found) == found.value
        assert before.value < found.value <= best


def narrowest(instance: Instance) -> LowerBound:
    """The bound on levels of one token."""
    return list(levels_bounds(instance, above=Fraction(0)))[-1]


def test_two_kinds() -> None:
    groups = (RequestGroup("a", 3, 4, count=3), RequestGroup("b", 6, 2, count=2))
    for policy in (Policy(preemption=False), Policy(), Policy(hybrid_batching=False)):
        instance = Instance("two", groups, System(13, 50, 50), PAPER, policy)
        best = staged_search(instance).upper
        bound = proved(instance)
        assert best is not None
        assert best * Fraction("0.85") < bound.value <= best
        assert bound.evidence is not None
        assert len(bound.evidence["prices"]["first"]) == 2
        assert [len(pays) for pays in bound.evidence["prices"]["out"]] == [3, 1]


def test_order_of_requests_does_not_matter() -> None:
    groups = [RequestGroup(f"r{k}", 2 + k % 3, 1 + k % 4) for k in range(12)]
    bounds = []
    for seed in range(4):
        random.Random(seed).shuffle(groups)
        bounds.append(proved(Instance("order", tuple(groups), System(9, 50, 50), PAPER)))
    for bound in bounds[1:]:
        assert bound == bounds[0]
        assert bound.evidence == bounds[0].evidence


def test_arrivals_do_not_make_kinds() -> None:
    grouped = case(6, 4, 5, 20)
    late = tuple(RequestGroup(f"s{k}", 4, 5, Fraction(k, 10)) for k in range(6))
    first, second = proved(grouped), proved(replace(grouped, groups=late))
    assert first.value == second.value
    assert first.evidence == second.evidence


def test_a_limit_of_running_requests() -> None:
    """One at a time, whatever fits: 3 requests of 4 tokens take 12 batches."""
    instance = replace(case(3, 2, 4, 100, cost=FLAT), system=System(100, 50, 50, 1))
    assert Fraction("11.999") < proved(instance).value <= 12


def test_none_where_states_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_flow_bound(case(1000, 10, 10, 1_000_000)) is None  # requests at once
    assert state_flow_bound(case(20, 10, 30, 400)) is None  # states
    assert state_flow_bound(case(3, 10, 10_000, 20_000)) is None  # prices
    assert state_flow_bound(case(3, 10, 70_000, 80_000, preemption=False)) is None  # elements
    instance = case(4, 3, 5, 16)
    bound = proved(instance)
    assert bound.evidence is not None
    states = len(bound.evidence["potential"])
    monkeypatch.setattr(_state_flow_search, "MAX_STATES", states)
    assert state_flow_bound(instance) == bound
    monkeypatch.setattr(_state_flow_search, "MAX_STATES", states - 1)
    assert state_flow_bound(instance) is None


def test_none_where_batches_are_free() -> None:
    free = CostModel([("0", "1")], ("0", "1"), ("0", "1"))
    assert state_flow_bound(case(3, 2, 3, 9, cost=free)) is None


def test_every_piece_is_tried() -> None:
    """Of two pieces, one that never binds and one that always does, the second counts."""
    slow = CostModel([("0.0001", "0"), ("1", "0")], ("0", "0"), ("0", "0"))
    bound = proved(case(5, 3, 4, 6, cost=slow, preemption=False))
    assert bound.evidence is not None
    assert bound.evidence["piece"] == 1
    assert bound.value > 19


def test_a_deadline_leaves_a_proved_bound() -> None:
    instance = case(32, 32, 32, 100)
    full = state_flow_bound(instance)
    assert full is not None
    for calls in (0, 1, 2, 3, 10, 40):
        late = state_flow_bound(instance, stop=few(calls))
        assert (late is None) == (calls == 0)
        if late is not None:
            assert 0 < late.value <= full.value, calls
            assert check_evidence(instance, late) == late.value, calls


def test_deadline_by_the_clock() -> None:
    state_flow_bound(case(2, 2, 2, 6))  # compiles
    begin = time.monotonic()
    state_flow_bound(case(32, 8, 8, 100), stop=lambda: time.monotonic() > begin + 0.3)
    assert time.monotonic() - begin < 5


def test_comes_first_of_what_takes_a_search() -> None:
    found = [bound.source for bound in searched_bounds(case(8, 8, 6, 40), stop=few(200))]
    assert found[:2] == ["ramp", "state flow"]


@pytest.mark.parametrize("alpha", ["1e-6", "1e-9", "1e-12"])
@pytest.mark.parametrize("beta", ["1", "1000000"])
def test_costs_of_very_different_sizes(alpha: str, beta: str) -> None:
    """Recomputing costs 1e6 to 1e18 batches: 64-bit tables must not overflow unnoticed."""
    steep = CostModel([(alpha, beta)], ("0", "0"), ("0", "0"))
    for i, o, m in ((3, 4, 12), (20, 10, 70)):
        instance = case(4, i, o, m, cost=steep)
        bound = state_flow_bound(instance, stop=few(100))
        best = staged_search(instance).upper
        assert best is not None
        if bound is not None:
            assert check_evidence(instance, bound) == bound.value
            assert bound.value <= best


@pytest.mark.parametrize("preemption", [False, True])
def test_plain_python_and_compiled_kernels_agree(preemption: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from infermax_opt.infermax.bounds import _kernels_state_flow as plain

    instance = case(4, 2, 3, 9, preemption=preemption)
    monkeypatch.setattr(_state_flow_search, "is_tiny", lambda kinds: False)
    compiled = proved(instance)
    again = proved(instance)
    functions = plain.listed, plain.link, plain.settle, plain.weigh
    monkeypatch.setattr(_state_flow_search, "kernels", lambda small: functions)
    interpreted = proved(instance)
    assert compiled == interpreted == again
    assert compiled.evidence == interpreted.evidence == again.evidence
