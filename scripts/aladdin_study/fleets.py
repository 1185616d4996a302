"""Figures 11 and 12: GPUs needed against the arrival rate, for every policy, with lower bounds.

The lower bounds:

- ``lower, limits``: no policy that keeps the limits a to e uses fewer workers at the peak
  (`infermax_opt.cluster.bounds.any_policy`);
- ``lower, this run``: no placement of the new requests of a heartbeat uses fewer, ongoing ones being where
  ``fewest`` put them; of the heartbeat with the most;
- ``lower, TTFT``: no policy at all meets TTFT for all requests with fewer.  A worker prefills in the order of
  arrival, so the last of those that it gets at a heartbeat has its first token after k1 (sum of their
  prompts) + c1 at the earliest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from infermax_opt.cluster.data.stream import Stream
from infermax_opt.cluster.replay.metrics import measure_stream
from infermax_opt.cluster.series import worker_series
from scripts.aladdin_study.runs import SPREAD, Fleets, Run, StudyError, replay, run, verified
from scripts.aladdin_study.workload import Workload

__all__ = ["BOUNDS", "COLUMNS", "TARGETS", "fleet_rows", "lower_ttft"]

Row = dict[str, str]
#: Shares of the requests that are to meet their limits.
TARGETS = {"P100": Fraction(1), "P99": Fraction(99, 100)}
#: Bounds as rows are named, and as `WorkerSeries.peak` calls them.
BOUNDS = {"lower, limits": "any_policy", "lower, this run": "lower"}
#: Values of theta that are tried, until all requests meet their limits.
THETAS = [Fraction(k, 10) for k in range(10, 4, -1)]
COLUMNS = (
    "mode", "model", "rate", "seed", "heartbeat_s", "error", "theta", "gamma", "requests", "policy", "target",
    "workers", "gpus", "mean_workers", "attainment_percent", "late_ttft", "late_atgt", "p99_ttft_s",
    "p99_atgt_s", "preemptions", "limits_broken", "verified",
)  # fmt: skip


def fleet_rows(workload: Workload) -> Iterator[Row]:
    """All rows of a workload."""
    stream = workload.stream()
    worker = stream.worker

    def row(policy: str, workers: int | None, found: Run | None = None, target: str = "", **rest: str) -> Row:
        row = dict.fromkeys(COLUMNS, "")
        row |= workload.row() | {"requests": str(len(stream.requests)), "policy": policy, "target": target}
        if workers is not None:
            row |= {"workers": str(workers), "gpus": str(workers * worker.gpus)}
        return row | (found.row() if found else {}) | rest

    series = worker_series(stream)
    if any(not beat.any_policy <= beat.lower <= beat.upper for beat in series.beats):
        raise StudyError(f"{stream.name}: a lower bound is above what is used")
    for name, kind in BOUNDS.items():
        yield row(name, series.peak(kind), mean_workers=f"{float(series.mean(kind)):.3f}")
    if not stream.split_phase:
        yield row("lower, TTFT", lower_ttft(stream))
    placed = [series.placement.workers[r.id] for r in stream.requests]
    fewest = verified(stream, "fewest", placed, series.metrics)
    yield row("fewest", series.metrics.peak_workers, fewest)
    for policy in ("aladdin", "look-ahead"):
        found = run(stream, policy)
        yield row(policy, found.metrics.peak_workers, found)
    for target, theta, strict in strict_aladdin(stream):
        yield row("aladdin", strict.metrics.peak_workers, strict, target, theta=f"{float(theta):g}")
    for policy in SPREAD:
        fleets = Fleets(stream, policy, series.metrics.peak_workers)
        for target, share in TARGETS.items():
            least = fleets.least(share)
            yield row(policy, least and least[0], least[1] if least else None, target)


def strict_aladdin(stream: Stream) -> Iterator[tuple[str, Fraction, Run]]:
    """For each target, the largest theta tried that meets it, with that run; nothing where none does."""
    left = dict(TARGETS)
    for theta in THETAS:
        stricter = replace(stream, theta=theta)
        found = replay(stricter, "aladdin")
        metrics = measure_stream(found)
        met = [target for target, share in left.items() if metrics.attainment >= share]
        if met:
            checked = verified(stricter, "aladdin", found.worker, metrics)
            for target in met:
                yield target, theta, checked
                del left[target]
        if not left:
            return


def lower_ttft(stream: Stream) -> int:
    """Workers at the heartbeat whose prompts need most."""
    worker = stream.worker
    room = stream.slo.ttft - worker.prefill_overhead
    return max(
        -(-worker.prefill_token * sum(stream.requests[k].input_tokens for k in members) // room)
        for members in stream.beats.values()
    )
