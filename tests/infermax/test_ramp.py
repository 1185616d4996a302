"""The ramp bound: cases checked by hand, the optimum of thousands of tiny instances, its certificate."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.checking.work import Work
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import closed_form_bounds, ramp, token_payments
from infermax_opt.infermax.bounds.ramp import ramp_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.bounds.token_payments import _least_sums
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.checker.token_payments import least_payments
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_many_bounds import shown, submitted
from tests.infermax.tiny import cost_model
from tests.support import FLAT, PAPER, case, certificate_to_json, check_evidence, few


def slow(seed: int) -> Instance:
    """A random instance whose memory is large for its batches, or for the knee of the batch time."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.7, rng.random() < 0.7)
    groups: list[RequestGroup] = []
    for k in range(rng.choice([1, 2, 2, 3])):
        i, o = rng.randint(1, 4), rng.randint(1, 4 - policy.preemption)
        if groups and rng.random() < 0.5:
            i, o = groups[-1].input_tokens, groups[-1].output_tokens
        late = Fraction(rng.randint(0, 300), 100) if seed % 5 == 4 else Fraction(0)
        groups.append(RequestGroup(f"q{k}", i, o, late))
    block = rng.choice([1, 1, 1, 2, 3])
    peaks = [-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups]
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    system = System(
        kv_capacity=rng.randint(max(peaks), max(max(peaks), sum(peaks))) + rng.choice([0, 1]),
        max_batch_tokens=prompt + rng.choice([0, 1, 2, 20]),
        max_prefill_tokens=prompt + rng.choice([0, 1, 20]),
        max_running=rng.choice([None, None, None, 1, 2]),
        block_size=block,
    )
    cost = cost_model(rng)
    if seed % 2:  # a knee at few tokens
        flat, knee = Fraction(rng.randint(0, 20), 10), rng.randint(1, 4)
        steep = flat + Fraction(rng.randint(1, 40), 10)
        alpha = Fraction(rng.randint(10, 80), 10)
        pieces = [(alpha, flat), (max(Fraction(0), alpha - knee * (steep - flat)), steep)]
        cost = CostModel(pieces, cost.decode, cost.prefill, attention=cost.attention)
    return Instance(f"slow-{seed}", tuple(groups), system, cost, policy)


@in_blocks(campaign(60, 6_000), 100)
def test_never_above_the_optimum(seeds: range) -> None:
    found = 0
    for seed in seeds:
        instance = slow(seed)
        bound = ramp_bound(instance)
        if bound is None:
            continue
        found += 1
        assert bound.value <= optimum(instance), seed
        assert check_evidence(instance, bound) == bound.value, seed
        with pytest.raises(Rejected, match="claims"):
            submitted(shown(instance), instance, replace(bound, value=bound.value + Fraction(1, 10**40)))
    assert found > len(seeds) // 4


