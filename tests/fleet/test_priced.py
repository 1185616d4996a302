"""Prices of time: no proof asks for more machines than do it, and what its evidence may be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.checking.fields import Field
from infermax_opt.checking.work import Work
from infermax_opt.core.interrupts import Stopped
from infermax_opt.fleet.bounds import pooled
from infermax_opt.fleet.bounds import priced as prices
from infermax_opt.fleet.bounds.pooled import pooled_bound, pooled_bounds
from infermax_opt.fleet.bounds.priced import prices_of_too_few
from infermax_opt.fleet.checker.certificate import check, least_machines, machines_from
from infermax_opt.fleet.checker.machine import read_machine
from infermax_opt.fleet.checker.needs import unit_of
from infermax_opt.fleet.checker.pooled import prompt_needs
from infermax_opt.fleet.checker.priced import Cells, Costs, costs_of, lowest, most_shared, priced
from infermax_opt.fleet.checker.question import read_question
from infermax_opt.fleet.machine import machine_of
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from scripts.vectors.fleet import at_prices, bare, one_by_one
from tests.campaign import campaign, in_blocks
from tests.fleet.test_beside import close, dense
from tests.fleet.test_planted import planted
from tests.fleet.tiny import decided, tiny_fleet


def costs_in(question: FleetQuestion, piece: int, parts: int) -> list[Costs | None]:
    machine, found = machine_of(question.workload), list[Costs | None]()
    for asked in question.asked:
        needs = prompt_needs(machine, asked)
        found.append(None if needs is None else costs_of(machine, asked, needs, piece, parts))
    return found


def random_prices(question: FleetQuestion, rng: random.Random) -> dict[str, Any]:
    """Any prices, and shares that are as large as they may be if those of a cell are alike."""
    piece, parts = rng.randrange(len(question.workload.cost.batch)), rng.choice([2, 3, 8, 1000])
    costs = [some for some in costs_in(question, piece, parts) if some is not None]
    needs = [need for some in costs for need in (some.first, some.later) if need is not None]
    points = {point for need in needs for point in (need.begin, need.end) if rng.random() < 0.8}
    cuts = sorted(points | {min(need.begin for need in needs), max(need.end for need in needs)})
    cells = Cells(cuts[:-1], cuts[1:], [rng.randint(1, 9) * 10_000 for _ in cuts[1:]])
    return {"piece": piece, "parts": parts, **with_shares(question, cells, piece, parts)}


def with_shares(question: FleetQuestion, cells: Cells, piece: int, parts: int) -> dict[str, Any]:
    costs = costs_in(question, piece, parts)
    many = most_shared(cells, [(c.later, 1) for c in costs if c and c.later and c.batches], Work())
    each = cells._replace(
        prices=[price // max(1, count) for price, count in zip(cells.prices, many, strict=True)]
    )
    shares = [lowest(each, c.later, Work()) if c and c.later and c.batches else 0 for c in costs]
    return {"cells": [list(cell) for cell in zip(*cells, strict=True)], "shares": shares}


def best_prices(question: FleetQuestion, machines: float) -> Iterator[dict[str, Any]]:
    """Evidence of the linear programs for so many machines."""
    machine = machine_of(question.workload)
    needs = [prompt_needs(machine, asked) for asked in question.asked]
    for piece in range(len(machine.alpha)):
        payers = prices._payers(machine, question.asked, needs, piece, 8)
        cuts = prices._first_cuts(payers)
        for _ in range(2):
            if len(cuts) < 2:
                break
            found = prices._Program(cuts, machine.ticks_per_second, payers).solved(machines)
            if found is None:
                break
            told = prices._evidence(len(question.asked), payers, cuts, found)
            yield {"piece": piece, "parts": 8, **told}
            cuts = prices._finer(cuts, found.prices)


@pytest.mark.parametrize("made", [planted, dense])
@in_blocks(campaign(18, 6_000), 60)
def test_no_prices_demand_more_than_the_machines_that_do_it(seeds: range, made: Any) -> None:
    nearly = 0
    for seed in seeds:
        question, machines = made(seed)
        rng, certificate = random.Random(seed), bare(question)
        some = [random_prices(question, rng) for _ in range(6)]
        for evidence in (*some, *best_prices(question, machines * 0.7)):
            proved = least_machines({**certificate, "prices": evidence})
            assert isinstance(proved, int), seed
            assert proved <= machines, (seed, proved, machines)
            nearly += proved == machines > 1
        assert pooled_bound(question).machines in range(machines + 1), seed
    assert nearly


@pytest.mark.parametrize("made", [tiny_fleet, close])
@in_blocks(campaign(24, 5_000), 40)
def test_no_bound_exceeds_the_optimum(seeds: range, made: Any) -> None:
    known = met = 0
    for seed, question, best in decided(seeds, made):
        if best is None or pooled_bound(question).machines is None:
            continue
        certificate, rng = bare(question), random.Random(seed)
        some = [random_prices(question, rng) for _ in range(6)]
        for evidence in (*some, *best_prices(question, 1)):
            proved = least_machines({**certificate, "prices": evidence})
            assert isinstance(proved, int), seed
            assert proved <= best, (seed, proved, best)
            met += proved == best > 1
        known += 1
    assert known > len(seeds) / 4
    assert met or 0 not in seeds


def steady(requests: int, outputs: int = 12) -> FleetQuestion:
    """Requests that come one by one, whose batches take 0.1 s and prompts as much; a TPOT of 0.15 s."""
    slo = {"ttft": "0.5", "tpot": "0.15"}
    groups = tuple(RequestGroup(f"r{k}", 100, outputs, Fraction(k, 5), slo=slo) for k in range(requests))
    cost, policy = CostModel([("0.1", "0.001")], ("0", "0"), ("0", "0")), Policy(preemption=False)
    return FleetQuestion(
        Instance("steady", groups, System(10_000, 200, 200), cost, policy, "missed"), Fraction(1)
    )


@pytest.fixture
def by_prices_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shares of batches are looked for, which would prove as much before."""
    monkeypatch.setattr(pooled, "batches_of_too_few", lambda *_: None)


