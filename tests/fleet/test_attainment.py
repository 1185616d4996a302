"""Shares of the batches of a moment: no proof asks for more machines than do it; what evidence may be."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field
from infermax_opt.checking.limits import MAX_INTEGER
from infermax_opt.checking.work import Exhausted, Work
from infermax_opt.fleet.bounds import attainment as search
from infermax_opt.fleet.bounds.attainment import batches_of_too_few
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.attainment import WHOLE, attained
from infermax_opt.fleet.checker.certificate import check, least_machines, machines_from
from infermax_opt.fleet.checker.machine import read_machine
from infermax_opt.fleet.checker.pooled import grouped_needs
from infermax_opt.fleet.checker.question import read_question
from infermax_opt.fleet.machine import machine_of
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.bounds.attainment import AttainmentProgram
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from scripts.vectors.fleet import bare, by_shares
from tests.campaign import campaign, in_blocks
from tests.fleet.test_beside import close, dense
from tests.fleet.test_planted import planted
from tests.fleet.tiny import decided, tiny_fleet


def random_evidence(question: FleetQuestion, rng: random.Random) -> dict[str, Any]:
    """Any prices, and all of each batch shared out among some requests and what is scarce."""
    machine, groups = machine_of(question.workload), rng.choice([1, 2, 8])
    needs = [grouped_needs(machine, asked, groups) or [] for asked in question.asked]
    points = {point for some in needs for need in some for point in (need.begin, need.end)} - {0}
    ends = sorted(point for point in points if rng.random() < 0.8) or [1]
    scarce = [[rng.choice([0, 0, WHOLE // 8]) for _ in range(3)] for _ in ends]
    shares: list[list[int]] = [[0, *(0 for _ in ends)] for _ in needs]
    for k, some in enumerate(scarce):
        some[2] *= machine.running > 0
        takers = rng.sample(range(len(needs)), rng.randint(1, min(3, len(needs))))
        for taker in takers:
            shares[taker][k + 1] = (WHOLE - sum(some)) // len(takers)
    return {
        "piece": rng.randrange(len(machine.alpha)),
        "groups": groups,
        "cells": [[end, rng.randint(0, 9), *some] for end, some in zip(ends, scarce, strict=True)],
        "shares": shares,
    }


def best_evidence(question: FleetQuestion, machines: int) -> Iterator[dict[str, Any]]:
    """What the linear programs find for so many machines, coarse and finer."""
    one = search._Search(question, bare(question), None)
    for proof in one.proofs:
        if any(not guest.lost and guest.end for guest in proof.guests):
            prices = AttainmentProgram(proof, 400, machines).prices()
            yield one._evidence(prices, proof)
            finer = search._finer(proof, prices, 2_000) if prices.ends and max(prices.prices) else None
            yield one._evidence(AttainmentProgram(proof, 400, machines, finer).prices(), proof)


@pytest.mark.parametrize("made", [planted, dense])
@in_blocks(campaign(12, 6_000), 60)
def test_no_shares_demand_more_than_the_machines_that_do_it(seeds: range, made: Any) -> None:
    nearly = 0
    for seed in seeds:
        question, machines = made(seed)
        rng, certificate = random.Random(seed), bare(question)
        some = [random_evidence(question, rng) for _ in range(6)]
        for evidence in (*some, *best_evidence(question, max(1, machines - 1))):
            proved = least_machines({**certificate, "attainment": evidence})
            assert isinstance(proved, int), seed
            assert proved <= machines, (seed, proved, machines)
            nearly += proved == machines > 1
    assert nearly


@pytest.mark.parametrize("made", [tiny_fleet, close])
@in_blocks(campaign(24, 5_000), 40)
def test_no_bound_exceeds_the_optimum(seeds: range, made: Any) -> None:
    known = met = 0
    for seed, question, best in decided(seeds, made):
        if best is None or pooled_bound(question).machines is None:
            continue
        certificate, rng = bare(question), random.Random(seed)
        some = [random_evidence(question, rng) for _ in range(6)]
        for evidence in (*some, *best_evidence(question, 1)):
            proved = least_machines({**certificate, "attainment": evidence})
            assert isinstance(proved, int), seed
            assert proved <= best, (seed, proved, best)
            met += proved == best > 1
        known += 1
    assert known > len(seeds) / 4
    assert met or 0 not in seeds


def paced(requests: int, spacing: Fraction = Fraction(1, 2)) -> FleetQuestion:
    """Requests that come one by one; a prompt takes as long as a batch, beside which none keeps the pace."""
    slo = {"ttft": "0.5", "tpot": "0.11"}
    groups = tuple(RequestGroup(f"r{k}", 100, 30, k * spacing, slo=slo) for k in range(requests))
    cost, policy = CostModel([("0.1", "0.001")], ("0", "0"), ("0", "0")), Policy(preemption=False)
    return FleetQuestion(
        Instance("paced", groups, System(10_000, 200, 200), cost, policy, "missed"), Fraction(1)
    )


def test_batches_of_one_and_prompts_of_others() -> None:
    # From 0.2 to 1.6 s lie the 7 later tokens of the first request, 101 ticks each, and the prompts of the
    # five others, 150 ticks each.  The prompt of the first may come before, later tokens of others after it.
    certificate = by_shares()
    assert least_machines(certificate) == check(certificate).bound == 2
    given = Field(certificate, "certificate")
    machine = read_machine(given["machine"])
    found = attained(given, machine, read_question(given, Work()), partial(grouped_needs, machine))
    assert found is not None
    paid, room = found
    assert room == WHOLE * 1400 * 10
    assert paid == [WHOLE * 10 * 7 * 101, *[WHOLE * 10 * 150] * 5]


def test_shares_are_found_where_all_need_their_own_pace() -> None:
    question = paced(30)
    certificate = bare(question)
    found = batches_of_too_few(question, certificate, 1)
    assert found is not None
    certificate |= {"attainment": found, "machines": None}
    certificate["machines"] = least_machines(certificate)
    assert certificate["machines"] >= 2
    assert check(certificate, question.sha256).bound == certificate["machines"]
    assert machines_from(certificate) == 1  # slower arrivals may share other batches
    assert batches_of_too_few(question, bare(question), 0) is None
    assert batches_of_too_few(question, bare(question), 30) is None


def test_the_bound_of_a_question_has_them() -> None:
    question = paced(30)
    found = pooled_bound(question)
    assert found.machines == least_machines(found.certificate)
    told = list[str]()
    assert batches_of_too_few(question, found.certificate, 1, told.append) is not None
    assert all("shares of batches" in line for line in told)


def rejected(certificate: dict[str, Any], **changes: Any) -> str:
    with pytest.raises(Rejected) as error:
        least_machines({**certificate, "attainment": {**certificate["attainment"], **changes}})
    return str(error.value)


def test_what_evidence_is_refused() -> None:
    question = paced(4)
    evidence = random_evidence(question, random.Random(1))
    certificate = {**bare(question), "attainment": evidence}
    cells, shares = evidence["cells"], evidence["shares"]
    assert isinstance(least_machines(certificate), int)
    assert "do not rise" in rejected(certificate, cells=[cells[0], *cells])
    assert "below 0" in rejected(certificate, cells=[[cells[0][0], -1, 0, 0, 0], *cells[1:]])
    assert "not scarce" in rejected(certificate, cells=[[cells[0][0], 1, 0, 0, 1], *cells[1:]])
    assert "wrong length" in rejected(certificate, shares=shares[1:])
    assert "of no cell" in rejected(certificate, shares=[[len(cells), 1], *shares[1:]])
    assert "below 0" in rejected(certificate, shares=[[0, -1], *shares[1:]])
    assert "more than a batch" in rejected(certificate, shares=[[0, WHOLE + 1], *shares[1:]])
    assert "too large" in rejected(certificate, cells=[*cells, [3 * MAX_INTEGER, 1, 0, 0, 0]])
    assert "groups" in rejected(certificate, groups=65)
    assert "piece" in rejected(certificate, piece=9)


def test_what_takes_long_is_refused_soon() -> None:
    question = paced(4)
    certificate = {**bare(question), "attainment": random_evidence(question, random.Random(1))}
    with pytest.raises(Exhausted):
        least_machines(certificate, 2_000)
    for long in ({"cells": [0] * 2_000_000}, {"groups": 64, "cells": [[1, 1, 0, 0, 0]] * 2_000_000}):
        began = time.monotonic()
        with pytest.raises(Exhausted):
            least_machines({**certificate, "attainment": {**certificate["attainment"], **long}}, 1_000_000)
        assert time.monotonic() - began < 1  # reading them would take some
