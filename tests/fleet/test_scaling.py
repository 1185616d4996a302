"""Machine-hours: what machines are busy for at least, and when they are on."""

from __future__ import annotations

from fractions import Fraction

import pytest

from infermax_opt.fleet import checker
from infermax_opt.fleet.bounds.pooled import pooled_bound
from infermax_opt.fleet.checker import Rejected
from infermax_opt.fleet.replay import replay_fleet
from infermax_opt.fleet.routing.policies import Router
from infermax_opt.fleet.scaling import Scaling, busy_bound, on_times, scaled
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
    assert on_times(busy, Scaling(Fraction(1), Fraction(10))) == seconds((-1, 13), (19, 30))
    assert on_times(busy, Scaling(Fraction(1), Fraction(19))) == seconds((-1, 39))


def test_equal_requests() -> None:
    # Each costs a tenth of a second; five of them fit into half a second.
    bound = pooled_bound(steady(20))
    lower, certificate = busy_bound(bound)
    assert lower == 2
    assert checker.machine_seconds(certificate) == 2
    assert busy_bound(pooled_bound(steady(20, Fraction(3, 4))))[0] == Fraction(3, 2)
    twice = {**certificate, "windows": certificate["windows"] * 2}
    with pytest.raises(Rejected, match="overlap"):
        checker.machine_seconds(twice)


@in_blocks(campaign(3, 100), 3)
def test_nobody_is_busy_for_less(seeds: range) -> None:
    for seed in seeds:
        question = stream(seed)
        bound = pooled_bound(question)
        found = fewest_machines(question, 1)
        assert found is not None
        result = scaled(question, bound, found, Scaling(Fraction(1), Fraction(2)))
        assert 0 < result.lower <= result.upper
        assert result.peak >= 1
        for name in ("sarathi", "vllm", "rank_input"):
            for machines in (found.machines, found.machines + 2):
                routes = Router(question, preset(name)).route(machines, "jsq").routes
                replay = replay_fleet(question, routes, lambda one, name=name: schedule(one, preset(name)))  # type: ignore[misc]
                if replay.keeps(question):
                    busy = sum(end - begin for some in replay.busy for begin, end in some)
                    assert result.lower <= busy, (seed, name)
