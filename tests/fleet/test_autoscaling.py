"""Machines by window: each window keeps its share by exact replay, and bounds lie below."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.fleet.autoscaling import Autoscaled, autoscalings
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.certificate import machine_seconds
from infermax_opt.fleet.question import FleetQuestion
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.routing.policies import Router
from infermax_opt.fleet.scaling import Scaling, least_time, machine_time
from infermax_opt.fleet.upper import fewest_machines
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset
from tests.fleet.test_pooled import with_unfit
from tests.support import PAPER

#: Seconds of a window.
LENGTH = Fraction(10)


def uneven() -> FleetQuestion:
    """Ten seconds of few requests, then of many, then none, then of few."""
    groups, k = list[RequestGroup](), 0
    for begin, each in ((0, 10), (10, 80), (30, 10)):
        for j in range(each):
            arrival = begin + Fraction(10 * j, each)
            groups.append(RequestGroup(f"r{k}", 3000, 20, arrival, slo={"ttft": "1", "tpot": "0.1"}))
            k += 1
    system = System(20_000, 1024, 512)
    return FleetQuestion(
        Instance("uneven", tuple(groups), system, PAPER, objective="missed"), Fraction(9, 10)
    )


def autoscaled(*asked: Any) -> Autoscaled:
    """What is known in the end."""
    return list(autoscalings(*asked))[-1]


def found_of(question: FleetQuestion, scaling: Scaling) -> Autoscaled:
    return autoscaled(question, LENGTH, scaling, ("sarathi",))


def test_each_window_has_its_machines() -> None:
    question, scaling = uneven(), Scaling(Fraction(1), Fraction(2))
    found = found_of(question, scaling)
    assert [(w.begin, w.end, len(w.members)) for w in found.windows] == [
        (0, 10, 10), (10, 20, 80), (20, 30, 0), (30, 40, 10),
    ]  # fmt: skip
    lower, upper = zip(*((w.lower, w.upper) for w in found.windows), strict=True)
    assert all(
        low is not None and high is not None and low <= high for low, high in zip(lower, upper, strict=True)
    )
    assert lower[1] > lower[0] >= 1
    assert upper[1] > max(upper[0], upper[3])
    assert (lower[2], upper[2]) == (0, 0)
    assert found.lower is not None
    assert found.upper is not None
    assert 0 < found.lower <= found.upper
    assert machine_seconds(found.certificate) == found.lower
    # All of the same machines all the time take longer.
    static = fewest_machines(question, 1)
    assert static is not None
    assert found.upper < static.machines * 40
    # The same routes again: every window keeps its share.
    among = [0] * len(question.levels)
    for window in found.windows:
        for i in window.members:
            among[i] = window.upper or 0
    assert found.policy is not None
    routes = Router(question, preset("sarathi")).route(max(upper), found.policy, among=among).routes
    assert all(route < most for route, most in zip(routes, among, strict=True))
    replay = replay_fleet(question, routes, partial(schedule, options=preset("sarathi")))
    for window in found.windows:
        missed = sum(i not in replay.good for i in window.members)
        assert 10 * missed <= len(window.members)
    assert machine_time(replay, scaling)[0] == found.upper


def test_the_bound_of_each_window_is_known_first() -> None:
    first, last = autoscalings(uneven(), LENGTH, Scaling(), ("sarathi",))
    assert (first.lower, first.certificate) == (last.lower, last.certificate)
    assert [w.lower for w in first.windows] == [w.lower for w in last.windows]
    assert {w.upper for w in first.windows} == {first.upper} == {None}


def test_time_that_nobody_undercuts() -> None:
    question, scaling = uneven(), Scaling(Fraction(1), Fraction(2))
    found = found_of(question, scaling)
    assert found.lower is not None
    seen = 0
    for name in ("sarathi", "vllm", "rank_input"):
        for machines in (4, 6, 9):
            routes = Router(question, preset(name)).route(machines, "jsq").routes
            replay = replay_fleet(question, routes, partial(schedule, options=preset(name)))
            misses = [
                sum(i not in replay.good for i in w.members) * 10 > len(w.members) for w in found.windows
            ]
            if not any(misses):
                seen += 1
                assert found.lower <= machine_time(replay, scaling)[0]
    assert seen
    # The share of each window is more than that of the whole.
    assert found.lower >= least_time([pooled_bound(question)], scaling)[0]


def test_windows_that_cannot_be() -> None:
    question = uneven()
    with pytest.raises(InputError, match="windows of this trace; the most is 1000"):
        autoscaled(question, Fraction(1, 1000), Scaling(), ("sarathi",))
    # One that fits no machine is more than may miss in a window of ten, with nobody else to miss.
    unfit = found_of(with_unfit(question, 2), Scaling())
    assert [w.lower is None for w in unfit.windows] == [True, False, False, False]
    assert (unfit.lower, unfit.upper) == (None, None)
    slow = replace(question.workload, groups=question.workload.groups[:1])
    assert found_of(FleetQuestion(slow), Scaling()).windows[0].upper == 1
