"""Machines that know the future: their clocks are those of the replay, and no optimum lies above them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, combinations, islice, pairwise, product
from typing import Any

import pytest

from infermax_opt.files.traces import Trace, TraceRequest
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.dispatch import _promises, dispatcher
from infermax_opt.fleet.dispatch.dispatcher import Dispatcher, Way, dispatches
from infermax_opt.fleet.dispatch.refusals import Refusals
from infermax_opt.fleet.dispatch.stretches import Stretches
from infermax_opt.fleet.machine_types import MachineType
from infermax_opt.fleet.plan_row import PlanOptions, Split
from infermax_opt.fleet.planned import (
    PLANNED,
    PROMISES,
    QUEUE,
    WAYS,
    Asked,
    Search,
    fewest_planned,
    may_plan,
    online_of,
    planned_with,
    uppers,
)
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.routing.policies import Pilot
from infermax_opt.fleet.scaling import Scaling
from infermax_opt.fleet.sweep import Sweep, sweep
from infermax_opt.fleet.upper import fewest_machines
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.ecoserve import with_predictions
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, ServiceLevel, System
from tests.campaign import campaign, in_blocks
from tests.fleet.test_upper import stream
from tests.fleet.tiny import fewest, tiny_fleet
from tests.infermax.vector_oracle import TooMany
from tests.support import PAPER

PROMISING = (Way(hold=True, promise=True), Way(promise=True))
MIXES = Policy(chunked_prefill=True, hybrid_batching=True, preemption=False)


def served(seed: int) -> FleetQuestion:
    """Requests of some seconds on machines that may run a plan, with all kinds of limits."""
    question, rng = stream(seed), random.Random(seed)
    levels: list[ServiceLevel] = [
        ServiceLevel(ttft=Fraction(1, 5), tpot=Fraction(3, 100)),
        ServiceLevel(e2e=Fraction(1)),
        ServiceLevel(tpot=Fraction(1, 50)),
        ServiceLevel(ttft=Fraction(1, 10)),
    ]
    groups = [
        RequestGroup(
            r.id, r.input_tokens, rng.choice([1, r.output_tokens]), r.arrival, slo=rng.choice(levels)
        )
        for r in question.workload.requests
    ]
    block = rng.choice([1, 16])
    system = replace(question.workload.system, block_size=block, kv_capacity=rng.choice([2_048, 8_000]))
    cost = replace(question.workload.cost, attention=rng.choice(list(Attention)))
    workload = replace(question.workload, groups=tuple(groups), system=system, policy=MIXES, cost=cost)
    return FleetQuestion(workload, Fraction(9, 10))


@in_blocks(campaign(12, 600), 4)
def test_what_fills_the_time_up_to_a_limit_keeps_it_hours_later(seeds: range) -> None:
    for seed in seeds:
        question = served(seed)
        groups = tuple(replace(group, arrival=group.arrival + 20_000) for group in question.workload.groups)
        question = replace(question, workload=replace(question.workload, groups=groups))
        given, machines = Dispatcher(question), 1 + seed % 3
        for way in PROMISING[:4]:
            pilot = given.pilot(machines, way)
            done = replay_fleet(question, pilot.routes, given.schedules(machines, way))
            assert done.good == {*range(60)} - {*pilot.missed}, seed


@in_blocks(campaign(12, 600), 4)
def test_simulated_clocks_are_those_of_the_replay(seeds: range) -> None:
    for seed in seeds:
        question, rng = served(seed), random.Random(seed)
        given, machines, way = Dispatcher(question), rng.randint(1, 4), rng.choice([*WAYS, *PROMISING * 6])
        refused, among = rng.sample(range(60), 5), [rng.randint(1, machines) for _ in range(60)]
        pilot = given.pilot(machines, way, refused, among)
        assert all(pilot.routes[i] == -1 for i in refused)
        assert all(route < most for route, most in zip(pilot.routes, among, strict=True))
        if way.promise:
            assert all(pilot.routes[i] == -1 for i in pilot.missed), seed
        done = replay_fleet(question, pilot.routes, given.schedules(machines, way, refused, among))
        assert done.good == set(range(60)) - set(pilot.missed), seed


@pytest.mark.parametrize("seed", [16, 24, 285, 297, 531])
def test_who_moves_to_an_idle_machine_has_arrived(seed: int) -> None:
    test_simulated_clocks_are_those_of_the_replay(range(seed, seed + 1))


@pytest.mark.parametrize("joined", [0.0, 0.42, 2.0])
def test_clocks_are_those_of_the_replay_whatever_a_batch_more_is_taken_to_cost(joined: float) -> None:
    for seed in range(4):
        question, way = served(seed), Way(hold=seed % 2 == 0, promise=True, joined=joined)
        given, machines = Dispatcher(question), 2 + seed % 3
        pilot = given.pilot(machines, way)
        done = replay_fleet(question, pilot.routes, given.schedules(machines, way))
        assert done.good == set(range(60)) - set(pilot.missed), (seed, joined)


@in_blocks(campaign(12, 600), 4)
def test_clocks_are_those_of_the_replay_where_ways_change(seeds: range) -> None:
    for seed in seeds:
        question, rng = served(seed), random.Random(seed)
        given, machines = Dispatcher(question), rng.randint(1, 4)
        places = [0, *sorted(rng.sample(range(1, 60), 3))]
        ways = [
            Way(
                rng.random() < 0.7,
                promise=True,
                joined=rng.choice([0.0, 0.42, 2.0]),
                short=rng.choice([0, 1]),
            )
            for _ in places
        ]
        course, refused = list(zip(places, ways, strict=True)), rng.sample(range(60), 5)
        pilot = given.pilot(machines, course, refused)
        assert {*refused} <= {*pilot.missed} == {i for i, route in enumerate(pilot.routes) if route < 0}
        done = replay_fleet(question, pilot.routes, given.schedules(machines, course, refused))
        assert done.good == set(range(60)) - set(pilot.missed), seed


def test_a_course_of_one_way_is_that_way() -> None:
    for seed in range(8):
        question, way = served(seed), PROMISING[seed % 2]
        given = Dispatcher(question)
        assert given.pilot(2, [(place, way) for place in (0, 7, 8, 40)]) == given.pilot(2, way)


def test_the_last_machine_takes_short_outputs_only() -> None:
    question = served(1)
    given, outputs = Dispatcher(question), [r.output_tokens for r in question.workload.requests]
    short = sorted(outputs)[30]
    for machines in (2, 3):
        routes = given.pilot(machines, Way(promise=True, short=short)).routes
        assert max(outputs[i] for i in range(60) if routes[i] == machines - 1) <= short
        assert max(outputs[i] for i in range(60) if routes[i] >= 0) > short
    assert given.pilot(1, Way(promise=True, short=short)) == given.pilot(1, Way(promise=True))


def test_fewer_miss_where_ways_change_from_stretch_to_stretch() -> None:
    fewer = 0
    for seed in range(12):
        question, machines = served(seed), 1 + seed % 3
        given, first = Dispatcher(question), Way(hold=True, promise=True)
        pilot = given.pilot(machines, first)
        others = [
            (Way(hold, promise=True, joined=joined, short=short), [3, 5] if short else [])
            for hold, joined, short in product((False, True), (0.0, 2.0), (0, 1))
        ]
        stretches = Stretches(given, machines, [(first, []), *others], pilot)
        course, refused = stretches.best(3)
        assert stretches.best(3) == (course, refused)
        assert {*refused} <= {3, 5}
        fewer += len(given.pilot(machines, course, refused).missed) < len(pilot.missed)
    assert fewer > 2


def test_a_stretch_without_misses_is_served_in_the_first_way() -> None:
    question = served(3)
    given, first = Dispatcher(question), Way(promise=True)
    pilot = given.pilot(60, first)
    kept = Pilot(pilot.routes, [])
    course, refused = Stretches(given, 60, [(first, [1]), (Way(hold=True, promise=True), [2])], kept).best(2)
    assert ({way for _, way in course}, refused) == ({first}, [1])


@pytest.mark.parametrize(("joined", "routes"), [(0.0, [0, 1]), (2.0, [0, 0])])
def test_long_outputs_come_together_where_a_batch_more_is_dear(joined: float, routes: list[int]) -> None:
    # The second waits some 0.07 s on the first machine, or has 99 batches of 0.02 s to itself on the other.
    slo = ServiceLevel(ttft=Fraction(1), tpot=Fraction(1, 10))
    groups = tuple(RequestGroup(f"r{k}", 1000, 100, Fraction(k, 20), slo=slo) for k in range(2))
    cost = CostModel([("0.02", "0.0001")], ("0", "0"), ("0", "0"))
    workload = Instance("two", groups, System(8_000, 2_048, 2_048), cost, MIXES, objective="missed")
    pilot = Dispatcher(FleetQuestion(workload, Fraction(1))).pilot(2, Way(promise=True, joined=joined))
    assert (pilot.routes, pilot.missed) == (routes, [])


def test_compiled_dispatch_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    question = served(2)
    ways = [*WAYS[::5], *PROMISING]
    plain = [Dispatcher(question).pilot(2, way) for way in ways]
    monkeypatch.setattr(dispatcher, "PLAIN_WORK", 0)
    known = Dispatcher(question)
    assert [known.pilot(2, way) for way in ways] == plain


@in_blocks(campaign(16, 2_000), 8)
def test_planned_machines_lie_above_the_optimum(seeds: range) -> None:
    for seed in seeds:
        question = tiny_fleet(seed)
        question = replace(question, workload=replace(question.workload, policy=MIXES))
        bound = pooled_bound(question)
        found = fewest_planned(question, bound, None) if bound.machines is not None else None
        if found is None:
            continue
        assert found.replay.keeps(question)
        assert found.policy in (PROMISES, QUEUE)
        assert found.scheduler == PLANNED
        assert found.machines >= (bound.machines or 0)
        try:
            best = fewest(question)
        except TooMany:
            continue
        assert best is not None, seed
        assert best <= found.machines, seed


def prompts_beside_decodes() -> FleetQuestion:
    """Long prompts, few outputs, and a TPOT that a batch with a whole prompt breaks."""
    cost = CostModel([("0.01", "0.0001")], ("0.001", "1e-7"), ("0.001", "0"))
    rng, groups = random.Random(1), list[RequestGroup]()
    for k in range(50):
        slo = ServiceLevel(ttft=Fraction(2), tpot=Fraction(3, 100))
        groups.append(RequestGroup(f"r{k}", rng.randint(500, 3000), 12, Fraction(2 * k, 25), slo=slo))
    workload = Instance("beside", tuple(groups), System(60_000, 4096, 4096), cost, MIXES, "missed")
    return FleetQuestion(workload, Fraction(95, 100))


def test_a_plan_takes_fewer_machines_than_online_schedulers() -> None:
    question = prompts_beside_decodes()
    bound, online = pooled_bound(question), fewest_machines(question, 1)
    assert online is not None
    *_, (found, known) = uppers(question, bound, ("sarathi", "deadline", "vllm_v1", PLANNED))
    assert found is not None
    assert known is not None
    assert (bound.machines or 0) <= found.machines < known.machines == online.machines
    assert set(known.attained) <= set(found.attained)
    assert found.refused == found.routes.count(-1) <= question.may_miss
    assert planned_with(question, found.machines) is not None
    assert fewest_planned(question, bound, bound.machines) is None
    # Who misses where the bound is least are others than those who miss in any case, and some of them.
    assert all(set(some).isdisjoint(bound.lost) for some in bound.missed)
    assert all(bound.missed)


def test_only_who_knows_plans() -> None:
    question = served(1)
    assert online_of(("sarathi", PLANNED)) == ("sarathi",)
    assert may_plan(question, ("sarathi", PLANNED))
    assert not may_plan(question, ("sarathi",))
    guessed = replace(question, workload=with_predictions(question.workload, 0.1, 0))
    assert not may_plan(guessed, (PLANNED,))
    for policy in (replace(MIXES, chunked_prefill=False), replace(MIXES, hybrid_batching=False)):
        assert not dispatches(replace(prompts_beside_decodes().workload, policy=policy))


def test_first_tokens_wait_for_each_other() -> None:
    # Four prompts one after the other take nearly all the time until the last is late.
    cost = CostModel([("0.01", "0.001")], ("0", "0"), ("0", "0"))
    slo = ServiceLevel(ttft=Fraction(13, 10), tpot=Fraction(2, 100))
    groups = tuple(RequestGroup(f"r{k}", 300, 10, Fraction(0), slo=slo) for k in range(4))
    workload = Instance("wait", groups, System(10_000, 300, 300), cost, MIXES, "missed")
    given = Dispatcher(FleetQuestion(workload, Fraction(1)))
    assert given.pilot(1, Way(hold=True)).missed == []
    assert given.pilot(1, Way(hold=False)).missed != []


def test_the_longest_are_refused_while_there_are_too_many() -> None:
    cost = CostModel([("0.01", "0.001")], ("0", "0"), ("0", "0"))
    slo = ServiceLevel(ttft=Fraction(1))
    sizes = (100, 900, 150, 300, 200)
    groups = tuple(RequestGroup(f"r{k}", size, 1, Fraction(0), slo=slo) for k, size in enumerate(sizes))
    workload = Instance("shed", groups, System(10_000, 300, 300), cost, MIXES, "missed")
    given = Dispatcher(FleetQuestion(workload, Fraction(1)))
    assert given.pilot(1, Way(shed=1.0)).missed == [1]
    assert given.pilot(1, Way(shed=1.0)).routes == [0, -1, 0, 0, 0]


def prompts(sizes: Sequence[int], ttft: Sequence[Fraction]) -> Dispatcher:
    """Prompts alone that arrive together, a second for a thousand tokens."""
    cost = CostModel([("0", "0.001")], ("0", "0"), ("0", "0"))
    groups = tuple(
        RequestGroup(f"r{k}", size, 1, Fraction(0), slo=ServiceLevel(ttft=limit))
        for k, (size, limit) in enumerate(zip(sizes, ttft, strict=True))
    )
    workload = Instance("prompts", groups, System(100_000, 300, 300), cost, MIXES, "missed")
    return Dispatcher(FleetQuestion(workload, Fraction(1)))


def most_in_time(sizes: Sequence[int], limits: Sequence[Fraction]) -> int:
    """Prompts of one machine that can be in time together, of all choices."""
    for count in range(len(sizes), 0, -1):
        for some in combinations(zip(limits, sizes, strict=True), count):
            ordered = sorted(some)
            ends = accumulate(size for _, size in ordered)
            if all(end <= 1000 * limit for (limit, _), end in zip(ordered, ends, strict=True)):
                return count
    return 0


@in_blocks(campaign(40, 3_000), 20)
def test_promises_of_one_machine_are_as_many_as_can_be_kept(seeds: range) -> None:
    replaced = 0
    for seed in seeds:
        rng = random.Random(seed)
        sizes = [rng.randint(1, 40) * 10 for _ in range(rng.randint(1, 8))]
        # No sum of prompts ends just at a limit, where floats decide.
        limits = sorted(Fraction(rng.randint(5, 150), 100) + Fraction(1, 200) for _ in sizes)
        pilot = prompts(sizes, limits).pilot(1, PROMISING[0])
        assert len(sizes) - len(pilot.missed) == most_in_time(sizes, limits), seed
        replaced += any(sizes[i] > max(sizes[i + 1 :], default=0) for i in pilot.missed)
    assert replaced


def test_who_is_promised_may_move_to_another_machine() -> None:
    # The last one fits nowhere until a prompt of 0.4 s goes from the first machine to the second.
    given = prompts([400, 400, 200, 200, 600], [Fraction(21, 20)] * 5)
    assert given.pilot(2, PROMISING[0]).missed == []
    assert given.pilot(1, PROMISING[0]).missed == [1, 4]


def test_nobody_takes_the_place_of_one_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where many come at once, most are refused, and tries would be as many as their squares."""
    tried = 0

    def counted(*given: Any) -> Any:
        nonlocal tried
        done, some = moved(*given)
        tried += some
        return done, some

    moved = _promises.moved
    monkeypatch.setattr(_promises, "moved", counted)
    monkeypatch.setattr(dispatcher, "worthwhile", lambda *_: False)  # in plain Python
    alike = prompts([400] * 40, [Fraction(1)] * 40).pilot(2, PROMISING[0])
    assert (len(alike.missed), tried) == (36, 0)
    sizes = [400 + k for k in range(40, 0, -1)]
    assert len(prompts(sizes, [Fraction(1)] * 40).pilot(2, PROMISING[0]).missed) == 36
    assert 40 < tried <= 40 * _promises.PLACES
    monkeypatch.setattr(_promises, "PLACES", 1)
    tried = 0
    assert len(prompts(sizes, [Fraction(1)] * 40).pilot(2, PROMISING[0]).missed) == 36
    assert tried == 40


