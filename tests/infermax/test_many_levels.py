"""Levels against the optimum of thousands of tiny instances, and against the flow of all states."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.certification import CertificateRejected
from infermax_opt.core.result import LowerBound
from infermax_opt.infermax.bounds.levels import Ladder
from infermax_opt.infermax.bounds.state_flow import state_flow_bound
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.tiny import cost_model
from tests.support import check_evidence, few


def alike(seed: int, requests: int | None = None) -> Instance:
    """Equal requests with every flag, limit and cost shape, that enumerate soon."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.7)
    count = requests or rng.choice([1, 2, 2, 2, 3, 3])
    short = 2 - (count == 3 and policy.chunked_prefill)
    i, o = rng.randint(1, short + 1), rng.randint(1, {1: 7, 2: 5, 3: 3}.get(count, 9))
    block = rng.choice([1, 1, 1, 2, 3])
    peak = -(-(i + o - 1) // block) * block
    prompt = 1 if policy.chunked_prefill else i
    roomy = rng.random() < 0.5
    groups = tuple(
        RequestGroup(f"q{k}", i, o, Fraction(rng.randint(0, 300), 100) if seed % 5 == 4 else 0)
        for k in range(count if requests is None else 0)
    )
    system = System(
        kv_capacity=peak + rng.choice([0, 1, 2, peak // 2, peak, 3 * peak]),
        max_batch_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_prefill_tokens=50 if roomy else prompt + rng.randint(0, 4),
        max_running=rng.choice([None, None, None, 1, 2]),
        block_size=block,
    )
    groups = groups or (RequestGroup("r", i, o, count=count),)
    return Instance(f"alike-{seed}", groups, system, cost_model(rng), policy)


def charged(seed: int, requests: int | None = None) -> Instance:
    """The same, most with fixed costs of decodes and prefills that differ, up to many times the batch's."""
    instance, rng = alike(seed, requests), random.Random(seed + 10**6)
    if seed % 4 == 0:
        return instance
    d0, p0 = (Fraction(rng.choice([0, 1, 3, 10, 40, 100]), rng.choice([10, 100])) for _ in "dp")
    cost = instance.cost
    decode = d0, rng.choice([cost.decode[1], Fraction(0), Fraction(3, 10)])
    return replace(instance, cost=replace(cost, decode=decode, prefill=(p0, cost.prefill[1])))


def on_levels(instance: Instance, piece: int, *widths: int, steps: int = 40) -> LowerBound | None:
    """What is proved on levels of these widths, each search starting from the one before."""
    ladder = Ladder(instance, piece, widths[-1])
    for width in widths:
        ladder.climb(width, few(steps))
    return ladder.bound()


@in_blocks(campaign(36, 6_000), 60)
def test_no_bound_exceeds_the_optimum(seeds: range) -> None:
    found = 0
    for seed in seeds:
        instance = alike(seed)
        best = optimum(instance)
        for piece in range(len(instance.cost.batch)):
            for widths in ((1,), (2,), (3,), (4, 2, 1)):
                if max(widths) > instance.groups[0].output_tokens:
                    continue
                bound = on_levels(instance, piece, *widths)
                if bound is not None:
                    found += 1
                    assert bound.value <= best, (seed, piece, widths)
                    assert check_evidence(instance, bound) == bound.value, (seed, piece, widths)
                    more = replace(bound, value=bound.value + Fraction(1, 10**40))
                    with pytest.raises(CertificateRejected, match="claims"):
                        check_evidence(instance, more)
    assert found > len(seeds)


@in_blocks(campaign(24, 6_000), 60)
def test_batches_charged_in_full_cost_no_more_than_they_do(seeds: range) -> None:
    """On levels of one token, reached at once and by way of wider ones."""
    for seed in seeds:
        instance = charged(seed)
        best = optimum(instance)
        for piece in range(len(instance.cost.batch)):
            for widths in ((1,), (2, 1)):
                bound = on_levels(instance, piece, *widths)
                if bound is not None:
                    assert bound.value <= best, (seed, piece, widths)
                    assert check_evidence(instance, bound) == bound.value, (seed, piece, widths)


@in_blocks(campaign(40, 2_000), 40)
def test_levels_of_one_token_prove_as_much_as_all_states(seeds: range) -> None:
    """No step is one too many.  They may prove more: a state flow lets requests rest without their tokens."""
    compared = 0
    for seed in seeds:
        instance = charged(seed, 1000)
        if instance.system.kv_capacity // instance.groups[0].input_tokens > 6:
            continue
        instance = replace(instance, cost=replace(instance.cost, batch=instance.cost.batch[:1]))
        flow, bound = state_flow_bound(instance), on_levels(instance, 0, 1, steps=1000)
        if flow is not None and bound is not None:
            compared += 1
            assert check_evidence(instance, bound) == bound.value
            assert flow.value * Fraction("0.9997") <= bound.value, seed
    assert compared > 15


@in_blocks(campaign(40, 2_000), 40)
def test_no_batch_earns_on_levels_of_one_token(seeds: range) -> None:
    """Every batch that a schedule may have, request by request, and not by way of the layers of the proof."""
    batches = 0
    for seed in seeds:
        instance = charged(seed, 1000)
        if instance.system.kv_capacity // instance.groups[0].input_tokens > 3:
            continue
        for piece in range(len(instance.cost.batch)):
            bound = on_levels(instance, piece, 1)
            if bound is not None:
                batches += earning_nothing(instance, bound, seed)
    assert batches > 100


def earning_nothing(instance: Instance, bound: LowerBound, seed: int) -> int:
    """How many batches were looked at, of all sets of active requests, none of which earns by the prices."""
    assert bound.evidence is not None
    evidence, ticks, kind = bound.evidence, instance.cost.ticks, instance.types[0]
    i, o, policy = kind.input_tokens, kind.output_tokens, instance.policy
    unit, piece = Fraction(2) ** evidence["exponent"], evidence["piece"]
    most = min(1000, instance.system.kv_capacity // i, instance.system.max_running or 1000)

    def fits(held: tuple[int, ...]) -> bool:
        return len(held) <= most and sum(i + n - 1 for n in held) <= instance.system.kv_capacity

    held_by_number = [itertools.combinations_with_replacement(range(1, o + 1), k) for k in range(most + 1)]
    states = [held for some in held_by_number for held in some if fits(held)]
    potential = dict(zip(states, evidence["potential"], strict=True))
    worth = evidence["prices"]["worth"]
    price = [
        sum(worth[n:]) for n in range(o + 1)
    ]  # of leaving with n tokens; the first token earns that of 0
    rho = max(0, ticks.beta[piece] - ticks.d1)
    comes = [(1, Fraction(-price[0]))]
    for n in range(1, o if policy.preemption else 1):
        back = unit * rho * (i + n - 1) - price[n]
        comes += [(n + 1, back), (n, back)] if policy.chunked_prefill else [(n + 1, back)]
    sets = (itertools.combinations_with_replacement(comes, k) for k in range(most + 1))
    arriving = [(tuple(n for n, _ in new), sum(pay for _, pay in new)) for some in sets for new in some]
    looked = 0
    for held in states:
        if potential[held] is None:
            continue
        for moves in itertools.product(("leave", "token", "idle"), repeat=len(held)):
            pairs = list(zip(held, moves, strict=True))
            if any(m == "leave" and not policy.preemption if n < o else m != "leave" for n, m in pairs):
                continue
            left = potential[held] + sum(price[n] for n, m in pairs if m == "leave")
            stay = [n + (m == "token") for n, m in pairs if m != "leave"]
            for new, paid in arriving:
                after = tuple(sorted([*stay, *new]))
                if not fits(after):
                    continue
                time = ticks.d0 * ("token" in moves) + ticks.p0 * bool(new)
                time += ticks.alpha[piece] * ("token" in moves or bool(new))
                assert potential[after] is not None, (seed, held, moves, new)
                assert potential[after] <= left + unit * time + paid, (seed, held, moves, new)
                looked += 1
    return looked


@in_blocks(campaign(24, 2_000), 40)
def test_levels_prove_no_more_than_all_states(seeds: range) -> None:
    """Of a thousand requests the batches at the ends hide nothing: rounding down can only lose.

    Both see the same of memory and batches, so more than all states would be a step that was forgotten.  Of
    levels of one token other tests say so, batch by batch.
    """
    compared = 0
    for seed in seeds:
        instance = alike(seed, 1000)
        if instance.system.kv_capacity // instance.groups[0].input_tokens > 6:
            continue
        flow = state_flow_bound(replace(instance, cost=replace(instance.cost, batch=instance.cost.batch[:1])))
        for width in range(2, 1 + min(4, instance.groups[0].output_tokens)):
            bound = on_levels(instance, 0, width, steps=400)
            if flow is not None and bound is not None:
                compared += 1
                assert check_evidence(instance, bound) == bound.value
                assert bound.value <= flow.value * Fraction("1.0001"), (seed, width)
    assert compared > 20
