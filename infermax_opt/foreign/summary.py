"""Summaries of the serving benchmarks of vLLM and SGLang: numbers of all requests together, none of each.

vLLM writes one without ``--save-detailed``, SGLang without ``--output-details``.  Newer ones of vLLM keep
``latencies`` and ``queue_times``, which are lists by request, but not the lengths that go with them.
Aggregates are in milliseconds, percentiles numpy's: between two latencies where they fall between these.

Sources: as in `infermax_opt.foreign.vllm` and `infermax_opt.foreign.sglang`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from infermax_opt.core.errors import InputError
from infermax_opt.foreign.columns import Column, Times
from infermax_opt.foreign.requests import MS, Values
from infermax_opt.foreign.run import Run, Summary

__all__ = ["LONGER", "SUMMED", "read_summary"]

#: Times its duration that a run may last by its requests: numbers are rounded.
LONGER = Fraction(11, 10)

#: What the tools call the statistics and the latencies, and what these are called here.
STATISTICS = {"mean": "mean", "median": "p50", "p90": "p90", "p99": "p99"}
LATENCIES = {"ttft": "ttft", "tpot": "tpot", "e2el": "e2e", "e2e_latency": "e2e"}
#: Metrics by the keys of a summary.
METRICS = {
    f"{key}_{word}_ms": f"{statistic}_{latency}"
    for key, statistic in STATISTICS.items()
    for word, latency in LATENCIES.items()
}
#: Requests that ended well; their prompt and output tokens, by either of their names.
COMPLETED, FAILED = "completed", "failed"
INPUTS, OUTPUTS = ("total_input_tokens", "total_input"), ("total_output_tokens", "total_output")
#: Keys of a summary that count here.
SUMMED = (COMPLETED, FAILED, *INPUTS, *OUTPUTS, *METRICS)


def read_summary(
    path: str,
    form: str,
    facts: Mapping[str, Any],
    waits: tuple[Column[Times] | None, Column[Times] | None],
    at_once: bool,
    missing: str,
) -> Run:
    """The run of a summary, which has no requests.

    Parameters
    ----------
    path, form : str
        The file and the name of its format.
    facts : mapping
        Its single values.
    waits : pair of Column
        Latency and time in the client's queue of each request; None where there is none.
    at_once : bool
        Whether all requests were issued at the start.
    missing : str
        What the file lacks, and how it is had.

    Raises
    ------
    InputError
        Naming the key; `missing` if there are no totals either.
    """
    values = Values(path, "run", facts)

    def count(names: Sequence[str]) -> int:
        found = next((name for name in names if values.get(name) is not None), None)
        if found is None:
            raise InputError(missing, source=path)
        return values.tokens(found)

    completed = count((COMPLETED,))
    metrics = {"makespan": values.time("duration")}
    queued = values.get("max_concurrency") is not None
    for key, metric in METRICS.items():
        # A first token at 0 was not streamed; what waited for its turn is counted from its sending.
        if (not queued or metric.endswith("tpot")) and (found := values.maybe_time(key, MS)):
            if found > LONGER * metrics["makespan"]:
                values.fault(
                    key, f"is {float(found):g} s; all of the run took {float(metrics['makespan']):g} s"
                )
            metrics[metric] = found
    failed = values.maybe_tokens(FAILED) or 0
    remarks = [
        "A summary: it says nothing of single requests. That they had the lengths of the instance's is "
        "checked by their sums only.",
        "The makespan is its duration, which begins before the first request is sent.",
    ]
    latencies = [] if failed else _latencies(path, waits, completed)
    if not latencies and queued:
        remarks.append(
            f"At most {facts['max_concurrency']} requests were under way at once, and the file does not say "
            "when each was sent: latencies from the arrival on are unknown."
        )
    summary = Summary(completed, count(INPUTS), count(OUTPUTS), metrics, tuple(latencies), at_once, missing)
    left_out = {"failed": failed} if failed else {}
    return Run(path, form, (), left_out, tuple(remarks), summary=summary)


def _latencies(
    path: str, waits: tuple[Column[Times] | None, Column[Times] | None], completed: int
) -> list[Fraction]:
    """End-to-end latencies of requests since their arrival, s; none where those of some are not known."""
    latencies, queued = waits
    if latencies is None or queued is None or not len(latencies) == len(queued) == completed:
        return []
    every = np.ones(completed, dtype=bool)
    return (latencies.check(path, every) + queued.check(path, every)).list()
