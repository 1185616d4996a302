"""Priced work: never above an optimum, nor above the k-th completion of any schedule."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.infermax.bounds.latency import latency_bounds
from infermax_opt.infermax.bounds.priced_work import _shortest_remaining, completion_ticks, sustainable_rate
from infermax_opt.infermax.data.instance import Metric
from infermax_opt.infermax.data.objective import Latency
from infermax_opt.infermax.heuristics import run_scheduler
from infermax_opt.infermax.replay.fast import replay
from tests.campaign import campaign, in_blocks
from tests.infermax.oracle import optimum
from tests.infermax.test_replay import make
from tests.infermax.test_reservation import drawn
from tests.infermax.tiny import tiny


@in_blocks(campaign(14, 60), 12)
@pytest.mark.parametrize("metric", [Metric.MEAN_E2E, Metric.MEAN_TTFT])
def test_never_above_the_optimum(seeds: range, metric: Metric) -> None:
    for seed in seeds:
        of = tiny(seed, arrivals=seed % 3 > 0, objective=metric.value)
        best = optimum(of)
        for name, value in latency_bounds(of, metric):
            assert value <= best, (seed, name)


@pytest.mark.parametrize("scheduler", ["sarathi", "spt", "ecoserve-oracle", "srtf-block"])
def test_no_schedule_is_faster(scheduler: str) -> None:
    for seed in campaign(36, 2_000):
        of = drawn(seed)
        made = replay(of, run_scheduler(of, scheduler))
        for latency, batches in ((Latency.TTFT, made.first_batch), (Latency.E2E, made.last_batch)):
            ends = sorted(Fraction(made.ends[k], made.ticks_per_second) for k in batches)
            least = [of.cost.to_seconds(ticks) for ticks in completion_ticks(of, latency)]
            assert all(bound <= end for bound, end in zip(least, ends, strict=True)), (seed, latency)
        since = min(request.arrival for request in of.requests)
        took = made.seconds(made.ends[-1]) - since
        assert len(of.requests) <= sustainable_rate(of) * took, seed


def test_shortest_remaining_work_by_hand() -> None:
    assert _shortest_remaining([(0, 5), (0, 2)]) == [2, 7]
    # The second one interrupts the first, the third waits for both.
    assert _shortest_remaining([(0, 5), (1, 2), (2, 9)]) == [3, 7, 16]
    assert _shortest_remaining([(0, 1), (10, 1)]) == [1, 11]


def test_it_counts_shares_of_kv() -> None:
    # Alone each takes 2 batches; both fit only one after the other.
    of = replace(make((3, 2), (3, 2), kv_capacity=4), objective="mean_e2e")
    found = dict(latency_bounds(of, Metric.MEAN_E2E))
    assert found["alone"] < found["priced work"] <= optimum(of)
