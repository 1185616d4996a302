"""The pace bound: against optima of tiny instances at any prices of time, and its certificate."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds import _pace_search
from infermax_opt.infermax.bounds.pace import ONE, PaceProof, pace_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.data.requests import ServiceLevel
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import shown
from tests.infermax.test_mutual import company
from tests.infermax.waiting import waiting
from tests.support import certificate_to_json, check_evidence

#: Cells, own numbers of the kinds, and members.
Evidence = tuple[list[tuple[int, int]], list[int], list[tuple[int, int]]]


def instance(seed: int) -> Instance:
    """One where requests delay each other, or one where it may be worth waiting; arrivals in both."""
    return replace(waiting(seed), objective=Objective.of("mean_e2e")) if seed % 3 == 0 else company(seed)


def any_prices(of: Instance, proof: PaceProof, span: int, rng: random.Random) -> Evidence:
    """Prices of time at random: of any size, on few cells, rising, falling, or all the same."""
    ends = sorted({rng.randint(1, span) for _ in range(rng.randint(1, 8))})
    top = rng.choice([0, 0.2, 0.5, 1, 2])
    same = rng.random()
    roots = [int(ONE * top * (same if rng.random() < 0.5 else rng.random())) for _ in ends]
    own = [int(ONE * top * rng.choice([same, rng.random(), 2])) for _ in proof.counts]
    members = [
        (
            int(ONE * rng.choice([0, 0.5, 0.9, 1, 1.1, 2 * rng.random()])),
            int(ONE * rng.choice([0, 0.7, 1, 1.5])),
        )
        for _ in range(rng.randint(1, 5))
    ]
    return list(zip(ends, roots, strict=True)), own, members


@in_blocks(campaign(36, 5_000), 60)
def test_no_prices_prove_more_than_the_optimum(seeds: range) -> None:
    better = 0
    for seed in seeds:
        of, rng = instance(seed), random.Random(seed)
        if of.offline:
            continue
        found = staged_search(of)
        assert found.upper is not None
        for piece in range(len(of.cost.batch)):
            proof = PaceProof.of(of, piece)
            if proof is None:
                continue
            span = int(found.upper * of.cost.ticks_per_second * 2) + 8
            plain = proof.bound([], [0] * len(proof.counts), [(ONE, 0)])
            made = [proof.bound(*any_prices(of, proof, span, rng)) for _ in range(6)]
            for bound in [plain, *made]:
                assert bound.value <= found.upper, seed
                assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed
            better += max(bound.value for bound in made) > plain.value
    assert better > len(seeds) // 8


@in_blocks(campaign(14, 3_000), 12)
def test_the_best_prices_prove_no_more_than_the_optimum(seeds: range) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pace_search, "CELLS", 30)
        patch.setattr(_pace_search, "ROUNDS", 40)
        for seed in seeds:
            of = instance(seed)
            found = staged_search(of)
            assert found.upper is not None
            bound = pace_bound(of)
            if bound is None:
                assert of.offline or not any(PaceProof.of(of, k) for k in range(len(of.cost.batch)))
                continue
            assert bound.value <= found.upper, seed
            assert bound.value <= 0 or check_evidence(of, bound) == bound.value, seed


def crowd(count: int = 30, apart: str = "0.02") -> Instance:
    """Equal requests that come at equal intervals: fifteen together, each of 20 tokens."""
    groups = tuple(RequestGroup(f"r{k}", 1, 20, k * Fraction(apart)) for k in range(count))
    cost = CostModel([("0.01", "0.0005")], ("0", "0"), ("0", "0"))
    system = System(1000, 100, 100, None, 1)
    return Instance("crowd", groups, system, cost, Policy(), Objective.of("mean_e2e"))


def test_batches_that_are_shared_are_seen() -> None:
    of = crowd()
    bound = pace_bound(of)
    assert bound is not None
    # Alone a request takes 20 batches of 0.0105; at this rate the batches of a fluid take 0.01 / (1 - 0.5).
    assert 20 * Fraction("0.0105") * Fraction(6, 5) < bound.value < 20 * Fraction("0.02")
    assert check_evidence(of, bound) == bound.value


def test_prompts_pay_for_their_work() -> None:
    # If a request could stay in its prompt for nothing and wait there for cheap moments: 0.315.
    of = crowd()
    long = replace(of, groups=tuple(replace(group, input_tokens=10) for group in of.groups))
    bound = pace_bound(long)
    assert bound is not None
    assert bound.value > Fraction("0.335")
    assert check_evidence(long, bound) == bound.value


def test_alone_it_is_the_fixed_part_of_all_batches() -> None:
    of = crowd(2, "10")
    proof = PaceProof.of(of, 0)
    assert proof is not None
    assert proof.bound([], [0, 0], [(ONE, 0)]).value == 20 * Fraction("0.01")


def test_requests_that_differ_in_their_terms_alone_are_one_kind() -> None:
    of = crowd(6)
    level = ServiceLevel(ttft=Fraction(1))
    twice = replace(of, groups=(*of.groups, *(replace(g, id=f"{g.id}b", slo=level) for g in of.groups)))
    bound = pace_bound(twice)
    assert bound is not None
    assert len(bound.evidence["own"]) == 6  # type: ignore[index]
    assert check_evidence(twice, bound) == bound.value


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("cells", [[5, 1], [5, 1]], "their ends do not rise"),
        ("cells", [[0, 1]], "their ends do not rise"),
        ("cells", [[5, -1]], "a root is below 0"),
        ("cells", [[5]], "wrong length of a list"),
        ("members", [[ONE, -1]], "a number is below 0"),
        ("members", [[-ONE, 1]], "a number is below 0"),
        ("members", [[ONE, 1, 1]], "wrong length of a list"),
        ("own", [0], "wrong length of a list"),
        ("own", [-1] * 30, "a number is below 0"),
    ],
)
def test_evidence_that_is_none(key: str, value: object, fault: str) -> None:
    of = crowd()
    bound = pace_bound(of)
    assert bound is not None
    evidence = {**(bound.evidence or {}), key: value}
    certificate = certificate_to_json(of, replace(bound, evidence=evidence))
    with pytest.raises(Rejected, match=fault):
        check(shown(of), json.loads(json.dumps(certificate)))


def test_where_a_batch_takes_no_time_there_is_none() -> None:
    of = crowd()
    assert pace_bound(replace(of, cost=CostModel([("0", "0.001")], ("0", "0"), ("0.5", "0")))) is None
    assert pace_bound(replace(of, groups=tuple(replace(g, arrival=Fraction(0)) for g in of.groups))) is None


def test_the_search_ends_when_it_is_told_to() -> None:
    asked: list[None] = []

    def stop() -> bool:
        asked.append(None)
        return True

    assert pace_bound(crowd(), stop=stop) is not None
    assert len(asked) <= 4
