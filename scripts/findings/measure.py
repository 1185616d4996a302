"""Measure a case: verified schedules, checked lower bounds, and the gaps between them.

Every number comes from one of two places.  Times, rates and counts: from the exact replay of a
schedule that `infermax_opt.verify` accepts.  Lower bounds: from `infermax_opt.bound` and
`infermax_opt.solve`, and `verify` has checked each of them together with the best schedule known
(a closed form is recomputed, a certificate is followed, a solver's word is confirmed by
enumerating every schedule; where that cannot be done, the solver's bound is not used).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import infermax_opt as imx
from infermax_opt.core.truth import Trust
from infermax_opt.infermax.bounds import closed_form_bounds
from infermax_opt.infermax.data.instance import Metric
from infermax_opt.infermax.heuristics import scheduler_names
from infermax_opt.infermax.replay.fast import replay
from scripts.findings.cases import Case

__all__ = ["CHECKS", "Limits", "MeasureError", "Row", "measure"]

Row = dict[str, str]

#: What `verify` did with a lower bound, in one word per table cell.
CHECKS = {
    Trust.RECOMPUTED: "recomputed",
    Trust.CERTIFIED: "certified",
    Trust.ENUMERATED: "enumerated",
}
LATENCIES = {"ttft": Metric.MEAN_TTFT, "tpot": Metric.MEAN_TPOT}


class MeasureError(RuntimeError):
    """A schedule or a bound that the verifier refuses."""


@dataclass(frozen=True)
class Limits:
    """Seconds that one lower bound and one search for a good schedule may take."""

    bound: float = 3.0
    solve: float = 6.0


@dataclass(frozen=True)
class _Run:
    """A verified schedule."""

    name: str
    schedule: imx.Schedule
    metrics: imx.Metrics
    source: str


def measure(case: Case, limits: Limits) -> list[Row]:
    """All rows of a case: one per scheduler, and those of the solver.

    Raises
    ------
    MeasureError
        If the verifier finds fault with anything.
    """
    runs = [_scheduled(case.instance, name) for name in case.schedulers]
    if case.solve:
        lower, run = _solved(case.instance, "solve", limits)
        runs.append(run)
    elif case.search:
        lower = imx.bound(case.instance, time_limit=limits.bound)[0]
    else:
        lower = closed_form_bounds(case.instance)[0]
    lower, check = _checked(case.instance, min(runs, key=lambda run: run.metrics.makespan), lower, limits)
    latency = {name: _latency(case.instance, metric, runs[0]) for name, metric in LATENCIES.items()}
    rows = [_row(case.instance, case.keys, run, lower, check, latency) for run in runs]
    rows.extend(_variant(case, name, policy, limits) for name, policy in case.variants.items())
    return rows


def _variant(case: Case, name: str, policy: imx.Policy, limits: Limits) -> Row:
    """The best schedule found under another policy, against the bound of that policy."""
    instance = replace(case.instance, name=f"{case.instance.name}-{name}", policy=policy)
    lower, run = _solved(instance, name, limits)
    lower, check = _checked(instance, run, lower, limits)
    latency = {name: _latency(instance, metric, run) for name, metric in LATENCIES.items()}
    return _row(instance, case.keys, run, lower, check, latency)


def _scheduled(instance: imx.Instance, name: str) -> _Run:
    schedule = imx.schedule(instance, name)
    return _Run(name, schedule, _verified(instance, schedule), "scheduler")


def _solved(instance: imx.Instance, name: str, limits: Limits) -> tuple[imx.LowerBound, _Run]:
    # All schedulers first, whatever time they take: what is found then depends less on the machine.
    tried = [_scheduled(instance, scheduler) for scheduler in scheduler_names()]
    start = min(tried, key=lambda run: run.metrics.makespan)
    result = imx.solve(instance, warm_start=start.schedule, time_limit=limits.solve)
    if result.schedule is None or result.upper is None or result.lower is None:
        raise MeasureError(f"{instance.name}: nothing found in {limits.solve} s")
    source = f"scheduler:{start.name}" if result.upper.source == "warm start" else result.upper.source
    run = _Run(name, result.schedule, _verified(instance, result), source)
    return result.lower, run


def _verified(
    instance: imx.Instance, subject: imx.Schedule | imx.Result[imx.Schedule, imx.Metrics]
) -> imx.Metrics:
    check = imx.verify(instance, subject)
    if not check.ok or check.metrics is None:
        raise MeasureError(f"{instance.name}: {[*check.violations, *check.faults][0]}")
    metrics: imx.Metrics = check.metrics
    return metrics


def _checked(
    instance: imx.Instance, run: _Run, lower: imx.LowerBound, limits: Limits
) -> tuple[imx.LowerBound, str]:
    """A bound that the verifier could check, and how; a solver's bare word is not good enough."""
    trust = _trust(instance, run, lower)
    if trust is Trust.UNCHECKED:
        lower = imx.bound(instance, time_limit=limits.bound)[0]
        trust = _trust(instance, run, lower)
    return lower, CHECKS[trust]


