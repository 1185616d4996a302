"""The admission planner: valid schedules under every flag, and a clock that agrees with replay."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from infermax_opt.api import schedule, solve, verify
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Objective, Policy, RequestGroup, System
from infermax_opt.infermax.planners.admission import _kernel, _loops, _spread_kernel
from infermax_opt.infermax.planners.admission.choice import ANY, Choice
from infermax_opt.infermax.planners.admission.delays import weights_of_ends
from infermax_opt.infermax.planners.admission.planner import AdmissionPlanner
from infermax_opt.infermax.replay.metrics import objective_value
from infermax_opt.infermax.schedulers.presets import PRESETS
from tests.campaign import campaign
from tests.infermax.tiny import cost_model, tiny
from tests.infermax.waiting import OBJECTIVES, waiting
from tests.support import PAPER


def crowded(seed: int) -> Instance:
    """Up to forty requests on a memory for a few, with every flag and limit."""
    rng = random.Random(seed)
    policy = Policy(rng.random() < 0.6, rng.random() < 0.5, rng.random() < 0.5)
    groups = [
        RequestGroup(
            f"q{k}", rng.randint(1, 40), rng.randint(1, 30), Fraction(rng.randint(0, 900), 100) * (seed % 2)
        )
        for k in range(rng.randint(2, 40))
    ]
    block = rng.choice([1, 1, 4, 16])
    peak = max(-(-(g.input_tokens + g.output_tokens - 1) // block) * block for g in groups)
    prompt = 1 if policy.chunked_prefill else max(g.input_tokens for g in groups)
    system = System(
        peak + rng.choice([0, 1, peak, 5 * peak]),
        rng.choice([prompt, prompt + 3, 64 + prompt]),
        rng.choice([prompt, prompt + 3, 64 + prompt]),
        rng.choice([None, None, 1, 3]),
        block,
    )
    return Instance(f"crowded-{seed}", tuple(groups), system, cost_model(rng), policy)


@pytest.mark.parametrize("make", [tiny, waiting, crowded])
def test_schedules_are_valid_and_the_clock_is_right(make: object) -> None:
    for seed in range(30):
        instance = replace(make(seed), objective=OBJECTIVES[seed % len(OBJECTIVES)])  # type: ignore[operator]
        planner = AdmissionPlanner(instance, seed=seed)
        for choice in itertools.islice(planner._choices(), 12, 40, 3):
            planner._try(choice)
            finished, first, last = planner._timed(choice)
            assert finished
            check = verify(instance, planner.schedule(choice))
            assert check.ok, (seed, choice, check.violations[:2])
            assert check.metrics is not None
            told = planner._estimate.value(first, last)
            assert told == pytest.approx(float(objective_value(instance.objective, check.metrics)), rel=1e-6)


def test_batches_that_are_taken_at_once_are_those_that_come_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stays_out, until, calls = _kernel.stays_out, _kernel.batches_until, [0, 0]

    def run(planner: AdmissionPlanner, choice: Choice, most: int, fast: bool) -> tuple[list[int], ...]:
        def asked(*given: int) -> int:
            calls[fast] += 1
            return min(most, stays_out(*given))

        for kernel in (_kernel, _spread_kernel):
            monkeypatch.setattr(kernel, "stays_out", asked)
            monkeypatch.setattr(kernel, "batches_until", lambda *given: min(most, until(*given)))
        return planner._run(choice, record=True)

    monkeypatch.setattr(_loops, "_loop", lambda: _kernel.admission_loop)
    monkeypatch.setattr(_loops, "_spread_loop", lambda: _spread_kernel.spread_loop)
    for seed in campaign(40, 120):
        planner = AdmissionPlanner(crowded(seed), seed=seed)
        choices = list(itertools.islice(planner._choices(), 12, 40, 5))
        if planner._may_spread:
            choices += [replace(choice, share=3, splits=()) for choice in choices[:3]]
        for choice in choices:
            fast, slow = (run(planner, choice, most, most > 1) for most in (2**40, 1))
            assert [list(column) for column in fast[3:-2]] == [list(column) for column in slow[3:-2]], seed
            assert fast[-1] == pytest.approx([slow[-1][slow[-2].index(batches)] for batches in fast[-2]])
            assert fast[1] == pytest.approx(slow[1])
            assert fast[2] == pytest.approx(slow[2])
    assert calls[True] < 0.7 * calls[False]


def test_prompts_side_by_side_are_valid_and_the_clock_is_right() -> None:
    together = 0
    for seed in range(180):
        instance = replace(
            (crowded, waiting)[seed % 3 == 0](seed), objective=OBJECTIVES[seed % len(OBJECTIVES)]
        )
        if not (instance.policy.hybrid_batching and instance.policy.chunked_prefill):
            continue
        planner, rng = AdmissionPlanner(instance, seed=seed), random.Random(seed)
        everyone = range(len(instance.requests))
        for _ in range(6):
            choice = Choice(
                work=rng.uniform(-1, 2), arrival=rng.random(), cap=rng.choice([ANY, 2, 8]),
                budget=rng.choice([ANY, 1, 16]), look=rng.choice([1, 9]), share=rng.choice([1, 2, 5, 30]),
                delays=tuple((i, rng.expovariate(3)) for i in everyone if rng.random() < 0.2),
            )  # fmt: skip
            finished, first, last = planner._timed(choice)
            assert finished
            made = planner.schedule(choice)
            check = verify(instance, made)
            assert check.ok, (seed, choice, check.violations[:2])
            assert check.metrics is not None
            assert max(max(batch.tokens.values(), default=0) for batch in made.batches) <= choice.share
            together += any(len(batch.tokens) > 1 for batch in made.batches)
            told = planner._estimate.value(first, last)
            assert told == pytest.approx(float(objective_value(instance.objective, check.metrics)), rel=1e-6)
    assert together > 20


def burst() -> Instance:
    """Sixty who decode for a second or two, and four long prompts that come among them."""
    cost = CostModel([("0.005", "0.00002")], ("0", "0.0000001"), ("0", "0.000000002"), "square")
    groups = (
        *(RequestGroup(f"short{k}", 50 + k, 120, k * Fraction("0.01")) for k in range(60)),
        *(RequestGroup(f"long{k}", 9_000 + k, 5, (30 + k) * Fraction("0.01")) for k in range(4)),
    )
    return Instance("burst", groups, System(10**5, 4_096, 4_096), cost, objective="mean_e2e")  # type: ignore[arg-type]


def test_long_prompts_wait_until_fewer_are_there() -> None:
    planner = AdmissionPlanner(burst())
    at_once = Choice(arrival=1.0, share=166, cap=200)
    planner._try(at_once)
    before = planner.value
    assert planner._delays is not None
    for _ in range(40):
        planner._try(planner._delayed(planner.best or at_once, planner._delays))
    assert planner.best is not None
    assert {i for i, delay in planner.best.delays if delay > 0.2} >= {60, 61, 62, 63}
    assert planner.value < 0.8 * before
    check = verify(planner.instance, planner.schedule(planner.best))
    assert check.ok
    assert float(check.objective or 0) == pytest.approx(planner.value, rel=1e-6)


def test_what_requests_meet_in_a_run_adds_up() -> None:
    """All time of requests from their first batch on is that of batches, times those who are there."""
    instance = burst()
    planner = AdmissionPlanner(instance)
    found = planner._run(Choice(arrival=1.0, share=300, cap=200), record=True)
    delays = planner._delays
    assert delays is not None
    delays.watch(found)
    _, _, last, named, _, named_end, _, repeat, *_, passed, ends = found
    begin, batches = np.zeros(len(last)), np.cumsum(repeat)
    for entry in range(len(repeat) - 1, 0, -1):
        begin[named[named_end[entry - 1] : named_end[entry]]] = ends[passed.index(batches[entry - 1])]
    spent = float((last - begin).mean())
    assert np.diff(delays._ends) @ np.diff(delays._met) == pytest.approx(spent, rel=1e-9)
    assert delays._ends[-1] == pytest.approx(last.max())
    assert weights_of_ends(replace(instance, objective=Objective.of("mean_ttft"))) is None
    assert weights_of_ends(replace(instance, objective=Objective.of("makespan"))) is None
    assert weights_of_ends(instance) == pytest.approx(np.full(64, 1 / 64))


def test_chunks_are_small_where_their_squares_are_dear() -> None:
    cost = CostModel([("0.005", "0.00001")], ("0", "0"), ("0", "0.0000002"), "square")
    groups = tuple(RequestGroup(f"r{k}", 1_000, 100, k * Fraction("0.2")) for k in range(30))
    instance = Instance("squares", groups, System(10**5, 4_096, 4_096), cost, objective="mean_e2e")  # type: ignore[arg-type]
    planner = AdmissionPlanner(instance)
    *_, (_, made) = planner.plans()
    assert planner.best is not None
    assert planner.best.share <= 256
    whole = AdmissionPlanner(replace(instance, policy=Policy(hybrid_batching=False)))
    assert all(choice.share == ANY for choice in itertools.islice(whole._choices(), 60))
    assert verify(instance, made).ok


def test_evicted_requests_go_on_and_the_clock_is_right() -> None:
    evictions = 0
    for seed in range(60):
        instance = crowded(seed)
        if not instance.policy.preemption:
            continue
        instance = replace(instance, objective=OBJECTIVES[seed % len(OBJECTIVES)])
        planner = AdmissionPlanner(instance, seed=seed)
        for choice in itertools.islice(planner._choices(), 12):
            planner._try(choice)
        choice = planner.best
        assert choice is not None
        for _ in range(12):
            other = planner._split(choice)
            finished, first, last = planner._timed(other)
            if not finished:  # nobody else was there for the batch that evicts
                continue
            choice = other
            planner._times = first, last
            check = verify(instance, planner.schedule(choice))
            assert check.ok, (seed, choice, check.violations[:2])
            assert check.metrics is not None
            evictions += check.metrics.evictions
            told = planner._estimate.value(first, last)
            assert told == pytest.approx(float(objective_value(instance.objective, check.metrics)), rel=1e-6)
    assert evictions > 300


def test_a_long_request_makes_room_for_short_ones() -> None:
    """One that takes the whole memory for 400 batches; ten short ones come after half of them."""
    groups = (
        RequestGroup("long", 100, 400),
        *(RequestGroup(f"short{k}", 300, 4, Fraction("1.5")) for k in range(10)),
    )
    instance = Instance("room", groups, System(500, 1024, 1024), PAPER, objective="mean_e2e")  # type: ignore[arg-type]
    *_, (_, made) = AdmissionPlanner(instance).plans(time.monotonic() + 1.5)
    check = verify(instance, made)
    assert check.ok
    assert check.metrics is not None
    assert check.metrics.evictions == 1
    kept = Policy(preemption=False)
    *_, (_, other) = AdmissionPlanner(replace(instance, policy=kept)).plans(time.monotonic() + 0.5)
    assert all(not batch.evict for batch in other.batches)
    waits = verify(instance, other).metrics
    assert waits is not None
    assert check.metrics.mean_e2e < Fraction("0.9") * waits.mean_e2e


@pytest.mark.parametrize("capacity", [64, 79])
def test_memory_is_counted_in_blocks(capacity: int) -> None:
    """Four requests end with a full block each: they hold what they have cached, and no more."""
    groups = tuple(RequestGroup(f"q{k}", 9, 8) for k in range(4))
    instance = Instance(
        "blocks", groups, System(capacity, 64, 64, block_size=16), PAPER, objective="mean_e2e"
    )  # type: ignore[arg-type]
    *_, (_, made) = AdmissionPlanner(instance).plans()
    assert verify(instance, made).ok
    assert set(made.batches[0].tokens) == {"q0", "q1", "q2", "q3"}


def test_the_same_seed_gives_the_same_plans() -> None:
    instance = replace(crowded(3), objective="mean_e2e")
    plans = [list(AdmissionPlanner(instance, seed=5).plans()) for _ in range(2)]
    assert plans[0][-1] == plans[1][-1]


def test_it_beats_every_scheduler_where_arrivals_pile_up() -> None:
    rng = random.Random(1)
    groups = [
        RequestGroup(f"q{k}", rng.randint(5, 400), rng.randint(5, 200), Fraction(rng.randint(0, 50), 10))
        for k in range(150)
    ]
    instance = Instance("busy", tuple(groups), System(4000, 4096, 4096), PAPER, objective="mean_e2e")  # type: ignore[arg-type]
    result = solve(instance, time_limit=1.5)
    assert result.upper is not None
    assert result.upper.source.startswith("admission:")
    assert min(heuristics(instance)) > 1.02 * result.upper.value


def heuristics(instance: Instance) -> Iterator[Fraction]:
    """What every shipped scheduler gives."""
    for name in PRESETS:
        check = verify(instance, schedule(instance, scheduler=name))
        assert check.metrics is not None
        yield check.metrics.mean_e2e


def test_the_roofline_and_a_single_token_are_planned() -> None:
    cost = CostModel([("1", "0"), ("0", "0.5")], ("0", "0"), ("0", "0"))
    instance = Instance("one", (RequestGroup("a", 1, 1),), System(1, 1, 1), cost, objective="mean_e2e")  # type: ignore[arg-type]
    ((_, schedule),) = AdmissionPlanner(instance).plans()
    check = verify(instance, schedule)
    assert check.metrics is not None
    assert check.metrics.mean_e2e == 1
