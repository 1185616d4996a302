"""The bound of batches apart: cases checked by hand, the optimum of thousands of tiny instances."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.apart import apart_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_knee import scarce
from tests.infermax.test_many_bounds import shown, submitted
from tests.infermax.test_ramp import slow
from tests.support import FLAT, case, certificate_to_json, check_evidence, few

HAIR = Fraction(1, 10**40)


def separated(instance: Instance, seed: int) -> Instance:
    """The same without hybrid batching, or where batches of both kinds cost more."""
    rng, cost, policy = random.Random(seed), instance.cost, instance.policy
    if rng.random() < 0.5:
        return replace(instance, policy=replace(policy, hybrid_batching=False))
    mixed = str(rng.choice([0, 1, 20]) / 10), str(rng.choice([0, 1, 5, 20]) / 10)
    pieces, prefix = cost.batch, str(rng.choice([0, 0, 1, 9]) / 10)
    cost = CostModel(pieces, cost.decode, cost.prefill, attention=cost.attention, mixed=mixed, prefix=prefix)
    return replace(instance, cost=cost, policy=replace(policy, hybrid_batching=True))


def some_evidence(rng: random.Random, pieces: int) -> dict[str, Any]:
    """What a certificate may say, be it good or not."""
    share = rng.choice([0, 10, 500, 990, 1000, 1000])
    return {"kind": "apart", "piece": rng.randrange(pieces), "alone": rng.randrange(pieces), "share": share}


@pytest.mark.parametrize("make", [scarce, slow], ids=lambda make: make.__name__)
@in_blocks(campaign(50, 5_000), 100)
def test_never_above_the_optimum(seeds: range, make: Any) -> None:
    """Nor is what other evidence proves."""
    found = 0
    for seed in seeds:
        instance, rng = separated(make(seed), seed), random.Random(seed)
        best, bound = optimum(instance), apart_bound(instance)
        if bound is not None:
            found += 1
            assert bound.value <= best, seed
            assert check_evidence(instance, bound) == bound.value, seed
            with pytest.raises(Rejected, match="claims"):
                submitted(shown(instance), instance, replace(bound, value=bound.value + HAIR))
        for _ in range(6):
            evidence = some_evidence(rng, len(instance.cost.batch))
            false = LowerBound(best + HAIR, "apart", Proof.CERTIFICATE, evidence=evidence)
            with pytest.raises(Rejected, match=r"claims|share|refill"):
                submitted(shown(instance), instance, false)
    assert found > len(seeds) // 3


def proves(instance: Instance, evidence: dict[str, Any], value: Fraction) -> None:
    """So much, and not a hair more."""
    bound = LowerBound(value, "apart", Proof.CERTIFICATE, evidence={"kind": "apart", **evidence})
    assert check_evidence(instance, bound) == value
    with pytest.raises(Rejected, match="claims"):
        submitted(shown(instance), instance, replace(bound, value=value + HAIR))


SEPARATE = Policy(hybrid_batching=False)
#: Decodes beside prompts cost 1/2 and 1/50 for each token that they read.
BESIDE = CostModel([("1", "0.125")], ("0.25", "0.01"), ("0", "0"), mixed=("0.5", "0.02"))


def test_without_hybrid_batching_prompts_have_batches_of_their_own() -> None:
    """Ten prompts of four tokens, eight to a batch; then two decodes each, of which two or three fit."""
    cost = CostModel([("1", "0.125")], ("0.25", "0.01"), ("0.5", "0"))
    instance = replace(case(10, 4, 3, 16, cost=cost), system=System(16, 20, 8), policy=SEPARATE)
    prompts = 10 * 4 * (Fraction(1, 8) + Fraction(1, 8)) + 5 * Fraction(1, 2)
    decodes = sum(Fraction(h, 16) * Fraction(5, 4) + Fraction(1, 8) + Fraction(h - 1, 100) for h in (5, 6))
    proves(instance, {"piece": 0, "alone": 0, "share": 1000}, prompts + 10 * decodes)
    found = apart_bound(instance)
    assert found is not None
    assert found.value == prompts + 10 * decodes
    # A batch holds no more prompts than memory does.
    narrow = replace(instance, system=System(6, 20, 8), policy=replace(SEPARATE, preemption=False))
    prompts = 10 * 4 * (Fraction(1, 8) + Fraction(1, 6)) + 5 * Fraction(1, 2)
    decodes = sum(Fraction(h, 6) * Fraction(5, 4) + Fraction(1, 8) + Fraction(h - 1, 100) for h in (5, 6))
    proves(narrow, {"piece": 0, "alone": 0, "share": 1000}, prompts + 10 * decodes)


def test_both_kinds_have_pieces_of_their_own() -> None:
    """Prompts by the steep piece, decodes by the flat one."""
    cost = CostModel([("1", "0"), ("0.5", "0.25")], ("0", "0"), ("0", "0"))
    instance = replace(case(2, 4, 2, 10, cost=cost), system=System(10, 10, 10), policy=SEPARATE)
    paid = 8 * (Fraction(1, 4) + Fraction(1, 20)) + 2 * Fraction(5, 10)
    proves(instance, {"piece": 1, "alone": 0, "share": 1000}, paid)


def test_decodes_beside_prompts_pay_for_it() -> None:
    """All of alpha for prompts leaves decodes what they cost beside these."""
    kept = Policy(preemption=False)
    instance = replace(case(2, 4, 2, 10, cost=BESIDE), system=System(10, 10, 10), policy=kept)
    decode = Fraction(1, 8) + Fraction(4, 100) + Fraction(5, 40)
    # Apart a decode bears 5/10 of alpha; beside prompts 5/20 of e0 and 4/50, and what is left of alpha.
    least = {
        1000: Fraction(5, 20) + Fraction(4, 50),
        750: Fraction(5, 20) + Fraction(4, 50) + Fraction(5, 40),
    }
    least |= {0: Fraction(5, 10)}
    for share, beside in least.items():
        prompts = 8 * (Fraction(1, 8) + Fraction(share, 10_000))
        paid = prompts + 2 * (decode + min(beside, Fraction(5, 10)))
        proves(instance, {"piece": 0, "alone": 0, "share": share}, paid)
    found = apart_bound(instance)
    assert found is not None
    assert found.value >= 8 * (Fraction(1, 8) + Fraction(75, 1000)) + 2 * (decode + Fraction(455, 1000))


def test_a_refill_must_cost_as_much_as_a_decode() -> None:
    """A token of a prompt costs less here than what a decode holds."""
    cost = CostModel([("1", "0.01")], ("0", "0"), ("0", "0"))
    instance = replace(case(4, 4, 3, 10, cost=cost), system=System(10, 10, 10), policy=SEPARATE)
    assert apart_bound(instance) is None
    bound = LowerBound(Fraction(1), "apart", Proof.CERTIFICATE, evidence={"kind": "apart", **GIVEN})
    with pytest.raises(Rejected, match="refill"):
        submitted(shown(instance), instance, bound)
    assert apart_bound(replace(instance, policy=replace(SEPARATE, preemption=False))) is not None
    # Nobody decodes.
    assert apart_bound(replace(case(4, 4, 1, 10, cost=cost), policy=SEPARATE)) is not None


GIVEN = {"piece": 0, "alone": 0, "share": 1000}


def test_changed_certificates_are_refused() -> None:
    instance = replace(case(10, 4, 3, 16, cost=BESIDE), system=System(16, 20, 8), policy=SEPARATE)
    bound = apart_bound(instance)
    assert bound is not None
    assert bound.evidence is not None
    given = shown(instance)
    for changed, words in (
        ({"share": 999}, "share"),
        ({"share": 1001}, "share"),
        ({"share": "1x"}, "share"),
        ({"alone": 1}, "alone"),
        ({"piece": 1}, "piece"),
    ):
        evidence = {**bound.evidence, **changed}
        with pytest.raises(Rejected, match=words):
            check(given, certificate_to_json(instance, replace(bound, evidence=evidence)))
    for key in GIVEN:
        less = {k: v for k, v in bound.evidence.items() if k != key}
        with pytest.raises(Rejected, match=key):
            check(given, certificate_to_json(instance, replace(bound, evidence=less)))


def test_none_where_batches_of_both_cost_no_more() -> None:
    assert apart_bound(case(8, 4, 8, 20, cost=FLAT)) is None


def test_is_in_the_search() -> None:
    instance = replace(case(8, 4, 8, 20, cost=BESIDE), policy=SEPARATE)
    assert "apart" in {bound.source for bound in searched_bounds(instance, stop=few(0))}
