"""Schedulers that tell real-time from best-effort requests."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt import verify
from infermax_opt.infermax.data.classes import bros_instance
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import (
    Instance,
    Policy,
    RequestClass,
    RequestGroup,
    ServiceLevel,
    System,
)
from infermax_opt.infermax.data.release import Release
from infermax_opt.infermax.data.schedule import Batch
from infermax_opt.infermax.heuristics import names_for, run_scheduler, scheduler_lines
from infermax_opt.infermax.schedulers._draft import Draft
from infermax_opt.infermax.schedulers.bros import Bros
from infermax_opt.infermax.schedulers.classed import CLASSED, FOR_FIRST_TOKENS, TRIED
from infermax_opt.infermax.simulator import Simulator, simulate
from tests.campaign import examples
from tests.infermax.strategies import aimed, instances

NAMES = st.sampled_from(sorted(CLASSED))
MANY = examples(80, 20_000)
#: One second a batch, 0.1 s a token; nothing else.
COST = CostModel([("1", "0.1")], ("0", "0"), ("0", "0"))
WIDE = System(1_000, 1_000, 1_000)


def instance(*groups: RequestGroup, system: System = WIDE, **rest: object) -> Instance:
    return Instance("hand-made", groups, system, COST, **rest)  # type: ignore[arg-type]


def real_time(name: str, prompt: int, output: int, ttft: float = 10, at: float = 0) -> RequestGroup:
    slo = {"ttft": str(ttft), "tpot": "2"}
    return RequestGroup(name, prompt, output, Fraction(str(at)), class_name="rt", slo=slo)


def best_effort(name: str, prompt: int, output: int, count: int | None = None) -> RequestGroup:
    return RequestGroup(name, prompt, output, 0, count, class_name="be")


def first_batches(found: Instance, scheduler: Bros, count: int) -> list[Batch]:
    """What a scheduler says `count` times."""
    sim, said = Simulator(found), []
    for _ in range(count):
        batch = scheduler.batch(sim)
        assert batch is not None
        said.append(batch)
        sim.step(batch)
    return said


# --- every schedule is valid ---


def check(found: Instance, name: str) -> None:
    made = verify(found, run_scheduler(found, name))
    assert made.ok, made.violations


@MANY
@given(found=instances(), name=NAMES)
def test_valid_without_classes_and_limits(found: Instance, name: str) -> None:
    check(found, name)


@st.composite
def mixed(draw: st.DrawFn) -> Instance:
    """Requests of all kinds: with limits or not, optional or not, classes or not, and maybe a horizon."""
    found: Instance = draw(aimed(max_requests=6))
    nothing = ServiceLevel()
    groups = [
        replace(
            group,
            slo=draw(st.sampled_from([group.slo, nothing, {"ttft": 0, "tpot": 0}, {"tpot": "0.5"}])),
            class_name=draw(st.sampled_from([None, "rt", "be"])),
            optional=draw(st.booleans()),
        )
        for group in found.groups
    ]
    horizon = draw(st.sampled_from([None, 0, 3, 12]))
    return replace(found, groups=tuple(groups), horizon=horizon)


@MANY
@given(found=mixed(), name=NAMES)
def test_valid_with_everything(found: Instance, name: str) -> None:
    check(found, name)


@pytest.mark.parametrize("name", sorted(CLASSED))
def test_valid_where_memory_is_short(name: str) -> None:
    draw = random.Random(7)
    for _ in range(20):
        groups = [
            RequestGroup(f"r{k}", draw.randint(1, 40), draw.randint(1, 30), Fraction(draw.randint(0, 99), 10),
                         slo={"ttft": draw.choice([0, 2, 50]), "tpot": "0.5"} if k % 3 else None,
                         class_name=draw.choice(["a", "b", None]))
            for k in range(20)
        ]  # fmt: skip
        system = System(draw.randint(80, 160), 64, draw.randint(8, 64), draw.choice([None, 3]), 4)
        policy = Policy(draw.random() < 0.5, True, draw.random() < 0.7)
        check(Instance("short", groups, system, COST, policy), name)


def test_optional_requests_end_with_the_horizon() -> None:
    groups = (real_time("r", 4, 3), best_effort("b", 4, 50, 3))
    found = instance(*groups, classes=(RequestClass("be", optional=True),), horizon=8)
    for name in CLASSED:
        check(found, name)
        ended = verify(found, run_scheduler(found, name)).metrics
        assert ended is not None
        assert ended.makespan < 13
        assert ended.unserved == 3


# --- each semantic ---


def test_a_late_request_freezes_nobody() -> None:
    found = instance(real_time("late", 4, 2, ttft=0), real_time("other", 4, 2), best_effort("b", 4, 2))
    (guarded,) = first_batches(found, Bros(found), 1)
    assert set(guarded.tokens) == {"late", "other", "b"}
    (literal,) = first_batches(found, Bros(found, guarded=False), 1)
    assert set(literal.tokens) == {"late"}  # and nobody but for the rule that somebody goes on


def test_who_cannot_be_saved_comes_after_who_can() -> None:
    # The batch may take 3 s, which is enough for 20 tokens.
    found = instance(real_time("late", 15, 1, ttft=1), real_time("other", 15, 1, ttft=3))
    first, second = first_batches(found, Bros(found), 2)
    assert (set(first.tokens), set(second.tokens)) == ({"other"}, {"late"})


def test_the_smallest_slack_is_the_time_of_a_batch() -> None:
    # 3 s: 20 tokens, so that two of three prompts of ten tokens fit.
    groups = [real_time(f"r{k}", 10, 1, ttft=3 + k) for k in range(3)]
    found = instance(*groups)
    assert [set(b.tokens) for b in first_batches(found, Bros(found), 2)] == [{"r0", "r1"}, {"r2"}]


def test_best_effort_takes_the_place_of_who_can_wait() -> None:
    # r1 takes the batch beyond no limit, but b does not fit beside it: 3 s are 20 tokens.
    groups = (real_time("r0", 5, 1, ttft=3), real_time("r1", 10, 1, ttft=20), best_effort("b", 14, 1))
    found = instance(*groups)
    assert set(first_batches(found, Bros(found), 1)[0].tokens) == {"r0", "b"}
    # With 4 s, and batches of 3 s on average, it cannot wait for the one of b.
    groups = (real_time("r0", 5, 1, ttft=3), real_time("r1", 10, 1, ttft=4), best_effort("b", 14, 1))
    found = instance(*groups)
    guarded, literal = Bros(found), Bros(found, guarded=False)
    guarded.average = literal.average = 3.0
    assert set(first_batches(found, guarded, 1)[0].tokens) == {"r0", "r1"}
    assert set(first_batches(found, literal, 1)[0].tokens) == {"r0", "b"}


def test_pending_best_effort_requests_come_before_waiting_ones() -> None:
    found = instance(best_effort("b", 9, 3, 3), system=System(100, 20, 20))
    batches = first_batches(found, Bros(found), 2)
    assert list(batches[0].tokens) == ["b.1", "b.2"]
    assert batches[1].decode_all
    assert set(batches[1].tokens) == {"b.3"}


def test_the_batch_doubles_until_time_ends_it() -> None:
    groups = [real_time(f"r{k}", 1, 1, ttft=100) for k in range(9)]
    found = instance(*groups)
    scheduler = Bros(found, least=2, most=4)
    assert [len(batch.tokens) for batch in first_batches(found, scheduler, 3)] == [2, 4, 3]
    assert scheduler.size == 4  # no more than that
    found = instance(real_time("a", 10, 1, ttft=3), *(real_time(f"r{k}", 11, 1, ttft=9) for k in range(2)))
    scheduler = Bros(found, least=2, most=4)
    scheduler.size = 4
    first_batches(found, scheduler, 1)
    assert scheduler.size == 2  # time ended it


def test_a_group_of_tokens_is_due_together() -> None:
    found = instance(real_time("r", 1, 9))
    sim = Simulator(found)
    one, four = Bros(found), Bros(found, group=4)
    sim.step({"r": 1})
    for scheduler in (one, four):
        scheduler.batch(Simulator(found))
        (job,) = scheduler.running[1]
        job.cached = job.generated = 1
        job.last, scheduler.average = 1.1, 0.5
        # Two seconds for each token of a group; three of four come in average batches after the next one.
        group = scheduler._group
        assert scheduler.slack(job, 2.0) == pytest.approx(2 * group - 0.9 - (group - 1) * 0.5)


def test_classes_alternate() -> None:
    found = instance(real_time("r", 4, 3), best_effort("b", 4, 3))
    batches = simulate(found, CLASSED["rr"](found)).batches
    assert ["".join(batch.tokens) for batch in batches[:5]] == ["r", "b", "r", "b", "r"]


def test_inside_a_class_the_first_comes_first() -> None:
    found = instance(best_effort("b", 6, 2, 2), best_effort("c", 1, 1), system=System(100, 10, 10))
    batches = simulate(found, CLASSED["rr"](found)).batches
    assert list(batches[0].tokens) == ["b.1"]  # c, which would fit, waits behind b.2


def test_slack_leaves_who_has_missed_a_limit_behind() -> None:
    groups = (real_time("late", 4, 2, ttft=0), best_effort("b", 40, 2, 9), real_time("r", 4, 2))
    found = instance(*groups)
    order = list(dict.fromkeys(n for b in simulate(found, CLASSED["slack"](found)).batches for n in b.tokens))
    assert order[0] == "r"
    assert order[-1] == "late"


@pytest.mark.parametrize("slo", [{"tpot": "0"}, {"tpot": "1"}, {"ttft": "1.5"}, {"ttft": "0"}, {"e2e": "3"}])
@pytest.mark.parametrize("name", ["bros", "slack", "slack-known"])
def test_a_limit_that_nothing_keeps_stops_nobody(name: str, slo: dict[str, str]) -> None:
    urgent = RequestGroup("r", 4, 40, class_name="rt", slo=slo)
    found = instance(urgent, best_effort("b", 4, 40, 9))
    # One after the other they take 400 batches, together 40 and those of their prompts.
    made = verify(found, run_scheduler(found, name))
    assert made.metrics is not None
    assert made.metrics.batches <= 60


def missed(found: Instance, name: str) -> object:
    made = verify(found, run_scheduler(found, name)).metrics
    assert made is not None
    return made.missed


def test_who_knows_all_outputs_leaves_the_most_work_out_where_there_is_too_much() -> None:
    many = [real_time(f"r{k}", 10, 10, ttft=4, at=3 * k) for k in range(12)]
    large = real_time("large", 30, 20, ttft=4)
    crowd = instance(large, *many, system=System(100, 100, 100))
    assert (missed(crowd, "slack-known"), missed(crowd, "slack")) == (4, 6)
    assert list(run_scheduler(crowd, "slack-known").batches[-1].tokens or ["large"]) == ["large"]
    # Where there is time for all, it is `slack`; and where nobody has to end.
    wide = instance(large, *many)
    assert run_scheduler(wide, "slack-known") == run_scheduler(wide, "slack")
    first = replace(crowd, groups=tuple(replace(g, slo={"ttft": "4"}) for g in crowd.groups))
    assert run_scheduler(first, "slack-known") == run_scheduler(first, "slack")
    # One that weighs more than all others is worth its work.
    heavy = replace(crowd, groups=(replace(large, weight=100), *many))
    begun = ["large" in run_scheduler(found, "slack-known").batches[0].tokens for found in (crowd, heavy)]
    assert begun == [False, True]


# --- names ---


def test_they_are_tried_where_there_is_something_to_tell() -> None:
    plain = instance(RequestGroup("r", 1, 1))
    assert not set(CLASSED) & set(names_for(plain))
    assert set(TRIED) <= set(names_for(instance(best_effort("b", 1, 1))))
    assert set(TRIED) == set(CLASSED) - {"bros-literal", *FOR_FIRST_TOKENS}
    assert not set(TRIED) & set(names_for(instance(best_effort("b", 1, 100, 40_000))))
    assert all(any(line.startswith(f"{name}: ") for line in scheduler_lines()) for name in CLASSED)


# --- loops that mix who must be served and who need not ------------------------------------------


@pytest.mark.parametrize("name", CLASSED)
def test_sets_that_must_be_served_wait_for_those_before_them_beyond_the_horizon(name: str) -> None:
    groups = (
        RequestGroup("o", 2, 2, class_name="be", optional=True),
        RequestGroup("m", 2, 2, class_name="be"),
    )
    loop = replace(instance(*groups), horizon=Fraction(0), release=Release("be", 1))
    done = verify(loop, run_scheduler(loop, name))
    assert done.ok, done.violations


# --- the quick way to put decodes into a batch ---


@examples(36, 5_000)
@given(found=mixed(), name=st.sampled_from(["bros", "bros-literal"]))
def test_decodes_put_in_at_once_make_the_same_schedule(found: Instance, name: str) -> None:
    quick = run_scheduler(found, name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draft, "add_decodes", lambda *_: 0)
        assert run_scheduler(found, name) == quick


def test_decodes_put_in_at_once_where_there_is_a_crowd() -> None:
    for blocks in (1, 16):
        made = bros_instance("sharegpt", "10", "3", 1)
        found = replace(made, system=replace(made.system, kv_capacity=9_600, block_size=blocks))
        quick = run_scheduler(found, "bros")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Draft, "add_decodes", lambda *_: 0)
            assert run_scheduler(found, "bros") == quick
