"""Solving beside other work: progress with numbers, stopping, threads, and processes of their own."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import infermax_opt
from infermax_opt import InputError, ProgressEvent, Status
from tests.support import ROOT

#: Seconds that anything here may take at most: no limit of a solve, which is far above.
PATIENCE = 60


def toy() -> Any:
    return infermax_opt.read_instance(ROOT / "instances" / "toy.json")


def open_instance() -> Any:
    """One whose gap no search here closes: it always works until it is stopped."""
    large = infermax_opt.RequestGroup("r", 50, 40, count=60)
    other = infermax_opt.RequestGroup("s", 200, 90, count=40)
    base = toy()
    system = replace(base.system, kv_capacity=3000, max_batch_tokens=512, max_prefill_tokens=512)
    return replace(base, name="open", groups=(large, other), system=system)


def test_events_tell_numbers_in_this_thread() -> None:
    events: list[ProgressEvent] = []
    threads = set()

    def hear(event: ProgressEvent) -> None:
        events.append(event)
        threads.add((os.getpid(), threading.get_ident()))

    result = infermax_opt.solve(toy(), time_limit=10, progress=hear)
    assert threads == {(os.getpid(), threading.get_ident())}
    assert {"bound", "schedule"} <= {event.step for event in events}
    last = [event for event in events if event.step in ("bound", "schedule")][-1]
    assert last.value == float(result.upper.value)  # type: ignore[union-attr]
    assert last.gap == 0
    seconds = [event.seconds for event in events]
    assert seconds == sorted(seconds)
    assert str(events[0]).startswith("lower bound ")
    assert [e.text for e in result.events] == [e.text for e in events if e.step in ("bound", "schedule")]
    rows = result.convergence_frame()
    assert rows["bound"].dropna().is_monotonic_increasing
    assert rows["value"].dropna().is_monotonic_decreasing


def returns_true(event: ProgressEvent) -> bool:
    return event.value is not None


def raises(event: ProgressEvent) -> None:
    if event.value is not None:
        raise StopIteration


@pytest.mark.parametrize("callback", [returns_true, raises])
def test_a_callback_ends_the_search_and_the_best_so_far_comes_back(callback: Any) -> None:
    began = time.monotonic()
    result = infermax_opt.solve(open_instance(), time_limit=10 * PATIENCE, progress=callback)
    assert time.monotonic() - began < PATIENCE
    assert result.status is Status.FEASIBLE
    assert result.solver is not None
    assert result.solver.termination == "stopped"
    assert infermax_opt.verify(open_instance(), result).ok


def test_the_worst_case_of_a_band_is_told() -> None:
    machines = infermax_opt.with_band(toy(), infermax_opt.Band(Fraction("0.9"), Fraction("1.1")))
    events: list[ProgressEvent] = []
    result = infermax_opt.solve(machines, time_limit=20, progress=events.append)
    assert result.upper is not None
    assert float(result.upper.value) in [event.value for event in events]


@pytest.mark.parametrize("callback", [returns_true, lambda event: event.text == "now the slowest machine"])
def test_a_callback_ends_the_searches_of_a_band(callback: Any) -> None:
    machines = infermax_opt.with_band(toy(), infermax_opt.Band(Fraction("0.9"), Fraction("1.1")))
    result = infermax_opt.solve(machines, time_limit=20, progress=callback)
    assert result.solver is not None
    assert result.solver.termination == "stopped"
    assert infermax_opt.verify(machines, result).ok


def test_what_a_callback_raises_goes_to_the_caller() -> None:
    def fail(event: ProgressEvent) -> None:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        infermax_opt.solve(toy(), progress=fail)


def test_other_functions_tell_and_stop_likewise(tmp_path: Any) -> None:
    instance = toy()
    heard: list[ProgressEvent] = []
    infermax_opt.bound(instance, time_limit=5, progress=heard.append)
    assert heard[-1].bound == max(event.bound for event in heard if event.bound is not None)
    group = infermax_opt.gap(instance, infermax_opt.schedule(instance, "vllm"), progress=lambda event: True)
    assert all(bound.stopped for bound in group.bounds)
    front = infermax_opt.trace_front(instance, "mean_ttft", "mean_tpot", progress=lambda event: True)
    assert front.half_planes == ()
    assert front.points
    table = infermax_opt.run_table(
        "paper-csp", tmp_path, time_limit=2, limit_rows=4, jobs=1, progress=lambda event: event.step == "row"
    )
    assert table.computed == 1


def test_solving_in_another_thread_is_the_same() -> None:
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(infermax_opt.solve, toy(), time_limit=20).result(PATIENCE)
        searched = pool.submit(infermax_opt.solve, toy(), solver="highs", time_limit=20).result(PATIENCE)
    assert found.status is Status.OPTIMAL
    assert found.upper is not None
    assert searched.upper is not None
    assert searched.upper.value == found.upper.value
    assert searched.gap < Fraction(1, 10**4)


@pytest.mark.parametrize("name", ["makespan-100x20", "placement-open-12", "stream-poisson-8"])
def test_all_problems_are_solved_and_stopped_in_another_thread(name: str) -> None:
    instance = infermax_opt.read_instance(ROOT / "instances" / f"{name}.json")
    began = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        options = {
            "time_limit": 2.0,
            "progress": lambda event: event.value is not None and time.monotonic() - began > 1,
        }
        result = pool.submit(infermax_opt.solve, instance, **options).result(PATIENCE)
    assert result.schedule is not None


def test_a_solve_in_the_background_gives_what_solve_gives() -> None:
    heard: list[ProgressEvent] = []
    with infermax_opt.start_solve(toy(), time_limit=30, seed=3, progress=heard.append) as handle:
        result = handle.result(PATIENCE)
    direct = infermax_opt.solve(toy(), time_limit=30, seed=3)
    assert (result.upper, result.lower, result.schedule) == (direct.upper, direct.lower, direct.schedule)
    assert result.metrics == direct.metrics
    assert result.solver is not None
    assert result.solver.seed == 3
    assert not handle.running
    assert [event.text for event in heard] == [event.text for event in handle.events]
    assert result.events
    assert handle.progress is not None
    assert handle.progress.gap == 0
    assert "running False" in repr(handle)
    assert "gap" in handle._repr_html_()
    assert len(result.requests_frame()) == 2


def test_the_background_is_stopped_with_the_best_so_far() -> None:
    instance = open_instance()
    with infermax_opt.start_solve(instance, time_limit=10 * PATIENCE) as handle:
        with pytest.raises(TimeoutError, match="the search goes on"):
            handle.result(0.01)
        until = time.monotonic() + PATIENCE
        while not any(event.value is not None for event in handle.events) and time.monotonic() < until:
            time.sleep(0.05)
        assert handle.running
        began = time.monotonic()
        result = handle.stop()
        assert time.monotonic() - began < PATIENCE / 2
    assert result.status is Status.FEASIBLE
    assert infermax_opt.verify(instance, result).ok
    assert handle.stop() is result


def test_a_callback_stops_the_background() -> None:
    with infermax_opt.start_solve(open_instance(), time_limit=10 * PATIENCE, progress=returns_true) as handle:
        assert handle.result(PATIENCE).schedule is not None


def test_starts_targets_and_wrong_options_reach_the_background() -> None:
    instance = toy()
    start = infermax_opt.schedule(instance, "vllm")
    options: dict[str, Any] = {"warm_start": start, "target": Fraction(1, 100), "time_limit": 20}
    with infermax_opt.start_solve(instance, **options) as handle:
        assert handle.result(PATIENCE).answer.value == "no"  # type: ignore[union-attr]
    wrong = infermax_opt.start_solve(instance, solver="abacus")
    with pytest.raises(InputError, match="solver: 'abacus' is none of"):
        wrong.result(PATIENCE)
    with pytest.raises(InputError, match="wheels: is no option"):
        infermax_opt.start_solve(instance, wheels=4)


def test_a_process_that_is_killed_is_one_line() -> None:
    with infermax_opt.start_solve(open_instance(), time_limit=10 * PATIENCE) as handle:
        handle._child.kill()
        with pytest.raises(InputError, match="solve: the process ended with exit code -9"):
            handle.result(PATIENCE)


def test_what_ends_a_solve_early_is_said() -> None:
    at_once = infermax_opt.start_solve(open_instance(), time_limit=PATIENCE)
    try:
        found = at_once.stop().schedule is not None
    except InputError as error:
        found = "was stopped before there was a result" in str(error)
    assert found
    handle = infermax_opt.start_solve(open_instance(), time_limit=PATIENCE)
    handle.close()
    with pytest.raises(InputError, match="was closed before there was a result"):
        handle.result(PATIENCE)


def test_a_stop_is_not_lost_where_sigint_is_ignored_at_first() -> None:
    """As in what a shell starts in the background: the process heeds it only after its imports."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        handle = infermax_opt.start_solve(open_instance(), time_limit=PATIENCE)
    finally:
        signal.signal(signal.SIGINT, before)
    began = time.monotonic()
    with pytest.raises(InputError, match="was stopped before there was a result"):
        handle.stop()
    assert time.monotonic() - began < PATIENCE / 2


def test_options_of_wrong_kinds_are_one_line() -> None:
    with pytest.raises(InputError, match=r"time_limit: .* is neither a number nor a name"):
        infermax_opt.start_solve(toy(), time_limit=object())
    with pytest.raises(InputError, match="time_limit: 'x' is not a positive number of seconds") as told:
        infermax_opt.start_solve(toy(), time_limit="x").result(PATIENCE)
    assert "\n" not in str(told.value)
    result = infermax_opt.start_solve(toy(), time_limit=Fraction(19, 2)).result(PATIENCE)
    assert result.status is Status.OPTIMAL