@pytest.mark.usefixtures("by_prices_alone")
def test_prices_are_found() -> None:
    question = one_by_one()
    found = pooled_bound(question)
    assert found.machines == least_machines(found.certificate) == 2
    assert check(found.certificate, question.sha256).bound == 2
    assert least_machines({key: v for key, v in found.certificate.items() if key != "prices"}) == 1
    assert machines_from(found.certificate) == 1  # slower arrivals may share other batches
    machine = machine_of(question.workload)
    assert prices_of_too_few(machine, question.asked, 0, 1) is not None
    assert prices_of_too_few(machine, question.asked, 0, 2) is None
    assert prices_of_too_few(machine, question.asked, 0, 0) is None
    assert prices_of_too_few(machine, question.asked, 1, 1) is None


@pytest.mark.usefixtures("by_prices_alone")
def test_windows_stay_known_where_prices_are_stopped() -> None:
    told: list[str] = []

    def stop(text: str) -> None:
        told.append(text)
        raise Stopped

    bounds = pooled_bounds(one_by_one(), stop)
    known = next(bounds)
    with pytest.raises(Stopped):
        list(bounds)
    assert known.machines == least_machines(known.certificate) == 1
    assert [text.partition(",")[0] for text in told] == ["1 machine: prices of time"]


def test_batches_of_one_leave_too_little_time_for_prompts() -> None:
    # From 0.2 to 1.6 s lie the 7 later tokens of the first request, and the prompts of the five others. These
    # pay 0.15 s of work and 7/8 of 0.1 s for 150 of 200 tokens: 1.078 s. In 1.05 s the first leaves 0.343 s
    # to prompts, so it pays 7/8 of 0.1 s for 7 batches less 0.343 / 0.2, and its work: 0.469 s.
    certificate = at_prices()
    assert least_machines(certificate) == check(certificate).bound == 2
    given = Field(certificate, "certificate")
    machine = read_machine(given["machine"])
    found = priced(given, machine, read_question(given, Work()), partial(prompt_needs, machine))
    assert found is not None
    paid, room = found
    assert room == unit_of(machine) * 1400 * 10
    first, *others = (Fraction(some or 0, unit_of(machine) * 10_000) for some in paid)
    assert others == [Fraction(215, 1000) + Fraction(625, 1_000_000)] * 5
    assert first == pytest.approx(0.007 + 0.0875 * (7 - 0.343 / 0.2), abs=1e-3)


