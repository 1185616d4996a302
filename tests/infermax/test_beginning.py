"""The beginning bound: cheapest lives, and no prices that prove too much."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds import beginning, closed_form_bounds
from infermax_opt.infermax.bounds.beginning import (
    BEGINNING,
    Search,
    beginning_batches,
    beginning_bound,
    cheapest_life,
)
from infermax_opt.infermax.bounds.closed_form import counted_bound
from infermax_opt.infermax.bounds.release_runs import rests
from infermax_opt.infermax.bounds.releases import SCALE, released_batches
from infermax_opt.infermax.checker import Rejected
from infermax_opt.infermax.data.instance import Instance, Policy
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_many_bounds import shown, submitted
from tests.infermax.test_releases import several
from tests.support import case, check_evidence


def by_enumeration(inputs: int, outputs: int, rest: list[int], kv: list[int], worth: int | None) -> int:
    """The docstring's lives, one after the other."""

    @cache
    def least(t: int, made: int, there: bool) -> int:
        if t == len(kv):
            return rest[made]
        if made == outputs:
            return 0
        held = inputs + made - 1
        ways = [kv[t] * (held + 1) + least(t + 1, made + 1, True)]
        if not there:
            return min(*ways, least(t + 1, made, False))
        ways.append(kv[t] * held + least(t + 1, made, True))
        if worth is not None:
            ways.append(worth * held + least(t, made, False))
        return min(ways)

    return least(0, 0, False)


@in_blocks(campaign(200, 5_000), 100)
def test_the_cheapest_life_is_the_cheapest_of_all(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        i, o = rng.randint(1, 5), rng.randint(1, 8)
        rest = [rng.randint(-9, 99) for _ in range(o)] + [0]
        kv = [rng.randint(0, 9) for _ in range(rng.randint(0, 8))]
        worth = rng.choice([None, 0, rng.randint(1, 30)])
        assert cheapest_life(i, o, rest, kv, worth) == by_enumeration(i, o, rest, kv, worth), seed


@in_blocks(campaign(40, 5_000), 100)
def test_never_above_the_optimum(seeds: range) -> None:
    """Nor is what other prices prove."""
    found = stronger = tried = 0
    for seed in seeds:
        instance, rng = several(seed), random.Random(seed)
        best, bound = optimum(instance), beginning_bound(instance)
        if bound is not None:
            found += 1
            assert bound.value <= best, seed
            assert check_evidence(instance, bound) == bound.value, seed
            stronger += bound.value > max(other.value for other in closed_form_bounds(instance))
        longest = max(group.output_tokens for group in instance.groups)
        for _ in range(8):
            kv = [rng.choice([0, SCALE, rng.randint(0, 4 * SCALE)]) for _ in range(rng.randint(0, longest))]
            kv, piece = rng.choice([kv, sorted(kv)]), rng.randrange(len(instance.cost.batch))
            other = at_prices(instance, piece, rng.choice([0, rng.randint(0, 2 * SCALE)]), kv)
            if other is not None:
                tried += 1
                assert other.value <= best, seed
                assert check_evidence(instance, other) == other.value, seed
    assert found
    assert stronger
    assert tried > 50


def with_cut(instance: Instance, cut: dict[str, Any], value: Fraction) -> LowerBound:
    """A claim that these prices prove a value."""
    (bound,) = (bound for bound in closed_form_bounds(instance) if bound.source == "KV releases")
    assert bound.evidence is not None
    evidence = {**bound.evidence, "argument": BEGINNING, "cut": cut}
    return replace(bound, source=BEGINNING, value=value, evidence=evidence)


def at_prices(instance: Instance, piece: int, price: int, kv: list[int]) -> LowerBound | None:
    """What these prices prove."""

    def argument(rows: Sequence[tuple[int, int, int]], worth: int | None) -> tuple[int, Any]:
        most = price if worth is None else min(price, worth)
        search = Search(rows, instance.system.kv_capacity, worth, most)
        return search.batches(kv), {"price": most, "kv": kv}

    return counted_bound(instance, BEGINNING, piece, argument)


def test_without_first_batches_it_proves_what_releases_do() -> None:
    for policy in (Policy(), Policy(True, True, False)):
        instance = replace(case(9, 3, 40, 100), policy=policy)
        (known,) = (bound for bound in closed_form_bounds(instance) if bound.source == "KV releases")
        assert known.evidence is not None
        more = at_prices(instance, 0, known.evidence["cut"], [])
        assert more is not None
        assert check_evidence(instance, more) == more.value >= known.value


def test_memory_fills_slowly_at_the_beginning() -> None:
    """Ten requests of 1 + 40 tokens, room for 100: two fit at their end, and nobody ends in 40 batches."""
    instance = replace(case(10, 1, 40, 100), policy=Policy(True, True, False))
    bound = beginning_bound(instance)
    assert bound is not None
    (known,) = (other for other in closed_form_bounds(instance) if other.source == "KV releases")
    assert bound.value > known.value
    assert check_evidence(instance, bound) == bound.value


def test_it_ends_where_it_is_told_to() -> None:
    rows = [(1, 40, 10)]
    assert beginning_batches(rows, 100, None, lambda: True)[1]["kv"] == []
    batches, cut = beginning_batches(rows, 100, None, lambda: False)
    assert batches > released_batches(rows, 100)[0]
    assert set(cut) == {"price", "kv"}


def test_without_waste_between_releases_there_is_none() -> None:
    assert beginning_batches([(1, 1, 5)], 100, None, lambda: False) == (0, {})
    assert beginning_bound(case(5, 1, 1, 100)) is None


def test_compiled_lives_are_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(2, 30, 12), (5, 9, 4)]
    for worth in (None, 20 * SCALE):
        monkeypatch.setattr(beginning, "FEW", 10**9)
        plain = beginning_batches(rows, 90, worth, lambda: False)
        monkeypatch.setattr(beginning, "FEW", 0)
        assert beginning_batches(rows, 90, worth, lambda: False) == plain