def chunky(seed: int) -> Instance:
    """A random instance with prompts of several chunks, for its batches or for the knee of the batch time."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.9, rng.random() < 0.7)
    sizes = [(rng.randint(3, 8), rng.randint(1, 2)) for _ in range(rng.choice([1, 2, 2]))]
    groups = tuple(RequestGroup(f"q{k}", i, o) for k, (i, o) in enumerate(sizes))
    block = rng.choice([1, 1, 2, 3])
    peaks = [-(-(i + o - 1) // block) * block for i, o in sizes]
    prompt = rng.randint(1, 3) if policy.chunked_prefill else max(i for i, _ in sizes)
    system = System(
        kv_capacity=rng.randint(max(peaks), sum(peaks)),
        max_batch_tokens=prompt + rng.choice([0, 2, 20]),
        max_prefill_tokens=prompt + rng.choice([0, 1, 20]),
        block_size=block,
    )
    cost = cost_model(rng)
    if rng.random() < 0.8:
        flat, knee = Fraction(rng.randint(0, 20), 10), Fraction(rng.randint(0, 6), 2)
        steep, alpha = flat + Fraction(rng.randint(1, 400), 100), Fraction(rng.randint(10, 80), 10)
        pieces = [(alpha, flat), (max(Fraction(0), alpha - knee * (steep - flat)), steep)]
        cost = CostModel(pieces, cost.decode, cost.prefill, attention=cost.attention)
    return Instance(f"chunky-{seed}", groups, system, cost, policy)


@in_blocks(campaign(60, 5_000), 100)
def test_prompts_in_chunks_never_above_the_optimum(seeds: range) -> None:
    """Nor is what other evidence proves."""
    found = 0
    for seed in seeds:
        instance, rng = chunky(seed), random.Random(seed)
        bound, best = ramp_bound(instance), optimum(instance)
        for _ in range(4):
            pieces = len(instance.cost.batch)
            evidence = {
                "kind": "ramp",
                "piece": rng.randrange(pieces),
                "batches": rng.randint(0, 4),
                "prompts": rng.choice(
                    [
                        {"knee": None, "percent": 0},
                        {"knee": rng.randrange(pieces), "percent": rng.choice([0, 1, 50, 100])},
                    ]
                ),
            }
            if rng.random() < 0.5:
                evidence["share"] = rng.choice([0, 1, 30, 500, 999, 1000])
            false = LowerBound(best + Fraction(1, 10**40), "ramp", Proof.CERTIFICATE, evidence=evidence)
            with pytest.raises(Rejected, match=r"claims|knee|batches"):
                submitted(shown(instance), instance, false)
        if bound is None:
            continue
        found += "prompts" in (bound.evidence or {})
        assert bound.value <= best, seed
        assert check_evidence(instance, bound) == bound.value, seed
        with pytest.raises(Rejected, match="claims"):
            submitted(shown(instance), instance, replace(bound, value=bound.value + Fraction(1, 10**40)))
    assert found > len(seeds) // 4


def test_prompts_hold_their_chunks() -> None:
    """12 tokens in batches of 4: those held before the last chunk are 4 and 8 of 20 tokens of KV."""
    instance = replace(case(1, 12, 1, 20, cost=FLAT), system=System(20, 4, 4))
    bound = ramp_bound(instance)
    assert bound is not None
    assert bound.evidence == {
        "kind": "ramp",
        "piece": 0,
        "batches": 1,
        "prompts": {"knee": None, "percent": 0},
    }
    assert bound.value == Fraction(12, 20) + Fraction(16, 20) + Fraction(12, 20)
    assert check_evidence(instance, bound) == bound.value


def test_tokens_beyond_the_knee_or_chunks_pay() -> None:
    """A token of a chunk costs 1 / 20 for each batch that it waits; one beyond the knee 1 / 8, or a part."""
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"))
    instance = replace(case(1, 18, 1, 20, cost=knee), system=System(20, 100, 100))
    evidence = {"kind": "ramp", "piece": 0, "batches": 0, "prompts": {"knee": 1, "percent": 100}}
    # r = 0..3 pay nothing, 4 to 7 a batch, 8 to 11 two; the last six would pay three and more: 1 / 8 each.
    assert_proves(instance, evidence, Fraction(18, 20) + Fraction(4 + 8, 20) + Fraction(6, 8))
    evidence["prompts"] = {"knee": 1, "percent": 40}
    assert_proves(instance, evidence, Fraction(18, 20) + Fraction(4, 20) + Fraction(10, 20))


def assert_proves(instance: Instance, evidence: dict[str, Any], value: Fraction) -> None:
    """So much, and not a hair more."""
    bound = LowerBound(value, "ramp", Proof.CERTIFICATE, evidence=evidence)
    assert check_evidence(instance, bound) == value
    with pytest.raises(Rejected, match="claims"):
        submitted(shown(instance), instance, replace(bound, value=value + Fraction(1, 10**40)))


def test_changed_shares_of_prompts_are_refused() -> None:
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"))
    instance = replace(case(2, 30, 3, 80, cost=knee), system=System(80, 100, 100))
    bound = ramp_bound(instance)
    assert bound is not None
    assert bound.evidence is not None
    prompts = bound.evidence["prompts"]
    assert prompts["knee"] == 1
    given = shown(instance)
    for changed, words in (
        ({"knee": 0}, "knee"),
        ({"knee": 2}, "knee"),
        ({"knee": None}, "knee"),
        ({"knee": "1x"}, "knee"),
        ({"percent": -1}, "percent"),
        ({"percent": 101}, "percent"),
        ({"percent": 100}, "claims"),
        ({"percent": 0}, "claims"),
    ):
        evidence = {**bound.evidence, "prompts": {**prompts, **changed}}
        with pytest.raises(Rejected, match=words):
            check(given, certificate_to_json(instance, replace(bound, evidence=evidence)))
    without = {key: value for key, value in bound.evidence.items() if key != "prompts"}
    with pytest.raises(Rejected, match="claims"):
        check(given, certificate_to_json(instance, replace(bound, evidence=without)))
    short = {**bound.evidence, "prompts": {"knee": 1}}
    with pytest.raises(Rejected, match="percent"):
        check(given, certificate_to_json(instance, replace(bound, evidence=short)))


def test_better_than_any_closed_form_at_times() -> None:
    made = [(closed_form_bounds(instance)[0], ramp_bound(instance)) for instance in map(slow, range(300))]
    assert sum(bound is not None and bound.value > closed.value for closed, bound in made) >= 3


def test_batches_of_few_tokens_fill_memory_slowly() -> None:
    """Batches of 4 tokens leave 16, 12, 8 and 4 of 20 tokens of KV free: two batches of the area."""
    instance = replace(case(8, 4, 8, 20, cost=FLAT), system=System(20, 4, 4))
    bound = ramp_bound(instance)
    assert bound is not None
    assert bound.evidence == {"kind": "ramp", "piece": 0, "batches": 4}
    area = Fraction(8 * sum(range(4, 12)), 20)
    assert bound.value == area + 2
    assert check_evidence(instance, bound) == bound.value


def test_tokens_beyond_the_knee_pay() -> None:
    """A token later by a batch costs 1 / 20, and one beyond 4 tokens in a batch costs 1 / 8."""
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"))
    instance = replace(case(8, 4, 8, 20, cost=knee), system=System(20, 100, 100))
    bound = ramp_bound(instance)
    assert bound is not None
    assert bound.evidence == {"kind": "ramp", "piece": 0, "batches": 2}
    # Two batches: 20 / 20 less 4 k / 20 for k = 1 and 2; for k = 3 it pays to have all tokens at once.
    assert bound.value == Fraction(8 * sum(range(4, 12)), 20) + Fraction(16, 20) + Fraction(12, 20)
    assert check_evidence(instance, bound) == bound.value


def test_none_where_a_batch_fills_memory() -> None:
    whole = Policy(chunked_prefill=False)
    assert ramp_bound(replace(case(8, 4, 8, 20), policy=whole)) is None


def test_small_chunks_hold_kv_and_large_ones_cost_attention() -> None:
    """A token later by a batch costs 1 / 20; two tokens in a batch cost 2 * 1/10 more than one each."""
    square = CostModel([("1", "0")], ("0", "0"), ("0", "0.1"), attention="square")
    instance = replace(case(1, 7, 1, 20, cost=square), system=System(20, 20, 20))
    bound = ramp_bound(instance)
    assert bound is not None
    # One in each of five batches, and one more in the last two of these: 1/20 is 1/4 of 2/10.
    pays = Fraction(0 + 1 + 2 + 3 + 4, 20) + Fraction(4 + 5, 20)
    assert bound.value == Fraction(7, 20) + Fraction(7, 10) + pays
    assert bound.evidence == {
        "kind": "ramp",
        "piece": 0,
        "batches": 0,
        "prompts": {"knee": None, "percent": 0},
    }
    assert check_evidence(instance, bound) == bound.value


def test_batches_count_by_tokens_and_by_kv() -> None:
    """By tokens there are 7.1 batches. A share by KV, of which there are fewer, makes prompts pay."""
    square = CostModel([("1", "0")], ("0", "0"), ("0", "0.0001"), attention="square")
    instance = replace(case(10, 70, 2, 400, cost=square), system=System(400, 100, 100))
    bound = ramp_bound(instance)
    assert bound is not None
    evidence = bound.evidence or {}
    share = Fraction(evidence["share"], 1000)
    assert 0 < share < 1
    pays = sorted(share * r / 400 + Fraction(c, 5000) for r in range(70) for c in range(70))[:70]
    # While memory fills, three batches hold 100, 200 and 300 tokens at most.
    batches = (1 - share) * Fraction(710, 100) + share * (
        Fraction(10 * (70 + 71), 400) + Fraction(3 + 2 + 1, 4)
    )
    assert bound.value == batches + Fraction(700, 10_000) + 10 * sum(pays)
    assert check_evidence(instance, bound) == bound.value
    wrong = replace(bound, evidence={**evidence, "share": 1001})
    with pytest.raises(Rejected, match="share"):
        submitted(shown(instance), instance, wrong)


@pytest.mark.parametrize("square", [0, 7, 1000])
@pytest.mark.parametrize("width", [1, 3, 50])
@pytest.mark.parametrize("dear", [None, 0, 20, 45])
def test_the_least_sums_are_those_of_a_sorted_list(square: int, width: int, dear: int | None) -> None:
    all_of = sorted(10 * r + square * c for r in range(40) for c in range(width))
    pays = all_of if dear is None else [min(each, dear) for each in all_of]
    numbers = [1, 2, 7, 30]
    assert list(_least_sums(numbers, 10, square, width, dear)) == [(k, sum(pays[:k])) for k in numbers]
    assert least_payments(Work(), 30, 10, square, width)[:30] == all_of[:30]


def test_beyond_what_is_listed_tokens_pay_no_less(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = replace(case(1, 40, 1, 50, cost=PAPER), system=System(50, 50, 50))
    whole = ramp_bound(instance)
    monkeypatch.setattr(token_payments, "SQUARE_LISTED", 10)
    monkeypatch.setattr("infermax_opt.infermax.checker.token_payments.MAX_SQUARE", 10)
    part = ramp_bound(instance)
    assert whole is not None
    assert part is not None
    assert part.value < whole.value
    assert check_evidence(instance, part) == part.value


def test_is_the_first_of_the_search() -> None:
    instance = replace(case(8, 4, 8, 20, cost=PAPER), system=System(20, 4, 4))
    assert next(iter(searched_bounds(instance, stop=few(0)))).source == "ramp"


def test_a_changed_certificate_is_refused() -> None:
    instance = replace(case(8, 4, 8, 20, cost=FLAT), system=System(20, 4, 4))
    bound = ramp_bound(instance)
    assert bound is not None
    given, evidence = shown(instance), bound.evidence or {}
    for batches, words in (
        (5, "claims"),
        (3, "claims"),
        (0, "batches"),
        (10**6, "batches"),
        ("4x", "batches"),
    ):
        changed = LowerBound(bound.value + 1, "ramp", bound.proof, evidence={**evidence, "batches": batches})
        with pytest.raises(Rejected, match=words):
            check(given, certificate_to_json(instance, changed))
    with pytest.raises(Rejected):
        check(given, certificate_to_json(instance, replace(bound, evidence={**evidence, "piece": 1})))


def test_of_many_pieces_the_largest_ones_count() -> None:
    """Where the batch time bends, for any number of pieces, some of which are nowhere the largest."""
    for seed in range(60):
        rng = random.Random(seed)
        pieces = [(rng.randint(0, 40), rng.randint(0, 12)) for _ in range(rng.randint(1, 9))]
        most = rng.randint(1, 9)
        crossings = {
            Fraction(a - c, d - b)
            for a, b in pieces
            for c, d in pieces
            if b < d and 0 < a - c < most * (d - b)
        }

        def time(tokens: Fraction, pieces: list[tuple[int, int]] = pieces) -> Fraction:
            return max(a + b * tokens for a, b in pieces)

        tiny = Fraction(1, 10**6)
        bends = {x for x in crossings if time(x - tiny) + time(x + tiny) > 2 * time(x)}
        assert ramp._corners(pieces, most) == {Fraction(0), Fraction(most)} | bends, seed


def test_a_batch_time_of_many_pieces() -> None:
    pieces = [(str(20 - k / 10), str(k * k / 1000)) for k in range(1, 60)]
    cost = CostModel(pieces, ("0", "0"), ("0", "0"))
    instance = case(9, 12, 3, 40, cost=cost)
    bound = ramp_bound(instance)
    assert bound is not None
    assert check_evidence(instance, bound) == bound.value
