"""Overload: what a prompt pays in parts, and certificates from before that was counted."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from math import sqrt

import pytest

from infermax_opt.infermax.bounds._overload_prompts import SHARES, PartPrices
from infermax_opt.infermax.bounds._overload_tables import PRICE_BITS
from infermax_opt.infermax.bounds.overload import OverloadProof, TokenTables, overload_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign
from tests.infermax.test_latency_certificates import shown
from tests.support import certificate_to_json, check_evidence


@pytest.mark.parametrize("seed", campaign(40, 2_000))
def test_the_least_over_parts_is_below_all_parts_and_near_the_best(seed: int) -> None:
    rng = random.Random(seed)
    work, attention, presence = (rng.choice([0, 1, 7, 10**3, 10**7, 10**10]) for _ in range(3))
    exponent = rng.choice([0, 8, 20])
    prices = PartPrices(work, attention, presence, exponent)
    for _ in range(20):
        price, level = rng.choice([0, 1, 5_000, 10**6, 10**8]), rng.randint(0, 10**4) << exponent
        share, longest = rng.randint(0, SHARES - 1), rng.choice([1, 2, 3, 50, 700, 4096])
        found = prices.least(price, level, share, longest)
        s = share / SHARES

        def paid(c: float, price: int = price, level: int = level, s: float = s) -> float:
            """What a token pays in a part of c of them."""
            least = (price / 2**PRICE_BITS + s) * attention * (c - 1)
            return least + 2 * level / 2**exponent * sqrt(work * s / c) + presence * s / c

        best = min(paid(c) for c in range(1, longest + 1)) * 2**PRICE_BITS
        assert 0 <= found <= best * (1 + 1e-12) + 1
        # Of the numbers between whole ones the best is lost by little, where the points are close.
        finely = [longest ** (k / 2_000) for k in range(2_001)]
        at = min(finely, key=paid)
        if at > 16 and best > 2**30:
            assert found >= 0.97 * paid(at) * 2**PRICE_BITS


def rush(attention: str = "square") -> Instance:
    """Three prompts of six tokens at once, and another while these are done; attention is what they cost."""
    arrivals = (Fraction(1, 1000), Fraction(1, 1000), Fraction(1, 1000), Fraction(1, 5))
    groups = tuple(RequestGroup(f"q{k}", 6, 1, arrival) for k, arrival in enumerate(arrivals))
    cost = CostModel([("0.05", "0.001")], ("0", "0"), ("0", "0.004"), attention)
    return Instance(
        "rush",
        groups,
        System(100, 50, 50, None, 1),
        cost,
        Policy(True, True, False),
        Objective.of("mean_e2e"),
    )


def test_a_prompt_pays_for_its_parts() -> None:
    of = rush()
    proof = OverloadProof(of, TokenTables.of(of, 0))
    cells = proof.chosen()
    found = proof.bound(cells)
    proof.parts = 0
    for kind in proof._kinds:
        object.__setattr__(kind, "prompt", None)
    whole = proof.bound(cells)
    best = staged_search(of).upper
    assert best is not None
    assert 0 < whole.value < found.value <= best
    assert found.value > Fraction(11, 10) * whole.value
    assert check_evidence(of, found) == found.value
    # A certificate from before parts were told from whole prompts.
    assert whole.evidence is not None
    old = {key: value for key, value in whole.evidence.items() if key != "parts"}
    assert check_evidence(of, replace(whole, evidence=old)) == whole.value


def test_where_parts_save_no_attention_they_are_not_told() -> None:
    of = rush("exact")
    bound = overload_bound(of)
    assert bound is not None
    assert bound.evidence is not None
    assert bound.evidence["parts"] == 0
    evidence = {**bound.evidence, "parts": 3}
    with pytest.raises(Rejected, match="parts: chunks save no attention work"):
        check(shown(of), certificate_to_json(of, replace(bound, evidence=evidence)))
