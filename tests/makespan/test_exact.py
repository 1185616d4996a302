"""The exact search of small makespan instances, against an exhaustive one."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.engines.outcome import EngineOutcome
from infermax_opt.makespan.bounds.closed_form import closed_form_makespan_bounds
from infermax_opt.makespan.data.generate import gsm8k_like
from infermax_opt.makespan.data.instance import MakespanInstance, PrefillLevel
from infermax_opt.makespan.data.schedule import MakespanSchedule
from infermax_opt.makespan.exact import _bound as _makespan_bound
from infermax_opt.makespan.exact import _explore as _makespan_explore
from infermax_opt.makespan.exact import _search as _makespan_search
from infermax_opt.makespan.exact._groups import LeastTicks, groupings
from infermax_opt.makespan.exact.solve import MOST_REQUESTS, exact_size, solve_makespan_exactly
from infermax_opt.makespan.methods.by_name import METHODS, run_method
from infermax_opt.makespan.replay.bins import replay_bins
from tests.campaign import size
from tests.makespan.oracle import optimum, tiny_makespan


def tight_makespan(rng: random.Random) -> MakespanInstance:
    """Up to six requests with levels that just take them; many equal ones, few or many clients."""
    inputs, outputs = rng.choice([1, 3, 8]), rng.choice([1, 2, 4, 8])
    kinds = [(rng.randint(1, inputs), rng.randint(1, outputs)) for _ in range(rng.randint(1, 5))]
    requests = [rng.choice(kinds) for _ in range(rng.randint(4, 6))]
    most = max(tokens for tokens, _ in requests) + rng.randint(0, 2 * inputs)
    sizes = [*(rng.randint(1, most) for _ in range(rng.randint(0, 4))), most]
    levels = [PrefillLevel(size, Fraction(rng.randint(0, 14), rng.choice([1, 2]))) for size in sizes]
    decode = rng.randint(0, 2), rng.randint(1, 2)
    return MakespanInstance.of_requests("tight", requests, rng.choice([1, 2, 2, 3, 3, 4, 9]), levels, decode)


def least_ticks(instance: MakespanInstance, found: EngineOutcome[MakespanSchedule]) -> int:
    """The bound found, in ticks."""
    assert found.lower is not None
    bound = found.lower.value * instance.ticks_per_second
    assert bound.denominator == 1
    return int(bound)


def ticks(instance: MakespanInstance, found: EngineOutcome[MakespanSchedule]) -> int:
    """Ticks of the schedule found, which must be valid."""
    assert found.schedule is not None
    replay = replay_bins(instance, found.schedule)
    assert replay.valid, replay.violations
    return sum(replay.prefill_ticks) + sum(replay.decode_ticks)


@pytest.mark.parametrize("make", [tiny_makespan, tight_makespan])
def test_optimum_equals_the_exhaustive_one(make) -> None:
    rng = random.Random(7)
    beaten, count = 0, size(48, 5_000)
    for _ in range(count):
        instance = make(rng)
        found = solve_makespan_exactly(instance)
        best = optimum(instance)
        assert found.termination == "optimal"
        assert Fraction(ticks(instance, found), instance.ticks_per_second) == best, instance
        assert Fraction(least_ticks(instance, found), instance.ticks_per_second) == best, instance
        beaten += closed_form_makespan_bounds(instance)[0].value < best
    assert beaten > 0.08 * count, "too easy to say anything"


@pytest.mark.parametrize("distribution", ["normal", "lognormal", "uniform"])
def test_instances_like_those_of_the_paper(distribution: str) -> None:
    instance = gsm8k_like(seed=3, distribution=distribution, requests=10, clients=3)
    assert exact_size(instance)
    found = solve_makespan_exactly(instance)
    best = ticks(instance, found)
    assert least_ticks(instance, found) == best
    assert Fraction(best, instance.ticks_per_second) >= closed_form_makespan_bounds(instance)[0].value
    for name in METHODS:
        schedule = run_method(instance, name).schedule
        assert replay_bins(instance, schedule).makespan * instance.ticks_per_second >= best
    again = solve_makespan_exactly(instance)
    assert again == found, "one thread, one result"
    assert least_ticks(instance, solve_makespan_exactly(instance, threads=2)) == best
    # The scale of time does not matter.
    levels = [replace(level, seconds=level.seconds * 7) for level in instance.levels]
    slower = replace(
        instance, levels=tuple(levels),
        decode_overhead=instance.decode_overhead * 7, decode_token=instance.decode_token * 7,
    )  # fmt: skip
    longer = Fraction(least_ticks(slower, solve_makespan_exactly(slower)), slower.ticks_per_second)
    assert longer == 7 * Fraction(best, instance.ticks_per_second)


def test_a_warm_start_is_improved_or_confirmed() -> None:
    rng = random.Random(11)
    improved = confirmed = 0
    for _ in range(30):
        instance = tight_makespan(rng)
        best = solve_makespan_exactly(instance)
        assert best.schedule is not None
        assert solve_makespan_exactly(instance, warm=best.schedule).schedule is None
        assert solve_makespan_exactly(instance, warm=best.schedule).lower == best.lower
        warm = run_method(instance, "fcfs").schedule
        found = solve_makespan_exactly(instance, warm=warm)
        assert found.lower == best.lower
        if found.schedule is None:
            confirmed += 1
            assert ticks(instance, replace(found, schedule=warm)) == least_ticks(instance, best)
        else:
            improved += 1
            assert ticks(instance, found) == least_ticks(instance, best)
    assert improved
    assert confirmed
    with pytest.raises(ValueError, match="not valid"):
        solve_makespan_exactly(instance, warm=replace_bins(warm))


def replace_bins(schedule):
    return type(schedule)(schedule.instance, schedule.bins[:-1])


def test_interrupted_bounds_hold() -> None:
    instance = gsm8k_like(seed=0, distribution="uniform", requests=12, clients=3)
    best = least_ticks(instance, solve_makespan_exactly(instance))
    before = 0
    for asked in (0, 1, 3, 10, 30, 100, 150):
        count = itertools.count()
        found = solve_makespan_exactly(instance, stop=lambda limit=asked, c=count: next(c) >= limit)
        assert found.termination == "interrupted"
        assert before <= least_ticks(instance, found) <= best <= ticks(instance, found)
        before = least_ticks(instance, found)
    closed = closed_form_makespan_bounds(instance)[0].value
    assert before > closed * instance.ticks_per_second
    large = gsm8k_like(seed=0, requests=MOST_REQUESTS, clients=6)
    for limit in (0, 0.5):
        # Of this process: other ones may have the processor meanwhile.
        start = time.process_time()
        found = solve_makespan_exactly(large, time_limit=limit)
        assert time.process_time() - start < limit + 1.5
        assert found.termination == "time_limit"
        assert found.lower is not None
        assert found.lower.value >= closed_form_makespan_bounds(large)[0].value
        assert ticks(large, found) > least_ticks(large, found)


def test_plain_code_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    instances = [tight_makespan(rng) for _ in range(15)]
    compiled = [solve_makespan_exactly(instance) for instance in instances]
    monkeypatch.setattr(_makespan_search, "NODES", 1)
    assert [solve_makespan_exactly(instance) for instance in instances] == compiled, "the stack grows"
    monkeypatch.setattr(_makespan_search, "_rate", lambda: _makespan_bound.rate)
    monkeypatch.setattr(_makespan_search, "_explore", lambda: _makespan_explore.explore)
    assert [solve_makespan_exactly(instance) for instance in instances] == compiled


def test_groupings_are_all_of_them_once() -> None:
    rng = random.Random(2)
    for _ in range(60):
        lengths = sorted((rng.randint(1, 5) for _ in range(rng.randint(1, 7))), reverse=True)
        kinds = [sorted(set(lengths), reverse=True).index(length) for length in lengths]
        clients, least = rng.randint(1, 4), rng.randint(1, 12)
        most = least + rng.randint(0, 4)
        expected = set()
        for where in itertools.product(range(clients), repeat=len(lengths)):
            loads = [[lengths[i] for i, at in enumerate(where) if at == j] for j in range(clients)]
            if least <= max(map(sum, loads)) <= most:
                expected.add(tuple(sorted(tuple(load) for load in loads if load)))
        found = Counter(
            tuple(sorted(tuple(lengths[i] for i in range(len(lengths)) if some >> i & 1) for some in parts))
            for parts in groupings(lengths, kinds, clients, least, most, lambda: None)
        )
        assert set(found) == expected
        assert not found or max(found.values()) == 1


def test_least_ticks_hold_for_every_number_of_rounds() -> None:
    rng = random.Random(9)
    for _ in range(40):
        instance = tight_makespan(rng)
        found = solve_makespan_exactly(instance)
        assert found.schedule is not None
        least = LeastTicks(instance)
        rounds = sum(some.rounds for some in found.schedule.bins)
        assert least(least.rounds) <= least(rounds) <= least_ticks(instance, found)


@pytest.mark.parametrize(
    ("requests", "clients", "good"),
    [(15, 4, True), (16, 4, False), (15, 5, False), (12, 6, True), (10, 9, True)],
)
def test_sizes(requests: int, clients: int, good: bool) -> None:
    instance = gsm8k_like(requests=requests, clients=clients)
    assert exact_size(instance) is good
    # Where prefill takes much more than decodes, groupings are many.
    slow = replace(
        instance, levels=[replace(level, seconds=level.seconds * 1000) for level in instance.levels]
    )
    assert exact_size(slow) is (requests <= 10)


def test_refusals() -> None:
    many = gsm8k_like(requests=MOST_REQUESTS + 1, clients=2)
    assert not exact_size(many)
    with pytest.raises(InputError, match="requests: 19 requests; the exact search takes at most 18"):
        solve_makespan_exactly(many)
    level = PrefillLevel(5, Fraction(1, 10**20))
    fine = MakespanInstance.of_requests("fine", [(5, 10**6)], 1, [level], (1, 0))
    with pytest.raises(InputError, match=r"less than 2\*\*53"):
        solve_makespan_exactly(fine)
