"""Summaries of runs on other systems set against instances."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from infermax_opt.core.errors import InputError
from infermax_opt.foreign.run import Run, Summary
from infermax_opt.gaps.collect import gap
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.instance import Instance, Policy, RequestGroup, System
from infermax_opt.infermax.data.objective import Metric
from infermax_opt.infermax.replay.measured import measure_run

COST = CostModel([("1", "0.1")], ("0", "0"), ("0", "0"), "exact")
METRICS = {
    "makespan": Fraction(50),
    "mean_ttft": Fraction(9),
    "p50_ttft": Fraction(8),
    "p99_ttft": Fraction(9),
}
SUMMARY = Summary(3, 12, 7, METRICS, (Fraction(9), Fraction(20), Fraction(30)), True, "is a summary")


def instance(second: int = 0) -> Instance:
    groups = (RequestGroup("a", 5, 2), RequestGroup("b", 4, 2, second), RequestGroup("c", 3, 3, second))
    return Instance("three", groups, System(100, 20, 20), COST, Policy())


def run(summary: Summary = SUMMARY) -> Run:
    return Run("run.json", "vllm", (), summary=summary)


def test_metrics_of_a_summary() -> None:
    found = measure_run(instance(), run())
    assert found.metrics["makespan"] == 50
    assert found.metrics["mean_ttft"] == 9
    assert found.metrics["mean_e2e"] == Fraction(59, 3)
    assert (found.metrics["p50_e2e"], found.metrics["p99_e2e"]) == (20, 30)
    assert found.metrics["tokens_per_second"] == Fraction(7, 50)
    assert found.metrics["mean_tpot"] is None


def test_percentiles_count_where_they_are_no_less_than_the_nearest_rank() -> None:
    """numpy's lies between two latencies: of three the P99 is below the third one, the P50 is the second."""
    found = measure_run(instance(), run())
    assert (found.metrics["p50_ttft"], found.metrics["p99_ttft"]) == (8, None)
    many = replace(instance(), groups=(RequestGroup("a", 4, 2, count=300),))
    whole = replace(SUMMARY, requests=300, input_tokens=1200, output_tokens=600, e2e=())
    # Position 296.01 from 0; the 297th of 300 is at 296.
    assert measure_run(many, run(whole)).metrics["p99_ttft"] == 9


@pytest.mark.parametrize(
    ("some", "summary", "words"),
    [
        (instance(), replace(SUMMARY, requests=2), "has 2 requests; the instance has 3: not the same"),
        (instance(), replace(SUMMARY, input_tokens=13), "has 13 prompt tokens; the instance has 12"),
        (instance(), replace(SUMMARY, output_tokens=6), "has 6 output tokens; the instance has 7"),
        (instance(1), SUMMARY, "were all there from the start"),
        (instance(), replace(SUMMARY, at_once=False), "came one after the other"),
    ],
)
def test_other_workloads_are_refused(some: Instance, summary: Summary, words: str) -> None:
    with pytest.raises(InputError) as error:
        measure_run(some, run(summary))
    assert words in str(error.value)


def test_arrivals_are_taken_for_granted_and_that_is_said() -> None:
    found = measure_run(instance(1), run(replace(SUMMARY, at_once=False)))
    assert any("when requests came" in remark for remark in found.remarks)


def test_a_summary_is_scored_and_one_that_is_too_fast_is_told() -> None:
    group = gap(instance(), run(), metrics=["makespan", "mean_e2e"], time_limit=1)
    rows = {row.metric: row for row in group.runs[0].rows}
    assert rows["makespan"].gap is not None
    assert rows["makespan"].gap > Fraction(1, 2)
    fast = run(replace(SUMMARY, metrics={"makespan": Fraction(1)}))
    (compared,) = gap(instance(), fast, metrics=[Metric.MAKESPAN.value], time_limit=1).runs
    assert compared.rows[0].faster is not None
