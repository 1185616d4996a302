"""The spacing bound of equal requests, against optima and the other closed forms."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.bounds.spacing import MOST, SCALE, spaced_batches
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.occupancy_adversary import signed, submitted
from tests.support import FLAT, PAPER, case, certificate_to_json, check_evidence

NAME = "KV spacing"


#: Tokens that are processed again take as long as batches do.
DEAR = CostModel([("1", "1.5")], ("0.25", "0"), ("0.5", "0"))


def equal(seed: int, *, preemption: bool = False) -> Instance:
    """A few equal requests in little memory, none of which is evicted unless that may be."""
    rng = random.Random(seed)
    i, o = rng.randint(1, 4), rng.randint(1, 6)
    groups = (RequestGroup("r", i, o, count=rng.randint(2, 6)),)
    system = System(rng.randint(i + o, min(4 * (i + o), 22)), rng.choice([50, i + 2]), 50)
    chunked, hybrid = rng.random() < 0.5, rng.random() < 0.7
    policy = Policy(preemption=preemption, chunked_prefill=chunked, hybrid_batching=hybrid)
    return Instance("equal", groups, system, DEAR if preemption else rng.choice([FLAT, PAPER]), policy)


def spaced(instance: Instance) -> LowerBound | None:
    """The bound, if it is one of the closed forms."""
    return next((bound for bound in closed_form_bounds(instance) if bound.source == NAME), None)


@in_blocks(campaign(20, 5_000), 20)
def test_does_not_exceed_the_optimum(seeds: range) -> None:
    exact = better = 0
    for seed in seeds:
        instance = equal(seed)
        bound, best = spaced(instance), staged_search(instance).upper
        assert bound is not None
        assert best is not None
        assert bound.value <= best, seed
        assert check_evidence(instance, bound) == bound.value, seed
        others = max(some.value for some in closed_form_bounds(instance) if some.source != NAME)
        exact += bound.value == best
        better += bound.value > others
    assert exact > 0
    assert better > 0


def test_evenly_spaced_requests_take_as_many_batches() -> None:
    """Five of 4 + 5 tokens, one after the other where none fits beside another, and at once where all do."""
    assert spaced_batches(4, 5, 5, 8, 50)[0] == 25
    assert spaced_batches(4, 5, 5, 40, 50)[0] == 5
    # One every three batches: two in memory hold 8 + 5 tokens, a third one has not begun.
    assert spaced_batches(4, 5, 5, 13, 50) == (5 + 12, 3 * SCALE)


@in_blocks(campaign(20, 5_000), 20)
def test_does_not_exceed_the_optimum_where_evictions_are_dear(seeds: range) -> None:
    better = said = 0
    for seed in seeds:
        instance = equal(seed, preemption=True)
        bound, best = spaced(instance), staged_search(instance).upper
        assert bound is not None
        assert best is not None
        assert bound.evidence is not None
        assert bound.value <= best, seed
        assert check_evidence(instance, bound) == bound.value, seed
        said += bound.evidence["cut"] > 0
        others = max(some.value for some in closed_form_bounds(instance) if some.source != NAME)
        better += bound.value > others
    assert said > 0
    assert better > 0


def test_no_more_may_be_saved_than_an_eviction_costs() -> None:
    instance = case(9, 3, 4, 12)
    bound = spaced(instance)
    assert bound is not None
    certificate = certificate_to_json(instance, bound)
    assert submitted(instance, certificate) == bound.value
    evidence = {**certificate["evidence"], "cut": certificate["evidence"]["cut"] + 1}
    with pytest.raises(Rejected, match="evictions may cost less"):
        submitted(instance, signed({**certificate, "evidence": evidence}))


def test_is_for_equal_requests() -> None:
    instance = case(6, 3, 4, 12, preemption=False)
    assert spaced(instance) is not None
    others = (*instance.groups, RequestGroup("s", 3, 5))
    assert spaced(replace(instance, groups=others)) is None


def test_says_nothing_of_more_requests_than_are_told_apart() -> None:
    assert spaced_batches(1, 5, MOST + 9, MOST + 9, 50) == (5, 0)


@pytest.mark.parametrize(("change", "words"), [(1, "closer to each other"), (-1, "is proved"), ("", "cut")])
def test_no_other_distance_proves_the_same(change: Any, words: str) -> None:
    instance = case(9, 3, 4, 12, preemption=False)
    bound = spaced(instance)
    assert bound is not None
    certificate = certificate_to_json(instance, bound)
    assert submitted(instance, certificate) == Fraction(certificate["lower_bound"]) == bound.value
    evidence = dict(certificate["evidence"])
    evidence["cut"] = evidence["cut"] + change * SCALE if change else "far"
    with pytest.raises(Rejected, match=words):
        submitted(instance, signed({**certificate, "evidence": evidence}))
