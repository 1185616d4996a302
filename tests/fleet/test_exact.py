"""Fewest machines and cheapest mixes of few requests, by search: against enumeration by another oracle."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from infermax_opt.files.traces import Trace, TraceRequest
from infermax_opt.fleet import exact
from infermax_opt.fleet.exact import EVERY, SEARCH, cheapest, few, replayed
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.mix import mixes
from infermax_opt.fleet.page import plan_page
from infermax_opt.fleet.plan_row import PlanOptions, PlanRow
from infermax_opt.fleet.planned import PLANNED
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.report import plan_csv, plan_to_json
from infermax_opt.fleet.report_text import BY_SEARCH, plan_text
from infermax_opt.fleet.scaling import Scaling
from infermax_opt.fleet.sweep import Plan, Sweep, sweep
from infermax_opt.infermax.data.instance import ServiceLevel, System
from tests.campaign import campaign, in_blocks
from tests.fleet.test_pooled import with_unfit
from tests.fleet.tiny import cheapest_by_enumeration, fewest, tiny_fleet
from tests.infermax.tiny import cost_model
from tests.infermax.vector_oracle import TooMany
from tests.support import PAPER

ONE = [Fraction(1)]


@in_blocks(campaign(90, 5_000), 30)
def test_fewest_machines_as_by_enumeration(seeds: range) -> None:
    seen = 0
    for seed in seeds:
        question = tiny_fleet(seed)
        try:
            best = fewest(question)
        except TooMany:
            continue
        found = cheapest([question], ONE)
        assert found is not None, seed
        assert found.machines == best, seed
        seen += 1
        if found.fleet is not None:
            machines = [members for _, members in found.fleet]
            routes, replay = replayed(question, machines)
            assert replay.keeps(question), seed
            assert max(routes) + 1 == best, seed
    assert seen > len(seeds) / 2


@in_blocks(campaign(24, 1_200), 20)
def test_cheapest_mixes_as_by_enumeration(seeds: range) -> None:
    for seed in seeds:
        first, rng = tiny_fleet(seed), Random(seed)
        if len(first.workload.requests) > 4:
            continue
        other = FleetQuestion(replace(first.workload, cost=cost_model(rng)), first.share)
        prices = [Fraction(rng.randint(1, 9)), Fraction(rng.randint(1, 9))]
        try:
            truth = cheapest_by_enumeration([first, other], prices)
        except TooMany:
            continue
        *_, best = mixes([first, other], prices, [None, None], knows=True)
        assert best.lower == best.price == truth, seed
        good = sum(kind >= 0 for kind, _ in best.routes)
        assert truth is None or best.scheduler != SEARCH or good >= first.must, seed
        *_, online = mixes([first, other], prices, [None, None])
        assert online.lower == truth, seed
        assert online.price is None or (truth is not None and online.price >= truth), seed


def test_who_fits_no_machine_counts_as_missed() -> None:
    for seed in range(20):
        question = with_unfit(tiny_fleet(seed), 1)
        found, known = cheapest([question], ONE), tiny_fleet(seed)
        assert found is not None
        if question.must > len(known.workload.requests):
            assert found.fleet is None
            continue
        share = round((question.must - 0.5) / len(known.workload.requests), 3)
        fewer = FleetQuestion(known.workload, share)
        assert fewer.must == question.must
        expected = cheapest([fewer], ONE)
        assert expected is not None
        assert found.machines == expected.machines, seed


def test_more_requests_are_not_searched_and_no_search_is_endless(monkeypatch: pytest.MonkeyPatch) -> None:
    question = tiny_fleet(1)
    assert few([question])
    assert not few([with_unfit(question, 9)])
    monkeypatch.setattr(exact, "SECONDS", 0.0)
    assert cheapest([question], ONE) is None


def plan_of_three() -> tuple[Plan, PlanOptions]:
    """Three prompts at once, of which a machine has the time for two: the pooled bound is 1."""
    trace = Trace("t.csv", tuple(TraceRequest(k + 2, Fraction(0), 4, 1) for k in range(3)))
    limit = Fraction(12, 1000)
    options = PlanOptions(ServiceLevel(ttft=limit), Fraction(1))
    kinds = [
        MachineType(name, System(10, 8, 8), PAPER, Fraction(price)) for name, price in (("a", 2), ("b", 3))
    ]
    return sweep(trace, Sweep(kinds, ONE, options, mix=True)), options


def test_what_a_plan_says_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, options = plan_of_three()
    told = plan_to_json(plan, options)
    assert [(row["lower"], row["upper"], row["status"]) for row in told["rows"]] == [(2, 2, "optimal")] * 2
    assert [(row["certified"], row["certified_lower"]) for row in told["rows"]] == [(False, 1)] * 2
    (mix,) = told["mixes"]
    assert (mix["price_per_hour_lower"], mix["price_per_hour_upper"], mix["certified"]) == (4, 4, False)
    text = plan_text(plan, options)
    assert f"a at rate 1: {BY_SEARCH}, its certificate proves 1" in text
    assert f"4 an hour; {BY_SEARCH}, its certificate proves 2" in text
    assert "or, as said, by search" in text
    page = plan_page(json.loads(json.dumps(told)))
    assert "by a search of all routings and schedules; the certificate proves 1" in page
    assert "Some lower bounds are those of a search." in page
    assert "certified_lower" in plan_csv(plan.rows)
    monkeypatch.setattr(exact, "SECONDS", 0.0)
    plan, options = plan_of_three()
    assert [(row.lower, row.upper, row.certified) for row in plan.rows] == [(1, 2, True)] * 2
    assert BY_SEARCH not in plan_text(plan, options)
    assert "search" not in plan_page(plan_to_json(plan, options)).split("What was proved", 1)[0]


#: Arrival in ms, prompt and output tokens: one machine is enough if it waits for the second.
TWO = (8, 3, 3), (19, 2, 2)


def row_of_two(*schedulers: str, errors: tuple[Fraction, ...] = ()) -> PlanRow:
    trace = Trace(
        "t.csv", tuple(TraceRequest(k + 2, Fraction(at, 1000), i, o) for k, (at, i, o) in enumerate(TWO))
    )
    slo = ServiceLevel(ttft=Fraction(9, 1000), tpot=Fraction(15, 1000))
    options = PlanOptions(slo, Fraction(1), schedulers, scaling=Scaling(), errors=errors)
    (row,) = sweep(trace, Sweep([MachineType("a", System(10, 8, 8), PAPER)], ONE, options)).rows
    return row


def test_a_fleet_that_is_found_by_search_alone() -> None:
    """It counts where outputs may be known; else the search only says how many are needed."""
    row = row_of_two("sarathi", PLANNED)
    assert row.found_by == f"{EVERY} with {SEARCH}"
    assert (row.lower, row.upper, row.status, row.certified) == (1, 1, "optimal", True)
    assert row.found is not None
    assert row.found.replay.good == {0, 1}
    assert row.found.attained == {1: 2, 2: 2}
    assert row.scaled is not None
    assert row.scaled.lower <= row.scaled.upper
    for row in (row_of_two("sarathi"), row_of_two("sarathi", PLANNED, errors=(Fraction(0),))):
        assert (row.lower, row.upper) == (1, 2)
