"""Closed forms of many types of requests: sums by column are those of the types one by one."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds import least_work
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds
from infermax_opt.infermax.bounds.least_work import Totals
from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System


def drawn(seed: int, longest: int) -> Instance:
    draw = random.Random(seed)
    groups = [
        RequestGroup(
            f"r{k}", draw.randint(1, longest), draw.randint(1, longest), Fraction(draw.randint(0, 9), 8),
            draw.choice([None, 1, 70]),
        )
        for k in range(draw.randint(1, 150))
    ]  # fmt: skip
    system = System(2 * longest, draw.choice([64, 4096]), 64, draw.choice([None, 8]), draw.choice([1, 2]))
    cost = CostModel([("0.005", "0.00001")], ("0.0005", "3e-8"), ("0", "2e-9"), draw.choice(list(Attention)))
    policy = Policy(draw.random() < 0.5, True, draw.random() < 0.5)
    return Instance(f"many-{seed}", tuple(groups), system, cost, policy)


@pytest.mark.parametrize("longest", [3, 2000, 5 * 10**8])
@pytest.mark.parametrize("seed", range(20))
def test_totals_are_the_sums(seed: int, longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where products leave 64 bits."""
    instance = drawn(seed, longest)
    monkeypatch.setattr(least_work, "FEW", 10**9)
    one_by_one = Totals.of(instance, instance.types)
    assert Totals.of_sizes(instance, Sizes.of(instance.types)) == one_by_one
    parts = [Totals.of(instance, [kind]) for kind in instance.types]
    assert one_by_one == tuple(map(sum, zip(*parts, strict=True)))


@pytest.mark.parametrize("seed", range(20))
def test_wide_columns_give_the_same_bounds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = closed_form_bounds(drawn(seed, 2000))
    monkeypatch.setattr("infermax_opt.infermax.bounds.sizes.LARGE", 0)
    monkeypatch.setattr("infermax_opt.infermax.bounds.squares.LARGE", 0)
    wide = closed_form_bounds(drawn(seed, 2000))
    assert [(b.source, b.value, b.evidence) for b in narrow] == [
        (b.source, b.value, b.evidence) for b in wide
    ]


def test_they_are_formed_once() -> None:
    instance = drawn(1, 9)
    first = closed_form_bounds(instance)
    first.clear()  # a list of the caller's own
    again = closed_form_bounds(instance)
    assert again
    assert all(a is b for a, b in zip(again, closed_form_bounds(instance), strict=True))
