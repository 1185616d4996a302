"""Large-neighbourhood search over windows of the state-flow formulation."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

import infermax_opt as imx
from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.schedule import Batch, Schedule
from infermax_opt.infermax.exact.flow_windows import improved_by_windows
from infermax_opt.infermax.exact.solve_formulation import one_by_one
from infermax_opt.table.suites import get_suite
from tests.campaign import campaign
from tests.infermax.tiny import tiny
from tests.support import value


def soon(seconds: float) -> float:
    return time.monotonic() + seconds


def test_tiny_instances_are_solved() -> None:
    """A window as wide as the schedule is the whole problem, less the chunks."""
    compared, improved, seeds = 0, 0, campaign(14, 60)
    for seed in seeds:
        instance = tiny(seed)
        try:
            whole = replace(instance, policy=replace(instance.policy, chunked_prefill=False))
        except InputError:
            continue
        start = one_by_one(whole)
        found = [value(instance, s) for s in improved_by_windows(instance, start, deadline=soon(20))]
        assert found == sorted(found, reverse=True)
        assert all(v < value(instance, start) for v in found)
        best = found[-1] if found else value(instance, start)
        optimum = imx.solve(whole, solver="search").upper
        assert optimum is not None
        assert best == optimum.value, instance.name
        compared += 1
        improved += bool(found)
    assert compared > len(seeds) * 2 / 3
    assert improved > len(seeds) / 3


def test_a_schedule_of_32_requests_gets_shorter() -> None:
    instance = get_suite("paper-b32").select(["b32-i32-o8-m1000-p4096"])[0].build()
    start = imx.schedule(instance, "vllm_ef")
    enough = value(instance, start) * 97 / 100
    # It would go on for as long as it may.
    found = (value(instance, s) for s in improved_by_windows(instance, start, deadline=soon(20)))
    assert any(seconds < enough for seconds in found)


@pytest.mark.parametrize("seconds", [-1.0, 0.3])
def test_the_deadline_ends_it(seconds: float) -> None:
    instance = get_suite("paper-b32").select(["b32-i32-o32-m1000-p4096"])[0].build()
    start = imx.schedule(instance, "vllm")
    began = time.monotonic()
    found = list(improved_by_windows(instance, start, deadline=soon(seconds)))
    assert time.monotonic() - began < 20  # building the model is not interrupted
    assert seconds > 0 or not found


def test_chunks_are_left_alone() -> None:
    instance = imx.Instance(
        "chunks",
        (imx.RequestGroup("r", 6, 2, count=2),),
        imx.System(20, max_batch_tokens=8, max_prefill_tokens=8),
        get_suite("paper-csp").cases[0].build().cost,
    )
    batches = [Batch({"r.1": 3}), Batch({"r.1": 3}), Batch({"r.2": 6}), Batch({"r.1": 1, "r.2": 1})]
    assert list(improved_by_windows(instance, Schedule("chunks", tuple(batches)), deadline=soon(5))) == []
    narrow = replace(instance, system=imx.System(20, max_batch_tokens=4, max_prefill_tokens=4))
    assert list(improved_by_windows(narrow, one_by_one(narrow), deadline=soon(5))) == []
