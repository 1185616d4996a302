"""Waves of equal requests: the table of their sizes, and schedules that replay as it says."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import infermax_opt as imx
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.planners.latencies import latency_plans
from infermax_opt.infermax.planners.waves import _best_sizes, _times, wave_plans
from tests.campaign import campaign
from tests.infermax.test_waves import equal


def value(of: Instance, schedule: imx.Schedule) -> Fraction:
    """The mean end-to-end latency by replay, of a schedule that the verifier accepts."""
    checked = imx.verify(of, schedule)
    assert checked.ok, checked
    assert checked.metrics is not None
    return Fraction(checked.metrics.mean_e2e)


@pytest.mark.parametrize("seed", campaign(24, 1_000))
def test_plans_are_valid_and_take_what_the_table_says(seed: int) -> None:
    of = equal(seed)
    found = list(wave_plans(of))
    assert len(found) == (of.offline and of.requests[0].input_tokens <= of.system.prefill_budget)
    for name, schedule in found:
        i, o = of.requests[0].input_tokens, of.requests[0].output_tokens
        times = _times(of, i, o, len(of.requests))
        sizes = [len(some) for some in waves_of(schedule, i, o)]
        assert name == f"waves:{len(sizes)}"
        ends = list(itertools.accumulate(times[size - 1] for size in sizes))
        said = sum(size * end for size, end in zip(sizes, ends, strict=True)) / len(of.requests)
        assert float(value(of, schedule)) == pytest.approx(said)


def waves_of(schedule: imx.Schedule, i: int, o: int) -> list[list[str]]:
    """Requests of each wave: those whose prompts lie between two runs of decodes."""
    if o == 1:
        return [list(batch.tokens) for batch in schedule.batches]
    waves: list[list[str]] = [[]]
    for batch in schedule.batches:
        assert set(batch.tokens.values()) <= {i}
        waves[-1] += batch.tokens
        if batch.decode_all:
            assert batch.repeat == o - 1
            waves.append([])
    return waves[:-1]


@pytest.mark.parametrize("seed", range(20))
def test_no_other_sizes_are_better(seed: int) -> None:
    rng = random.Random(seed)
    number, times = rng.randint(1, 8), np.cumsum([rng.uniform(0, 5) for _ in range(rng.randint(1, 8))])

    def total(sizes: tuple[int, ...]) -> float:
        left, found = number, 0.0
        for size in sizes:
            found, left = found + left * times[size - 1], left - size
        return found

    def all_sizes(left: int) -> list[tuple[int, ...]]:
        rest = range(1, min(left, len(times)) + 1)
        return [(c, *more) for c in rest for more in all_sizes(left - c)] if left else [()]

    best = tuple(_best_sizes(number, times))
    assert sum(best) == number
    assert total(best) == pytest.approx(min(map(total, all_sizes(number))))


def machine(count: int = 60) -> Instance:
    """Equal requests, and memory for all of them."""
    cost = CostModel([("0.007", "0.0001")], ("0.0003", "0.0000003"), ("0.0003", "0.0000000015"))
    groups = (RequestGroup("r", 8, 8, count=count),)
    system = System(10_000, 500, 500)
    return Instance("machine", groups, system, cost, Policy(False, False, False), objective="mean_e2e")


def test_waves_come_first_and_within_some_percent_of_the_bound() -> None:
    of = machine()
    name, schedule = next(iter(latency_plans(of)))
    assert name.startswith("waves:")
    least = max(bound.value for bound in imx.bound(of, time_limit=5))
    assert value(of, schedule) * Fraction(9, 10) <= least <= value(of, schedule)


def test_there_are_none_where_requests_differ_or_come_later_or_do_not_fit() -> None:
    of = machine()
    late = (RequestGroup("r", 8, 8, count=3), RequestGroup("s", 8, 8, Fraction(1)))
    longer = (RequestGroup("r", 8, 8, count=3), RequestGroup("s", 8, 9))
    for other in (
        replace(of, groups=late),
        replace(of, groups=longer),
        replace(of, objective="makespan"),
        replace(of, system=replace(of.system, max_prefill_tokens=7), policy=Policy(False, True, False)),
        machine(count=100_001),
    ):
        assert list(wave_plans(other)) == []


def test_limits_on_running_requests_and_on_memory_hold() -> None:
    of = machine()
    for system in (
        replace(of.system, max_running=7),
        replace(of.system, kv_capacity=100),
        replace(of.system, max_batch_tokens=16),
    ):
        limited = replace(of, system=system)
        ((_, schedule),) = wave_plans(limited)
        assert value(limited, schedule) >= value(of, next(iter(wave_plans(of)))[1])