def test_a_search_tells_what_it_is_at_before_each_try() -> None:
    told: list[str] = []
    question = prompts_beside_decodes()
    given = Dispatcher(question)
    pilots = [0]

    class Counting(Dispatcher):
        def pilot(self, *asked: Any) -> Pilot:
            pilots.append(len(told))
            return given.pilot(*asked)

    search = Search(question, Asked(Counting(question), 0, ()), told.append)
    list(islice(search.candidates(1), 20))
    assert set(told) == {"planning 1 machine"}
    assert len(pilots) > 10
    assert all(after > before for before, after in pairwise(pilots))


def test_prompts_come_first_where_decoding_can_make_up_for_it() -> None:
    # Of 1 s for ten later tokens half is free, but of each batch that keeps the mean pace half as well.
    cost = CostModel([("0.05", "0.001")], ("0", "0"), ("0", "0"))
    rows = ((10, 11, 0, "1"), (300, 1, Fraction(1, 10), "0.45"))
    groups = tuple(
        RequestGroup(f"r{k}", i, o, Fraction(at), slo={"ttft": ttft, "tpot": "0.1"})
        for k, (i, o, at, ttft) in enumerate(rows)
    )
    workload = Instance("first", groups, System(10_000, 1000, 1000), cost, MIXES, "missed")
    given = Dispatcher(FleetQuestion(workload, Fraction(1)))
    assert given.pilot(1, Way(promise=True)).missed == []
    assert given.pilot(1, Way()).missed == [1]


