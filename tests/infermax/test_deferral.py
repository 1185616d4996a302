"""The deferral bound: against optima of tiny instances at any prices and shares, and its certificate."""

from __future__ import annotations

import json
import random
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.checking import work
from infermax_opt.core.deadline import Deadline
from infermax_opt.infermax.bounds import _deferral_lives, _deferral_search
from infermax_opt.infermax.bounds import _kernels_deferral_exact as kernels
from infermax_opt.infermax.bounds._deferral_lives import Waits
from infermax_opt.infermax.bounds._deferral_search import PARTS, Choices
from infermax_opt.infermax.bounds.deferral import GROUPS, DeferralProof, deferral_bound
from infermax_opt.infermax.bounds.interaction import Prices
from infermax_opt.infermax.bounds.lingering import lingering_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import shown
from tests.infermax.test_lingering import horizon
from tests.infermax.test_pace import burst, crowd, dear, instance
from tests.support import certificate_to_json, check_evidence

ONE = 2**12
SHARE = 2**10
TICK = Fraction("0.00001")
#: Weights of a request.
WEIGHTS = PARTS * (len(_deferral_search.AGES) + 1)


def visitors(seed: int) -> Instance:
    """One or two that decode for long, and prompts that come meanwhile, some of them at once."""
    rng = random.Random(seed)
    long = rng.choice([4, 6, 8])
    groups = [RequestGroup("a", rng.choice([1, 2]), long, 0)]
    if rng.random() < 0.4:
        groups.append(RequestGroup("b", 1, rng.choice([3, 5]), TICK * rng.choice([0, 3, 20])))
    for k in range(rng.choice([1, 2, 2, 3]) if len(groups) == 1 else 1):
        late = TICK * Fraction(rng.choice([1, 15, 30, 45, 60, 99]), rng.choice([1, 1, 4]))
        groups.append(RequestGroup(f"v{k}", rng.choice([1, 2, 4]), rng.choice([1, 1, 2]), late))
    alpha, beta, d0, d1 = (TICK * rng.randint(0, some) for some in (6, 12, 4, 2))
    p0, p1 = TICK * rng.choice([0, 0, 3, 20]), TICK * rng.randint(0, 4)
    cost = CostModel([(alpha + TICK, beta)], (d0, d1), (p0, p1), rng.choice(["square", "exact"]))
    policy = Policy(rng.random() < 0.8, rng.random() < 0.5, rng.random() < 0.4)
    system = System(rng.choice([12, 30]), rng.choice([4, 50]), 50, None, rng.choice([1, 1, 2]))
    return Instance(f"visitors-{seed}", tuple(groups), system, cost, policy, Objective.of("mean_e2e"))


def some(seed: int) -> Instance:
    """Of all families by turns."""
    return (instance, visitors, dear, visitors, burst)[seed % 5](seed)


def levels_of(cells: int, rng: random.Random) -> list[tuple[int, int]]:
    """Any roots of levels, for some cells each."""
    runs, left = [], cells
    while left and (not runs or rng.random() < 0.7):
        many = rng.randint(1, left)
        runs.append((rng.choice([16, 17, 18, rng.randint(16, 50)]), many))
        left -= many
    return runs


