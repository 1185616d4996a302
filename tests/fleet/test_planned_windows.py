"""Windows that a plan serves one after the other: each keeps its share after what was to do before it."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from infermax_opt.fleet import planned_windows as room
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.dispatch import dealing
from infermax_opt.fleet.dispatch.dealing import Dealing
from infermax_opt.fleet.dispatch.dispatcher import Dealt, Dispatcher, Way
from infermax_opt.fleet.dispatch.snapshots import Machines
from infermax_opt.fleet.dispatch.states import State, idle
from infermax_opt.fleet.dispatch.stretches import Stretches
from infermax_opt.fleet.fewest import fewest
from infermax_opt.fleet.planned import ALONE, FEW, PLANNED, PROMISED, Asked, Search, fewest_planned
from infermax_opt.fleet.planned_windows import Part, planned_windows
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import FleetReplay, replay_fleet
from infermax_opt.fleet.scaling import Scaling
from tests.campaign import campaign, in_blocks
from tests.fleet.test_autoscaling import LENGTH, autoscaled, uneven
from tests.fleet.test_planned import MIXES, served
from tests.fleet.tiny import tiny_fleet


def parts_of(question: FleetQuestion, each: int) -> list[Part]:
    """Windows of so many requests, of which a tenth may miss."""
    order = Dispatcher(question).order.tolist()
    cut = [order[k : k + each] for k in range(0, len(order), each)]
    return [Part(some, len(some) // 10, 1, 60, ()) for some in cut]


def states_after(given: Dispatcher, routes: list[int], machines: int, end: int) -> list[State]:
    """Machines apart from each other, as those who arrive before a place leave them."""
    alone, found = Machines(given, 1), list[State]()
    for k in range(machines):
        some = given.order[:end]
        mine = some[[routes[i] == k for i in some]]
        found.append(alone.serve(idle(), mine, end, ALONE, 1)[0])
    return found


@in_blocks(campaign(12, 600), 4)
def test_a_part_goes_on_where_another_ended(seeds: range) -> None:
    for seed in seeds:
        question, rng = served(seed), random.Random(seed)
        given, machines, cut = Dispatcher(question), rng.randint(1, 3), rng.randint(1, 59)
        routes = [rng.randint(-1, machines - 1) for _ in range(60)]
        whole = given.pilot(machines, Dealt(ALONE, routes))
        part = given.part(cut, 60, states_after(given, routes, machines, cut))
        assert not part.whole
        here = {*given.order[cut:].tolist()}
        dealt = Dealt(ALONE, [k if i in here else -1 for i, k in enumerate(routes)])
        pilot, carried = part.pilot(machines, dealt), {i for one in part.started for i in one.there.tolist()}
        # Who was taken before and misses now has given way.
        assert {*pilot.missed} == {*whole.missed} & (here | carried), seed
        assert all(pilot.routes[i] == whole.routes[i] for i in here), seed


def test_who_was_taken_before_stays_on_its_machine() -> None:
    stayed = 0
    for seed in range(12):
        given = Dispatcher(served(seed))
        first = given.pilot(2, ALONE)
        part = given.part(30, 60, states_after(given, first.routes, 2, 30))
        carried = {i: k for k, one in enumerate(part.started) for i in one.there.tolist()}
        for way in (ALONE, Way(promise=True, joined=0.0)):
            pilot = part.pilot(2, way)
            assert {i: pilot.routes[i] for i in carried if i not in pilot.missed}.items() <= carried.items()
            stayed += len(carried)
    assert stayed


@in_blocks(campaign(4, 200), 4)
def test_each_window_keeps_its_share(seeds: range) -> None:
    for seed in seeds:
        question, told = served(seed), list[str]()
        parts = parts_of(question, 12 + seed % 9)
        found = planned_windows(question, parts, told.append)
        if found is None:  # somebody is late on any machine
            continue
        counts, replay = found
        assert len(counts) == len(parts)
        for part, count in zip(parts, counts, strict=True):
            assert sum(i not in replay.good for i in part.members) <= part.spare, seed
            assert part.least <= count <= part.most
        assert len(replay.busy) <= max(counts)
        assert told[0] == f"window 1 of {len(parts)}: planning 1"
        assert found == planned_windows(question, parts)


def test_a_window_that_the_replay_misses_gets_a_machine_more(monkeypatch: pytest.MonkeyPatch) -> None:
    question = served(3)
    parts = parts_of(question, 15)
    counts, _ = planned_windows(question, parts) or ([], None)
    assert counts
    left: list[int] = []

    def replayed(*given: Any) -> FleetReplay:
        found = replay_fleet(*given)
        if len(left) == late:
            return found
        left.append(1)
        return replace(found, good=found.good - {*parts[1].members})

    monkeypatch.setattr(room, "replay_fleet", replayed)
    late = 1
    again, replay = planned_windows(question, parts) or ([], None)
    assert again[0] == counts[0]
    assert again[1] == counts[1] + 1
    assert replay is not None
    late = 9
    assert planned_windows(question, parts) is None
    assert len(left) == 1 + room.TRIES


def test_windows_take_only_so_many_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    routes, settled = dict[int, int](), room._Fleet._settled

    def noted(self: room._Fleet, some: dict[int, int], end: int) -> room._Settled:
        routes.update(some)
        return settled(self, some, end)

    monkeypatch.setattr(room._Fleet, "_settled", noted)
    checked = 0
    for seed in campaign(3, 30):
        question = served(seed)
        parts = [part._replace(spare=4) for part in parts_of(question, 15)]
        found = planned_windows(question, parts)
        if found is not None and len({*found[0]}) > 1:
            for part, count in zip(parts, found[0], strict=True):
                assert all(routes[i] < max(found[0]) for i in part.members)
                checked += count < max(found[0])
    assert checked


def test_one_window_is_the_whole_trace() -> None:
    for seed in campaign(1, 30):
        question = replace(served(seed), share=Fraction(7, 10))
        bound = pooled_bound(question)
        found = fewest_planned(question, bound, None)
        assert found is not None
        order = Dispatcher(question).order.tolist()
        part = Part(order, question.spare, max(1, bound.machines or 0), 60, bound.missed)
        windows = planned_windows(question, [part])
        assert windows is not None
        assert windows[1].keeps(question)
        assert windows[0][0] >= found.machines - 1


@in_blocks(campaign(8, 1_000), 8)
def test_windows_of_tiny_fleets_lie_above_their_bounds(seeds: range) -> None:
    for seed in seeds:
        question = tiny_fleet(seed)
        question = replace(question, workload=replace(question.workload, policy=MIXES))
        last = max(r.arrival for r in question.workload.requests)
        found = autoscaled(question, (last + 1) / 2, Scaling(), (PLANNED,))
        if found.upper is not None:
            assert found.lower is not None
            assert found.lower <= found.upper
            assert all((w.lower or 0) <= (w.upper or 0) for w in found.windows), seed


def test_a_plan_takes_no_more_machines_by_windows_than_online_schedulers() -> None:
    question = uneven()
    question = replace(question, workload=replace(question.workload, policy=MIXES))
    online = autoscaled(question, LENGTH, Scaling(), ("sarathi",))
    found = autoscaled(question, LENGTH, Scaling(), ("sarathi", PLANNED))
    assert found.scheduler == PLANNED
    assert sum(w.upper or 0 for w in found.windows) <= sum(w.upper or 0 for w in online.windows)


def test_online_schedulers_serve_windows_where_there_is_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room._Fleet, "serve", lambda self, number: None)
    question = uneven()
    question = replace(question, workload=replace(question.workload, policy=MIXES))
    assert autoscaled(question, LENGTH, Scaling(), ("sarathi", PLANNED)).scheduler == "sarathi"
    assert autoscaled(question, LENGTH, Scaling(), (PLANNED,)).upper is None


def test_the_fewest_that_are_enough() -> None:
    for least, most, enough in product(range(1, 6), range(1, 14), range(1, 16)):
        asked = Counter[int]()

        def reached(machines: int) -> bool:
            asked[machines] += 1  # noqa: B023
            return machines >= enough  # noqa: B023

        found = fewest(reached, least, most)
        assert found == (max(least, enough) if max(least, enough) <= most else None)
        assert all(least <= machines <= most for machines in asked)
        assert set(asked.values()) <= {1}


def test_both_guesses_of_whom_to_refuse_are_tried() -> None:
    better = 0
    for seed in range(6):
        question, rng = served(seed), random.Random(seed)
        given = Dispatcher(question)
        guesses = [rng.sample(range(60), 6) for _ in range(2)]
        search = Search(question, Asked(given, question.spare, guesses))
        least = []
        for some in guesses:
            ways = [(way, some[: int(part * question.spare)]) for way, part in PROMISED[:FEW]]
            least.append(min(len(given.pilot(1, *one).missed) for one in ways))
        list(search.candidates(1))
        assert 60 - search.attained[1] <= min(least)
        better += least[1] < least[0]
    assert better


def test_dealing_begins_with_the_deal_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealing, "ON", 0)
    for seed in range(4):
        given, rng = Dispatcher(served(seed)), random.Random(seed)
        routes = [rng.randint(-1, 1) for _ in range(60)]
        stretches = Stretches(given, 2, [(ALONE, [])], given.pilot(2, ALONE))
        assert list(Dealing(given, 2, stretches, ALONE, routes=routes).dealt().routes) == routes
