"""The beam: validity under every flag, determinism, optima known exactly, interruption."""

from __future__ import annotations

import subprocess
import sys
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infermax_opt.infermax.bounds.exhaustive import holds
from infermax_opt.infermax.data.cost import Attention, CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.suites import paper_cost
from infermax_opt.infermax.heuristics import run_scheduler, scheduler_names
from infermax_opt.infermax.planners.beam import beam
from infermax_opt.infermax.planners.beam.beam import BeamOptions, beam_plans, beam_search
from tests.campaign import campaign, examples
from tests.infermax.strategies import instances
from tests.infermax.test_replay import EXACT_COST, make
from tests.infermax.tiny import tiny
from tests.support import value

MANY = examples(44, 300)
SOME = examples(12, 60)
OPTIONS = st.builds(
    BeamOptions,
    width=st.sampled_from([1, 3, 20]),
    fineness=st.sampled_from([0.1, 2.0, 12.0]),
    ages=st.sampled_from([1.0, 4.0]),
    pool_ages=st.sampled_from([0.0, 1.0, 4.0]),
    credit=st.sampled_from([-0.5, 0.0, 0.9]),
    pool=st.sampled_from([0, 1, 8]),
    pace=st.sampled_from([0.1, 1.0, 8.0]),
    pairs=st.sampled_from([0, 9]),
    price=st.sampled_from([0.5, 1.0, 2.0]),
    evict=st.booleans(),
)
PAPER_ATTENTION = (("0.0003", "2.6e-7"), ("0.0003", "1.5e-9"))
PAPER = paper_cost(Attention.EXACT)


def best_preset(instance: Instance) -> Fraction:
    return min(value(instance, run_scheduler(instance, name)) for name in scheduler_names())


def cell(count: int, inputs: int, outputs: int, capacity: int, **limits: int) -> Instance:
    system = System(capacity, **{"max_batch_tokens": 4096, "max_prefill_tokens": 4096, **limits})
    return Instance("cell", (RequestGroup("r", inputs, outputs, count=count),), system, PAPER)


# --- properties ---


@MANY
@given(instance=instances(arrivals=False), options=OPTIONS, seed=st.integers(0, 3))
def test_schedules_are_valid(instance: Instance, options: BeamOptions, seed: int) -> None:
    found = beam_search(instance, options=options, seed=seed)
    assert beam_search(instance, options=options, seed=seed) == found
    if not instance.policy.hybrid_batching:
        assert found is None
    elif found is not None:
        value(instance, found)


@SOME
@given(instance=instances(arrivals=False, max_requests=12, max_tokens=30), options=OPTIONS)
def test_schedules_of_more_requests_are_valid(instance: Instance, options: BeamOptions) -> None:
    found = beam_search(instance, options=options)
    if found is not None:
        value(instance, found)


@SOME
@given(instance=instances(arrivals=False))
def test_the_kernel_knows_what_replay_will_say(instance: Instance) -> None:
    slots = beam._slots(instance)
    if slots is not None:
        seconds, schedule = beam._search(instance, slots, BeamOptions(width=5), None, None, 0)
        if schedule is not None:
            assert seconds == pytest.approx(float(value(instance, schedule)), rel=1e-9)


@pytest.mark.parametrize("seed", campaign(24, 120))
def test_the_series_is_valid_deterministic_and_falls(seed: int) -> None:
    instance = tiny(seed)
    upper = float(best_preset(instance)) * 1.2
    found = list(beam_plans(instance, upper=upper, seed=seed))
    values = [float(value(instance, schedule)) for _, schedule in found]
    assert all(later < earlier for earlier, later in zip([upper, *values], values, strict=False))
    assert list(beam_plans(instance, upper=upper, seed=seed)) == found


#: Half of all, in which each three of the four settings come in all ways.
MID_SIZES = [
    (chunked, preemption, block, 64 if chunked ^ preemption ^ (block == 1) else 1024)
    for chunked in (True, False) for preemption in (True, False) for block in (1, 16)
]  # fmt: skip


@pytest.mark.parametrize(("chunked", "preemption", "block", "tokens"), MID_SIZES)
def test_mid_size_workload(chunked: bool, preemption: bool, block: int, tokens: int) -> None:
    sizes = [(40, 90), (64, 20), (10, 60)]
    groups = tuple(RequestGroup(f"r{k}", *size, count=30) for k, size in enumerate(sizes))
    cost = CostModel([("0.004", "0.00001"), ("0.002", "0.00008")], *PAPER_ATTENTION)  # type: ignore[arg-type]
    system = System(700, tokens + 9, tokens, max_running=12, block_size=block)
    instance = Instance("mid", groups, system, cost, Policy(True, chunked, preemption))
    found = beam_search(instance, options=BeamOptions(width=20))
    assert found is not None
    assert value(instance, found) <= best_preset(instance) * Fraction(21, 20)


