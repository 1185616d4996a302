"""The running bound: cases checked by hand, the optimum of thousands of tiny instances, its certificate."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.running import running_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.checker.running import least_squares
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.heuristics import run_scheduler
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_many_bounds import shown, submitted
from tests.infermax.test_ramp import chunky, slow
from tests.support import PAPER, check_evidence, few, value


def crowded(seed: int) -> Instance:
    """A random instance in which few may run, with attention, presence and refills of all sizes."""
    rng = random.Random(seed)
    made = (slow, chunky)[seed % 2](seed)
    cost = made.cost
    (d0, d1), (p0, p1) = cost.decode, cost.prefill
    if rng.random() < 0.5:
        d0, d1 = d0 + rng.randint(0, 8), min(d1, Fraction(1, 10))
    if rng.random() < 0.5:
        p0, p1 = p0 + rng.randint(0, 3), p1 + Fraction(rng.randint(1, 30), 10)
    cost = CostModel(cost.batch, (d0, d1), (p0, p1), attention=cost.attention)
    return replace(made, cost=cost, system=replace(made.system, max_running=rng.choice([1, 2, 2])))


@in_blocks(campaign(60, 6_000), 100)
def test_never_above_the_optimum(seeds: range) -> None:
    better = 0
    for seed in seeds:
        instance = crowded(seed)
        bound = running_bound(instance)
        assert bound is not None
        assert bound.value <= optimum(instance), seed
        assert check_evidence(instance, bound) == bound.value, seed
        better += bound.value > closed_form_bounds(instance)[0].value
        with pytest.raises(Rejected, match="claims"):
            submitted(shown(instance), instance, replace(bound, value=bound.value + Fraction(1, 10**40)))
    assert better > len(seeds) // 8


def square(places: int, inputs: int = 6, outputs: int = 1) -> Instance:
    """Requests with one prompt each, of which attention costs 1 s for each pair of tokens in a chunk."""
    cost = CostModel([("10", "0")], ("0", "0"), ("0", "1"), Attention.SQUARE)  # type: ignore[arg-type]
    groups = (RequestGroup("q", inputs, outputs, count=2 * places),)
    return Instance("square", groups, System(10**6, 10**6, 10**6, places), cost)


def test_a_chunk_more_pays_for_a_place_by_hand() -> None:
    """With 5 places one more chunk costs 2 s: six tokens in three chunks cost 12 s and 4 s for two places."""
    bound = running_bound(square(5))
    assert bound is not None
    # Ten first tokens in five places are two batches; 16 s for each prompt.
    assert bound.value == 20 + 10 * 16
    assert bound.evidence == {"kind": "running", "piece": 0}
    assert "running requests" in {some.source for some in searched_bounds(square(5), stop=few(0))}


def test_decodes_pay_for_a_batch_by_hand() -> None:
    """Nine later tokens of each of 4 requests in two places: 18 batches of 3 s that decode."""
    cost = CostModel([("1", "3")], ("3", "0"), ("0", "0"))  # type: ignore[arg-type]
    instance = Instance("places", (RequestGroup("q", 1, 10, count=4),), System(10**6, 99, 99, 2), cost)
    bound = running_bound(instance)
    assert bound is not None
    assert bound.value == 20 * 1 + 40 * 3 + 18 * 3
    assert value(instance, run_scheduler(instance, "planner")) == bound.value
    # A token by a refill of two costs 1 s more than by a decode, where a place in a batch of those is 1.5 s.
    dear = replace(instance, cost=CostModel([("1", "1")], ("3", "0"), ("0", "0")))  # type: ignore[arg-type]
    bound = running_bound(dear)
    assert bound is not None
    assert bound.value < 20 * 1 + 40 * 1 + 18 * 3
    kept = running_bound(replace(dear, policy=Policy(preemption=False)))
    assert kept is not None
    assert kept.value == 20 * 1 + 40 * 1 + 18 * 3


def test_the_best_number_of_chunks_is_found() -> None:
    """Four batches of 10 s for first and second tokens; what prompts pay is tried for all chunks."""

    def least(inputs: int, places: int, fewest: int, most: int) -> Fraction:
        chunks = range(fewest, most + 1)
        return min(Fraction(10 * (q - 1), places) + least_squares(inputs, q) for q in chunks)

    for inputs in (1, 2, 3, 7, 20, 31):
        for places in (1, 3, 40):
            any_chunks = square(places, inputs, 2)
            whole = replace(any_chunks, policy=Policy(chunked_prefill=False))
            narrow = replace(any_chunks, system=System(10**6, 10**6, 3, places))
            cases = (any_chunks, 1, inputs), (whole, 1, 1), (narrow, -(-inputs // 3), inputs)
            for instance, fewest, most in cases:
                bound = running_bound(instance)
                assert bound is not None
                assert bound.value == 40 + 2 * places * least(inputs, places, fewest, most)


def test_without_a_limit_there_is_none() -> None:
    instance = Instance("free", (RequestGroup("q", 4, 4, count=3),), System(40, 9, 9), PAPER)
    assert running_bound(instance) is None
    false = LowerBound(Fraction(0), "x", Proof.CERTIFICATE, evidence={"kind": "running", "piece": 0})
    with pytest.raises(Rejected, match="there is no limit of those who run"):
        submitted(shown(instance), instance, false)
