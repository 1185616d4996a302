"""The occupancy bound on cases checked by hand, its limits and its search."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.api import verify
from infermax_opt.core.result import Proof
from infermax_opt.infermax.bounds import _occupancy_graph, closed_form_bounds, occupancy
from infermax_opt.infermax.bounds._kernels_occupancy_steps import FAR
from infermax_opt.infermax.bounds.occupancy import occupancy_bound
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from tests.infermax.occupancy_adversary import edges, strongest
from tests.support import FLAT, PAPER, case, check_evidence, few


def upper(instance: Instance) -> Fraction:
    """Makespan of the best of all schedulers."""
    values = []
    for name in scheduler_names():
        check = verify(instance, run_scheduler(instance, name))
        if check.ok and check.objective is not None:
            values.append(check.objective)
    return min(values)


def test_one_slot_is_exact() -> None:
    """Where only one request fits, each takes O batches: 5 requests of 4 tokens take 20 batches."""
    instance = case(5, 3, 4, 6, cost=FLAT, preemption=False)
    bound = occupancy_bound(instance)
    assert bound is not None
    assert bound.proof is Proof.CERTIFICATE
    assert Fraction("19.9") < bound.value <= 20
    # KV area alone: 5 * (3 + 4 + 5 + 6) tokens of KV in batches of 6, that is 15 batches.
    closed = {found.source: found.value for found in closed_form_bounds(instance)}
    assert closed["KV area"] < bound.value
    assert closed["KV spacing"] == 20


def test_whole_requests_in_memory() -> None:
    """M = 12 holds two requests of I = 3 for their first tokens, one of them evermore near its end."""
    instance = case(4, 3, 5, 12, cost=FLAT, preemption=False)
    best = staged_search(instance).upper
    bound, walked = occupancy_bound(instance, ends=False), occupancy_bound(instance)
    assert best is not None
    assert bound is not None
    assert walked is not None
    closed = {found.source: found.value for found in closed_form_bounds(instance)}
    # The age bound counts whole batches here, as nothing is evicted; the ends of the schedule take more.
    assert closed["KV area"] < bound.value < closed["KV age"] < walked.value <= best


@pytest.mark.parametrize(
    ("count", "i", "o", "m", "preemption", "percent"),
    [
        (32, 8, 64, 100, False, 15),
        (32, 64, 32, 200, False, 10),
        (64, 32, 128, 400, False, 5),
        (32, 64, 32, 200, True, 3),
        (64, 128, 128, 1000, True, 1),
    ],
)
def test_beats_the_area(count: int, i: int, o: int, m: int, preemption: bool, percent: int) -> None:
    instance = case(count, i, o, m, preemption=preemption)
    bound = occupancy_bound(instance, stop=few(400))
    assert bound is not None
    (area,) = (found for found in closed_form_bounds(instance) if found.source == "KV area")
    assert bound.value >= area.value * (1 + Fraction(percent, 100))
    assert bound.value <= upper(instance)
    assert check_evidence(instance, bound) == bound.value


def test_the_search_settles() -> None:
    """A search that begins without prices, and always goes half way, ends at 75.88 s."""
    instance = case(1024, 1, 128, 1000)
    bound = occupancy_bound(instance)
    assert bound is not None
    assert bound.value > Fraction("76.7")
    assert check_evidence(instance, bound) == bound.value


def test_mixed_sizes() -> None:
    groups = (RequestGroup("a", 8, 40, count=12), RequestGroup("b", 30, 10, count=12))
    instance = Instance("mixed", groups, System(90, 512, 512), PAPER, Policy(preemption=False))
    bound = occupancy_bound(instance, stop=few(400))
    assert bound is not None
    assert closed_form_bounds(instance)[0].value < bound.value <= upper(instance)
    assert check_evidence(instance, bound) == bound.value


@pytest.mark.parametrize(
    ("kinds", "m", "cost", "preemption"),
    [
        # The optimum is 18 batches, and 13.75 are proved without.
        (((6, 2, 1), (5, 6, 3)), 13, FLAT, False),
        (((2, 7, 4), (6, 2, 1)), 10, FLAT, False),
        (((1, 3, 1), (6, 1, 3)), 11, PAPER, True),
    ],
)
def test_starts_and_finishes_of_each_size_are_counted(
    kinds: tuple[tuple[int, int, int], ...], m: int, cost: CostModel, preemption: bool
) -> None:
    """Better than any certificate by which first tokens and finishes earn nothing besides."""
    groups = tuple(RequestGroup(f"g{i}-{o}", i, o, count=count) for i, o, count in kinds)
    instance = Instance("kinds", groups, System(m, 50, 50), cost, Policy(preemption=preemption))
    bound, best = occupancy_bound(instance), staged_search(instance).upper
    assert bound is not None
    assert best is not None
    assert bound.value <= best
    assert check_evidence(instance, bound) == bound.value
    for young in range(8):
        without = strongest(instance, edges(instance, 0, 99, young), besides=0.0, pairs=(0.0, 0.0))
        assert without is not None
        assert without["evidence"]["prices"]["first"] == [0] * len(without["evidence"]["prices"]["first"])
        assert without["evidence"]["prices"]["finish"] == [0, 0]
        assert bound.value > Fraction(without["lower_bound"]) * Fraction("1.2")


def test_order_of_requests_does_not_matter() -> None:
    groups = [RequestGroup(f"r{k}", 2 + k % 3, 1 + k % 4) for k in range(12)]
    bounds = []
    for seed in range(4):
        random.Random(seed).shuffle(groups)
        instance = Instance("order", tuple(groups), System(15, 50, 50), PAPER)
        bounds.append(occupancy_bound(instance, stop=few(400)))
    assert bounds[0] is not None
    for bound in bounds[1:]:
        assert bound == bounds[0]
        assert bound is not None
        assert bound.evidence == bounds[0].evidence


def test_a_group_is_as_good_as_its_requests() -> None:
    grouped = case(6, 4, 5, 20)
    single = replace(grouped, groups=tuple(RequestGroup(f"s{k}", 4, 5) for k in range(6)))
    assert occupancy_bound(grouped, stop=few(200)) == occupancy_bound(single, stop=few(200))


def test_none_where_the_graph_is_too_large() -> None:
    assert occupancy_bound(case(10_000, 10, 10, 1_000_000)) is None  # thousands of active requests
    assert occupancy_bound(case(10, 100_000_000, 5, 900_000_000)) is None  # too many states
    groups = tuple(RequestGroup(f"r{k}", 1 + k, 2) for k in range(occupancy.MAX_SIZES + 1))
    assert occupancy_bound(Instance("sizes", groups, System(100, 50, 50), PAPER)) is None


def test_none_where_batches_are_free() -> None:
    free = CostModel([("0", "1")], ("0", "1"), ("0", "1"))
    assert occupancy_bound(case(3, 2, 3, 9, cost=free)) is None


def test_every_piece_is_tried() -> None:
    """Of two pieces, one that never binds and one that always does, the second counts."""
    slow = CostModel([("0.0001", "0"), ("1", "0")], ("0", "0"), ("0", "0"))
    found = occupancy_bound(case(5, 3, 4, 6, cost=slow, preemption=False))
    assert found is not None
    assert found.evidence is not None
    assert found.evidence["piece"] == 1
    assert found.value > 19


@pytest.mark.parametrize("calls", [0, 1, 3, 10, 40])
def test_a_deadline_leaves_a_proved_bound(calls: int) -> None:
    instance = case(32, 64, 32, 200, preemption=False)
    late = occupancy_bound(instance, stop=few(calls))
    full = occupancy_bound(instance, stop=few(400))
    assert full is not None
    if late is not None:
        assert 0 < late.value <= full.value * Fraction("1.001")
        assert check_evidence(instance, late) == late.value


def test_deadline_by_the_clock() -> None:
    instance = case(64, 128, 128, 1000)
    occupancy_bound(case(2, 2, 2, 6), stop=few(5))  # compiles
    begin = time.monotonic()
    occupancy_bound(instance, stop=lambda: time.monotonic() > begin + 0.5)
    assert time.monotonic() - begin < 10


def test_is_deterministic() -> None:
    instance = case(16, 8, 16, 60)
    bounds = [occupancy_bound(instance, stop=few(150)) for _ in range(2)]
    assert bounds[0] == bounds[1]
    assert bounds[0] is not None
    assert bounds[1] is not None
    assert bounds[0].evidence == bounds[1].evidence


@pytest.mark.parametrize("alpha", ["1e-6", "1e-7", "1e-8", "1e-9", "1e-12"])
@pytest.mark.parametrize("beta", ["1", "1000000"])
def test_costs_of_very_different_sizes(alpha: str, beta: str) -> None:
    """Recomputing costs 1e6 to 1e18 batches: 64-bit tables must not overflow unnoticed."""
    steep = CostModel([(alpha, beta)], ("0", "0"), ("0", "0"))
    for i, o, m in ((3, 4, 12), (20, 60, 300)):
        instance = case(8, i, o, m, cost=steep)
        bound = occupancy_bound(instance, stop=few(60))
        if bound is not None:
            assert check_evidence(instance, bound) == bound.value
            assert bound.value <= upper(instance)


def test_potentials_stay_within_the_tables() -> None:
    bound = occupancy_bound(case(16, 8, 16, 60), stop=few(100))
    assert bound is not None
    assert bound.evidence is not None
    for values in bound.evidence["potential"]:
        assert all(value is None or abs(value) < FAR for value in values)


def test_plain_python_and_compiled_kernels_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    from infermax_opt.infermax.bounds import _kernels_occupancy as kernels

    instance = case(4, 2, 3, 9)
    monkeypatch.setattr(_occupancy_graph, "is_tiny", lambda kinds: False)
    compiled = occupancy_bound(instance, stop=few(40))
    monkeypatch.setattr(_occupancy_graph, "kernels", lambda small: (kernels.settle, kernels.weigh))
    plain = occupancy_bound(instance, stop=few(40))
    assert compiled is not None
    assert compiled == plain
    assert plain is not None
    assert compiled.evidence == plain.evidence
