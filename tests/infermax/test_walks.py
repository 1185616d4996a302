"""Walks guided by prices: lives that keep the limits and take no longer than said, bounds, worth."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.planners.lives import walks as room
from infermax_opt.infermax.planners.lives._write import written
from infermax_opt.infermax.planners.lives.planner import _level_of, _Search, lives_help, lives_plans
from infermax_opt.infermax.planners.lives.walks import _Walker, walks
from tests.campaign import examples
from tests.infermax.strategies import instances
from tests.support import case, value

FEW = 3


def found(instance: Instance, span: int = 1, seed: int = 0) -> list[tuple[float, Any]]:
    level, kinds = _level_of(instance, span)
    return list(walks(level, kinds, seed, lambda count: count >= FEW))


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "WIDTHS", (1, 8))
    monkeypatch.setattr(room, "ROUNDS", 60)
    monkeypatch.setattr(room, "AGAIN", 20)


@pytest.mark.usefixtures("narrow")
@examples(60, 1500)
@given(instance=instances(arrivals=False, max_requests=8, max_tokens=30))
def test_walks_keep_the_limits_and_take_no_longer_than_they_say(instance: Instance) -> None:
    """Evictions, refills, idling, blocks, pieces and limits; in longer steps the limits are kept as well."""
    if not lives_help(instance):
        return
    for seconds, lives in found(instance):
        reached = float(value(instance, written(instance, lives)))
        if len(instance.cost.seconds.alpha) == 1 and not instance.pays_extra:
            assert reached <= seconds * (1 + 1e-9)
    for span in (2, 3):
        for _, lives in found(instance, span):
            value(instance, written(instance, _Search(instance, span, lives, 0).finer(span)))


@pytest.mark.usefixtures("narrow")
@examples(40, 1000)
@given(instance=instances(arrivals=False, max_requests=6, max_tokens=20))
def test_prices_bound_every_walk_of_so_many_steps(instance: Instance) -> None:
    if not lives_help(instance):
        return
    level, kinds = _level_of(instance, 1)
    fixed = float(max(level.alpha)) + level.d0
    for seconds, lives in found(instance):
        walker = _Walker(level, kinds, fixed)
        steps = lives.shape[1]
        bound = walker.settled(walker.made, walker.made, walker.fresh(steps), 60, room.HOT)
        assert bound + fixed * steps <= seconds * (1 + 1e-9)


def test_each_is_shorter_than_those_before_and_a_seed_gives_the_same() -> None:
    instance = case(12, 4, 12, 60)
    first, second = found(instance, seed=3), found(instance, seed=3)
    times = [seconds for seconds, _ in first]
    assert times == [seconds for seconds, _ in second]
    assert times == sorted(set(times), reverse=True)


def test_who_has_no_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that cost nothing but their tokens; no time; no compiled code."""
    assert not found(case(4, 3, 4, 12, cost=CostModel([("0", "1")], ("0", "0"), ("0", "0"))))
    instance = case(6, 4, 12, 60)
    level, kinds = _level_of(instance, 1)
    assert not list(walks(level, kinds, 0, lambda _: True))
    monkeypatch.setattr(room, "absent", lambda _: True)
    assert not found(instance)
    assert list(lives_plans(instance))


def test_a_walk_is_shorter_than_what_the_search_finds_from_nothing() -> None:
    """32 x (1+16), M = 125: the search over lives alone takes 25 s to 0.3333 s; the bound is 0.3194 s."""
    *_, (seconds, lives) = found(case(32, 1, 16, 125))
    assert seconds < 0.355
    assert value(case(32, 1, 16, 125), written(case(32, 1, 16, 125), lives)) > 0.3194