def _trust(instance: imx.Instance, run: _Run, lower: imx.LowerBound) -> Trust:
    """What the verifier makes of a bound; the schedule shows that it is not too high."""
    value = getattr(run.metrics, instance.objective.weights[0][0].value)
    claim = imx.Result[imx.Schedule, imx.Metrics](
        instance=instance.name,
        instance_sha256=instance.sha256,
        objective=str(instance.objective),
        upper=imx.UpperBound(value, run.source),
        lower=lower,
        schedule=run.schedule,
        metrics=run.metrics,
    )
    check = imx.verify(instance, claim)
    if not check.ok or check.bound is None:
        raise MeasureError(f"{instance.name}: {[*check.violations, *check.faults, lower][0]}")
    return check.bound


def _latency(instance: imx.Instance, metric: Metric, run: _Run) -> Fraction | None:
    """Closed-form bound on a mean latency; None where it is undefined."""
    if getattr(run.metrics, metric.value) is None:
        return None
    asked = replace(instance, objective=imx.Objective.of(metric.value))
    lower = imx.bound(asked)[0]
    _trust(asked, run, lower)
    return lower.value


def _row(
    instance: imx.Instance,
    keys: Mapping[str, str],
    run: _Run,
    lower: imx.LowerBound,
    check: str,
    latency: Mapping[str, Fraction | None],
) -> Row:
    metrics = run.metrics
    running, kept = _holding(instance, run.schedule)
    row = {
        **keys,
        "scheduler": run.name,
        "makespan_s": _number(metrics.makespan),
        "tps": _number(metrics.tokens_per_second),
        "ttft_s": _number(metrics.mean_ttft),
        "tpot_s": _number(metrics.mean_tpot),
        "evictions": str(metrics.evictions),
        "refill_percent": _number(100 * metrics.recompute_tax, 4),
        "batches": str(metrics.batches),
        "batch_size": _number(metrics.mean_batch_size, 5),
        "running": _number(running, 5),
        "kv_use_percent": _percent(metrics.mean_kv_use),
        "kv_kept_percent": _percent(kept),
        "lower_bound_s": _number(lower.value),
        "bound": lower.source,
        "bound_check": check,
        "gap_percent": _gap(metrics.makespan, lower.value),
    }
    for name, bound in latency.items():
        value = getattr(metrics, LATENCIES[name].value)
        row[f"{name}_bound_s"] = _number(bound)
        row[f"{name}_gap_percent"] = "" if bound is None else _gap(value, bound)
    row["source"] = run.source
    return row


def _holding(instance: imx.Instance, schedule: imx.Schedule) -> tuple[Fraction, Fraction]:
    """Mean over the batches of the requests holding KV, and of the KV share kept after the batch.

    What a batch finishes still counts as running in it, but keeps no KV after it.
    """
    played = replay(instance, schedule)
    kept = sum(played.kv_used)
    for request in instance.requests:
        kept -= instance.system.held(request.input_tokens + request.output_tokens - 1)
    batches = len(played.ends)
    return Fraction(sum(played.running), batches), Fraction(kept, batches * instance.system.kv_capacity)


def _number(value: Fraction | int | None, digits: int = 6) -> str:
    return "" if value is None else f"{float(value):.{digits}g}"


def _percent(value: Fraction | None) -> str:
    return "" if value is None else f"{float(100 * value):.2f}"


def _gap(value: Fraction, lower: Fraction) -> str:
    return f"{float(100 * (value - lower) / value):.3f}"
