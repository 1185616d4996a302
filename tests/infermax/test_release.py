"""Closed loops: sets of requests that arrive when the one before is complete."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt import read_instance
from infermax_opt.api import bound, solve, verify
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import Proof
from infermax_opt.files.report import bounds_text
from infermax_opt.infermax import verify as verifying
from infermax_opt.infermax.bounds.attainment import attainment_bounds
from infermax_opt.infermax.bounds.closed_form import closed_form_bounds
from infermax_opt.infermax.bounds.searched import searched_bounds
from infermax_opt.infermax.checker import Rejected, Unusable, check
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.formats import instance_from_json
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, Release, RequestGroup, System
from infermax_opt.infermax.data.objective import BY_COUNT
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.classes import class_figures
from infermax_opt.infermax.replay.fast import replay_compiled
from infermax_opt.infermax.replay.plain import replay_plain
from infermax_opt.infermax.schedulers.classed import CLASSED
from infermax_opt.infermax.schedulers.closed_loop import in_closed_loop
from infermax_opt.infermax.schedulers.foresight import FORESIGHT
from infermax_opt.infermax.schedulers.presets import AIMED, PRESETS
from infermax_opt.infermax.schedulers.reservation.presets import RESERVATION
from infermax_opt.infermax.simulator import BrokenRule, Simulator
from tests.campaign import examples
from tests.gaps.fronts.test_fronts import slots
from tests.infermax.strategies import aimed
from tests.infermax.test_attainment import shown
from tests.support import certificate_to_json, check_evidence

#: One second a batch.
COST = CostModel([("1", "0")], ("0", "0"), ("0", "0"))
GROUPS = (RequestGroup("b", 2, 2, count=3, class_name="be"), RequestGroup("r", 1, 1, Fraction(1, 2)))
#: Schedulers that take arrivals as they are given.
OPEN = (*PRESETS, *AIMED, *RESERVATION, *FORESIGHT)
LOOP = Instance("loop", GROUPS, System(9, 9, 9), COST, release=Release("be", 2))


def test_a_set_arrives_with_the_last_token_of_the_one_before() -> None:
    tokens = ({"b.1": 2, "b.2": 2}, {"b.1": 1}, {"b.2": 1}, {"b.3": 2, "r": 1}, {"b.3": 1})
    right = Schedule("loop", tuple(map(Batch, tokens)))
    for made in (replay_plain(LOOP, right), replay_compiled(LOOP, right)):
        assert made is not None
        assert made.valid
        assert {i: made.seconds(t) for i, t in made.released.items()} == {2: 3}
    check = verify(LOOP, right)
    assert check.ok
    # b.1, b.2: 2 and 3 s; b.3: 2 s since its release; r: 3.5 s.
    assert check.metrics is not None
    assert check.metrics.mean_e2e == Fraction("2.625")
    figures = {some.name: some for some in class_figures(LOOP, right)}
    assert figures["be"].mean_normalised_latency == Fraction(7, 6)
    early = replace(right, batches=(*right.batches[:2], Batch({"b.2": 1, "b.3": 2}), *right.batches[4:]))
    assert replay_compiled(LOOP, early) is None
    assert [v.rule.value for v in verify(LOOP, early).violations][:1] == ["arrival"]
    never = Schedule("loop", (Batch({"b.1": 2}), Batch({"b.1": 1}), Batch({"b.3": 2}), Batch({"b.3": 1})))
    assert "not complete" in str(verify(LOOP, never).violations[0])


def test_the_simulator_releases() -> None:
    sim = Simulator(LOOP)
    assert {view.id for view in sim.waiting} == {"b.1", "b.2"}
    sim.step({"b.1": 2, "b.2": 2})
    with pytest.raises(BrokenRule, match="not complete"):
        sim.step({"b.3": 2})
    sim.step({"b.1": 1, "b.2": 1})
    assert {view.id for view in sim.waiting} == {"b.3", "r"}


@st.composite
def loops(draw: st.DrawFn) -> Instance:
    """Instances of every kind with a closed loop."""
    found: Instance = draw(aimed(max_requests=6))
    loop = draw(st.booleans())
    groups = [
        replace(g, class_name="be", arrival=0, slo=None, optional=loop) if k % 2 == 0 else g
        for k, g in enumerate(found.groups)
    ]
    objective = draw(st.sampled_from(["makespan", "missed", "mean_e2e", "unserved", "max_ttft"]))
    return replace(
        found,
        groups=tuple(groups),
        release=Release("be", draw(st.integers(1, 3))),
        objective=Objective.of(objective),
        horizon=draw(st.sampled_from([None, 5])),
    )


@examples(30, 10_000)
@given(found=loops(), name=st.sampled_from(sorted(CLASSED)))
def test_both_replays_simulator_and_bounds_agree(found: Instance, name: str) -> None:
    schedule = run_scheduler(found, name)
    done = verify(found, schedule)
    assert done.ok, done.violations
    # The compiled one leaves what is unfinished to the other one.
    assert replay_compiled(found, schedule) in (None, replay_plain(found, schedule))
    assert done.objective is not None
    counted = found.objective.metrics[0] in BY_COUNT
    for lower in (*closed_form_bounds(found), *(attainment_bounds(found.relaxed) if counted else ())):
        assert lower.value <= done.objective, lower.source
        if lower.evidence is not None:
            assert check_evidence(found, lower) == lower.value


def test_latencies_of_released_requests_have_no_bound() -> None:
    timed = replace(LOOP, objective=Objective.of("mean_e2e"))
    assert not closed_form_bounds(timed)
    assert not list(searched_bounds(timed))
    other = replace(timed, groups=(replace(GROUPS[0], optional=True), GROUPS[1]))
    assert closed_form_bounds(other)  # latencies are those of the others
    plain = replace(timed, release=None)
    (found, *_) = searched_bounds(plain)
    certificate = certificate_to_json(timed, found)
    with pytest.raises((Rejected, Unusable), match="released"):
        check(shown(timed), json.loads(json.dumps(certificate)))


def test_files_keep_it(tmp_path: Path) -> None:
    value = shown(LOOP)
    again = instance_from_json(value)
    assert again.release == LOOP.release
    assert again.sha256 == LOOP.sha256 != replace(LOOP, release=None).sha256
    assert LOOP.sha256 != replace(LOOP, release=Release("be", 1)).sha256
    path = tmp_path / "loop.json"
    for change, why in (
        ({"release": {"class": "be", "batch": 0}}, "release.batch"),
        ({"release": {"class": "none", "batch": 1}}, "no request is of the class 'none'"),
        ({"release": {"class": "be"}}, "release.batch"),
        ({"release": 3}, "release"),
        (
            {"requests": [{"id": "b", "input_tokens": 1, "output_tokens": 1, "arrival": 2, "class": "be"}]},
            "arrival",
        ),
    ):
        path.write_text(json.dumps({**value, **change}))
        with pytest.raises(InputError, match=why):
            read_instance(path)


def test_requests_of_different_sets_are_told_apart() -> None:
    assert [kind.members for kind in LOOP.types] == [(0, 1), (2,), (3,)]


@pytest.mark.parametrize("name", ["planner", "beam"])
def test_what_does_not_take_it_says_so(name: str) -> None:
    with pytest.raises(InputError, match="does not take a closed loop"):
        run_scheduler(LOOP, name)


def test_optional_requests_alone_have_certificates() -> None:
    """What is left unserved is counted of all requests, whether or not any must be served."""
    group = RequestGroup("b", 6, 1, count=3, class_name="be", optional=True)
    cost = CostModel([("0", "2")], ("0", "0"), ("0", "0"))
    of = Instance(
        "all", (group,), System(6, 6, 6), cost, objective=Objective.of("unserved"),
        horizon=20, release=Release("be", 1),
    )  # fmt: skip
    found = list(searched_bounds(of))  # a prompt takes 12 s
    assert [lower.value for lower in found] == [2]
    assert check_evidence(of, found[0]) == 2
    latency = certificate_to_json(replace(of, objective=Objective.of("mean_e2e"), release=None), found[0])
    with pytest.raises(Rejected, match="requests that must be served; there are none"):
        check(shown(replace(of, objective=Objective.of("mean_e2e"), release=None)), latency)


@examples(36, 6_000)
@given(found=loops(), name=st.sampled_from(OPEN))
def test_schedulers_that_take_arrivals_as_given_take_closed_loops(found: Instance, name: str) -> None:
    predicted = tuple(replace(g, predicted_output_tokens=g.output_tokens) for g in found.groups)
    last = RequestGroup("last", 1, 1, slo={"ttft": 9}, predicted_output_tokens=1)
    done = verify(aim := replace(found, groups=(*predicted, last)), run_scheduler(aim, name))
    assert done.ok, done.violations


def test_levels_of_later_sets_are_enough_for_the_scheduler_that_goes_by_levels() -> None:
    slo = RequestGroup("late", 2, 2, class_name="be", slo={"ttft": 9}, predicted_output_tokens=2)
    of = replace(LOOP, groups=(replace(GROUPS[0], count=2), slo))
    assert verify(of, run_scheduler(of, "deadline")).ok
    with pytest.raises(InputError, match="no request has one"):
        run_scheduler(LOOP, "deadline")


def test_a_preset_serves_set_by_set() -> None:
    made = verify(LOOP, run_scheduler(LOOP, "vllm_v1"))
    assert made.metrics is not None
    # b.1, b.2 and r until 2 s, b.3 from 2 to 4 s.
    assert (made.metrics.makespan, made.metrics.batches) == (4, 4)
    optional = replace(GROUPS[0], optional=True)
    over = replace(LOOP, groups=(optional, GROUPS[1]), horizon=2)
    schedule = run_scheduler(over, "vllm_v1")
    assert verify(over, schedule).ok
    assert "b.3" not in {name for batch in schedule.batches for name in batch.tokens}
    assert "b.3" in {name for batch in run_scheduler(LOOP, "vllm_v1").batches for name in batch.tokens}


def test_batches_that_take_no_time() -> None:
    """A set that is complete at the time at which batches before its last one begin."""
    free = CostModel([("0", "0")], ("0", "0"), ("0", "0.01"))
    groups = tuple(RequestGroup(f"b{k}", 1, 1 + (k == 0), class_name="be") for k in range(3))
    others = (RequestGroup("r0", 1, 1), RequestGroup("r1", 1, 1))
    order = (groups[0], others[0], groups[1], others[1], groups[2])
    rest = {"policy": Policy(False, False, False), "release": Release("be", 1)}
    found = Instance("free", order, System(3, 1, 1), free, **rest)  # type: ignore[arg-type]
    assert verify(found, run_scheduler(found, "vllm")).ok


def test_too_many_sets_and_knowing_the_future_are_refused() -> None:
    many = replace(LOOP, groups=(replace(GROUPS[0], count=402), GROUPS[1]))
    with pytest.raises(InputError, match="spt takes 200 sets of a closed loop at most; there are 201"):
        run_scheduler(many, "spt")

    def backwards(some: Instance) -> Schedule:
        """With the second set there, the first one is in another order, and complete later."""
        batches = [Batch({r.id: r.input_tokens}) for r in some.requests]
        batches += [Batch({r.id: 1}) for r in some.requests if r.output_tokens > 1]
        return Schedule(some.name, tuple(batches))

    with pytest.raises(InputError, match="seer goes by requests that have not arrived"):
        in_closed_loop(LOOP, "seer", backwards)


def test_solve_and_bound() -> None:
    result = solve(LOOP, time_limit=1)
    assert result.upper is not None
    assert result.upper.source.startswith("scheduler:")
    assert verify(LOOP, result.claim()).ok
    assert bound(LOOP)
    with pytest.raises(InputError, match="highs does not take a closed loop"):
        solve(LOOP, solver="highs")


def test_random_orders_of_sets() -> None:
    """The replay releases as a simple count over the batches says."""
    for seed in range(30):
        draw = random.Random(seed)
        groups = tuple(RequestGroup(f"b{k}", 1, draw.randint(1, 3), class_name="be") for k in range(7))
        found = Instance("loop", groups, System(99, 99, 99), COST, release=Release("be", 3))
        schedule = run_scheduler(found, draw.choice(sorted(CLASSED)))
        made, done, at = replay_plain(found, schedule), dict[int, int](), dict.fromkeys(range(3), 0)
        for i, last in enumerate(made.last_batch):
            done[i] = made.ends[last]
        for first in (3, 6):
            at.update(
                {k: max(done[i] for i in range(first - 3, first)) for k in range(first, min(7, first + 3))}
            )
        assert made.released == {k: at[k] for k in range(3, 7)}


def test_a_certified_bound_of_a_loop_with_many_batches_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plain schedule takes at most is asked of one request then, which is in no loop."""
    of = slots()
    result = solve(of, time_limit=2)
    assert result.lower is not None
    assert result.lower.proof is Proof.CERTIFICATE
    monkeypatch.setattr(verifying, "MAX_OWN_BATCHES", 1)
    assert verifying.longest_each(of) == verifying.longest_each(of.relaxed) == 8
    assert verify(of, result).ok


def test_a_lack_of_bounds_is_told() -> None:
    lonely = replace(LOOP, objective=Objective.of("p50_e2e"))
    assert bounds_text(lonely, bound(lonely, time_limit=0.1)).endswith("with these requests and limits")
