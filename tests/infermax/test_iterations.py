"""Metrics of batches, tokens and states: by hand, and states part latencies exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest

from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.fast import replay
from infermax_opt.infermax.replay.iterations import STATES, iterations
from infermax_opt.infermax.replay.metrics import measure
from infermax_opt.infermax.schedulers.reservation.presets import RESERVATION
from tests.campaign import campaign
from tests.infermax.test_replay import make, step
from tests.infermax.test_reservation import drawn


def test_states_by_hand() -> None:
    of = make((2, 3), (2, 3), kv_capacity=10)
    made = Schedule(
        "tiny",
        (
            step(r1=2),  # r2 waits
            step(r2=2),  # r1 is queued
            step(r1=1),  # r2 is queued
            Batch({"r1": 1}, evict=("r2",)),
            step(r2=3),  # a refill that makes its second token
            step(r2=1),
        ),
    )
    found = replay(of, made)
    assert found.valid
    times = [end - start for start, end in zip(found.starts, found.ends, strict=True)]
    seconds = [Fraction(time, found.ticks_per_second * 2) for time in times]  # of two requests
    got = iterations(of, made, found)
    assert got.states == {
        "waiting": seconds[0],
        "prefill": seconds[0] + seconds[1],
        "queued": seconds[1],
        "preempted": seconds[2] + seconds[3],
        "execution": seconds[2] + seconds[3] + seconds[4] + seconds[5],
    }
    assert got.barren_share == Fraction(4, 6)
    assert got.mean_completions == Fraction(2, 6)
    assert got.forward_size == Fraction(10, 6)
    assert got.forward_share == Fraction(1, 6)
    gaps = sorted([times[1] + times[2], times[3], sum(times[2:5]), times[5]])
    unit = found.ticks_per_second
    assert got.mean_tbt == Fraction(sum(gaps), 4 * unit)
    assert [got.tbt[p] for p in (5, 50, 95)] == [Fraction(gaps[k], unit) for k in (0, 1, 3)]


@pytest.mark.parametrize("names", [tuple(RESERVATION)[:8], tuple(RESERVATION)[8:], ("vllm", "sarathi")])
def test_states_part_latencies(names: tuple[str, ...]) -> None:
    for seed in campaign(18, 1_000):
        of = drawn(seed)
        for name in names:
            made = run_scheduler(of, name)
            found = replay(of, made)
            got = iterations(of, made, found)
            assert tuple(got.states) == STATES
            assert min(got.states.values()) >= 0
            assert sum(got.states.values()) == measure(of, found).mean_e2e, (seed, name)


def test_a_wrong_schedule_has_none() -> None:
    of = make((2, 3))
    made = Schedule("tiny", (step(r1=2),))
    with pytest.raises(ValueError, match="valid"):
        iterations(of, made, replay(of, made))
