"""Replay: hand-computed times, every rule, and two paths that agree."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import BatchFeatures, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Batch, Schedule
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from infermax_opt.infermax.replay import fast as fastreplay
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.replay.plain import Replay, Rule, replay_plain
from tests.campaign import examples
from tests.infermax.strategies import instances

UNIT_COST = CostModel(batch=[(1, 1)], decode=(1, 1), prefill=(1, 1))
EXACT_COST = CostModel(batch=[(1, 1)], decode=(1, 1), prefill=(1, 1), attention="exact")  # type: ignore[arg-type]

Path = Callable[[Instance, Schedule], Replay | None]
BOTH = pytest.mark.parametrize("path", [replay_plain, fastreplay.replay_compiled], ids=["plain", "compiled"])


def make(*requests: tuple[Any, ...], cost: CostModel = UNIT_COST, **options: Any) -> Instance:
    """Requests r1, r2, ... as (input, output[, arrival]); limits 10 unless given."""
    policy = {k: options.pop(k) for k in list(options) if k in Policy.__dataclass_fields__}
    limits = {"kv_capacity": 10, "max_batch_tokens": 10, "max_prefill_tokens": 10, **options}
    groups = tuple(RequestGroup(f"r{k}", *request) for k, request in enumerate(requests, 1))
    return Instance("tiny", groups, System(**limits), cost, Policy(**policy))


def plan(*batches: Batch) -> Schedule:
    return Schedule("tiny", batches)


def step(evict: tuple[str, ...] = (), start: Any = None, repeat: int = 1, **tokens: int) -> Batch:
    return Batch(tokens, evict, None if start is None else Fraction(start), repeat=repeat)


DECODE = Batch(decode_all=True)


@BOTH
def test_prefill_then_decode(path: Path) -> None:
    instance = make((2, 3), (3, 1))
    replay = path(instance, plan(step(r1=2, r2=3), Batch(decode_all=True, repeat=2)))
    assert replay is not None
    assert replay.valid
    # 1 + 5 tokens + 1 + (4 + 9); then 1 + 1 + 1 + 2 and 1 + 1 + 1 + 3 cached tokens read.
    assert replay.features == [
        BatchFeatures(5, 0, 0, 2, 13),
        BatchFeatures(1, 1, 2, 0, 0),
        BatchFeatures(1, 1, 3, 0, 0),
    ]
    assert replay.starts == [0, 20, 25]
    assert replay.ends == [20, 25, 31]
    assert replay.kv_used == [5, 3, 4]
    assert replay.running == [2, 1, 1]
    assert (replay.first_batch, replay.last_batch) == ([0, 0], [2, 0])
    metrics = measure(instance, replay)
    assert metrics.makespan == 31
    assert metrics.mean_ttft == 20
    assert metrics.mean_tpot == Fraction(11, 2)
    assert metrics.mean_e2e == Fraction(51, 2)
    assert metrics.mean_kv_use == Fraction(20 * 5 + 5 * 3 + 6 * 4, 31 * 10)


@BOTH
def test_refill_whose_last_chunk_is_one_token_ends_in_a_decode_step(path: Path) -> None:
    instance = make((2, 2), (1, 1), cost=EXACT_COST)
    schedule = plan(step(r1=2), step(evict=("r1",), r2=1), step(r1=1, repeat=3))
    replay = path(instance, schedule)
    assert replay is not None
    assert replay.valid
    # Chunks of 2 and 1 behind nothing, of 1 behind one cached token, then a step behind two.
    assert [f.prefill_work for f in replay.features] == [4, 1, 1, 3, 0]
    assert replay.features[-1] == BatchFeatures(1, 1, 2, 0, 0)
    assert replay.ends == [8, 12, 16, 22, 27]
    assert (replay.evictions, replay.refill_tokens) == (1, 2)
    assert replay.kv_used == [2, 1, 1, 2, 3]


@BOTH
def test_named_request_decodes_once_beside_decode_all(path: Path) -> None:
    replay = path(make((1, 2), (1, 2)), plan(step(r1=1, r2=1), Batch({"r2": 1}, decode_all=True)))
    assert replay is not None
    assert replay.valid
    assert replay.features[1] == BatchFeatures(2, 2, 2, 0, 0)


@BOTH
def test_blocks_round_up_what_a_request_holds(path: Path) -> None:
    replay = path(make((3, 3), block_size=4), plan(step(r1=3), DECODE, DECODE))
    assert replay is not None
    assert replay.valid
    assert replay.kv_used == [4, 4, 8]


@BOTH
def test_waiting_for_an_arrival(path: Path) -> None:
    instance = make((1, 1), (1, 1, "7.25"))
    replay = path(instance, plan(step(r1=1), step(r2=1, start="7.25")))
    assert replay is not None
    assert replay.valid
    assert [replay.seconds(t) for t in replay.starts] == [0, Fraction(29, 4)]
    # A start in the past does not turn the clock back.
    late = path(make((2, 1), (1, 1, 1)), plan(step(r1=2), step(r2=1, start=1)))
    assert late is not None
    assert late.starts == [0, 8]


ALONE = make((2, 2))
BREACHES = [
    (Rule.UNKNOWN_REQUEST, ALONE, (step(r1=2), step(r9=1), DECODE)),
    (Rule.UNKNOWN_REQUEST, ALONE, (step(r1=2), step(evict=("r9",)), DECODE)),
    (Rule.FINISHED, ALONE, (step(r1=2), DECODE, step(r1=1))),
    (Rule.TOKENS, ALONE, (step(r1=3), step(r1=2), DECODE)),
    (Rule.TOKENS, ALONE, (step(r1=2), step(r1=0), DECODE)),
    (Rule.TOKENS, ALONE, (step(r1=10**30), step(r1=2), DECODE)),
    (Rule.CHUNKED_PREFILL, make((2, 2), chunked_prefill=False), (step(r1=1), step(r1=1), DECODE)),
    (
        Rule.HYBRID_BATCHING,
        make((1, 2), (1, 1), hybrid_batching=False),
        (step(r1=1), Batch({"r2": 1}, decode_all=True)),
    ),
    (Rule.PREEMPTION, make((2, 2), preemption=False), (step(r1=2), step(evict=("r1",)), DECODE)),
    (Rule.EVICTION, ALONE, (step(evict=("r1",), r1=2), DECODE)),
    (Rule.EVICTION, ALONE, (step(r1=2), step(evict=("r1",), r1=3))),
    (Rule.EVICTION, ALONE, (step(r1=2), step(evict=("r1", "r1")), step(r1=3))),
    (Rule.MAX_BATCH_TOKENS, make((2, 1), (2, 1), max_batch_tokens=3), (step(r1=2, r2=2),)),
    (Rule.MAX_PREFILL_TOKENS, make((2, 1), (2, 1), max_prefill_tokens=3), (step(r1=2, r2=2),)),
    (Rule.KV_CAPACITY, make((2, 1), (2, 1), kv_capacity=3), (step(r1=2, r2=2),)),
    (Rule.KV_CAPACITY, make((1, 1), (1, 1), kv_capacity=3, block_size=2), (step(r1=1, r2=1),)),
    (Rule.MAX_RUNNING, make((1, 1), (1, 1), max_running=1), (step(r1=1, r2=1),)),
    (Rule.ARRIVAL, make((1, 1, "0.5")), (step(r1=1, start="0.4"),)),
    (Rule.COMPLETION, ALONE, (step(r1=2),)),
    (Rule.COMPLETION, ALONE, ()),
]


@pytest.mark.parametrize(("rule", "instance", "batches"), BREACHES, ids=lambda x: getattr(x, "value", ""))
def test_every_rule_is_checked(rule: Rule, instance: Instance, batches: tuple[Batch, ...]) -> None:
    schedule = plan(*batches)
    assert rule in [v.rule for v in replay_plain(instance, schedule).violations]
    assert fastreplay.replay_compiled(instance, schedule) is None


def test_every_rule_has_an_example() -> None:
    assert {rule for rule, _, _ in BREACHES} == set(Rule)


def test_a_violation_names_place_value_and_limit() -> None:
    (violation,) = replay_plain(make((2, 1), (2, 1), kv_capacity=3), plan(step(r1=2, r2=2))).violations
    assert str(violation) == "batch 1: kv_capacity: 4 KV tokens held; the limit is 3"
    assert (violation.value, violation.limit) == (4, 3)


@pytest.mark.parametrize("count", [1.0, "1", Fraction(1)])
def test_a_batch_holds_whole_numbers(count: Any) -> None:
    """However a number is given, both paths see an int."""
    batch = Batch({"r1": count}, start=count, repeat=count)
    assert [type(batch.tokens["r1"]), type(batch.start), type(batch.repeat)] == [int, Fraction, int]
    assert fastreplay.replay_compiled(make((1, 1)), plan(batch)) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"tokens": {"r1": True}}, {"tokens": {"r1": 1.5}}, {"tokens": "r1"}, {"evict": "r1"},
        {"start": -1}, {"start": "soon"}, {"repeat": 0}, {"repeat": None},
    ],
)  # fmt: skip
def test_a_batch_refuses_what_is_no_number(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Batch(**fields)


def test_too_many_batches_are_refused() -> None:
    with pytest.raises(InputError, match="the most is"):
        fastreplay.replay(make((1, 1)), plan(step(r1=1, repeat=MAX_BATCHES + 1)))


@examples(60, 300)
@given(instance=instances(), name=st.sampled_from(scheduler_names()))
def test_both_paths_agree_on_valid_schedules(instance: Instance, name: str) -> None:
    schedule = run_scheduler(instance, name)
    assert fastreplay.replay_compiled(instance, schedule) == replay_plain(instance, schedule)


@examples(60, 300)
@given(data=st.data(), instance=instances(max_requests=3))
def test_both_paths_agree_on_what_is_valid(data: st.DataObject, instance: Instance) -> None:
    """Random decisions, and schedules with one decision changed."""
    names = st.sampled_from([request.id for request in instance.requests])
    entries = st.builds(
        Batch,
        tokens=st.dictionaries(names, st.integers(1, 4), max_size=3),
        evict=st.lists(names, max_size=1).map(tuple),
        decode_all=st.booleans(),
        repeat=st.integers(1, 3),
    )
    batches = list(run_scheduler(instance, "sarathi").batches)
    at = data.draw(st.integers(0, len(batches)))
    batches[at : at + data.draw(st.integers(0, 1))] = data.draw(st.lists(entries, max_size=2))
    schedule = Schedule(instance.name, tuple(batches))
    plain = replay_plain(instance, schedule)
    compiled = fastreplay.replay_compiled(instance, schedule)
    assert compiled == (plain if plain.valid else None)


def test_large_schedules_take_the_compiled_path(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = make(*[(30, 400)] * 60, kv_capacity=5000, max_batch_tokens=200, max_prefill_tokens=100)
    schedule = run_scheduler(instance, "sarathi")
    expected = replay_plain(instance, schedule)
    assert expected.valid
    assert expected.evictions > 0
    monkeypatch.setattr(fastreplay, "replay_plain", None)
    assert fastreplay.replay(instance, schedule) == expected


def test_large_faulty_schedules_are_reported() -> None:
    instance = make(*[(30, 400)] * 60, kv_capacity=5000, max_batch_tokens=200, max_prefill_tokens=100)
    batches = run_scheduler(instance, "sarathi").batches[:-1]
    replay = fastreplay.replay(instance, plan(*batches))
    assert {v.rule for v in replay.violations} == {Rule.COMPLETION}
