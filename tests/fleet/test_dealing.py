"""Requests that are dealt to machines one by one: clocks are those of the replay, and fewer miss."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from infermax_opt.fleet import planned
from infermax_opt.fleet.dispatch import dealing
from infermax_opt.fleet.dispatch.dealing import Dealing
from infermax_opt.fleet.dispatch.dispatcher import Dealt, Dispatcher, Way
from infermax_opt.fleet.dispatch.snapshots import Machines
from infermax_opt.fleet.dispatch.states import joined
from infermax_opt.fleet.dispatch.stretches import Option, Stretches
from infermax_opt.fleet.replay import replay_fleet
from tests.campaign import campaign, in_blocks
from tests.fleet.test_planned import served

ALONE = Way(hold=True, promise=True)


def stretches_of(given: Dispatcher, machines: int) -> Stretches:
    """A first way that refuses one, and four others that refuse none."""
    ways = [Way(hold, promise=True, joined=joined) for hold, joined in product((True, False), (0.0, 2.0))]
    options: list[Option] = [(ALONE, [4]), *((way, []) for way in ways)]
    return Stretches(given, machines, options, given.pilot(machines, *options[0]))


@in_blocks(campaign(12, 600), 4)
def test_clocks_are_those_of_the_replay_where_requests_are_dealt(seeds: range) -> None:
    for seed in seeds:
        question, rng = served(seed), random.Random(seed)
        given, machines = Dispatcher(question), rng.randint(1, 4)
        way = Way(rng.random() < 0.7, promise=True)
        dealt = Dealt(way, [rng.randint(-1, machines - 1) for _ in range(60)])
        pilot = given.pilot(machines, dealt)
        for i, route in enumerate(pilot.routes):
            assert route == (-1 if i in pilot.missed else dealt.routes[i]), seed
        done = replay_fleet(question, pilot.routes, given.schedules(machines, dealt))
        assert done.good == set(range(60)) - set(pilot.missed), seed


def test_fewer_miss_where_requests_are_dealt_again() -> None:
    fewer = more = 0
    for seed in range(12):
        given, machines = Dispatcher(served(seed)), 1 + seed % 3
        course = stretches_of(given, machines).best(1)
        told: list[float] = []
        search = Dealing(given, machines, stretches_of(given, machines), ALONE, told.append)
        dealt = search.dealt()
        assert dealt == Dealing(given, machines, stretches_of(given, machines), ALONE).dealt()
        pilot, before = given.pilot(machines, dealt), given.pilot(machines, *course)
        # What the search knows of each machine is what comes of it.
        known = {i for one in search._missed for some in one for i in some}
        assert known | {i for i, k in enumerate(dealt.routes) if k < 0} == {*pilot.missed}, seed
        assert told == sorted(told)
        fewer += len(pilot.missed) < len(before.missed)
        more += len(pilot.missed) > len(before.missed)
    assert fewer > 2
    assert not more


def test_changes_of_each_kind_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in {*dealing.KINDS}:
        monkeypatch.setattr(dealing, "KINDS", (kind,))
        kept = 0
        for seed in range(6):
            given = Dispatcher(served(seed))
            monkeypatch.setattr(dealing, "TRIES", 0)
            before = Dealing(given, 2, stretches_of(given, 2), ALONE).dealt()
            monkeypatch.setattr(dealing, "TRIES", 15)
            kept += Dealing(given, 2, stretches_of(given, 2), ALONE).dealt() != before
        assert kept, kind


@pytest.mark.parametrize("machines", [1, 2, 3])
def test_machines_go_on_from_a_state(machines: int) -> None:
    for seed in range(6):
        given = Dispatcher(served(seed))
        whole, parts = Machines(given, machines), Machines(given, machines)
        whole.serve(whole.empty, given.order, 60, ALONE, machines)
        state, missed = parts.empty, set[int]()
        for begin in range(0, 60, 12):
            state, late = parts.serve(state, given.order[begin : begin + 12], begin + 12, ALONE, machines)
            missed |= {*late.tolist()}
        pilot = given.pilot(machines, ALONE)
        assert missed == {*pilot.missed}
        assert whole.routes(given.order).tolist() == [pilot.routes[i] for i in given.order]


def test_machines_that_were_apart_go_on_together() -> None:
    question = served(2)
    given = Dispatcher(question)
    together, alone = Machines(given, 2), Machines(given, 1)
    first = given.order[:12]
    state, _ = together.serve(together.empty, first, 12, ALONE, 2)
    routes = together.routes(first)
    apart = [alone.serve(alone.empty, first[routes == k], 12, ALONE, 1)[0] for k in range(2)]
    both = joined(apart)
    assert both.same(state)
    assert both.ahead == pytest.approx(state.ahead)
    assert not both.same(together.empty)


def test_a_share_is_reached_where_requests_are_dealt(monkeypatch: pytest.MonkeyPatch) -> None:
    # Nothing else than stretches and deals is tried after the first ways.
    few = planned.ALL[: planned.FEW]
    for name, value in (("ALL", few), ("AGAIN", 0), ("TRIES", 0), ("WIDTHS", ((1, 9.0),))):
        monkeypatch.setattr(planned, name, value)
    found, told = 0, list[str]()
    for seed, percent in product(campaign(1, 40, first=1), range(65, 96, 10)):
        question = replace(served(seed), share=Fraction(percent, 100))
        monkeypatch.setattr(planned, "DEAL", 0.0)
        if planned.planned_with(question, 1) is not None:
            continue
        monkeypatch.setattr(planned, "DEAL", 9.0)
        some = planned.Search(
            question, planned.Asked(Dispatcher(question), question.spare, ()), told.append
        ).verified(1)
        if some is not None:
            assert some.replay.keeps(question)
            assert (some.policy, some.scheduler) == (planned.PROMISES, planned.PLANNED)
            found += 1
    assert found
    assert {line.split(" up to ")[0] for line in told} == {"planning 1 machine", "planning 1 machine, dealt"}
