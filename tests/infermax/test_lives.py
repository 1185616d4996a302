"""Ruin and recreate: valid schedules that take as long as it says, starts that are kept, optima, worth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.staged import staged_search
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.planners import anytime
from infermax_opt.infermax.planners.lives import planner
from infermax_opt.infermax.planners.lives._kernel import FAR
from infermax_opt.infermax.planners.lives._write import lives_of, written
from infermax_opt.infermax.planners.lives.planner import lives_help, lives_plans
from infermax_opt.table.suites import get_suite
from tests.campaign import campaign, examples
from tests.infermax.strategies import instances
from tests.infermax.tiny import tiny
from tests.support import FLAT, case, value


def best(instance: Instance, known: Schedule | None = None, seed: int = 0) -> Schedule:
    *_, (name, schedule) = lives_plans(instance, known=known, seed=seed)
    assert name == "lives"
    return schedule


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "ROUNDS", 30)
    monkeypatch.setattr(planner, "SPELLS", 3)


def says(instance: Instance, span: int) -> tuple[float, Schedule] | None:
    """What a search in steps of so many batches says, and the schedule in steps of one."""
    search = planner._Search(instance, span, None, 1)
    for _ in search.improve(None):
        pass
    if search.value >= FAR:
        return None
    lives = search.lives if span == 1 else search.finer(span)
    return search.value, written(instance, lives)


@pytest.mark.usefixtures("quick")
@examples(60, 1500)
@given(instance=instances(arrivals=False, max_requests=8, max_tokens=30))
def test_schedules_take_as_long_as_the_search_says(instance: Instance) -> None:
    """Evictions, refills, idling, blocks, pieces and limits; in longer steps the limits are kept as well."""
    if not lives_help(instance):
        assert not list(lives_plans(instance))
        return
    found = says(instance, 1)
    if found is not None and not instance.pays_extra:
        assert found[0] == pytest.approx(float(value(instance, found[1])), rel=1e-9)
    for span in (2, 3):
        found = says(instance, span)
        if found is not None:
            value(instance, found[1])


def test_longer_steps_estimate_well() -> None:
    """They leave out that a batch in which only first tokens are made decodes nothing, and little else."""
    instance = case(6, 20, 60, 200)
    for span in (2, 4, 6):
        found = says(instance, span)
        assert found is not None
        assert found[0] == pytest.approx(float(value(instance, found[1])), rel=0.02)


def test_tiny_optima() -> None:
    """Without chunks, whole lives hold an optimum; most are found."""
    found = tried = 0
    for seed in campaign(60, 2000):
        instance = tiny(seed)
        policy = replace(instance.policy, chunked_prefill=False, hybrid_batching=True)
        try:
            instance = replace(instance, policy=policy)
        except InputError:
            continue
        if not lives_help(instance):
            continue
        optimum, reached = staged_search(instance).upper, value(instance, best(instance))
        assert optimum is not None
        assert reached >= optimum
        tried += 1
        found += reached == optimum
    assert tried >= 15
    assert found >= 0.8 * tried


@examples(40, 400)
@given(instance=instances(arrivals=False, max_requests=6, max_tokens=20))
def test_schedules_become_lives_and_again_schedules(instance: Instance) -> None:
    try:
        whole = replace(instance, policy=replace(instance.policy, chunked_prefill=False))
    except InputError:  # a prompt needs more than one batch
        return
    for name in ("vllm", "rank_output"):
        schedule = run_scheduler(whole, name)
        lives = lives_of(whole, schedule)
        assert lives is not None
        assert value(whole, written(whole, lives)) == value(whole, schedule)


def test_chunks_are_no_lives() -> None:
    instance = case(2, 4, 2, 30)
    chunks = [Batch({"r.1": 2}), Batch({"r.1": 2, "r.2": 4}), Batch({}, decode_all=True)]
    assert lives_of(instance, Schedule("case", tuple(chunks))) is None


@pytest.mark.usefixtures("quick")
def test_never_worse_than_where_it_starts() -> None:
    instance = case(12, 8, 16, 100)
    known = best(instance)
    start = value(instance, known)
    assert all(
        value(instance, plan) <= start for _, plan in list(lives_plans(instance, known=known, seed=5))[-1:]
    )


@pytest.mark.usefixtures("quick")
def test_the_same_seed_plans_the_same() -> None:
    instance = case(6, 4, 12, 60)
    assert best(instance, seed=3) == best(instance, seed=3)


def test_who_is_helped() -> None:
    instance = case(8, 4, 8, 60)
    assert lives_help(instance)
    assert not lives_help(case(1, 4, 8, 60))
    assert not lives_help(case(planner.MAX_REQUESTS + 1, 4, 8, 60))
    assert not lives_help(replace(instance, policy=Policy(hybrid_batching=False)))
    assert not lives_help(replace(instance, objective="mean_e2e"))  # type: ignore[arg-type]
    assert not lives_help(replace(instance, system=System(60, 4096, 10)))  # refills need chunks
    assert not lives_help(case(8, 4, 8000, 9000))  # tables too large
    late = (RequestGroup("r", 4, 8, "1", count=3),)
    assert not lives_help(replace(instance, groups=late))


def test_free_batches_and_costs_of_nothing() -> None:
    for cost in (
        FLAT,
        CostModel([("0", "1")], ("0", "0"), ("0", "0")),
        CostModel([("0", "0")], ("0", "0"), ("0", "0")),
    ):
        instance = case(4, 3, 4, 12, cost=cost)
        value(instance, best(instance))


def test_deadline() -> None:
    instance = case(32, 8, 64, 400)
    next(lives_plans(case(2, 2, 2, 6)))  # compiles
    known = run_scheduler(instance, "vllm")
    begin = time.monotonic()
    assert all(name == "lives" for name, _ in lives_plans(instance, known=known, deadline=begin + 1.0))
    assert time.monotonic() - begin < 6
    assert not list(lives_plans(instance, deadline=begin))


def test_a_cell_of_the_grid_is_shorter_than_any_other_planner_makes_it() -> None:
    """The beam and the list planner reach 0.630871 s in half a minute; the bound is 0.587546 s."""
    (cell,) = get_suite("paper-b32").select(["b32-i32-o32-m1000-p4096"])
    instance = cell.build()
    assert 0.5875 < value(instance, best(instance)) < 0.615


def test_they_are_among_the_plans_and_start_from_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = case(4, 2, 3, 12)
    known = run_scheduler(instance, "vllm")

    def plans(given: Instance, **options: object) -> Iterator[tuple[str, Schedule]]:
        assert given is instance
        assert options["known"] is known
        yield "lives", known

    monkeypatch.setattr(planner, "lives_plans", plans)
    monkeypatch.setattr(anytime, "_beam_plans", lambda *_: iter(()))
    assert "lives" in [name for name, _ in anytime.anytime_plans(instance, known=lambda: known)]