def anything(proof: DeferralProof, span: int, rng: random.Random) -> Choices:
    """Prices, ages, stays, shares, weights and levels at random, on few cells or many."""
    ends = sorted({rng.randint(1, span) for _ in range(rng.choice([1, 3, 8, 40]))})
    if rng.random() < 0.3:
        ends = sorted({span * k // 60 + 1 for k in range(60)})
    root = proof.prices.step**0.5 * ONE
    top, shape = rng.choice([0, 0.2, 0.5, 1, 2]) * rng.random() * root, rng.randint(0, 2)
    roots = [int(top * (1, rng.random(), 1 - k / len(ends))[shape]) for k in range(len(ends))]
    ages = sorted({rng.randint(1, span) for _ in range(rng.choice([0, 1, 3]))})
    number = PARTS * (len(ages) + 1)
    stays, shares, weights, levels = [], [], [], []
    way = rng.random()
    for member in proof.members:
        alone = member.first + member.later
        stays.append(max(1, int(rng.choice([alone, span]) * rng.choice([0.1, 0.5, 1, 2]) * rng.random() * 2)))
        shares.append(rng.choice([0, SHARE, rng.randint(0, SHARE), rng.randint(0, 300)]))
        mine = [rng.choice([0, 1, rng.randint(0, 999)]) for _ in range(number)]
        weights.append([1] * number if way < 0.4 else mine)
        levels.append(levels_of(len(ends), rng))
    return Choices(list(zip(ends, roots, strict=True)), ages, stays, shares, weights, levels)


def proof_of(of: Instance, piece: int = 0, groups: int = GROUPS) -> DeferralProof | None:
    prices = Prices.of(of, piece)
    return None if prices is None else DeferralProof(of, prices, groups)


@in_blocks(campaign(30, 10_000), 60)
def test_nothing_proves_more_than_the_optimum(seeds: range) -> None:
    better = 0
    for seed in seeds:
        of, rng = some(seed), random.Random(seed)
        if of.offline:
            continue
        found = staged_search(of)
        assert found.upper is not None
        for piece in range(len(of.cost.batch)):
            proof = proof_of(of, piece, rng.choice([1, 2, 8]))
            if proof is None:
                continue
            span = horizon(of, found.upper)
            made = [proof.bound(anything(proof, span, rng)) for _ in range(12)]
            for bound in made:
                assert bound.value <= found.upper, seed
                assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed
            better += max(bound.value for bound in made) > found.upper / 2
    assert better > len(seeds) // 4


def moved(choices: Choices, root: float, rng: random.Random) -> Choices:
    """The same but for prices of some cells in a row, or something of one request."""
    i, way = rng.randrange(len(choices.stays)), rng.randrange(4)
    if way < 2:
        cells = list(choices.cells)
        first, up = rng.randrange(len(cells)), int(rng.uniform(-0.5, 0.7) * root)
        for k in range(first, min(len(cells), first + rng.choice([1, 2, 5, 40]))):
            cells[k] = cells[k][0], max(0, cells[k][1] + up)
        return choices._replace(cells=cells)
    changed = Choices(choices.cells, choices.ages, *(list(column) for column in choices[2:]))
    if way == 2:
        changed.stays[i] = max(1, int(changed.stays[i] * rng.choice([0.5, 0.8, 1.25, 2])))
        changed.weights[i] = [rng.choice([weight, 0, 1, 3, 10]) for weight in changed.weights[i]]
    else:
        changed.shares[i] = min(SHARE, max(0, changed.shares[i] + rng.randint(-200, 200)))
        changed.levels[i] = levels_of(len(choices.cells), rng)
    return changed


@in_blocks(campaign(10, 3_000), 10)
def test_nor_do_choices_that_were_made_better_step_by_step(seeds: range) -> None:
    for seed in seeds:
        of, rng = some(seed), random.Random(seed)
        found, proof = staged_search(of), proof_of(of)
        if of.offline or proof is None:
            continue
        assert found.upper is not None
        root, choices = proof.prices.step**0.5 * ONE, anything(proof, horizon(of, found.upper), rng)
        best = proof.bound(choices)
        for _ in range(200):
            other = moved(choices, root, rng)
            bound = proof.bound(other)
            assert bound.value <= found.upper, seed
            if bound.value >= best.value:
                best, choices = bound, other
        assert best.value <= 0 or check_evidence(of, best) == best.value, seed


@in_blocks(campaign(15, 3_000), 15)
def test_the_best_choices_prove_no_more_than_the_optimum(seeds: range) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_deferral_search, "CELLS", 60)
        patch.setattr(_deferral_search, "ROUNDS", 40)
        patch.setattr(_deferral_search, "APART", 0.2)
        for seed in seeds:
            of = some(seed)
            found = staged_search(of)
            assert found.upper is not None
            bound = deferral_bound(of)
            if bound is None:
                assert of.offline or not any(Prices.of(of, k) for k in range(len(of.cost.batch)))
                continue
            assert bound.value <= found.upper, seed
            assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed


def visited(count: int = 40) -> Instance:
    """Equal requests that decode for long, at equal intervals: their prompts take half of the time."""
    groups = tuple(RequestGroup(f"r{k}", 20, 20, k * Fraction("0.02")) for k in range(count))
    cost = CostModel([("0.01", "0.0005")], ("0", "0"), ("0", "0"))
    return Instance("visited", groups, System(9000, 100, 100), cost, Policy(), Objective.of("mean_e2e"))


def found_for(of: Instance) -> tuple[DeferralProof, Choices, Fraction]:
    """The proof, what the search chooses, and what that proves."""
    bound, proof = deferral_bound(of), proof_of(of)
    assert bound is not None
    assert proof is not None
    evidence = bound.evidence or {}
    fields = (evidence[key] for key in ("cells", "ages", "stays", "shares", "weights", "levels"))
    return proof, Choices(*fields), bound.value


def test_it_sees_the_prompts_of_others() -> None:
    of = visited()
    bound, other = deferral_bound(of), lingering_bound(of)
    assert bound is not None
    assert other is not None
    assert bound.value > other.value * Fraction(104, 100)
    assert check_evidence(of, bound) == bound.value


def test_without_weights_prompts_are_not_seen() -> None:
    proof, choices, value = found_for(visited())
    nothing = [[0] * len(row) for row in choices.weights]
    assert proof.bound(choices._replace(weights=nothing)).value < value * Fraction(98, 100)


def test_weights_of_every_age_count() -> None:
    proof, choices, value = found_for(visited())
    for age in range(len(choices.ages) + 1):
        without = [[0 if k // PARTS == age else w for k, w in enumerate(row)] for row in choices.weights]
        assert proof.bound(choices._replace(weights=without)).value < value * Fraction(99, 100)


def test_weights_count_only_beside_each_other() -> None:
    """A wait is shared out by parts of all weights: twice the same weights are worth the same."""
    proof, choices, value = found_for(visited())
    double = [[2 * weight for weight in row] for row in choices.weights]
    assert abs(proof.bound(choices._replace(weights=double)).value - value) < Fraction(1, 10**8)


def test_all_requests_count_in_any_order() -> None:
    of = visited()
    turned = replace(of, groups=tuple(reversed(of.groups)))
    _, choices, value = found_for(of)
    again = proof_of(turned)
    assert again is not None
    back = Choices(choices.cells, choices.ages, *(list(reversed(column)) for column in choices[2:]))
    assert again.bound(back).value == value
    assert check_evidence(turned, again.bound(back)) == value


def test_equal_requests_count_as_often_as_they_are() -> None:
    one = visited(12)
    twice = replace(one, groups=tuple(replace(group, count=2) for group in one.groups))
    apart = replace(
        one,
        groups=tuple(replace(g, id=f"{g.id}{k}") for g in one.groups for k in "ab"),
    )
    bound = deferral_bound(twice)
    assert bound is not None
    assert check_evidence(twice, bound) == bound.value
    other = deferral_bound(apart)
    assert other is not None
    assert other.value == bound.value


def test_sums_of_two_parts_are_what_whole_numbers_say() -> None:
    def pair(number: int) -> tuple[int, int]:
        return number >> kernels.LIMB, number & (1 << kernels.LIMB) - 1

    rng = random.Random(5)
    for _ in range(3000):
        one, other = (rng.choice([-1, 0, 1]) * rng.getrandbits(rng.randint(1, 74)) for _ in range(2))
        sign, part = rng.choice([-1, 1]), rng.randrange(1 << kernels.PART_BITS)
        assert kernels.add(pair(one), pair(other), sign) == pair(one + sign * other)
        assert kernels.less(pair(one), pair(other)) == (one < other)
        assert not kernels.less(pair(one), pair(one))
        assert kernels.scaled(pair(one), part) == pair((one >> kernels.PART_BITS) * part)
        number, factor = rng.getrandbits(61), rng.getrandbits(32)
        assert kernels.product(number, factor) == pair(number * factor)


@pytest.mark.parametrize("fine", [0, 13, 17])
def test_all_ways_of_counting_agree(fine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of 64 bits, where they are enough, and numbers of any size, for ticks of any size."""
    of = visited()
    batch = of.cost.batch[0][0] + Fraction(1, 10**fine), of.cost.batch[0][1]
    of = replace(of, cost=replace(of.cost, batch=(batch,)))
    proof, choices, value = found_for(of)
    waits = Waits(proof.members, choices, proof.prices.step)
    assert waits.dtype == (np.int64 if fine < 17 else np.object_)
    assert check_evidence(of, proof.bound(choices)) == value
    monkeypatch.setattr(_deferral_lives, "SMALL", 0)
    assert Waits(proof.members, choices, proof.prices.step).dtype == np.object_
    assert proof.bound(choices).value == value


def test_where_checking_takes_long_stays_are_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    _, long, most = found_for(visited())
    monkeypatch.setattr(_deferral_search, "MAX_STEPS", 300_000)
    _, short, value = found_for(visited())
    assert 0.3 < sum(short.stays) / sum(long.stays) < 0.7
    assert value > most * Fraction(9, 10)


def test_the_search_ends_before_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    deferral_bound(crowd(4))  # compiles
    monkeypatch.setattr(_deferral_search, "ROUNDS", 10**6)
    monkeypatch.setattr(_deferral_search, "LEAST_LENGTH", 0.0)
    begin = time.monotonic()
    assert deferral_bound(crowd(), stop=Deadline(5)) is not None
    assert time.monotonic() - begin < 5


def test_checking_takes_so_many_steps_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_deferral_search, "FEW_CELLS", 1)
    fine = deferral_bound(visited())
    monkeypatch.setattr(_deferral_search, "MAX_STEPS", 150_000)
    coarse = deferral_bound(visited())
    assert fine is not None
    assert coarse is not None
    assert len(coarse.evidence["cells"]) < len(fine.evidence["cells"])  # type: ignore[index]
    monkeypatch.setattr(_deferral_search, "MAX_STEPS", 0)
    assert deferral_bound(visited()) is None


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("cells", [[5, 1], [5, 1]], "their ends do not rise"),
        ("cells", [[5, -1]], "a root is below 0"),
        ("cells", [], "there are none"),
        ("ages", [0], "they do not rise from above 0 on"),
        ("ages", [5, 5], "they do not rise from above 0 on"),
        ("ages", list(range(1, 18)), "there are more than 16"),
        ("stays", [0], "wrong length of a list"),
        ("stays", [0] * 40, "one is below 1"),
        ("shares", [-1] * 40, "one is not from 0 to 1024"),
        ("shares", [1025] * 40, "one is not from 0 to 1024"),
        ("weights", [[1] * 14] * 40, "wrong length of a list"),
        ("weights", [[1] * 15] * 40, "wrong length of a list"),
        ("weights", [[-1] * WEIGHTS] * 40, "one is out of range"),
        ("weights", [[1] * WEIGHTS], "not as many as kinds"),
        ("levels", [[[16, 1]]], "not as many as kinds"),
        ("levels", [[]] * 40, "a request has none"),
        ("levels", [[[15, 1]]] * 40, "a root is not from 16 to 1024"),
        ("levels", [[[1025, 1]]] * 40, "a root is not from 16 to 1024"),
        ("levels", [[[16, 0]]] * 40, "a number of cells is out of range"),
        ("levels", [[[16, 10**9]]] * 40, "a number of cells is out of range"),
        ("groups", 0, "groups"),
        ("groups", 10**6, "groups"),
    ],
)
def test_evidence_that_is_none(key: str, value: object, fault: str) -> None:
    of = visited()
    bound = deferral_bound(of, stop=lambda: True)
    assert bound is not None
    evidence = {**(bound.evidence or {}), key: value}
    certificate = certificate_to_json(of, replace(bound, evidence=evidence))
    with pytest.raises(Rejected, match=fault):
        check(shown(of), json.loads(json.dumps(certificate)))


@pytest.mark.parametrize(("share", "stay"), [(0, 10**12), (1, 1)])
def test_a_checker_ends_soon_on_more_cells_than_it_has_time_for(
    share: int, stay: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "MAX_STEPS", 10**7)
    of = visited()
    bound = deferral_bound(of, stop=lambda: True)
    assert bound is not None
    cells, many = [[1000 * k, 10**6 - k] for k in range(1, 200_000)], len(of.groups)
    evidence = {
        **(bound.evidence or {}), "cells": cells, "groups": 64, "stays": [stay] * many,
        "shares": [share] * many, "levels": [[[16, len(cells)]]] * many, "weights": [[1] * WEIGHTS] * many,
    }  # fmt: skip
    certificate = json.loads(json.dumps(certificate_to_json(of, replace(bound, evidence=evidence))))
    begin = time.process_time()
    with pytest.raises(work.Exhausted):
        check(shown(of), certificate)
    assert time.process_time() - begin < 10


def test_where_a_decode_takes_no_time_there_is_none() -> None:
    of = crowd()
    free = CostModel([("0", "0.001")], ("0", "0"), ("0.5", "0"))
    assert deferral_bound(replace(of, cost=free)) is None
    together = tuple(replace(group, arrival=Fraction(0)) for group in of.groups)
    assert deferral_bound(replace(of, groups=together)) is None
    assert deferral_bound(replace(of, policy=Policy(True, True, False))) is not None
