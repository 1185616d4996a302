"""Prompts in turn against every routing and schedule of tiny fleets, and what their evidence may be."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.fleet.apart import ApartQuestion
from infermax_opt.fleet.bounds import in_turn
from infermax_opt.fleet.bounds.in_turn import machines_too_few
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.bounds.split import pool_bound
from infermax_opt.fleet.checker.certificate import check, least_apart, least_machines, machines_from
from infermax_opt.fleet.checker.in_turn import Needs, prompts_of, too_few
from infermax_opt.fleet.checker.machine import Machine, read_machine
from infermax_opt.fleet.checker.pooled import prompt_needs
from infermax_opt.fleet.checker.question import read_question
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from scripts.vectors.fleet import bare
from tests.campaign import campaign, in_blocks
from tests.fleet.tiny import decided, tiny_fleet


def needs_on(machine: Machine) -> Needs:
    return lambda asked: prompt_needs(machine, asked)


def crowded(seed: int) -> FleetQuestion:
    """A tiny fleet whose requests come close together, have one output token and limits that are alike."""
    rng, question = random.Random(seed), tiny_fleet(seed)
    groups = [
        replace(group, output_tokens=rng.choice([1, 1, group.output_tokens]), arrival=group.arrival / 8)
        for group in question.workload.groups
    ]
    slo = rng.choice(groups).slo
    same = [replace(group, slo=slo) if rng.random() < 0.8 else group for group in groups]
    return replace(question, workload=replace(question.workload, groups=tuple(same)))


@pytest.mark.parametrize("made", [tiny_fleet, crowded])
@in_blocks(campaign(24, 5_000), 40)
def test_no_number_that_is_enough_is_too_few(seeds: range, made: Any) -> None:
    proved = met = 0
    for seed, question, best in decided(seeds, made):
        certificate = bare(question)
        if best is None or pooled_bound(question).machines is None:
            continue
        given = Field(certificate, "certificate")
        machine = read_machine(given["machine"])
        for piece in range(len(machine.alpha)):
            asked = read_question(given, Work())
            prompts = prompts_of(machine, asked, piece, needs_on(machine))
            assert not too_few(best, prompts, Work()), (seed, piece, best)
        found = machines_too_few(certificate, machine, needs_on(machine), 0)
        if found is not None:
            least = least_machines({**certificate, "in_turn": found})
            assert least == found["too_few"] + 1 <= best, seed
            proved += 1
            met += least == best > 1
    assert proved > len(seeds) / 5
    assert met or 0 not in seeds


def burst(requests: int, share: Fraction = Fraction(1), ttft: str = "0.5") -> FleetQuestion:
    """Prompts of a tenth of a second that come together."""
    groups = tuple(RequestGroup(f"r{k}", 100, 1, slo={"ttft": ttft}) for k in range(requests))
    cost = CostModel([("0", "0.001")], ("0", "0"), ("0", "0"))
    return FleetQuestion(Instance("burst", groups, System(1_000, 100, 100), cost, objective="missed"), share)


def spread(share: Fraction) -> FleetQuestion:
    """Bursts far apart: in parts few requests have to miss their limits, but in each burst whole ones do."""
    groups = tuple(
        RequestGroup(f"r{b}-{k}", 100, 1, Fraction(100 * b), slo={"ttft": "0.5"})
        for b in range(10)
        for k in range(9)
    )
    cost = CostModel([("0", "0.0012")], ("0", "0"), ("0", "0"))
    return FleetQuestion(Instance("spread", groups, System(1_000, 100, 100), cost, objective="missed"), share)


def test_whole_requests_are_late() -> None:
    # Each takes 0.12 s: 9 need 1.08 s, of which one machine has 0.5 s and two have 1 s.  Of two machines 8.33
    # in parts, but 8 whole ones: one of nine is late in each burst.
    question = spread(Fraction(91, 100))
    found = pooled_bound(question)
    assert found.certificate["in_turn"] == {"too_few": 2, "piece": 0}
    assert found.machines == least_machines(found.certificate) == 3
    assert least_machines({key: v for key, v in found.certificate.items() if key != "in_turn"}) == 2
    assert machines_from(found.certificate) == 2
    assert check(found.certificate, question.sha256).bound == 3
    # With one late in each burst two are enough.
    assert "in_turn" not in pooled_bound(spread(Fraction(88, 100))).certificate


def test_evidence_that_is_none() -> None:
    certificate = bare(burst(21))
    assert least_machines({**certificate, "in_turn": {"too_few": 4, "piece": 0}}) == 5
    assert least_machines({**certificate, "in_turn": {"too_few": 1, "piece": 0}}) == 2
    for wrong, why in (
        ({"too_few": 5, "piece": 0}, "in_turn: no more requests are late on 5 machines than may be"),
        ({"too_few": 4, "piece": 1}, "certificate.in_turn.piece"),
        ({"too_few": -1, "piece": 0}, "certificate.in_turn.too_few"),
        ({"too_few": 4}, "piece"),
        ([4, 0], "certificate.in_turn"),
    ):
        with pytest.raises(Rejected, match=why):
            least_machines({**certificate, "in_turn": wrong})


def test_who_has_no_limit_of_the_first_token_is_never_late() -> None:
    certificate = bare(burst(21))
    free = {**certificate, "levels": [[None, "1", None]]}
    given = Field(free, "certificate")
    machine = read_machine(given["machine"])
    prompts = prompts_of(machine, read_question(given, Work()), 0, needs_on(machine))
    assert (prompts.arrivals, prompts.window) == ([], 0)
    assert not too_few(0, prompts, Work())


def test_what_takes_a_checker_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    question = spread(Fraction(91, 100))
    monkeypatch.setattr(in_turn, "Work", lambda: Work(10))
    found = pooled_bound(question)
    assert (found.machines, found.certified) == (2, True)
    assert "in_turn" not in found.certificate


def test_prompts_of_a_pool_of_their_own() -> None:
    question = spread(Fraction(91, 100))
    apart = ApartQuestion(question, question.workload.system, question.workload.cost, Fraction(0))
    prefill, decode = (pool_bound(apart, side) for side in ("prefill", "decode"))
    assert prefill.certificate["in_turn"] == {"too_few": 2, "piece": 0}
    assert prefill.machines == least_apart(prefill.certificate) == 3
    assert "in_turn" not in decode.certificate
    # Where all later tokens are made elsewhere, prompts are nobody's.
    evidence = {**decode.certificate, "in_turn": {"too_few": 9, "piece": 0}}
    assert least_apart(evidence) == decode.machines


def test_of_prompts_that_are_never_in_time_there_is_no_most() -> None:
    # In q chunks a prompt takes 0.1 q + 1 / q s, at least 0.63 s.
    cost = CostModel([("0.1", "0")], ("0", "0"), ("0", "0.0001"))
    groups = tuple(RequestGroup(f"r{k}", 100, 1, slo={"ttft": "0.5"}) for k in range(3))
    workload = Instance("never", groups, System(1_000, 100, 100), cost, objective="missed")
    found = pooled_bound(FleetQuestion(workload, Fraction(1)))
    certificate = found.certificate
    assert found.machines is None
    assert "in_turn" not in certificate
    assert least_machines({**certificate, "in_turn": {"too_few": 10**12, "piece": 0}}) == NEVER
