"""Overload: what a prompt pays in parts, and certificates from before that was counted."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from math import sqrt
from typing import NamedTuple

import pytest

from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.infermax.bounds import overload
from infermax_opt.infermax.bounds._overload_prompts import LONGEST_PART, SHARES, PartPrices
from infermax_opt.infermax.bounds._overload_tables import PRICE_BITS, WAIT_BITS, leading
from infermax_opt.infermax.bounds.overload import OverloadProof, TokenTables, overload_bound
from infermax_opt.infermax.checker import Rejected, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.exact.staged import staged_search
from tests.campaign import campaign, in_blocks
from tests.infermax.test_latency_certificates import shown
from tests.support import certificate_to_json, check_evidence


@pytest.mark.parametrize("seed", campaign(24, 2_000))
def test_the_least_over_parts_is_below_all_parts_and_near_the_best(seed: int) -> None:
    rng = random.Random(seed)
    work, attention, presence = (rng.choice([0, 1, 7, 10**3, 10**7, 10**10]) for _ in range(3))
    exponent = rng.choice([0, 8, 20])
    prices = PartPrices(work, attention, presence, exponent)
    for _ in range(20):
        price, level = rng.choice([0, 1, 5_000, 10**6, 10**8]), rng.randint(0, 10**4) << exponent
        share, longest = rng.randint(0, SHARES - 1), rng.choice([1, 2, 3, 50, 700, 4096, 30_000])
        found = prices.least(price, level, share, longest)
        s = share / SHARES

        def paid(c: float, price: int = price, level: int = level, s: float = s) -> float:
            """What a token pays in a part of c of them."""
            least = (price / 2**PRICE_BITS + s) * attention * (c - 1)
            return least + 2 * level / 2**exponent * sqrt(work * s / c) + presence * s / c

        best = min(paid(c) for c in range(1, longest + 1)) * 2**PRICE_BITS
        assert 0 <= found <= best * (1 + 1e-12) + 1
        # Of the numbers between whole ones the best is lost by little, where the points are close.
        finely = [longest ** (k / 2_000) for k in range(2_001)]
        at = min(finely, key=paid)
        if at > 16 and best > 2**30:
            assert found >= 0.97 * paid(at) * 2**PRICE_BITS


def rush(attention: str = "square") -> Instance:
    """Three prompts of six tokens at once, and another while these are done; attention is what they cost."""
    arrivals = (Fraction(1, 1000), Fraction(1, 1000), Fraction(1, 1000), Fraction(1, 5))
    groups = tuple(RequestGroup(f"q{k}", 6, 1, arrival) for k, arrival in enumerate(arrivals))
    cost = CostModel([("0.05", "0.001")], ("0", "0"), ("0", "0.004"), attention)
    return Instance(
        "rush",
        groups,
        System(100, 50, 50, None, 1),
        cost,
        Policy(True, True, False),
        Objective.of("mean_e2e"),
    )


def test_a_prompt_pays_for_its_parts() -> None:
    of = rush()
    proof = OverloadProof(of, TokenTables.of(of, 0))
    cells = proof.chosen(lambda: False)
    found = proof.bound(cells)
    proof.parts = 0
    for kind in proof._kinds:
        object.__setattr__(kind, "prompt", None)
    whole = proof.bound(cells)
    best = staged_search(of).upper
    assert best is not None
    assert 0 < whole.value < found.value <= best
    assert found.value > Fraction(11, 10) * whole.value
    assert check_evidence(of, found) == found.value
    # A certificate from before parts were told from whole prompts.
    assert whole.evidence is not None
    old = {key: value for key, value in whole.evidence.items() if key != "parts"}
    assert check_evidence(of, replace(whole, evidence=old)) == whole.value


def test_where_nothing_can_be_compiled_the_first_prices_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    best = overload_bound(rush())
    monkeypatch.setattr(overload, "absent", lambda module: True)
    first = overload_bound(rush())
    assert best is not None
    assert first is not None
    assert 0 < first.value <= best.value
    assert check_evidence(rush(), first) == first.value


def test_where_parts_save_no_attention_they_are_not_told() -> None:
    of = rush("exact")
    bound = overload_bound(of)
    assert bound is not None
    assert bound.evidence is not None
    assert bound.evidence["parts"] == 0
    evidence = {**bound.evidence, "parts": 3}
    with pytest.raises(Rejected, match="parts: chunks save no attention work"):
        check(shown(of), certificate_to_json(of, replace(bound, evidence=evidence)))


@pytest.mark.parametrize("attention", [0, 1, 10**6])
def test_the_least_is_right_at_the_longest_part(attention: int) -> None:
    price, level = 3 << PRICE_BITS, 10**6
    prices = PartPrices(10**9, attention, 10**12, 0)
    found = prices.least(price, level, SHARES // 2, LONGEST_PART)
    paid = (
        (3.5 * attention * (c - 1) + 2 * level * sqrt(10**9 / 2 / c) + 10**12 / 2 / c) * 2**PRICE_BITS
        for c in (4 ** (k / 200) for k in range(2_001))
    )
    best = min(paid)
    assert 0.97 * best <= found <= best * (1 + 1e-9)


def test_prices_are_rounded_down_to_their_leading_bits() -> None:
    for price in [*range(5_000), 10**9, 2**70 - 1]:
        assert 0.87 * price <= leading(price) <= price


@pytest.mark.parametrize("seed", campaign(18, 1_000))
def test_a_prompt_cut_into_parts_pays_what_its_tokens_pay_or_more(seed: int) -> None:
    """By the formula for a part, at one price: near the least for the best parts, for none below it."""
    rng = random.Random(seed)
    size = rng.choice([60, 600, 3_000])
    cost = CostModel(
        [("0.005", "0.00001")], ("0.0003", "0"), ("0.0002", rng.choice(["2e-9", "2e-8"])), "square"
    )
    groups = (RequestGroup("q0", size, rng.choice([1, 30]), Fraction(1, 10)),)
    system = System(10**5, 4096, 4096, None, 1)
    of = Instance("one", groups, system, cost, Policy(True, True, False), Objective.of("mean_e2e"))
    proof = OverloadProof(of, TokenTables.of(of, 0))
    (kind,) = proof._kinds
    prompt, ticks, alone = kind.prompt, of.cost.ticks, kind.mass
    assert prompt is not None
    price = rng.choice([0, 1, 4, 50]) << PRICE_BITS
    level = int((proof.least * (price >> PRICE_BITS)) ** 0.5 * rng.random()) << proof.exponent
    rate = (price << WAIT_BITS - PRICE_BITS) // system.kv_capacity
    found = proof._least_in_parts(prompt, {(leading(price), level): rate})
    base = size * proof._paid(prompt.mass, 1, level, rate)
    share = prompt.mass * size / alone
    work, presence = ticks.beta[0] + ticks.p1, ticks.alpha[0] + ticks.p0

    def paid(parts: int) -> float:
        """What so many equal parts pay."""
        c, total = size / parts, 0.0
        for k in range(parts):
            r = share * (k + 0.5) / parts
            total += (price / 2**PRICE_BITS + r) * ticks.p1 * c * (c - 1) + presence * r
            total += 2 * level / 2**proof.exponent * sqrt(c * work * r)
        return total * 2**PRICE_BITS

    best = min(paid(parts) for parts in range(1, 61))
    assert found - base <= best
    assert found - base >= 0.8 * best


class Part(NamedTuple):
    """A part f of the token that `who` makes after `made` others, of which `before` was done before."""

    who: int
    made: int
    f: Fraction
    before: Fraction


def tight(rng: random.Random) -> Instance:
    """Few requests on a memory for the largest and little more; prompts are split."""
    alpha, beta, d0, d1, p0, p1 = (
        f"0.00{rng.choice(ticks)}"
        for ticks in ((0, 1, 3), (1, 2, 4), (0, 1, 2, 6), (0, 0, 1, 3), (0, 0, 1), (0, 0, 1, 2))
    )
    groups = tuple(RequestGroup(f"q{k}", rng.randint(1, 4), rng.randint(2, 6)) for k in range(3))
    peak = max(g.input_tokens + g.output_tokens for g in groups)
    system, policy = System(peak + rng.randint(0, 5), 50, 50, None, 1), Policy(True, True, True)
    return Instance("tight", groups, system, CostModel([(alpha, beta)], (d0, d1), (p0, p1), "square"), policy)


def any_batches(of: Instance, rng: random.Random) -> list[tuple[int, list[Part]]]:
    """Batches of any schedule, with evictions at random: how long they are, and parts of tokens in them."""
    ticks, sizes = of.cost.ticks, [(g.input_tokens, g.output_tokens) for g in of.groups]
    made, cached = [0] * len(sizes), [0] * len(sizes)
    chunks = [list[tuple[int, int]]() for _ in sizes]
    batches: list[tuple[int, list[Part]]] = []
    while any(cached) or any(m < o for m, (_, o) in zip(made, sizes, strict=True)):
        for k in (k for k in range(len(sizes)) if rng.random() < 0.2 or made[k] == sizes[k][1]):
            cached[k], chunks[k] = 0, []
        length, decodes, prefills = ticks.alpha[0], False, False
        for k in (k for k in range(len(sizes)) if made[k] < sizes[k][1] and rng.random() < 0.7):
            s, free = sizes[k][0] + made[k], of.system.kv_capacity - sum(cached)
            if not free:
                continue
            if made[k] and cached[k] == s - 1 and not chunks[k]:
                size, decodes = 1, True
                length += ticks.beta[0] + ticks.d1 * (s - 1)
            else:
                size, prefills = rng.randint(1, min(free, s - cached[k])), True
                length += ticks.beta[0] * size + ticks.p1 * size**2
            cached[k] += size
            chunks[k].append((len(batches), size))
        if decodes or prefills:
            batches.append((length + decodes * ticks.d0 + prefills * ticks.p0, []))
        for k, (i, _) in enumerate(sizes):
            if chunks[k] and cached[k] == i + made[k]:  # a token is made
                whole = sum(size for _, size in chunks[k])
                for n, (batch, size) in enumerate(chunks[k]):
                    before = Fraction(sum(some for _, some in chunks[k][:n]), whole)
                    batches[batch][1].append(Part(k, made[k], Fraction(size, whole), before))
                made[k], chunks[k] = made[k] + 1, []
    return batches


@in_blocks(campaign(300, 30_000), 100)
def test_what_tokens_and_batches_count_holds_for_any_schedule(seeds: range) -> None:
    """The steps of the proof themselves, as bounds of tiny instances are far from their optima."""
    refills = 0
    for seed in seeds:
        rng = random.Random(seed)
        of = tight(rng)
        tables, room = TokenTables.of(of, 0), of.system.kv_capacity
        ticks, first = of.cost.ticks, of.cost.ticks.alpha[0] + of.cost.ticks.p0
        presence, work, size, mass = [], [], [], []
        for g in of.groups:
            later, i = slice(g.input_tokens + 1, g.input_tokens + g.output_tokens), g.input_tokens
            presence.append([first, *tables.presence[later]])
            work.append([(ticks.beta[0] + ticks.p1) * i, *tables.work[later]])
            size.append([Fraction(some, room) for some in (i, *tables.size[later])])
            mass.append([w + a * k for a, w, k in zip(presence[-1], work[-1], size[-1], strict=True)])
        least, counted, crossed = min(map(min, presence)), Fraction(0), 0.0
        for length, parts in any_batches(of, rng):
            held = sum((size[p.who][p.made] * p.f for p in parts), Fraction(0))
            assert length >= sum(mass[p.who][p.made] * p.f for p in parts) + least * (1 - held), seed
            root = 0.0
            for who, made, f, before in parts:
                done = sum(mass[who][:made]) + (before + f / 2) * mass[who][made]
                done /= sum(mass[who])
                counted += done * length
                root += sqrt(f * work[who][made] * done)
                refills += f < 1 and made > 0
            crossed += root**2
        for a, u in zip(presence, mass, strict=True):
            counted -= sum(some * (sum(u[:n]) + u[n] / 2) / sum(u) for n, some in enumerate(a))
        assert counted >= Fraction(crossed) - Fraction(1, 10**6), seed
    assert refills > len(seeds)


def test_where_longer_refills_cost_less_than_decodes_a_token_may_be_either() -> None:
    """With d1 above beta + p1 a refill is dearer than the decode it is for only while little is cached."""
    system, policy = System(100, 50, 50, None, 1), Policy(True, True, True)
    groups = (RequestGroup("q0", 1, 9),)
    cost = CostModel([("0", "0.001")], ("0.001", "0.003"), ("0", "0.001"), "square")
    of = Instance("steep", groups, system, cost, policy, Objective.of("mean_e2e"))
    presence = TokenTables.of(of, 0).presence
    assert presence[1:] == [0] * 9
    flat = replace(of, cost=replace(cost, decode=(cost.decode[0], Fraction(0))))
    step = flat.cost.ticks.d0
    assert TokenTables.of(flat, 0).presence[1:] == [step] * 9


def long_prompt(size: int) -> Instance:
    """One request whose prompt takes one batch."""
    cost = CostModel([("1", "0")], ("0", "0"), ("0", "0.000000000000001"), "square")
    system = System(size, size, size, None, 1)
    groups = (RequestGroup("q0", size, 1, Fraction(1, 1000)),)
    return Instance("long", groups, system, cost, Policy(True, True, False), Objective.of("mean_e2e"))


def test_parts_longer_than_the_least_is_known_for_prove_nothing() -> None:
    of = long_prompt(1_200_000)
    scale = of.cost.ticks_per_second
    cells = [[scale * (k + 1) // 64, 4096 * (64 - k) // 64 - 1, 0] for k in range(64)]
    evidence = {"kind": "overload", "piece": 0, "exponent": 0, "groups": 1, "parts": 128, "cells": cells}
    claim = LowerBound(Fraction(101, 100), "overload", Proof.CERTIFICATE, evidence=evidence)
    # One batch takes 1.00144 s.
    with pytest.raises(Rejected, match="claims"):
        check(shown(of), certificate_to_json(of, claim))


def test_many_empty_parts_are_beyond_what_is_checked() -> None:
    kinds = tuple(RequestGroup(f"q{k}", 1, 1, Fraction(k + 1, 1000)) for k in range(20))
    of = replace(rush(), groups=kinds)
    bound = overload_bound(of)
    assert bound is not None
    evidence = {**(bound.evidence or {}), "parts": 10**6}
    with pytest.raises(Rejected, match="steps to check, the limit"):
        check(shown(of), certificate_to_json(of, replace(bound, value=Fraction(1), evidence=evidence)))


@pytest.mark.parametrize("arrival", [0, 1.7e9, 1e18])
def test_prices_of_late_arrivals_come_to_an_end(arrival: float) -> None:
    """Beside seconds since 1970, in ticks of 1 ps, a float holds services of milliseconds roughly or not."""
    rng, late = random.Random(1), arrival * 1e12
    requests = [(late + rng.random() * 1e12, 1e9 * rng.random(), rng.randint(1, 3)) for _ in range(200)]
    code = "from infermax_opt.infermax.bounds._fluid import busy_prices\n"
    command = [sys.executable, "-c", f"{code}print(len(busy_prices({requests}, 64)))"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "64\n"
