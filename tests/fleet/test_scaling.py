"""Machine-hours: what machines are busy for at least, and when they are on."""

from __future__ import annotations

from fractions import Fraction

import pytest

from infermax_opt.checking.errors import Rejected
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker.certificate import machine_seconds
from infermax_opt.fleet.checker.question import joint_hash
from infermax_opt.fleet.checker.windows import NEVER
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.routing.policies import Router
from infermax_opt.fleet.scaling import Scaling, least_time, machine_time, on_times, scaled
from infermax_opt.fleet.upper import fewest_machines
from infermax_opt.infermax.schedulers.algorithm1 import schedule
from infermax_opt.infermax.schedulers.presets import preset
from tests.campaign import campaign, in_blocks
from tests.fleet.test_pooled import steady
from tests.fleet.test_upper import stream


def seconds(*pairs: tuple[int, int]) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(begin), Fraction(end)) for begin, end in pairs]


def test_when_machines_are_on() -> None:
    busy = seconds((0, 2), (3, 4), (20, 21))
    assert on_times(busy, Scaling()) == busy
    # A pause no longer than a start-up is bridged.
    assert on_times(busy, Scaling(Fraction(1))) == seconds((-1, 4), (19, 21))
    # The minimum stay counts from when a machine was switched on, not again after each pause.
    assert on_times(busy, Scaling(Fraction(1), Fraction(10))) == seconds((-1, 10), (19, 30))
    assert on_times(busy, Scaling(Fraction(1), Fraction(19))) == seconds((-1, 21))
    assert on_times(seconds((0, 2), (8, 12)), Scaling(Fraction(1), Fraction(10))) == seconds((-1, 12))


def test_switching_takes_no_longer_than_all_on() -> None:
    for stay in (0, 3, 1000):
        question, scaling = stream(3), Scaling(Fraction(1), Fraction(stay))
        found = fewest_machines(question, 1)
        assert found is not None
        result = scaled(question, pooled_bound(question), found, found, scaling)
        assert result.lower <= result.upper <= result.always, stay


def test_equal_requests() -> None:
    # Each costs a tenth of a second; five of them fit into half a second.
    bound = pooled_bound(steady(20))
    lower, certificate = least_time([bound], Scaling())
    assert lower == 2
    assert machine_seconds(certificate) == 2
    assert least_time([pooled_bound(steady(20, Fraction(3, 4)))], Scaling())[0] == Fraction(3, 2)
    # Four machines are switched on once, and stay.
    assert least_time([bound], Scaling(Fraction(1)))[0] == 2 + 4
    assert least_time([bound], Scaling(Fraction(1), Fraction(5)))[0] == 4 * 6
    assert least_time([bound, bound], Scaling())[0] == 4


def test_certificates_of_hours_that_prove_nothing() -> None:
    _, certificate = least_time([pooled_bound(steady(20))], Scaling())
    (part,) = certificate["parts"]
    for parts, problem in (
        ([], "none"),
        ([part, {**part, "windows": [[0, 5, 1, 0, "kv"]]}], "are others"),
        ([{**part, "windows": part["windows"] * 2}], "weight 1"),
        ([part, {**part, "machine": {**part["machine"], "kv": 7}}], "another one"),
    ):
        with pytest.raises(Rejected, match=problem):
            machine_seconds({**certificate, "parts": parts})
    with pytest.raises(Rejected, match="that of the parts"):
        machine_seconds({**certificate, "start_up": "9"})
    never = pooled_bound(steady(20, ttft="0.05")).certificate
    question = joint_hash([part["question"], never["question"], "0", "0"])
    assert machine_seconds({**certificate, "machines": never, "question": question}) == NEVER


@in_blocks(campaign(3, 100), 3)
def test_nobody_is_busy_for_less(seeds: range) -> None:
    for seed in seeds:
        question = stream(seed)
        bound, scaling = pooled_bound(question), Scaling(Fraction(1), Fraction(2))
        found = fewest_machines(question, 1)
        assert found is not None
        result = scaled(question, bound, found, found, scaling)
        assert 0 < result.lower <= result.upper
        assert result.peak >= 1
        for name in ("sarathi", "vllm", "rank_input"):
            for machines in (found.machines, found.machines + 2):
                routes = Router(question, preset(name)).route(machines, "jsq").routes
                replay = replay_fleet(question, routes, lambda one, name=name: schedule(one, preset(name)))  # type: ignore[misc]
                if replay.keeps(question):
                    busy = sum(end - begin for some in replay.busy for begin, end in some)
                    assert least_time([bound], Scaling())[0] <= busy, (seed, name)
                    assert result.lower <= machine_time(replay, scaling)[0], (seed, name)
