"""The knee bound: cases checked by hand, the optimum of thousands of tiny instances, its certificate."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds.knee import knee_bound
from infermax_opt.infermax.bounds.ramp import ramp_bound
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_many_bounds import shown, submitted
from tests.infermax.test_ramp import slow
from tests.infermax.tiny import cost_model
from tests.support import FLAT, case, certificate_to_json, check_evidence, few

HAIR = Fraction(1, 10**40)


def scarce(seed: int) -> Instance:
    """A random instance of prompts that take turns in little memory, with a knee and a large p0 at times."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.7, rng.random() < 0.8, rng.random() < 0.6)
    number = rng.choice([2, 2, 3])
    groups: list[RequestGroup] = []
    for k in range(number):
        i, o = rng.randint(1, 7 if number == 2 else 4), rng.choice([1, 1, 2, 3])
        if groups and rng.random() < 0.5:
            i, o = groups[-1].input_tokens, groups[-1].output_tokens
        late = Fraction(rng.randint(0, 300), 100) if seed % 7 == 6 else Fraction(0)
        groups.append(RequestGroup(f"q{k}", i, o, late))
    block = rng.choice([1, 1, 1, 2, 3])
    peaks = [-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups]
    prompt = rng.randint(1, 3) if policy.chunked_prefill else max(g.input_tokens for g in groups)
    system = System(
        kv_capacity=max(peaks) + rng.choice([0, 0, 1, 2]),
        max_batch_tokens=prompt + rng.choice([0, 2, 20]),
        max_prefill_tokens=prompt + rng.choice([0, 1, 20]),
        max_running=rng.choice([None, None, None, 1, 2]),
        block_size=block,
    )
    some = cost_model(rng)
    flat, knee = Fraction(rng.randint(0, 20), 10), Fraction(rng.randint(1, 8), 2)
    steep, alpha = flat + Fraction(rng.randint(1, 400), 100), Fraction(rng.randint(10, 80), 10)
    pieces = [(alpha, flat), (max(Fraction(0), alpha - knee * (steep - flat)), steep)]
    prefill = (str(rng.randint(0, 60) / 10), some.prefill[1]) if rng.random() < 0.6 else some.prefill
    mixed, prefix = ("0", "0"), "0"
    if seed % 3 == 0:  # what both take longer beside each other, and chunks behind others
        mixed = str(rng.randint(0, 40) / 10), str(rng.randint(0, 20) / 10)
        prefix = str(rng.randint(0, 9) / 10)
    cost = CostModel(pieces, some.decode, prefill, attention=some.attention, mixed=mixed, prefix=prefix)
    return Instance(f"scarce-{seed}", tuple(groups), system, cost, policy)


