"""Mixes: bounds against exhaustive optima of tiny fleets, and prices that make a mix best."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.fleet.bounds.mix import mix_bound
from infermax_opt.fleet.checker.certificate import least_price
from infermax_opt.fleet.checker.mix import Cut, Cuts, cheapest
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.mix import Mix, mixes
from infermax_opt.fleet.question import FleetQuestion, Unfit
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.fleet.tiny import cheapest_by_enumeration, tiny_fleet
from tests.infermax.tiny import cost_model
from tests.infermax.vector_oracle import TooMany
from tests.support import PAPER


def best_mix(questions: list[FleetQuestion], prices: list[Fraction], singles: list[int | None]) -> Mix:
    """The last one, which is the cheapest that is found."""
    *_, best = mixes(questions, prices, singles)
    return best


@in_blocks(campaign(24, 1200), 20)
def test_bounds_hold_for_every_mix(seeds: range) -> None:
    seen = 0
    for seed in seeds:
        first, rng = tiny_fleet(seed), Random(seed)
        if len(first.workload.requests) > 4:
            continue
        other = FleetQuestion(replace(first.workload, cost=cost_model(rng)), first.share)
        prices = [Fraction(rng.randint(1, 9)), Fraction(rng.randint(1, 9))]
        try:
            truth = cheapest_by_enumeration([first, other], prices)
        except TooMany:
            continue
        found = best_mix([first, other], prices, [None, None])
        proved = found.bound.price
        assert least_price(json.loads(json.dumps(found.bound.certificate))) == (
            NEVER if proved is None else proved
        )
        if proved is None:
            assert truth is None, seed
        elif truth is not None:
            seen += 1
            assert proved <= truth, seed
            assert found.price is None or found.price >= truth, seed
        else:
            assert found.price is None, seed
    assert seen or 0 not in seeds


def test_the_cheapest_that_keeps_all_cuts() -> None:
    for seed in range(14):
        rng, kinds = Random(seed), 2 + seed % 2
        prices = tuple(Fraction(rng.randint(1, 9), rng.randint(1, 3)) for _ in range(kinds))
        cuts = [
            Cut(tuple(rng.randint(0, 5) for _ in range(kinds)), rng.randint(0, 20))
            for _ in range(rng.randint(1, 4))
        ]
        cuts = [cut for cut in cuts if any(cut.weights)]
        keeps = [
            sum(price * n for price, n in zip(prices, mix, strict=True))
            for mix in itertools.product(range(21), repeat=kinds)
            if all(sum(w * n for w, n in zip(weights, mix, strict=True)) >= least for weights, least in cuts)
        ]
        price, mix = cheapest(Cuts(prices, cuts))
        assert price == min(keeps), seed
        assert mix is not None
        assert price == sum(p * n for p, n in zip(prices, mix, strict=True))


def test_a_request_that_fits_one_type_only() -> None:
    fast, slow = two_types(30)
    large = enumerate(slow.workload.requests[10:], 10)
    unfit = tuple(Unfit(request, k, "line 2", "is too large") for k, request in large)
    groups = tuple(replace(group, input_tokens=700) for group in slow.workload.groups[:10])
    small = replace(slow.workload, system=System(800, 1024, 1024), groups=groups)
    everyone = replace(fast.workload, groups=(*groups, *fast.workload.groups[10:]))
    questions = [
        FleetQuestion(everyone), FleetQuestion(small, unfit=unfit),
    ]  # fmt: skip
    found = best_mix(questions, [Fraction(5), Fraction(1)], [None, None])
    assert found.lower is not None
    assert found.price is not None
    assert 5 <= found.lower <= found.price
    assert all(kind != 1 for kind, _ in found.routes[10:])


def two_types(requests: int = 150) -> list[FleetQuestion]:
    """A stream that needs some more than a machine of a fast type, and a type three times as slow."""
    slo = {"ttft": "1.5"}
    groups = tuple(RequestGroup(f"r{k}", 900, 2, Fraction(6 * k, 100), slo=slo) for k in range(requests))
    base = Instance("s", groups, System(60_000, 1024, 1024), PAPER, Policy(), "missed")
    slow = CostModel([("0.021", "0.000225")], ("0.0009", "7.8e-7"), ("0.0009", "4.5e-9"))
    return [FleetQuestion(base), FleetQuestion(replace(base, cost=slow))]


def test_prices_that_make_a_mix_best() -> None:
    questions = two_types()
    found = best_mix(questions, [Fraction(10), Fraction(4)], [2, 4])
    assert found.machines == (1, 1)
    assert found.price == found.lower == 14
    assert {kind for kind, _ in found.routes} >= {0, 1}
    # Where one type is cheap for what it does, no mix is.
    cheap = best_mix(questions, [Fraction(10), Fraction(1)], [2, 4])
    assert cheap.machines == (0, 4)
    assert cheap.price == 4
    assert cheap.lower is not None
    assert 3 < cheap.lower <= 4


def test_types_that_serve_nobody_are_in_no_mix() -> None:
    """Be they ever so cheap: of these alone there would be a million mixes below the price."""
    fast, _ = two_types(40)
    slow = replace(fast.workload, cost=CostModel([("30", "0")], ("0", "0"), ("0", "0")))
    questions = [FleetQuestion(slow), FleetQuestion(slow), fast]
    found = best_mix(questions, [Fraction(1, 1000), Fraction(1, 999), Fraction(1000)], [None, None, None])
    assert found.machines == (0, 0, 1)
    assert found.price == 1000


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema": "other"}, "schema"),
        ({"share": "2"}, "share"),
        ({"cuts": [[1]]}, "cuts"),
        ({"cuts": [[-1, 1]]}, "cut"),
        ({"types": 7}, "malformed"),
    ],
)
def test_what_proves_nothing_is_rejected(change: dict[str, object], problem: str) -> None:
    certificate = {**mix_bound(two_types(20), [Fraction(1), Fraction(1)]).certificate, **change}
    with pytest.raises(Rejected, match=problem):
        least_price(certificate)
