"""Metrics of a replayed schedule, exact, and the objective formed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from infermax_opt.core.shown import ShownMetrics
from infermax_opt.core.values import SHARE, SHARE_REACHED, MetricRow, one_each
from infermax_opt.infermax.data.instance import Instance, Objective
from infermax_opt.infermax.data.objective import QUANTILES, Latency, Metric
from infermax_opt.infermax.data.readings import RATES
from infermax_opt.infermax.replay.latencies import LatencyMetrics

if TYPE_CHECKING:
    from infermax_opt.infermax.replay.plain import Replay

__all__ = ["DEFINITIONS", "LATER", "LATER_TOGETHER", "RATES_LATER", "Metrics", "measure", "objective_value"]

#: What the percentiles are of.
LATENCIES = {
    Latency.TTFT: "(first token - arrival)",
    Latency.TPOT: "(last token - first token) / (output tokens - 1)",
    Latency.E2E: "(last token - arrival)",
}
#: Whose latencies these are, where not all requests have one.
OVER = {Latency.TPOT: " over requests with at least two output tokens"}


def _quantile(metric: Metric) -> str:
    """Definition of a percentile."""
    percent, latency = QUANTILES[metric]
    of = LATENCIES[latency] + OVER.get(latency, "")
    if percent == 100:
        return f"largest {of}, s"
    return f"the ceil({percent} / 100 * n)-th smallest of n {of}, s"


DEFINITIONS = {
    "makespan": "end of the last batch, s",
    "mean_ttft": "mean of (first token - arrival), s",
    "mean_tpot": f"mean of {LATENCIES[Latency.TPOT]}{OVER[Latency.TPOT]}, s",
    "mean_e2e": "mean of (last token - arrival), s",
    "tokens_per_second": "generated tokens / makespan",
    "batches": "batches run",
    "evictions": "KV caches dropped before their request finished",
    "refill_tokens": "prefill tokens processed by requests that were evicted before",
    "recompute_tax": "refill tokens / processed tokens",
    "mean_kv_use": "KV occupied after a batch / kv_capacity, weighted by batch time",
    "peak_kv": "most KV tokens occupied after a batch",
    "mean_batch_size": "mean requests processed per batch",
    "weighted_mean_ttft": "mean of (first token - arrival), by weight, s",
    "weighted_mean_tpot": f"mean of {LATENCIES[Latency.TPOT]}{OVER[Latency.TPOT]}, by weight, s",
    "weighted_mean_e2e": "mean of (last token - arrival), by weight, s",
    "mean_normalised_latency": "mean of (last token - arrival) / output tokens, s/token",
    "max_normalised_latency": "largest (last token - arrival) / output tokens, s/token",
    **{metric.value: _quantile(metric) for metric in QUANTILES},
    "class_spread": "largest difference between the mean_normalised_latency of two classes, requests "
    "without a class being one, s/token",
    "missed": "weight of the requests that break an SLO of theirs (TPOT: the request's own); what is not "
    "finished, or not by the horizon, breaks it",
    "unserved": "weight of the optional requests that are not finished, or not by the horizon",
    "unserved_tokens": "output tokens of the optional requests that are not finished, or not by the horizon",
    "attainment": "weight of the requests that keep all SLOs of theirs / weight of those with any",
    "goodput": "requests that break no SLO / makespan",
    "be_requests_per_second": "weight of the optional requests without an SLO that are finished by the "
    "horizon / horizon",
    "be_tokens_per_second": "output tokens of the optional requests without an SLO that are finished by the "
    "horizon / horizon",
}
"""Definition of every metric, as printed beside it."""

#: Metrics that a text shows in one row.
TOGETHER = (
    *(
        MetricRow(
            f"{latency.value} p50 / p90 / p99 / max",
            tuple(metric.value for metric in QUANTILES if metric.latency is latency),
            f"percentiles of {text}{OVER.get(latency, '')}: the ceil(q n)-th smallest of n, s",
        )
        for latency, text in LATENCIES.items()
    ),
    MetricRow(
        "normalised mean / max",
        ("mean_normalised_latency", "max_normalised_latency"),
        "(last token - arrival) / output tokens, s/token",
    ),
)
#: Metrics that a text shows where weights differ.
WEIGHTED = ("weighted_mean_ttft", "weighted_mean_tpot", "weighted_mean_e2e")
#: Metrics that a text shows where they are defined.
WHERE_DEFINED = (
    "class_spread", "missed", "unserved", "unserved_tokens", "attainment", "goodput", *RATES,
)  # fmt: skip
#: Metrics that results of earlier versions lack.  They are undefined for all instances that there were then.
LATER = frozenset({"unserved", "unserved_tokens", *RATES})
#: Metrics that results of earlier versions lack, all of them: they are defined for instances of then, too.
LATER_TOGETHER = frozenset(metric.value for metric in QUANTILES if metric.latency is Latency.TPOT)
#: The same, of best-effort rates.
RATES_LATER = frozenset(RATES)

UNITS = {
    "tokens_per_second": "tokens/s",
    "refill_tokens": "tokens",
    "recompute_tax": SHARE,
    "mean_kv_use": SHARE,
    "peak_kv": "tokens",
    "mean_batch_size": "requests",
    "attainment": SHARE_REACHED,
    "goodput": "requests/s",
    "be_requests_per_second": "requests/s",
    "be_tokens_per_second": "tokens/s",
    **{metric.value: metric.unit for metric in Metric},
}
"""Units of the metrics that have one."""


@dataclass(frozen=True)
class Metrics(ShownMetrics, LatencyMetrics):
    """Metrics of one schedule; `DEFINITIONS` says what each one means.

    Times are exact seconds; None where a metric is undefined (of the TPOT, when no request has two output
    tokens).  Latencies are those of the requests that must be finished.  Those of `LatencyMetrics` are formed
    when they are asked for.
    """

    definitions: ClassVar[Mapping[str, str]] = DEFINITIONS
    units: ClassVar[Mapping[str, str]] = UNITS

    makespan: Fraction
    mean_ttft: Fraction | None
    mean_tpot: Fraction | None
    mean_e2e: Fraction | None
    tokens_per_second: Fraction | None
    batches: int
    evictions: int
    refill_tokens: int
    recompute_tax: Fraction
    mean_kv_use: Fraction | None
    peak_kv: int
    mean_batch_size: Fraction

    @property
    def goodput(self) -> Fraction | None:
        """None without a service level, or where all takes no time."""
        return self.kept_per_second(self.makespan)

    def items(self) -> list[tuple[str, Fraction | int | None]]:
        """Name and value of every metric."""
        return [(name, getattr(self, name)) for name in DEFINITIONS]

    def rows(self) -> list[MetricRow]:
        """What a text shows: percentiles together, and what is about classes and SLOs where there are any."""
        left_out = {name for row in TOGETHER for name in row.names}
        left_out |= {name for name in WHERE_DEFINED if getattr(self, name) is None}
        if len({request.terms.weight for request in self.latencies.instance.requests}) == 1:
            left_out |= set(WEIGHTED)
        single = [row for row in one_each(self) if row.title not in left_out]
        return [*single, *TOGETHER]


def measure(instance: Instance, replay: Replay) -> Metrics:
    """Compute the metrics of a complete replay.

    Raises
    ------
    ValueError
        If the replay has violations: an incomplete schedule has no latency.
    """
    if not replay.valid:
        raise ValueError("metrics need a valid schedule")
    ends, made = replay.ends, replay.latencies(instance)
    makespan = replay.seconds(ends[-1]) if ends else Fraction(0)
    durations = [end - start for start, end in zip(replay.starts, ends, strict=True)]
    busy = sum(durations)
    weighted = sum(t * kv for t, kv in zip(durations, replay.kv_used, strict=True))
    processed = sum(f.tokens for f in replay.features)
    return Metrics(
        latencies=made,
        makespan=makespan,
        mean_ttft=made.metric(Metric.MEAN_TTFT),
        mean_tpot=made.metric(Metric.MEAN_TPOT),
        mean_e2e=made.metric(Metric.MEAN_E2E),
        tokens_per_second=replay.generated / makespan if makespan else None,
        batches=len(ends),
        evictions=replay.evictions,
        refill_tokens=replay.refill_tokens,
        recompute_tax=Fraction(replay.refill_tokens, max(1, processed)),
        mean_kv_use=Fraction(weighted, busy * instance.system.kv_capacity) if busy else None,
        peak_kv=max(replay.kv_used, default=0),
        mean_batch_size=Fraction(sum(f.decodes + f.prefills for f in replay.features), max(1, len(ends))),
    )


def objective_value(objective: Objective, metrics: Metrics) -> Fraction:
    """Value of the objective in its unit; an undefined metric counts as 0."""
    return objective.value(lambda metric: getattr(metrics, metric.value))