def test_no_machine_takes_what_it_cannot_keep() -> None:
    question = prompts_beside_decodes()
    given = Dispatcher(question)
    for machines in (1, 2):
        for way in PROMISING:
            pilot = given.pilot(machines, way)
            done = replay_fleet(question, pilot.routes, given.schedules(machines, way))
            assert done.good == {i for i, route in enumerate(pilot.routes) if route >= 0}


def test_a_sweep_by_a_plan_alone_and_one_that_is_interrupted() -> None:
    trace = Trace("t.csv", tuple(TraceRequest(k + 2, Fraction(k, 10), 900, 3) for k in range(20)))
    kind = MachineType("a", System(9_000, 1024, 512), PAPER)
    options = PlanOptions(
        ServiceLevel(Fraction(1, 2)), schedulers=(PLANNED,), scaling=Scaling(), window=Fraction(1),
        split=Split(Fraction(0)),
    )  # fmt: skip
    (row,) = sweep(trace, Sweep([kind], [Fraction(1)], options)).rows
    assert row.found is not None
    assert row.online is None
    assert row.found_by == f"{PROMISES} with {PLANNED}"
    assert row.scaled is not None
    assert row.scaled.lower <= row.scaled.upper
    assert row.windows is not None
    assert row.windows.scheduler == PLANNED
    assert row.split is not None
    assert row.split.found is not None

    def tell(told: str) -> None:
        if told.startswith("planning"):
            raise KeyboardInterrupt

    many = prompts_beside_decodes().workload
    asked = [TraceRequest(k, r.arrival, r.input_tokens, r.output_tokens) for k, r in enumerate(many.requests)]
    both = PlanOptions(many.requests[0].terms.slo, Fraction(95, 100), ("sarathi", PLANNED))
    plan = sweep(
        Trace("m.csv", tuple(asked)),
        Sweep([MachineType("m", many.system, many.cost)], [Fraction(1)], both),
        tell,
    )
    assert plan.stopped is not None
    assert plan.stopped.startswith("an interrupt, at: planning ")
    assert plan.rows[0].found is plan.rows[0].online is not None


def test_others_are_refused_where_fewer_miss_then() -> None:
    fewer = 0
    for seed in range(12):
        question, way = served(seed), Way(hold=True, promise=True)
        given = Dispatcher(question)
        before = given.pilot(1, way)
        refusals, least = Refusals(question, [], before.missed), len(before.missed)
        for refused in islice(refusals, 30):
            pilot = given.pilot(1, way, refused)
            assert {*refused} <= {*pilot.missed}
            refusals.learn(refused, pilot.missed)
            least = min(least, len(pilot.missed))
        fewer += least < len(before.missed)
    assert fewer > 2