def some_evidence(rng: random.Random, pieces: int) -> dict[str, Any]:
    """What a certificate may say, be it good or not."""
    refills = rng.choice([0, 1, 50, 100])
    return {
        "kind": "knee",
        "piece": rng.randrange(pieces),
        "flat": rng.randrange(pieces),
        "share": rng.choice([0, 0, 10, 500, 990, 1000]),
        "kv": rng.choice([0, 0, 10, 100, 500, 900, 1000]),
        "refills": refills,
        "prompts": rng.choice([0, (100 - refills) // 2, 100 - refills]),
        "batches": rng.randint(0, 4),
    }


@pytest.mark.parametrize("make", [scarce, slow], ids=lambda make: make.__name__)
@in_blocks(campaign(50, 5_000), 100)
def test_never_above_the_optimum(seeds: range, make: Any) -> None:
    """Nor is what other evidence proves."""
    found = 0
    for seed in seeds:
        instance, rng = make(seed), random.Random(seed)
        bound = knee_bound(instance)
        if bound is None:
            continue
        best = optimum(instance)
        found += 1
        assert bound.value <= best, seed
        assert check_evidence(instance, bound) == bound.value, seed
        with pytest.raises(Rejected, match="claims"):
            submitted(shown(instance), instance, replace(bound, value=bound.value + HAIR))
        for _ in range(6):
            evidence = some_evidence(rng, len(instance.cost.batch))
            false = LowerBound(best + HAIR, "knee", Proof.CERTIFICATE, evidence=evidence)
            with pytest.raises(Rejected, match=r"claims|knee|batches"):
                submitted(shown(instance), instance, false)
    assert found > len(seeds) // 4


def test_better_than_the_ramp_at_times() -> None:
    made = [(knee_bound(instance), ramp_bound(instance)) for instance in map(scarce, campaign(80, 200))]
    assert sum(k is not None and (r is None or k.value > r.value) for k, r in made) > len(made) / 10


def proves(instance: Instance, evidence: dict[str, Any], value: Fraction) -> None:
    """So much, and not a hair more."""
    bound = LowerBound(value, "knee", Proof.CERTIFICATE, evidence={"kind": "knee", **evidence})
    assert check_evidence(instance, bound) == value
    with pytest.raises(Rejected, match="claims"):
        submitted(shown(instance), instance, replace(bound, value=value + HAIR))


STEEP = {"piece": 1, "flat": 0, "share": 0, "kv": 0, "refills": 0, "prompts": 0, "batches": 0}


def test_batches_without_prompts_pay_for_the_tokens_that_they_lack() -> None:
    """The knee is at 4 tokens; a batch below it costs 1/8 for each one that it lacks, 1/2 in all."""
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0.25", "0"))
    instance = replace(case(2, 2, 3, 10, cost=knee), system=System(10, 10, 10))
    area, tokens = Fraction(2 * (2 + 3 + 4)), Fraction(8, 8)
    # p0 for each batch, less 1/4 of it for each of four decodes.
    proves(instance, STEEP, Fraction(3, 4) * area / 10 + tokens - Fraction(1, 4) * 4 / 4)
    # With half for the KV, a decode that leaves h tokens is excused of 2/4 - h/10 of p0.
    excused = Fraction(1, 4) * 2 * (Fraction(2, 10) + Fraction(1, 10))
    proves(instance, {**STEEP, "kv": 500}, Fraction(3, 4) * area / 10 + tokens - excused)
    # With three quarters a batch below the knee can pay half of p0 only; one with prompts pays all.
    excused = Fraction(1, 8) * 2 * (Fraction(1) - Fraction(9, 10))
    paid = Fraction(5, 8) * area / 10 + Fraction(1, 8) + tokens - excused
    proves(instance, {**STEEP, "kv": 750}, paid)


def test_decodes_pay_beside_prompts_or_below_the_knee() -> None:
    """Beside a prompt a decode costs 1/8 and 1/50 for each token that it reads; or the batch lacks 1/2."""
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"), mixed=("0.125", "0.02"))
    kept = Policy(preemption=False)
    instance = replace(case(2, 2, 3, 10, cost=knee), system=System(10, 10, 10), policy=kept)
    area, tokens = Fraction(2 * (2 + 3 + 4)), Fraction(8, 8)
    # Beside prompts (h-1)/50 + h/80 for a decode; alone h/20 - 1/8: 75/1000 for h = 4, and 25/1000 for 3.
    beside, alone = Fraction(3, 50) + Fraction(4, 80), Fraction(4, 20) - Fraction(1, 8)
    paid = 2 * (min(beside, alone) + Fraction(3, 20) - Fraction(1, 8))
    proves(instance, {**STEEP, "kv": 1000}, Fraction(1, 2) * area / 10 + tokens + paid)
    # An eviction might save it where a token costs little: here nothing.
    often = replace(instance, policy=Policy())
    proves(often, {**STEEP, "kv": 1000}, Fraction(1, 2) * area / 10 + tokens)


def test_chunks_pay_for_what_is_cached_before_them() -> None:
    """Two tokens in a chunk: of six the first two pay 1/12 + 1/4 twice, the next two once."""
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"), prefix="0.25")
    instance = replace(case(1, 6, 1, 12, cost=knee), system=System(12, 2, 2))
    prompts = 6 * (Fraction(1, 2) / 12 + Fraction(1, 4))
    proves(instance, STEEP, Fraction(1, 2) * 6 / 12 + Fraction(6, 8) + prompts)


def test_freed_memory_fills_as_fast_as_to_the_knee_or_tokens_pay() -> None:
    """Ten requests of 12 tokens in a memory of 12, 4 of them up to the knee; a token beyond it costs 1/8."""
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"))
    instance = replace(case(10, 12, 1, 12, cost=knee), system=System(12, 100, 100))
    evidence = {**STEEP, "share": 1000, "refills": 100}
    # 4 tokens at once, 4 a batch later at 1/12 each, 4 at 1/8 each; 12 are never taken, at 1/8 at most.
    each = Fraction(4, 12) + Fraction(4, 8)
    assert each == Fraction(5, 6)
    # What prompts pay in chunks of any size is nothing.
    proves(instance, evidence, 10 + 10 * each - Fraction(12, 8))
    # In halves for places and prompts: 1/16 each beyond the first four of each.
    halves = Fraction(8, 16) * 10
    proves(instance, {**evidence, "refills": 50, "prompts": 50}, 10 + halves + halves - Fraction(12, 16))
    # The first batch has what is left: 4 tokens leave 8 / 12 of the memory free, and more cost more.
    proves(instance, {**STEEP, "share": 1000, "batches": 1}, 10 + Fraction(8, 12))


def test_changed_certificates_are_refused() -> None:
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0.25", "0"))
    instance = replace(case(12, 12, 4, 30, cost=knee), system=System(30, 100, 100))
    bound = knee_bound(instance)
    assert bound is not None
    assert bound.evidence is not None
    given = shown(instance)
    for changed, words in (
        ({"flat": 1}, "knee"),
        ({"flat": 2}, "flat"),
        ({"piece": 0}, "knee"),
        ({"share": -1}, "share"),
        ({"share": 1001}, "share"),
        ({"kv": -1}, "kv"),
        ({"kv": 1001}, "kv"),
        ({"refills": 101}, "refills"),
        ({"prompts": -1}, "prompts"),
        ({"refills": 60, "prompts": 41}, "prompts"),
        ({"batches": 10**6}, "batches"),
        ({"batches": "1x"}, "batches"),
        ({"share": (bound.evidence["share"] + 500) % 1000}, "claims"),
        ({"kv": (bound.evidence["kv"] + 500) % 1000}, "claims"),
    ):
        with pytest.raises(Rejected, match=words):
            check(
                given, certificate_to_json(instance, replace(bound, evidence={**bound.evidence, **changed}))
            )
    for key in STEEP:
        less = {k: v for k, v in bound.evidence.items() if k != key}
        with pytest.raises(Rejected, match=key):
            check(given, certificate_to_json(instance, replace(bound, evidence=less)))


def test_none_without_a_knee() -> None:
    assert knee_bound(case(8, 4, 8, 20, cost=FLAT)) is None
    above = CostModel([("1", "0"), ("1", "0.125")], ("0", "0"), ("0", "0"))
    assert knee_bound(case(8, 4, 8, 20, cost=above)) is None


def test_is_in_the_search() -> None:
    knee = CostModel([("1", "0"), ("0.5", "0.125")], ("0", "0"), ("0", "0"))
    found = searched_bounds(case(8, 4, 8, 20, cost=knee), stop=few(0))
    assert "knee" in {bound.source for bound in found}
