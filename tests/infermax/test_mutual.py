"""The mutual delay bound: against optima of tiny instances with any shares, and its certificate."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds.interaction import Prices
from infermax_opt.infermax.bounds.mutual import MutualProof, mutual_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import shown
from tests.support import certificate_to_json, check_evidence

TICK = Fraction(1, 10)
#: Shares that make a whole.
WHOLE = 2**16
#: Coefficients in ticks: alpha, beta; d0, d1; p0, p1.
SHAPES: tuple[tuple[tuple[int, ...], ...], ...] = (
    ((1, 5, 20), (0, 1, 3), (0, 0, 2, 10), (0, 0, 1), (0, 0, 2, 10), (0, 0, 1)),
    ((10, 20, 40), (1, 2, 3), (0, 1), (0, 1), (0, 1), (0, 0, 1)),
    ((0, 1, 5), (2, 5, 9), (0, 3, 20), (0, 1, 3), (0, 3, 20), (0, 2)),
    ((0, 2, 7, 20), (0, 1, 4), (0, 4, 13), (0, 0, 1, 2), (0, 4, 13), (0, 0, 1, 2)),
)


def company(seed: int) -> Instance:
    """A random instance of two to four requests that come while others are there, mostly with room."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.8, rng.random() < 0.5, rng.random() < 0.5)
    most = rng.choice([(4, 7), (4, 7), (3, 4), (2, 3)])
    number = {(4, 7): 2, (3, 4): 3, (2, 3): 4}[most]
    inputs, outputs = min(most[0], 4 - policy.chunked_prefill), most[1] - policy.chunked_prefill
    alpha, beta, d0, d1, p0, p1 = (
        [str(float(TICK * rng.choice(ticks))) for _ in range(2)] for ticks in rng.choice(SHAPES)
    )
    pieces = list(zip(alpha, beta, strict=True))[: rng.choice([1, 1, 2])]
    cost = CostModel(pieces, (d0[0], d1[0]), (p0[0], p1[0]), rng.choice(["square", "exact"]))
    span = rng.choice([3, 15, 40, 100])
    groups = tuple(
        RequestGroup(f"q{k}", rng.randint(1, inputs), rng.randint(1, outputs), TICK * rng.randint(0, span))
        for k in range(number)
    )
    peaks = [group.input_tokens + group.output_tokens for group in groups]
    prompt = 1 if policy.chunked_prefill else max(group.input_tokens for group in groups)
    system = System(
        kv_capacity=rng.choice([sum(peaks), sum(peaks), max(peaks) + 1]),
        max_batch_tokens=rng.choice([50, 50, prompt + rng.randint(0, 3)]),
        max_prefill_tokens=rng.choice([50, 50, prompt + rng.randint(0, 3)]),
        max_running=rng.choice([None, None, None, 2]),
        block_size=rng.choice([1, 1, 1, 2]),
    )
    return Instance(f"company-{seed}", groups, system, cost, policy, Objective.of("mean_e2e"))


def any_shares(rng: random.Random, number: int) -> list[list[int]]:
    """Shares of waiting time, at random."""
    rows: list[list[int]] = [[] for _ in range(number)]
    left = [WHOLE] * number
    pairs = [(i, k) for k in range(number) for i in range(k) if rng.random() < 0.9]
    rng.shuffle(pairs)
    for i, k in pairs:
        taken = []
        for who in (k, i):
            taken.append(rng.choice([0, left[who], left[who] // 2, rng.randint(0, left[who])]))
            left[who] -= taken[-1]
        rows[k] += [k - i, *taken]
    return rows


def proofs(of: Instance) -> list[MutualProof]:
    """One for each piece that has any."""
    found = (Prices.of(of, piece) for piece in range(len(of.cost.batch)))
    return [MutualProof(of, prices) for prices in found if prices is not None]


@in_blocks(campaign(30, 5_000), 50)
def test_no_shares_prove_more_than_the_optimum(seeds: range) -> None:
    better = 0
    for seed in seeds:
        of, rng = company(seed), random.Random(seed)
        found = staged_search(of)
        assert found.upper is not None
        if of.offline:
            continue
        for proof in proofs(of):
            alone = proof.bound([[] for _ in of.requests])
            made = [proof.bound(any_shares(rng, len(of.requests))) for _ in range(4)]
            for bound in [alone, *made]:
                assert bound.value <= found.upper, seed
                assert check_evidence(of, bound) == bound.value, seed
            better += max(bound.value for bound in made) > alone.value
        best = mutual_bound(of)
        assert best is None or best.value <= found.upper, seed
    assert better > 25


def two() -> Instance:
    """Two equal requests, one of which comes when the other is making the second token of ten."""
    groups = tuple(RequestGroup(f"q{k}", 3, 10, Fraction(11 * k, 100)) for k in range(2))
    cost = CostModel([("0.1", "0.001")], ("0", "0"), ("0", "0"), "square")
    system = System(100, 50, 50, None, 1)
    return Instance("two", groups, system, cost, Policy(True, False, False), Objective.of("mean_e2e"))


def test_two_requests_delay_each_other() -> None:
    of = two()
    (proof,) = proofs(of)
    alone = proof.bound([[], []]).value
    assert alone == Fraction("1.012")
    shares = [[], [1, WHOLE // 2, WHOLE // 2]]
    found = proof.bound(shares)
    # Eight tokens are left to the first, and one of them falls into the prompt of the second: seven work
    # 0.001 for the other one, both ways, and the prompt works 0.003 for the first.
    assert found.value == alone + Fraction("0.003") / 2 + 7 * Fraction("0.001")
    bound = mutual_bound(of)
    assert bound is not None
    assert found.value * Fraction(999, 1000) < bound.value <= found.value
    best = staged_search(of).upper
    assert best is not None
    assert found.value <= best <= found.value * Fraction(101, 100)


def test_prompts_that_come_at_once_delay_both() -> None:
    of = replace(two(), groups=tuple(replace(group, arrival=Fraction(0)) for group in two().groups))
    (proof,) = proofs(of)
    found = proof.bound([[], [1, WHOLE // 2, WHOLE // 2]])
    assert found.value == Fraction("1.012") + Fraction("0.003") + 8 * Fraction("0.001")
    best = staged_search(of).upper
    assert best is not None
    assert found.value <= best


@pytest.mark.parametrize(
    ("pairs", "fault"),
    [
        ([[], [1, WHOLE + 1, 0]], "a request shares out 65537, more than 65536"),
        ([[], [1, 0, WHOLE + 1]], "a request shares out 65537, more than 65536"),
        ([[], [1, -1, 0]], "holds a negative share"),
        ([[], [2, 0, 0]], "names no earlier request"),
        ([[], [0, 0, 0]], "names no earlier request"),
        ([[1, 0, 0], []], "names no earlier request"),
        ([[], [1, 0, 0, 1, 0, 0]], "names a request twice"),
        ([[], [1, 0]], "which are no triples"),
        ([[]], "wrong length of a list"),
        ([[], "x"], "is not a list"),
    ],
)
def test_shares_that_are_none(pairs: Sequence[object], fault: str) -> None:
    of = two()
    bound = mutual_bound(of)
    assert bound is not None
    evidence = {**(bound.evidence or {}), "pairs": pairs}
    certificate = certificate_to_json(of, replace(bound, evidence=evidence))
    with pytest.raises(Rejected, match=fault):
        check(shown(of), json.loads(json.dumps(certificate)))


def test_offline_there_is_none() -> None:
    of = two()
    assert mutual_bound(replace(of, groups=tuple(replace(group, arrival=0) for group in of.groups))) is None
