"""Schedules of other systems are rebuilt from their batches, and replay accepts them."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

import infermax_opt as io
from infermax_opt.core.errors import InputError
from infermax_opt.foreign.reading import read_run
from infermax_opt.foreign.run import ForeignBatch, Run
from infermax_opt.infermax.data.foreign_schedule import schedule_of_run
from infermax_opt.infermax.data.instance import Instance, RequestGroup, System
from infermax_opt.infermax.data.profiles import load_profile
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.replay.fast import replay
from tests.foreign.chrome import chrome_trace

COST = load_profile("llama-2-7b_a100").cost


def rebuilt(run: Run, instance: Instance) -> Schedule:
    return schedule_of_run(run, instance)[0]


def instance(*requests: tuple[int, int, str], capacity: int = 1000) -> Instance:
    groups = tuple(RequestGroup(f"q{k}", i, o, Fraction(at)) for k, (i, o, at) in enumerate(requests))
    return Instance("made", groups, System(capacity, 4096, 4096), COST)


def run(*batches: dict[str, int], gap: str = "0") -> Run:
    """Batches of one second each, `gap` seconds apart."""
    each = 1 + Fraction(gap)
    found = tuple(ForeignBatch(k * each, k * each + 1, tokens) for k, tokens in enumerate(batches))
    return Run("trace.json", "vidur-chrome-trace", (), batches=found)


@pytest.mark.parametrize("scheduler", ["vllm", "sarathi"])
@pytest.mark.parametrize("capacity", [120, 400, 4000])
def test_our_own_schedules_come_back(tmp_path: Path, scheduler: str, capacity: int) -> None:
    sizes = [(20 + 7 * k % 31, 5 + 11 * k % 40) for k in range(40)]
    groups = tuple(RequestGroup(f"q{k}", i, o, Fraction(k // 4, 50)) for k, (i, o) in enumerate(sizes))
    made = Instance("made", groups, System(capacity, 32, 32), load_profile("llama-2-7b_a100").cost)
    schedule = io.schedule(made, scheduler)
    wanted = replay(made, schedule)
    path = tmp_path / "chrome_trace.json"
    path.write_text(json.dumps(chrome_trace(made, schedule)))
    again = rebuilt(read_run(path), made)
    found = replay(made, again)
    assert io.verify(made, again).violations == ()
    assert found.features == wanted.features
    assert found.evictions == wanted.evictions
    assert (wanted.evictions > 0) == (capacity < 4000)
    ends = [Fraction(r.ends[-1], r.ticks_per_second) for r in (found, wanted)]
    assert float(ends[0]) == pytest.approx(float(ends[1]), abs=1e-6)


@pytest.mark.parametrize("scheduler", ["vllm", "vllm_v1", "sarathi"])
@pytest.mark.parametrize(
    ("sizes", "capacity", "chunk"), [((30, 20), 200, 16), ((5, 60), 150, 8), ((30, 20), 2000, 16)]
)
def test_our_own_schedules_come_back_where_prompts_are_dropped(
    tmp_path: Path, scheduler: str, sizes: tuple[int, int], capacity: int, chunk: int
) -> None:
    requests = (RequestGroup("q", *sizes, Fraction(0), 24),)
    made = Instance("made", requests, System(capacity, chunk, chunk), COST)
    wanted = replay(made, io.schedule(made, scheduler))
    path = tmp_path / "chrome_trace.json"
    path.write_text(json.dumps(chrome_trace(made, io.schedule(made, scheduler))))
    found = replay(made, rebuilt(read_run(path), made))
    assert found.violations == ()
    assert found.features == wanted.features
    assert found.evictions == wanted.evictions


def test_what_is_guessed_and_what_is_put_in_is_said() -> None:
    other = {"1": 1}
    rows = [{"0": 4, "1": 1}, other, {"0": 4}, {"0": 4}, {"0": 1}, {"0": 1}]
    assert schedule_of_run(run(*rows), instance((8, 3, "0"), (1, 2, "0")))[1] == ()
    rows = [{"0": 4, "1": 1}, other, {"0": 4}, other, {"0": 5}, {"0": 3}, {"0": 1}]
    schedule, (remark,) = schedule_of_run(run(*rows), instance((8, 2, "0"), (1, 3, "0")))
    assert remark.startswith("the batches of 1 of 2 requests can be read in more than one way")
    assert [k for k, batch in enumerate(schedule.batches) if batch.evict] == [1, 3]
    (remark,) = schedule_of_run(run({"0": 5}, {"0": 6}, {"0": 1}), instance((5, 3, "0")))[1]
    assert remark.startswith("1 batch put in to evict only")


def test_restarted_requests_are_evicted_as_early_as_can_be() -> None:
    made = instance((5, 4, "0"), (3, 3, "0"), capacity=8)
    schedule = rebuilt(run({"0": 5}, {"0": 1}, {"1": 3}, {"1": 1}, {"1": 1}, {"0": 7}, {"0": 1}), made)
    assert [b.evict for b in schedule.batches if b.evict] == [("q0",)]
    assert schedule.batches[2].evict == ("q0",)
    done = replay(made, schedule)
    assert done.violations == ()
    assert (done.evictions, done.refill_tokens) == (1, 7)


def test_restarts_without_a_batch_between_get_one() -> None:
    made = instance((5, 3, "0"))
    schedule = rebuilt(run({"0": 5}, {"0": 6}, {"0": 1}), made)
    assert schedule.length == 4
    assert schedule.batches[1].evict == ("q0",)
    assert replay(made, schedule).violations == ()


def test_refills_in_chunks_and_begun_anew() -> None:
    made = instance((6, 4, "0"), (2, 9, "0"))
    rows = [
        {"0": 6, "1": 2},
        {"0": 1, "1": 1},
        {"1": 1},
        {"0": 5, "1": 1},
        {"1": 1},
        {"0": 6, "1": 1},
        {"0": 2},
    ]
    schedule = rebuilt(run(*rows, {"0": 1}, {"1": 1}, {"1": 1}, {"1": 1}), made)
    done = replay(made, schedule)
    assert done.violations == ()
    assert (done.evictions, done.refill_tokens) == (2, 13)


def test_batches_wait_for_arrivals_and_where_the_other_system_idled() -> None:
    made = instance((5, 1, "0"), (5, 1, "2.5"), (5, 1, "2.5"))
    schedule = rebuilt(run({"0": 5}, {"1": 5}, {"2": 5}, gap="1"), made)
    assert [batch.start for batch in schedule.batches] == [None, Fraction("2.5"), Fraction(4)]
    schedule = rebuilt(run({"0": 5}, {"1": 5}, {"2": 5}), made)
    assert [batch.start for batch in schedule.batches] == [None, Fraction("2.5"), Fraction("2.5")]
    assert replay(made, schedule).violations == ()


def test_requests_are_matched_by_arrival() -> None:
    made = instance((5, 1, "1"), (7, 1, "0"))
    schedule = rebuilt(run({"10": 5}, {"9": 7}), made)
    assert [dict(batch.tokens) for batch in schedule.batches] == [{"q0": 5}, {"q1": 7}]
    schedule = rebuilt(run({"x": 7}, {"a": 5}), made)
    assert [dict(batch.tokens) for batch in schedule.batches] == [{"q1": 7}, {"q0": 5}]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [{"0": 5}, {"0": 1}, {"0": 1}, {"0": 1}],
            "batch 4: request 0 (that is 'q0') processes 1 tokens after",
        ),
        ([{"0": 9}], "batch 1: request 0 (that is 'q0') needs 5 tokens from here"),
        ([{"0": 5}, {"0": 7}], "batch 2: request 0 (that is 'q0') needs 6 tokens from here"),
        ([{"0": 5, "1": 5}], "holds 2 requests, instance 'made' 1"),
    ],
)
def test_what_cannot_be_is_named(rows: list[dict[str, int]], words: str) -> None:
    with pytest.raises(InputError) as caught:
        rebuilt(run(*rows), instance((5, 3, "0")))
    assert words in str(caught.value)
    assert str(caught.value).startswith("trace.json")


def test_runs_without_batches_and_unfinished_ones() -> None:
    made = instance((5, 3, "0"))
    with pytest.raises(InputError, match="holds no batches"):
        rebuilt(Run("t", "vllm", ()), made)
    (violation,) = replay(made, rebuilt(run({"0": 5}), made)).violations
    assert "generated 1 of 3 tokens" in str(violation)