def test_the_last_token_of_a_sliced_refill_is_a_decode_step() -> None:
    for prefill in (3, 4, 5, 6):
        instance = cell(12, 7, 8, 30, max_prefill_tokens=prefill)
        seconds, schedule = beam._search(instance, 4, BeamOptions(width=8), None, None, 0)
        assert schedule is not None
        assert seconds == pytest.approx(float(value(instance, schedule)), rel=1e-9)


# --- quality ---


def test_optimal_on_most_tiny_instances() -> None:
    optimal = seen = 0
    seeds = campaign(50, 100, first=300)
    for seed in seeds:
        instance = tiny(seed)
        found = [value(instance, schedule) for _, schedule in beam_plans(instance)]
        if found:
            answer = holds(instance, found[-1])
            if answer is not None:
                seen += 1
                optimal += answer
    assert seen >= 0.4 * len(seeds)
    assert optimal >= 0.5 * seen


def test_optimum_by_hand() -> None:
    # Four requests of at most 3 tokens, KV of 6: two at a time, each pair in 2 batches.
    instance = make((2, 2), (2, 2), (2, 2), (2, 2), kv_capacity=6, cost=EXACT_COST)
    found = beam_search(instance)
    assert found is not None
    assert holds(instance, value(instance, found))


@pytest.mark.parametrize("shape", [(200, 128, 128, 1000), (200, 32, 32, 100), (200, 32, 128, 1000)])
def test_better_than_every_preset(shape: tuple[int, int, int, int]) -> None:
    instance = cell(*shape)
    presets = best_preset(instance)
    found = beam_search(instance, options=BeamOptions(width=50, fineness=6.0), upper=float(presets))
    assert found is not None
    assert value(instance, found) < presets * Fraction(98, 100)


def test_prompts_longer_than_a_batch_are_sliced() -> None:
    instance = cell(40, 1024, 128, 10_000, max_prefill_tokens=512)
    found = beam_search(instance, options=BeamOptions(width=20))
    assert found is not None
    assert value(instance, found) < best_preset(instance) * Fraction(103, 100)


# --- limits ---


def test_only_better_schedules_are_returned() -> None:
    instance = cell(50, 32, 32, 100)
    found = beam_search(instance)
    assert found is not None
    seconds = float(value(instance, found))
    assert beam_search(instance, upper=seconds * 0.9) is None
    assert list(beam_plans(instance, upper=seconds * 0.9)) == []


def test_the_deadline_is_kept() -> None:
    beam_search(cell(2, 8, 8, 100))  # loads the kernel
    instance = cell(1024, 128, 512, 1000)
    began = time.monotonic()
    assert beam_search(instance, options=BeamOptions(width=400), deadline=began + 0.5) is None
    list(beam_plans(instance, deadline=time.monotonic() + 0.5))
    assert time.monotonic() - began < 2.5
    assert list(beam_plans(instance, deadline=began)) == []


def test_the_log_is_compacted(monkeypatch: pytest.MonkeyPatch) -> None:
    instance = cell(60, 32, 32, 100)
    found = beam_search(instance, options=BeamOptions(width=10))
    monkeypatch.setattr("infermax_opt.infermax.planners.beam._build.LOG_ENTRIES", 23_000)
    assert beam_search(instance, options=BeamOptions(width=10)) == found


def test_what_it_leaves_to_others() -> None:
    for instance in (
        make((1, 1), (1, 1, "10.1")),
        make((1, 2), hybrid_batching=False),
        cell(1000, 1, 1, 100_000),
        Instance.of_requests("types", [(k, 3) for k in range(1, 40)], System(100, 100, 100), PAPER),
    ):
        assert beam_search(instance) is None
        assert list(beam_plans(instance)) == []


def test_a_cost_of_any_size_is_searched() -> None:
    cost = CostModel([("0.007", "0.000075")], ("0.0003", "1e30"), ("0.0003", "1.5e-9"))
    instance = Instance("odd", (RequestGroup("a", 8, 4, count=2),), System(100, 16, 16), cost)
    found = beam_search(instance, options=BeamOptions(width=10))
    assert found is None or value(instance, found) > 0


def test_importing_it_loads_no_compiler() -> None:
    code = (
        "import sys, infermax_opt.infermax.planners.beam.beam\n"
        "assert not {'numba', 'numpy'} & set(sys.modules)\n"
    )  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True)


def test_plain_python_warns_of_nothing() -> None:
    """Hashes wrap around there, too, and say no more of it than compiled code."""
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "from tests.support import case\n"
        "from infermax_opt.infermax.planners.beam.beam import beam_search\n"
        "assert beam_search(case(6, 4, 6, 30)) is not None\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