def test_what_requests_pay() -> None:
    # Two requests at one price all along share a batch: an eighth of 0.1 s is shared by work.
    question = steady(2)
    machine = machine_of(question.workload)
    second, costs = machine.ticks_per_second, costs_in(question, 0, 8)[0]
    assert costs is not None
    unit = unit_of(machine)
    prompt = second * Fraction(100 * 1000 + 7 * 100_000 * 100 // (8 * 200), 1_000_000)
    work = second * Fraction(11 * 1000, 1_000_000)
    spare = second * Fraction(1_650_000 - 11 * 101_000, 1_000_000)
    batches = Fraction(7, 8) * second / 10 * (11 - spare / (second * Fraction(200, 1000)))
    assert costs.prompt == prompt * unit
    assert costs.work == work * unit
    assert 0 <= batches * unit - costs.batches < unit
    end = max(some.later.end for some in costs_in(question, 0, 8) if some and some.later)
    evidence = {"piece": 0, "parts": 8, "cells": [[0, end, 2]], "shares": [1, 1]}
    given = Field({"prices": evidence}, "certificate")
    asked = read_question(Field(bare(question), "certificate"), Work())
    paid, room = priced(given, machine, asked, partial(prompt_needs, machine)) or ([], 0)
    assert paid == [2 * costs.prompt + 2 * costs.work + costs.batches] * 2
    assert room == 2 * end * unit


def test_evidence_that_is_none() -> None:
    certificate = at_prices()
    right = certificate["prices"]
    ((begin, end, price),) = right["cells"]
    for key, wrong, why in (
        ("piece", 1, "prices.piece"),
        ("parts", 1, "prices.parts"),
        ("parts", 1001, "prices.parts"),
        ("cells", [[begin, end, 0]], "prices.cells"),
        ("cells", [[begin, begin, price]], "prices.cells"),
        ("cells", [[begin, end, price], [end - 1, end + 1, price]], "prices.cells"),
        ("cells", [], "prices.shares: more than the price of time"),
        ("shares", [], "prices.shares: not one for each request"),
        ("shares", [-1, 0, 0, 0, 0, 0], "prices.shares"),
        ("shares", [price + 1, 0, 0, 0, 0, 0], "prices.shares: more than the price"),
        ("shares", [0, price, 0, 0, 0, 0], "prices.shares: more than the price"),  # it ends later
    ):
        with pytest.raises(Rejected, match=why):
            least_machines({**certificate, "prices": {**right, key: wrong}})
    with pytest.raises(Rejected, match="prices"):
        least_machines({**certificate, "prices": [right]})
    # A price of longer: those who end later may have shares, but not more than it together.
    longer = {**right, "cells": [[begin, 2 * end, price]]}
    for shares in ([5, 5, 0, 0, 0, 0], [0, 10, 0, 0, 0, 0]):
        assert least_machines({**certificate, "prices": {**longer, "shares": shares}}) == 1
    with pytest.raises(Rejected, match="those who may share a batch have more than its price"):
        least_machines({**certificate, "prices": {**longer, "shares": [5, 6, 0, 0, 0, 0]}})
    # A gap is time for nothing.
    halves = [[begin, 900, price], [901, end, price]]
    with pytest.raises(Rejected, match="more than the price of time"):
        least_machines({**certificate, "prices": {**right, "cells": halves}})
    # Whoever has one token shares no batches of later ones.
    shares = {"piece": 0, "parts": 8, "cells": [[0, 10**15, 2]], "shares": [1, 0, 0]}
    with pytest.raises(Rejected, match="no batches to share"):
        least_machines({**bare(steady(3, 1)), "prices": shares})


def test_what_takes_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    question = one_by_one()
    machine, asked = machine_of(question.workload), question.asked
    for limit, value in (("MOST_REQUESTS", 5), ("MOST_CELLS", 1), ("ROUNDS", 0)):
        with monkeypatch.context() as patched:
            patched.setattr(prices, limit, value)
            assert prices_of_too_few(machine, asked, 0, 1) is None
