"""Limits of workers and the check of placements, against arithmetic from the definitions."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.placement.data.instance import PlacementGroup, PlacementInstance, Slo, Worker
from infermax_opt.placement.data.limits import Limit, Limits, kv_peak
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.replay.check import PlacementRule, check_placement
from tests.placement.oracle import broken, kv_at, kv_most, tiny_placement

LETTERS = {
    PlacementRule.ITERATION: "b",
    PlacementRule.PREFILL: "c",
    PlacementRule.SAVED_TIME: "d",
    PlacementRule.KV: "e",
}


def make(groups, *, kv="1000", ttft="100", atgt="100", coefficients=(1, 0, 0, 0, 0, 0, 0), **options):
    worker = Worker(Fraction(kv), *(Fraction(c) for c in coefficients))
    return PlacementInstance(
        "hand", tuple(PlacementGroup(*some) for some in groups), worker, Slo(Fraction(ttft), Fraction(atgt)),
        **options,
    )  # fmt: skip


def rules(instance: PlacementInstance, workers: dict[str, int]) -> set[tuple[int | None, str]]:
    found = check_placement(instance, Placement(instance.name, workers))
    assert found.valid == (not found.violations)
    return {(some.worker, LETTERS.get(some.rule, some.rule.value)) for some in found.violations}


@pytest.mark.parametrize("seed", range(400))
def test_check_against_the_definitions(seed: int) -> None:
    rng = random.Random(seed)
    instance = tiny_placement(rng)
    numbers = rng.sample(range(1, 7), 3)
    workers = {r.id: rng.choice(numbers) for r in instance.requests if r.worker is None}
    expected = set()
    for number in numbers:
        new = [r for r in instance.requests if workers.get(r.id) == number]
        ongoing = [r for r in instance.requests if r.worker == number]
        for letter in broken(instance, new, ongoing, instance.busy.get(number, Fraction(0))):
            expected.add((number, letter))
    found = rules(instance, workers)
    # d is checked where it asks for less than c; where both are broken, c says so.
    both = {(number, "d") for number, letter in expected if letter == "c"}
    assert found - both == expected - both
    in_use = set(workers.values()) | instance.in_use
    assert check_placement(instance, Placement("tiny", workers)).workers == len(in_use)


def test_peaks_at_finishing_times_are_those_at_any_time() -> None:
    rng = random.Random(1)
    for _ in range(1500):
        instance = tiny_placement(rng)
        limits = Limits.of(instance)
        members = rng.sample(range(len(instance.requests)), rng.randint(1, len(instance.requests)))
        most = kv_most(instance, [instance.requests[k] for k in members])
        assert Fraction(limits.kv_peak(members), limits.kv_scale) == most


def test_peak_of_nothing_and_of_equal_ends() -> None:
    assert kv_peak([], 1) == 0
    assert kv_peak([(4, 2), (3, 2)], 1) == 11
    # 4 + 3 at first, then only one is there: 4 + 5.
    assert kv_peak([(4, 5), (3, 0)], 1) == 9
    assert kv_peak([(4, 5), (6, 0)], 1) == 10
    assert kv_peak([(4, 5), (6, 9)], 0) == 10


def figure_3(kv: str) -> PlacementInstance:
    """Two long prompts and two long outputs; two of a kind together hold 10, one of each 7."""
    return make([("p1", 4, 1), ("p2", 4, 1), ("o1", 1, 4), ("o2", 1, 4)], kv=kv)


def test_figure_3() -> None:
    instance = figure_3("9")
    same, mixed = {"p1": 1, "p2": 1, "o1": 2, "o2": 2}, {"p1": 1, "o1": 1, "p2": 2, "o2": 2}
    assert rules(instance, same) == {(1, "e"), (2, "e")}
    assert rules(instance, mixed) == set()
    assert rules(figure_3("7"), mixed) == set()
    assert rules(figure_3("6"), mixed) == {(1, "e"), (2, "e")}
    assert rules(figure_3("10"), same) == set()
    (first, _) = check_placement(instance, Placement("hand", same)).violations
    assert str(first) == "worker 1: kv: limit e: 10 of KV where 9 of KV are allowed"


def test_iteration_time() -> None:
    # k2 = 0.1, c2 = 2, c3 = 3; theta = 1/2, gamma = 1/2.
    groups = [("a", 10, 20), ("b", 10, 20)]
    coefficients = (0, 0, 0, 0, "0.1", "2", "3")
    options = {"theta": Fraction(1, 2), "gamma": Fraction(1, 2), "coefficients": coefficients}
    # One: 0.1 (10 + 10) + 1 = 3 <= (T - 3) / 2; two: 6.
    assert rules(make(groups, atgt="9", **options), {"a": 1, "b": 2}) == set()
    assert rules(make(groups, atgt="8.99", **options), {"a": 1, "b": 2}) == {(1, "b"), (2, "b")}
    assert rules(make(groups, atgt="15", **options), {"a": 1, "b": 1}) == set()
    assert rules(make(groups, atgt="14.99", **options), {"a": 1, "b": 1}) == {(1, "b")}


def test_prefill_and_saved_time() -> None:
    # k1 = 0.5, c1 = 1: a and b take 6 together, 4 and 3 by themselves.
    coefficients = (0, 0, "0.5", "1", 0, 0, 0)
    groups = [("a", 6, 1), ("b", 4, 1)]
    assert rules(make(groups, ttft="6", coefficients=coefficients), {"a": 1, "b": 1}) == set()
    assert rules(make(groups, ttft="5.9", coefficients=coefficients), {"a": 1, "b": 1}) == {(1, "c")}
    # o has saved 2 * 5 - 4.5 = 5.5 s, of which half may be used, p has saved 3 * 2 - 0.
    ongoing = [("o", 5, 9, None, 5, "4.5", 1), ("p", 5, 9, None, 3, "0", 1), ("q", 5, 9, None, 3, "0", 2)]
    plain = make([*groups, *ongoing], atgt="2", coefficients=coefficients)
    assert rules(plain, {"a": 1, "b": 2}) == set()
    assert rules(plain, {"a": 1, "b": 1}) == {(1, "d")}
    half = replace(plain, theta=Fraction(1, 2))
    assert rules(half, {"a": 1, "b": 2}) == {(1, "d")}
    assert rules(half, {"a": 2, "b": 1}) == {(2, "d"), (1, "d")}
    assert rules(half, {"a": 3, "b": 4}) == set()
    assert check_placement(half, Placement("hand", {"a": 3, "b": 4})).workers == 4


def test_what_ongoing_requests_break_by_themselves_is_no_violation() -> None:
    instance = make([("a", 1, 1), ("o", 50, 9, None, 3, "1", 7)], kv="40")
    assert rules(instance, {"a": 1}) == set()
    assert rules(instance, {"a": 7}) == {(7, "e")}
    none_saved = make([("a", 1, 1), ("o", 5, 9, None, 0, "0", 7)], coefficients=(1, 0, 0, 0, 0, 0, 0))
    assert rules(none_saved, {"a": 7}) == set(), "a prefill that takes no time"
    late = make([("a", 1, 1), ("o", 5, 9, None, 1, "101", 7)], coefficients=(1, 0, 0, 0, 0, 0, 0))
    assert rules(late, {"a": 7}) == {(7, "d")}


def test_horizon() -> None:
    groups = [("a", 5, 10), ("b", 5, 10)]
    assert rules(make(groups, kv="19"), {"a": 1, "b": 1}) == {(1, "e")}
    assert rules(make(groups, kv="10", horizon=1), {"a": 1, "b": 1}) == set()
    assert rules(make(groups, kv="11", horizon=2), {"a": 1, "b": 1}) == {(1, "e")}
    assert rules(make(groups, kv="12", horizon=2), {"a": 1, "b": 1}) == set()


def test_ongoing_requests_hold_what_they_have_generated() -> None:
    instance = make([("a", 1, 1), ("o", 5, 4, None, 6, "0", 1)])
    (a, o) = instance.requests
    # o is over what was predicted: it may end at once, and holds 11 until then.
    assert [kv_at(instance, o, k) for k in range(3)] == [11, 0, 0]
    assert [kv_at(instance, a, k) for k in range(3)] == [1, 2, 0]
    limits = Limits.of(instance)
    assert limits.kv_peak([0, 1]) == 12
    assert limits.excesses([0], 1) == []
    tight = Limits.of(replace(instance, worker=replace(instance.worker, kv_capacity=Fraction(11))))
    (excess,) = tight.excesses([0], 1)
    assert (excess.limit, excess.need, excess.most) == (Limit.KV, 12, 11)


def test_rules_of_placements() -> None:
    instance = make([("a", 1, 1), ("b", 1, 1), ("o", 5, 9, None, 3, "1", 2)])
    assert rules(instance, {"a": 1}) == {(None, "not_placed")}
    assert rules(instance, {"a": 1, "b": 1, "o": 2}) == set()
    assert rules(instance, {"a": 1, "b": 1, "o": 1}) == {(1, "moved")}
    assert rules(instance, {"a": 1, "b": 1, "z": 1}) == {(None, "unknown_request")}
    assert check_placement(instance, Placement("hand", {"a": 5, "b": 2})).workers == 2
    for bad in (0, -1, 1.5, "x", None, True):
        with pytest.raises(InputError, match=r"workers\.a"):
            Placement("hand", {"a": bad})
    with pytest.raises(InputError, match="workers"):
        Placement("hand", ["a"])
