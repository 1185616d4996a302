"""Metrics of a run on another system that is known by a summary only."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.measured import Measured
from infermax_opt.foreign.run import Run, Summary
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.objective import QUANTILES, Latency, Metric, rank

__all__ = ["measure_summary"]


def measure_summary(instance: Instance, run: Run, summary: Summary) -> Measured:
    """Metrics of a run whose requests are, as far as a summary says, those of the instance.

    Its makespan counts from the start of the benchmark.  A percentile that lies between two latencies is left
    out where the smaller one is below the latency that the metric means: then a bound need not hold for it.

    Parameters
    ----------
    instance : Instance
    run : Run
    summary : Summary
        That of the run.

    Raises
    ------
    InputError
        If the sums are others, or requests came at once in one and not in the other.
    """
    _same(instance, run, summary)
    metrics: dict[str, Fraction | int | None] = dict.fromkeys(metric.value for metric in Metric)
    metrics |= {name: value for name, value in summary.metrics.items() if _bounded(instance, Metric(name))}
    metrics |= _of_latencies(summary)
    makespan = summary.metrics["makespan"]
    metrics["tokens_per_second"] = summary.output_tokens / makespan if makespan else None
    remarks = [*run.remarks]
    if not instance.offline:
        remarks.append("It does not say when requests came: as those of the instance, it is taken.")
    return Measured(metrics, {Latency.E2E.value: summary.e2e} if summary.e2e else {}, tuple(remarks))


def _same(instance: Instance, run: Run, summary: Summary) -> None:
    requests = instance.requests
    pairs = (
        ("requests", summary.requests, len(requests)),
        ("prompt tokens", summary.input_tokens, sum(request.input_tokens for request in requests)),
        ("output tokens", summary.output_tokens, instance.output_tokens),
    )
    for what, here, there in pairs:
        if here != there:
            without = "".join(f"; left out: {count} ({reason})" for reason, count in run.left_out.items())
            raise InputError(
                f"has {here} {what}; the instance has {there}: not the same workload{without}",
                source=run.path,
            )
    if summary.at_once != instance.offline:
        ways = ("came one after the other", "were all there from the start")
        came = f"its requests {ways[summary.at_once]} (request_rate)"
        raise InputError(f"{came}, those of the instance {ways[instance.offline]}", source=run.path)


def _bounded(instance: Instance, metric: Metric) -> bool:
    """Whether what numpy calls a percentile is at least the metric; a mean or the makespan is it."""
    if metric not in QUANTILES:
        return True
    percent, latency = QUANTILES[metric]
    least = 2 if latency is Latency.TPOT else 1
    count = sum(request.output_tokens >= least for request in instance.requests)
    return count > 0 and rank(percent, count) - 1 <= percent * (count - 1) // 100


def _of_latencies(summary: Summary) -> Mapping[str, Fraction]:
    """What follows from end-to-end latencies of single requests."""
    ordered = sorted(summary.e2e)
    if not ordered:
        return {}
    found = {
        metric.value: ordered[rank(percent, len(ordered)) - 1]
        for metric, (percent, latency) in QUANTILES.items()
        if latency is Latency.E2E
    }
    return {**found, Metric.MEAN_E2E.value: sum(ordered, Fraction(0)) / len(ordered)}