@in_blocks(campaign(200, 5_000), 100)
def test_the_rest_is_that_of_the_cheapest_runs(seeds: range) -> None:
    """Of any length, which may be more than evictions would allow to save."""
    for seed in seeds:
        rng = random.Random(seed)
        sizes = [(rng.randint(1, 9), rng.randint(1, 25)) for _ in range(rng.randint(1, 3))]
        price = rng.choice([0, rng.randint(0, SCALE), rng.randint(0, 9 * SCALE)])
        worth = rng.choice(
            [None, price, price + rng.randint(0, 4 * SCALE), price + rng.randint(0, 30 * SCALE)]
        )
        capacity = rng.randint(30, 50)
        for (i, o), row in zip(sizes, rests(sizes, capacity, price, worth), strict=True):
            horizon = 10**9 if worth is None else (worth - price) // SCALE
            least = [0]
            for n in range(o - 1, -1, -1):
                ways = []
                for g in range(1, o - n + 1):
                    wasted = SCALE * sum(min(p, horizon) for p in range(g))
                    ways.append(wasted + price * (i + n + g - 1) + least[g - 1])
                least.insert(0, min(ways))
            held = [SCALE * sum(range(i + n, i + o)) for n in range(o)]
            counted = [kv + waste - price * capacity for kv, waste in zip(held, least, strict=False)]
            assert row == [*counted, 0], seed


def test_it_proves_no_less_than_releases() -> None:
    rows = [(3, 60, 50), (9, 200, 20)]
    for worth in (None, 40 * SCALE):
        before, price = released_batches(rows, 900, worth)
        assert Search(rows, 900, worth, price).batches([]) >= before


@pytest.mark.parametrize(
    "cut",
    [
        {"price": 10**12, "kv": []},
        {"price": 0, "kv": [-1]},
        {"price": 0, "kv": ["1"]},
        {"price": 0, "kv": [0] * 100},
        {"price": 0, "kv": [0] * 70_000},
        {"price": 0},
        7,
    ],
)
def test_other_cuts_are_refused(cut: Any) -> None:
    instance = case(9, 3, 4, 12)
    with pytest.raises(Rejected, match="cut"):
        submitted(shown(instance), instance, with_cut(instance, cut, Fraction(1)))


def test_a_bound_is_counted_for_the_piece_that_it_is_best_for() -> None:
    instance = case(9, 3, 4, 12)
    assert counted_bound(instance, "x", 0, lambda rows, worth: (0, None)) is None
    found = counted_bound(instance, "KV beginning", 0, lambda rows, worth: (10**4, {"price": 0, "kv": []}))
    assert found is not None
    assert found.value > 10**4 * instance.cost.batch[0][0]


def test_who_comes_later_is_of_no_other_kind() -> None:
    """A checker looks at each kind once, whenever its requests arrive."""
    one = replace(case(100, 1, 300, 3000), policy=Policy(True, True, False)).groups[0]
    groups = tuple(replace(one, id=f"r{k}", count=1, arrival=Fraction(k, 10**9)) for k in range(100))
    instance = replace(case(100, 1, 300, 3000), groups=groups)
    bound = beginning_bound(instance)
    assert bound is not None
    assert check_evidence(instance, bound) == bound.value


def test_many_kinds_are_left_out() -> None:
    rows = [(k, 60, 1) for k in range(1, 66)]
    assert beginning_batches(rows, 300, None, lambda: False) == (0, {})
    assert beginning_batches(rows[:2], 300, None, lambda: False)[0] > 0
