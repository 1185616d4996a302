"""Objectives: what can be minimised, and weighted sums of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import Number, decimal_text, to_fraction
from infermax_opt.infermax.data.requests import RequestType

__all__ = ["LINEAR", "QUANTILES", "Latency", "Metric", "Objective", "rank", "shares"]


class Metric(enum.Enum):
    """What can be minimised; ``infermax_opt.Metrics.definitions`` says what each one means."""

    MAKESPAN = "makespan"
    MEAN_TTFT = "mean_ttft"
    MEAN_TPOT = "mean_tpot"
    MEAN_E2E = "mean_e2e"
    WEIGHTED_MEAN_TTFT = "weighted_mean_ttft"
    WEIGHTED_MEAN_TPOT = "weighted_mean_tpot"
    WEIGHTED_MEAN_E2E = "weighted_mean_e2e"
    MEAN_NORMALISED_LATENCY = "mean_normalised_latency"
    MAX_NORMALISED_LATENCY = "max_normalised_latency"
    P50_TTFT = "p50_ttft"
    P90_TTFT = "p90_ttft"
    P99_TTFT = "p99_ttft"
    MAX_TTFT = "max_ttft"
    P50_E2E = "p50_e2e"
    P90_E2E = "p90_e2e"
    P99_E2E = "p99_e2e"
    MAX_E2E = "max_e2e"
    CLASS_SPREAD = "class_spread"
    MISSED = "missed"

    @property
    def unit(self) -> str:
        """Seconds, seconds for a token, or weight."""
        if self is Metric.MISSED:
            return "weight"
        return "s/token" if self in PER_TOKEN else "s"


PER_TOKEN = (Metric.MEAN_NORMALISED_LATENCY, Metric.MAX_NORMALISED_LATENCY, Metric.CLASS_SPREAD)


class Latency(enum.Enum):
    """Latencies of one request.

    ``ttft``: first token - arrival.  ``tpot``: (last token - first token) / (output tokens - 1), none for a
    request of one output token.  ``e2e``: last token - arrival.
    """

    TTFT = "ttft"
    TPOT = "tpot"
    E2E = "e2e"


#: Metrics that are a sum over requests, each with a share of one latency: see `shares`.
LINEAR = {
    Metric.MEAN_TTFT: Latency.TTFT,
    Metric.MEAN_TPOT: Latency.TPOT,
    Metric.MEAN_E2E: Latency.E2E,
    Metric.WEIGHTED_MEAN_TTFT: Latency.TTFT,
    Metric.WEIGHTED_MEAN_TPOT: Latency.TPOT,
    Metric.WEIGHTED_MEAN_E2E: Latency.E2E,
    Metric.MEAN_NORMALISED_LATENCY: Latency.E2E,
}
#: Metrics that are the latency of one rank: percent and latency.
QUANTILES = {
    Metric.P50_TTFT: (50, Latency.TTFT),
    Metric.P90_TTFT: (90, Latency.TTFT),
    Metric.P99_TTFT: (99, Latency.TTFT),
    Metric.MAX_TTFT: (100, Latency.TTFT),
    Metric.P50_E2E: (50, Latency.E2E),
    Metric.P90_E2E: (90, Latency.E2E),
    Metric.P99_E2E: (99, Latency.E2E),
    Metric.MAX_E2E: (100, Latency.E2E),
}


def rank(percent: int, count: int) -> int:
    """Rank of a percentile among `count` values, from 1: the nearest rank, ceil(percent / 100 * count)."""
    return -(-percent * count // 100)


def shares(metric: Metric, kinds: Sequence[RequestType]) -> list[Fraction]:
    """Share of each request of each kind in a metric of `LINEAR`; the metric is the sum of share * latency.

    Where no request has the latency, as the TPOT of single tokens, all shares are 0.
    """
    weighted = metric.value.startswith("weighted")
    tpot = LINEAR[metric] is Latency.TPOT
    weights = [
        Fraction(0) if tpot and kind.output_tokens == 1 else kind.terms.weight if weighted else Fraction(1)
        for kind in kinds
    ]
    total = sum((w * len(kind.members) for w, kind in zip(weights, kinds, strict=True)), Fraction(0))
    if metric is Metric.MEAN_NORMALISED_LATENCY:
        weights = [w / kind.output_tokens for w, kind in zip(weights, kinds, strict=True)]
    return [weight / total if total else weight for weight in weights]


def _weight(key: str, number: Number) -> tuple[Metric, Fraction]:
    """One weight of an objective."""
    try:
        metric = Metric(key)
    except ValueError:
        weighable = ", ".join(metric.value for metric in Metric)
        raise InputError(f"{key!r} is none of {weighable}", field="objective") from None
    try:
        weight = to_fraction(number)
    except ValueError as error:
        raise InputError(str(error), field=f"objective.{key}") from None
    if weight < 0:
        raise InputError(f"{number} is negative; the least is 0", field=f"objective.{key}")
    return metric, weight


@dataclass(frozen=True)
class Objective:
    """A weighted sum of metrics, to be minimised.

    ``"throughput"`` (tokens per second, maximised) has the optimal schedules of the makespan, as
    the number of generated tokens is fixed; its bounds are stated on the makespan.
    """

    weights: tuple[tuple[Metric, Fraction], ...]
    name: str | None = None

    @classmethod
    def of(cls, value: Objective | str | Mapping[str, Number]) -> Objective:
        """Read an objective: a metric's name, ``"throughput"``, or a mapping metric -> weight."""
        if isinstance(value, Objective):
            return value
        allowed = ", ".join([*(metric.value for metric in Metric), "throughput"])
        if isinstance(value, str):
            if value == "throughput":
                return cls(((Metric.MAKESPAN, Fraction(1)),), name="throughput")
            try:
                return cls(((Metric(value), Fraction(1)),), name=value)
            except ValueError:
                raise InputError(f"{value!r} is none of {allowed}", field="objective") from None
        if not isinstance(value, Mapping) or not value:
            raise InputError(f"{value!r} is neither a name nor an object of weights", field="objective")
        weights = dict(_weight(key, number) for key, number in value.items())
        if not any(weights.values()):
            raise InputError("every weight is 0", field="objective")
        return cls(tuple((metric, weights[metric]) for metric in Metric if weights.get(metric)))

    @property
    def unit(self) -> tuple[str, str]:
        """Unit of its values, for one and for many; values of several units are added up without one."""
        units = {metric.unit for metric, _ in self.weights}
        unit = units.pop() if len(units) == 1 else "(weighted sum)"
        return unit, unit

    @property
    def beyond_sums(self) -> tuple[Metric, ...]:
        """Its metrics that are neither the makespan nor a sum of latencies."""
        return tuple(metric for metric, _ in self.weights if metric not in (Metric.MAKESPAN, *LINEAR))

    def latency_weights(self, kinds: Sequence[RequestType]) -> dict[Latency, list[Fraction]]:
        """What a second of each latency of a request of each kind weighs, in all its sums of latencies."""
        found = {latency: [Fraction(0)] * len(kinds) for latency in Latency}
        for metric, weight in self.weights:
            if metric in LINEAR:
                known = found[LINEAR[metric]]
                each = shares(metric, kinds)
                found[LINEAR[metric]] = [w + weight * share for w, share in zip(known, each, strict=True)]
        return found

    @property
    def is_makespan(self) -> bool:
        """Whether only the makespan counts, with weight one."""
        return self.weights == ((Metric.MAKESPAN, Fraction(1)),)

    @property
    def is_searched(self) -> bool:
        """Whether bounds on it are searched for, which closed forms are not."""
        return self.is_makespan or self.name in (Metric.MEAN_E2E.value, Metric.MISSED.value)

    def weight(self, metric: Metric) -> Fraction:
        """Weight of `metric`, 0 where it does not count."""
        return dict(self.weights).get(metric, Fraction(0))

    def to_json(self) -> str | dict[str, str]:
        """Return the value that `of` reads."""
        if self.name is not None:
            return self.name
        return {metric.value: decimal_text(weight) for metric, weight in self.weights}

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        return " + ".join(f"{decimal_text(w)} {metric.value}" for metric, w in self.weights)
