"""The waves bound: equal requests, of which those ahead wait for those behind."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, combinations, product
from typing import Any

import pytest

from infermax_opt.infermax.bounds._waves_proof import Layer, WavesProof, interpolated
from infermax_opt.infermax.bounds._waves_search import layered, waves_at
from infermax_opt.infermax.bounds.waves import waves_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import altered, shown
from tests.support import certificate_to_json, check_evidence

TICK = Fraction(1, 10)


def equal(seed: int) -> Instance:
    """Up to five equal requests, some of which come later, with large constants of each kind on purpose."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.4, rng.random() < 0.6)
    count = rng.choice([1, 2, 3, 3, 4] + [5] * (not policy.chunked_prefill))
    i, o = rng.choice([1, 1, 2, 3]), rng.choice({5: [1, 2], 4: [1, 2, 3]}.get(count, [1, 2, 3, 4]))
    if policy.chunked_prefill:
        o = min(o, 5 - count) if count > 2 else min(o, 3)
        o = max(o, 1)
    late = rng.random() < 0.3
    arrivals = [TICK * rng.randint(0, 8) if late else Fraction(0) for _ in range(count)]
    groups = tuple(RequestGroup(f"q{k}", i, o, arrival) for k, arrival in enumerate(arrivals))
    block = rng.choice([1, 1, 1, 2, 3])
    peak = -(-(i + o - 1) // block) * block
    prompt = 1 if policy.chunked_prefill else i

    def limit() -> int:
        return rng.choice([50, 50, prompt + rng.randint(0, 3)])

    def pick(*ticks: int) -> str:
        return str(float(TICK * rng.choice(ticks)))

    capacity = rng.choice([peak, peak + block, 2 * peak - 1, count * peak, 3 * count * peak])
    system = System(max(capacity, peak), limit(), limit(), rng.choice([None, None, None, 1, 2, 3]), block)
    batch = [(pick(0, 1, 2, 5, 20), pick(0, 0, 1, 3)) for _ in range(rng.choice([1, 1, 2]))]
    decode = pick(0, 0, 1, 4, 13, 60), pick(0, 0, 1, 2)
    prefill = pick(0, 0, 1, 4, 13, 60), pick(0, 0, 1, 2)
    cost = CostModel(batch, decode, prefill, rng.choice(["square", "exact"]))
    return Instance(f"equal-{seed}", groups, system, cost, policy, objective="mean_e2e")


def optimum(of: Instance) -> Fraction:
    """By the search, which other tests compare with an exhaustive oracle."""
    found = staged_search(of)
    assert found.upper is not None
    assert found.termination == "optimal"
    return found.upper


def anything(proof: WavesProof, rng: random.Random) -> tuple[int, list[Layer], list[Layer]]:
    """A random knee, layers, shares and prices, which are as high as they may be or some less."""
    knee, left = rng.randint(0, proof.count), 1 << 20
    layers: tuple[list[Layer], list[Layer]] = ([], [])
    for values, first, some in zip((proof.works, proof.sizes), (0, knee), layers, strict=True):
        for tokens, height in layered(values):
            share = min(left, int(left * rng.choice([0.3, 0.5, 0.8, 1])))
            left -= share
            height = int(height * rng.choice([1, 1, 0.5]))
            prices = [0] * proof.count
            for rank in range(first, proof.count):  # all from there on as high as they may be
                low, high = prices[rank], prices[rank] + (proof.base << 2)
                while high - low > 1:
                    middle = (low + high) // 2
                    tried = [*prices[:rank], *[middle] * (proof.count - rank)]
                    holds = proof.holds(tried, height, share, knee, first)
                    low, high = (middle, high) if holds else (low, middle)
                prices[rank:] = [int(low * rng.choice([1, 1, 1, 0.9]))] * (proof.count - rank)
                prices[rank:] = [max(prices[: rank + 1])] * (proof.count - rank)
            if proof.holds(prices, height, share, knee, first):
                some.append(Layer(tokens, height, share, list(enumerate(prices, 1))))
    return knee, *layers


@in_blocks(campaign(96, 6_000), 20)
def test_no_prices_prove_more_than_the_optimum(seeds: range) -> None:
    """The searched ones and random ones; the checker agrees with each to the last digit."""
    closest = Fraction(0)
    for seed in seeds:
        of, rng = equal(seed), random.Random(seed)
        best = optimum(of)
        found = [bound for bound in [waves_bound(of)] if bound is not None]
        for piece in range(len(of.cost.batch)):
            for by_slots in (False, True):
                for by_first in (False, True):
                    proof = WavesProof(of, piece, by_slots, by_first)
                    if proof.usable:
                        found += [proof.bound(*anything(proof, rng)) for _ in range(2)]
        for bound in found:
            assert bound.value <= best, seed
            if bound.value > 0:
                assert check_evidence(of, bound) == bound.value, seed
                closest = max(closest, bound.value / best)
    assert closest > Fraction(9, 10)


@pytest.mark.parametrize("seed", campaign(36, 2_000))
def test_prices_hold_exactly_where_every_set_of_ranks_is_covered(seed: int) -> None:
    rng = random.Random(seed)
    proof = WavesProof(equal(seed), 0, rng.random() < 0.5, True)
    n, knee, height = proof.count, rng.randint(0, proof.count), rng.randint(0, 6)
    first, share = rng.choice([0, knee]), rng.choice([1 << 20, 1 << 19, 3 << 17])
    proof.base = rng.randint(1, 20)
    prices = sorted(rng.randint(0, 25) for _ in range(n))
    covered = all(
        sum(prices[rank - 1] for rank in some)
        <= (share * proof.base * min(number, knee) >> 20) + height * c * (c - 1) // 2
        for number in range(first + 1, n + 1)
        for c in range(1, number - first + 1)
        for some in combinations(range(first + 1, number + 1), c)
    )
    assert proof.holds(prices, height, share, knee, first) == covered


@pytest.mark.parametrize("seed", campaign(24, 1_000))
def test_layers_stay_below_what_they_are_cut_of(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.choice([0, 1, 5, 100]) * rng.randint(0, 9) for _ in range(rng.randint(1, 40))]
    heights = [sum(h for g, h in layered(values) if g >= len(values) - k) for k in range(len(values))]
    assert heights == sorted(heights)
    sums = list(zip(accumulate(heights), accumulate(values), strict=True))
    assert all(low <= high for low, high in sums)
    if values == sorted(values) and len(values) <= 16:
        assert heights == values


@pytest.mark.parametrize("seed", campaign(24, 1_000))
def test_young_tokens_leave_at_least_so_much(seed: int) -> None:
    """Against all sets of ranks and of tokens that they may make in one of the first batches."""
    rng = random.Random(seed)
    of = equal(seed)
    proof = WavesProof(of, 0, rng.random() < 0.3, rng.random() < 0.5)
    n, length = proof.count, len(proof.works)
    if not proof.usable or n > 4:
        return
    knee, work, memory = anything(proof, rng)
    paying = [(layer, 0) for layer in work] + [(layer, knee) for layer in memory]

    def beyond(makers: tuple[tuple[int, int], ...]) -> int:
        """What is left of a batch in which these ranks make these tokens."""
        left = (n - knee) * (proof.base - sum(proof.sizes[token] for _, token in makers))
        for layer, first in paying:
            prices = interpolated(layer.knots, n)
            some = [rank for rank, token in makers if token >= length - layer.tokens and rank > first]
            left += proof.left(layer.share, n, knee) + layer.height * (len(some) * (len(some) - 1) // 2)
            left -= sum(prices[rank - 1] for rank in some)
        return left

    least = 0
    for batch in range(1, length):
        least += min(
            beyond(tuple(zip(ranks, tokens, strict=True)))
            for c in range(1, n + 1)
            for ranks in combinations(range(1, n + 1), c)
            for tokens in product(range(batch), repeat=c)
            if sum(proof.sizes[token] for token in tokens) <= proof.base
        )
    assert 0 <= proof.young(knee, work, memory) <= least


def test_prices_between_knots_lie_on_lines() -> None:
    assert interpolated([], 3) == [0, 0, 0]
    assert interpolated([(2, 4), (5, 11)], 7) == [0, 4, 6, 8, 11, 11, 11]


def test_waves_are_best_where_only_the_number_of_a_batch_counts() -> None:
    """One output each, b = 6 and w = 1: nine requests in waves, as a table of them finds."""
    cost = CostModel([("6", "1")], ("0", "0"), ("0", "0"))
    groups = (RequestGroup("r", 1, 1, count=9),)
    of = Instance("nine", groups, System(50, 50, 50), cost, objective="mean_e2e")
    cheapest = [0]
    for n in range(1, 10):
        cheapest.append(min(cheapest[n - c] + n * (6 + c) for c in range(1, n + 1)))
    best = optimum(of)
    assert best == Fraction(cheapest[9], 9)
    bound = waves_bound(of)
    assert bound is not None
    assert best * Fraction(96, 100) < bound.value <= best


def test_requests_that_differ_have_no_such_bound() -> None:
    of = equal(1)
    other = RequestGroup("other", 1, 5)
    system = replace(of.system, kv_capacity=50)
    assert waves_bound(replace(of, groups=(*of.groups, other), system=system)) is None


def several() -> Instance:
    """Six requests, memory for three, and steps that get longer."""
    cost = CostModel([("2", "0.3")], ("0.5", "0.2"), ("0.7", "0.1"))
    groups = (RequestGroup("r", 2, 3, count=6),)
    return Instance("six", groups, System(12, 8, 8), cost, Policy(True, False, False), objective="mean_e2e")


@pytest.mark.parametrize("seed", range(4))
def test_altered_evidence_never_proves_what_is_false(seed: int) -> None:
    of, rng = several(), random.Random(seed)
    false = optimum(of) * (1 + Fraction(1, 10**9))
    bound = waves_bound(of)
    assert bound is not None
    for evidence in altered(dict(bound.evidence or {}), rng):
        certificate = certificate_to_json(of, replace(bound, value=false, evidence=evidence))
        with pytest.raises(Rejected):
            check(shown(of), json.loads(json.dumps(certificate)))


@pytest.mark.parametrize(
    ("path", "change", "said"),
    [
        (("knee",), lambda knee: knee + 100, "is not a whole number"),
        (("work", 0, 0), lambda tokens: tokens + 9, "is not a whole number"),
        (("work", 0, 1), lambda height: height * 4, "layers are higher than what they are cut of"),
        (("memory", 0, 1), lambda height: height * 4, "layers are higher than what they are cut of"),
        (("work", 0, 2), lambda _: 1 << 20, "shares sum to more than 1"),
        (("work", 0, 3, -1, 1), lambda price: price * 2, "are not covered"),
        (("work", 0, 3), lambda knots: knots[::-1], "ranks or prices fall"),
        (("work", 0, 3, 0, 0), lambda _: 0, "is not a whole number"),
        (("work", 0, 3, 0, 1), lambda _: -1, "is not a whole number"),
        (("memory", 0, 3, -1, 1), lambda price: price * 2, "are not covered"),
        (("by_first",), lambda _: None, "neither true nor false"),
    ],
)
def test_what_a_certificate_must_keep(path: tuple[Any, ...], change: Any, said: str) -> None:
    of = several()
    proof = WavesProof(of, 0, False, False)
    bound = waves_at(proof, 2, layered(proof.works), layered(proof.sizes))
    assert check_evidence(of, bound) == bound.value
    evidence = copy.deepcopy(dict(bound.evidence or {}))
    holder: Any = evidence
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = change(holder[path[-1]])
    with pytest.raises(Rejected, match=said):
        check(shown(of), json.loads(json.dumps(certificate_to_json(of, replace(bound, evidence=evidence)))))


def test_the_search_ends_when_it_is_told_to() -> None:
    of, asked = several(), list[None]()

    def stop() -> bool:
        asked.append(None)
        return True

    hasty, whole = waves_bound(of, stop=stop), waves_bound(of)
    assert hasty is not None
    assert whole is not None
    assert 0 < hasty.value <= whole.value
    assert len(asked) < 20
