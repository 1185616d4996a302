"""MC-SF and smallest volume first: by hand, against a plain reading of the paper, and on any instance."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given

from infermax_opt.api import verify
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.instance import Instance, RequestGroup
from infermax_opt.infermax.data.mcsf import mcsf_instance
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.data.suites import SUITES
from infermax_opt.infermax.heuristics import INFORMED, run_scheduler
from infermax_opt.infermax.schedulers import foresight
from tests.infermax.strategies import instances
from tests.infermax.test_backwards import in_rounds
from tests.infermax.test_replay import DECODE, make, step
from tests.infermax.test_schedulers import MANY


def plain_mc_sf(instance: Instance) -> Fraction:
    """Mean latency of MC-SF in rounds, each future round looked at on its own."""
    alpha, capacity = instance.cost.seconds.alpha[0], instance.system.kv_capacity
    waiting = sorted(instance.requests, key=lambda r: (r.output_tokens, r.arrival, instance.index[r.id]))
    running: list[tuple[int, int, int]] = []  # start, input and output tokens
    late, now = Fraction(0), 0
    while waiting:
        for request in [r for r in waiting if r.arrival <= now * alpha]:
            some = [*running, (now, request.input_tokens, request.output_tokens)]
            last = max(start + o for start, _, o in some)
            memory = [
                sum(i + t - start for start, i, o in some if start <= t < start + o) for t in range(now, last)
            ]
            if max(memory) > capacity:
                break
            running = some
            waiting.remove(request)
            late += (now + request.output_tokens) * alpha - request.arrival
        now += 1
    return late / len(instance.requests)


@pytest.mark.parametrize("seed", range(60))
def test_in_rounds_it_is_what_the_paper_says(seed: int) -> None:
    of = in_rounds(3000 + seed, most=9)
    assert verify(of, run_scheduler(of, "mc-sf")).objective == plain_mc_sf(of)


@MANY
@given(instance=instances())
def test_schedules_are_valid_and_evict_nobody(instance: Instance) -> None:
    for name in INFORMED:
        check = verify(instance, run_scheduler(instance, name))
        assert check.ok, (name, check.violations)
        assert check.metrics is not None
        assert check.metrics.evictions == 0


def test_the_clock_is_that_of_the_replay() -> None:
    rng = random.Random(1)
    for _ in range(60):
        groups = [(rng.randint(1, 5), rng.randint(1, 6), Fraction(rng.randint(0, 99), 10)) for _ in range(6)]
        flags = {"chunked_prefill": rng.random() < 0.5, "hybrid_batching": rng.random() < 0.5}
        capacity, block = rng.randint(12, 20), rng.randint(1, 2)
        of = make(*groups, kv_capacity=capacity, block_size=block, max_prefill_tokens=5, **flags)
        # Whoever comes much later keeps the clock going.
        later = replace(of, groups=(*of.groups, RequestGroup("late", 1, 1, Fraction(1000))))
        run = foresight._Run(later, foresight.FORESIGHT["mc-sf"])
        while len(run.coming) > 1 or run.waiting or run.running:
            run.proceed()
        check = verify(of, Schedule(of.name, tuple(run.batches)))
        assert check.ok, check.violations
        assert check.metrics is not None
        assert check.metrics.makespan == run.clock


def list_of(name: str, instance: Instance) -> list[Batch]:
    return list(run_scheduler(instance, name).batches)


def test_short_ones_join_while_all_fits_to_the_end() -> None:
    # r1 and r3 hold 2 + 2 and 3 + 3; r2 would make it 2 + 2 + 3 in the first batch.
    of = make((2, 2), (3, 3), (2, 2), kv_capacity=6)
    assert list_of("mc-sf", of) == [step(r1=2, r3=2), DECODE, step(r2=3), Batch(decode_all=True, repeat=2)]


def test_the_orders_differ() -> None:
    of = make((9, 1), (1, 2), kv_capacity=9)
    assert list_of("mc-sf", of) == [step(r1=9), step(r2=1), DECODE]
    assert list_of("svf", of) == [step(r2=1), DECODE, step(r1=9)]


def test_without_hybrid_batches_the_others_keep_what_they_hold() -> None:
    of = make((2, 3), (2, 4), (3, 4), kv_capacity=8, max_prefill_tokens=4, hybrid_batching=False)
    # After a step r3 would hold 3 beside 3 + 3 that wait; after two, 4 beside 5 in the next.
    assert list_of("mc-sf", of)[:2] == [step(r1=2, r2=2), Batch(decode_all=True, repeat=3)]


def test_a_prompt_longer_than_a_batch_is_split_and_alone_until_its_first_token() -> None:
    of = make((7, 2), (1, 3), max_prefill_tokens=3)
    assert list_of("mc-sf", of)[:3] == [step(r1=3), step(r1=3), step(r1=1)]
    assert list_of("mc-sf", of)[3:] == [Batch({"r2": 1}, decode_all=True), Batch(decode_all=True, repeat=2)]


def test_too_many_batches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foresight, "MAX_BATCHES", 3)
    with pytest.raises(InputError, match="needs more than 3 batches"):
        run_scheduler(make((1, 9)), "mc-sf")


# --- the models of its study ---


def test_seed_0_is_what_others_have() -> None:
    """Hashes of two instances that came from elsewhere, and what MC-SF reaches there."""
    first, second = mcsf_instance(1, 0), mcsf_instance(2, 0)
    assert first.sha256 == "bcde691f3966188c004eb10ad24e7c4e9fafdec57fee411b2c2191ddcee9e1ec"
    assert second.sha256 == "acb55c21e472f20ca489651a33743d4e5aed4378581aca6ee5aa09f6a9aa127c"
    assert verify(first, run_scheduler(first, "mc-sf")).objective == Fraction(10175, 53)
    assert verify(second, run_scheduler(second, "mc-sf")).objective == Fraction(5753, 40)


def test_the_suite_keeps_to_the_models() -> None:
    cases = SUITES["mcsf"](None)
    assert len(cases) == 400
    for case in cases[::7]:
        of = case.build()
        assert isinstance(of, Instance)
        assert of.name == case.name
        capacity = of.system.kv_capacity
        assert 30 <= capacity <= 50
        assert all(2 <= r.input_tokens <= 6 and r.peak_kv <= capacity for r in of.requests)
        if of.name.startswith("mcsf-1-"):
            assert of.offline
            assert 40 <= len(of.requests) <= 60
        else:
            assert min(r.arrival for r in of.requests) >= 1
            assert max(r.arrival for r in of.requests) <= 60
