"""Objectives: what can be minimised, weighted sums of it, and limits that are to be kept together."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from infermax_opt.core.checks import checked_decimal
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.infermax.data.requests import RequestType

__all__ = [
    "AT_MOST", "BY_COUNT", "LINEAR", "QUANTILES", "SEARCHED_QUANTILES", "UNSERVED", "UNWEIGHTED",
    "Latency", "Metric", "Objective", "rank", "ratio", "shares",
]  # fmt: skip


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
    P50_TPOT = "p50_tpot"
    P90_TPOT = "p90_tpot"
    P99_TPOT = "p99_tpot"
    MAX_TPOT = "max_tpot"
    P50_E2E = "p50_e2e"
    P90_E2E = "p90_e2e"
    P99_E2E = "p99_e2e"
    MAX_E2E = "max_e2e"
    CLASS_SPREAD = "class_spread"
    MISSED = "missed"
    UNSERVED = "unserved"
    UNSERVED_TOKENS = "unserved_tokens"

    @property
    def unit(self) -> str:
        """Seconds, seconds for a token, weight, or tokens."""
        if self is Metric.UNSERVED_TOKENS:
            return "tokens"
        if self in BY_COUNT:
            return "weight"
        return "s/token" if self in PER_TOKEN else "s"

    @property
    def latency(self) -> Latency | None:
        """The latency that it is a sum or a rank of; None if it is neither."""
        return QUANTILES[self][1] if self in QUANTILES else LINEAR.get(self)


#: Metrics of what is left undone, by optional requests or not.
UNSERVED = frozenset({Metric.UNSERVED, Metric.UNSERVED_TOKENS})
#: Metrics that are the weight, or the tokens, of some requests; only these are about optional requests, too.
BY_COUNT = (Metric.MISSED, Metric.UNSERVED, Metric.UNSERVED_TOKENS)
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
#: Metrics that are others where all weights are equal.
UNWEIGHTED = {
    Metric.WEIGHTED_MEAN_TTFT: Metric.MEAN_TTFT,
    Metric.WEIGHTED_MEAN_TPOT: Metric.MEAN_TPOT,
    Metric.WEIGHTED_MEAN_E2E: Metric.MEAN_E2E,
}
#: Metrics that are the latency of one rank, of all requests that have it: percent and latency.
QUANTILES = {
    Metric.P50_TTFT: (50, Latency.TTFT),
    Metric.P90_TTFT: (90, Latency.TTFT),
    Metric.P99_TTFT: (99, Latency.TTFT),
    Metric.MAX_TTFT: (100, Latency.TTFT),
    Metric.P50_TPOT: (50, Latency.TPOT),
    Metric.P90_TPOT: (90, Latency.TPOT),
    Metric.P99_TPOT: (99, Latency.TPOT),
    Metric.MAX_TPOT: (100, Latency.TPOT),
    Metric.P50_E2E: (50, Latency.E2E),
    Metric.P90_E2E: (90, Latency.E2E),
    Metric.P99_E2E: (99, Latency.E2E),
    Metric.MAX_E2E: (100, Latency.E2E),
}


#: Those with bounds beyond closed forms; of the TPOT these nearly always say all (`bounds.service`).
SEARCHED_QUANTILES = tuple(metric for metric in QUANTILES if metric.latency is not Latency.TPOT)


def rank(percent: int, count: int) -> int:
    """Rank of a percentile among `count` values, from 1: the nearest rank, ceil(percent / 100 * count)."""
    return -(-percent * count // 100)


def shares(metric: Metric, kinds: Sequence[RequestType]) -> list[Fraction]:
    """Share of each request of each kind in a metric of `LINEAR`; the metric is the sum of share * latency.

    Optional requests have none.  Where no request has the latency, as the TPOT of single tokens, all shares
    are 0.
    """
    weighted = metric.value.startswith("weighted")
    tpot = LINEAR[metric] is Latency.TPOT

    by_tokens = metric is Metric.MEAN_NORMALISED_LATENCY

    def weight(kind: RequestType) -> tuple[int, int]:
        """Numerator and denominator."""
        if kind.terms.optional or (tpot and kind.output_tokens == 1):
            return 0, 1
        return kind.terms.weight.as_integer_ratio() if weighted else (1, 1)

    # Of a million kinds most have the same share, which is formed once.
    weights = [weight(kind) for kind in kinds]
    counts: dict[tuple[int, int], int] = {}
    for one, kind in zip(weights, kinds, strict=True):
        counts[one] = counts.get(one, 0) + len(kind.members)
    total = sum((Fraction(*one) * count for one, count in counts.items()), Fraction(0)) or Fraction(1)
    keys = [(one, kind.output_tokens if by_tokens else 1) for one, kind in zip(weights, kinds, strict=True)]
    formed = {(one, tokens): Fraction(*one) / tokens / total for one, tokens in {*keys}}
    return [formed[key] for key in keys]


def _numbers(given: object, field: str) -> dict[Metric, Fraction]:
    """Numbers of 0 or more by metric, in the order of `Metric`."""
    if not isinstance(given, Mapping) or not given:
        raise InputError(f"{given!r} is neither a name nor an object of numbers by metric", field=field)
    known = {metric.value: metric for metric in Metric}
    for key in given:
        if key not in known:
            raise InputError(f"{key!r} is none of {', '.join(known)}", field=field)
    numbers = {known[key]: checked_decimal(number, f"{field}.{key}") for key, number in given.items()}
    return {metric: numbers[metric] for metric in Metric if metric in numbers}


#: Key of the limits of an objective in a file.
AT_MOST = "at_most"


@dataclass(frozen=True)
class Objective:
    """A weighted sum of metrics to be minimised, or limits of metrics that are to be kept together.

    ``"throughput"`` (tokens per second, maximised) has the optimal schedules of the makespan, as
    the number of generated tokens is fixed; its bounds are stated on the makespan.

    Of limits the largest ratio of a metric to its limit is minimised (`ratio`): a schedule keeps all of them
    if and only if that is at most 1.
    """

    weights: tuple[tuple[Metric, Fraction], ...]
    name: str | None = None
    limits: tuple[tuple[Metric, Fraction], ...] = ()

    @classmethod
    def of(cls, value: Objective | str | Mapping[str, Any]) -> Objective:
        """Read an objective: a metric's name, ``"throughput"``, weights by metric, or limits by metric.

        Weights are a mapping of metrics to numbers, limits the same as the value of the only key ``at_most``.
        """
        if isinstance(value, Objective):
            return value
        if isinstance(value, str):
            return cls._named(value)
        if isinstance(value, Mapping) and AT_MOST in value:
            if len(value) > 1:
                raise InputError(f"{AT_MOST!r} stands alone", field="objective")
            limits = _numbers(value[AT_MOST], f"objective.{AT_MOST}")
            return cls((), limits=tuple(limits.items()))
        weights = _numbers(value, "objective")
        if not any(weights.values()):
            raise InputError("every weight is 0", field="objective")
        return cls(tuple((metric, weight) for metric, weight in weights.items() if weight))

    @classmethod
    def _named(cls, name: str) -> Objective:
        if name == "throughput":
            return cls(((Metric.MAKESPAN, Fraction(1)),), name=name)
        try:
            return cls(((Metric(name), Fraction(1)),), name=name)
        except ValueError:
            allowed = ", ".join([*(metric.value for metric in Metric), "throughput"])
            raise InputError(f"{name!r} is none of {allowed}", field="objective") from None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Those that count."""
        return tuple(metric for metric, _ in self.weights or self.limits)

    def value(self, of: Callable[[Metric], Fraction | float | None]) -> Fraction:
        """Value of the objective, given that of each metric; an undefined metric counts as 0."""
        if self.limits:
            return max(ratio(Fraction(of(metric) or 0), limit) for metric, limit in self.limits)
        return Fraction(sum(weight * Fraction(of(metric) or 0) for metric, weight in self.weights))

    @property
    def unit(self) -> tuple[str, str]:
        """Unit of its values, for one and for many; values of several units are added up without one."""
        if self.limits:
            return "of the limits", "of the limits"
        units = {metric.unit for metric, _ in self.weights}
        unit = units.pop() if len(units) == 1 else "(weighted sum)"
        return unit, unit

    @property
    def beyond_sums(self) -> tuple[Metric, ...]:
        """Its metrics that are neither the makespan nor a sum of latencies; all, if it is of limits."""
        if self.limits:
            return self.metrics
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

    def rates(self, kinds: Sequence[RequestType]) -> tuple[list[Fraction], list[Fraction]]:
        """What a second weighs that a request of each kind spends before its first token, and after it."""
        weights = self.latency_weights(kinds)
        ttft, tpot, e2e = (weights[latency] for latency in (Latency.TTFT, Latency.TPOT, Latency.E2E))
        # Where no request has two output tokens the TPOT is undefined and counts as 0.
        steps = [max(1, kind.output_tokens - 1) for kind in kinds]
        young = [first + last for first, last in zip(ttft, e2e, strict=True)]
        return young, [last + each / count for last, each, count in zip(e2e, tpot, steps, strict=True)]

    @property
    def is_makespan(self) -> bool:
        """Whether only the makespan counts, with weight one."""
        return self.weights == ((Metric.MAKESPAN, Fraction(1)),)

    @property
    def is_tpot(self) -> bool:
        """Whether nothing but TPOTs counts."""
        return all(metric.latency is Latency.TPOT for metric in self.metrics)

    @property
    def is_searched(self) -> bool:
        """Whether bounds on it are searched for, which closed forms are not."""
        searched = (Metric.MAKESPAN, Metric.MEAN_E2E, *BY_COUNT, *SEARCHED_QUANTILES)
        if self.name is None and not self.limits:  # of a weighted sum, parts are searched for
            return any(metric in LINEAR or metric in searched for metric in self.metrics)
        return any(metric in searched for metric in self.metrics)

    def weight(self, metric: Metric) -> Fraction:
        """Weight of `metric`, 0 where it does not count."""
        return dict(self.weights).get(metric, Fraction(0))

    def to_json(self) -> str | dict[str, Any]:
        """Return the value that `of` reads."""
        if self.name is not None:
            return self.name
        numbers = {metric.value: decimal_text(number) for metric, number in self.weights or self.limits}
        return {AT_MOST: numbers} if self.limits else numbers

    def __str__(self) -> str:
        if self.name is not None:
            return self.name
        if self.limits:
            return ", ".join(f"{metric.value} <= {decimal_text(limit)}" for metric, limit in self.limits)
        return " + ".join(f"{decimal_text(w)} {metric.value}" for metric, w in self.weights)

    def meaning(self) -> tuple[object, ...]:
        """Parts of the hash of an instance."""
        if self.limits:
            return AT_MOST, *(v for name, limit in sorted(self._texts()) for v in (name, limit))
        return self.name, *(v for metric, weight in self.weights for v in (metric.value, weight))

    def _texts(self) -> list[tuple[str, Fraction]]:
        return [(metric.value, limit) for metric, limit in self.limits]


def ratio(value: Fraction, limit: Fraction) -> Fraction:
    """How much of a limit a value takes: at most 1 if it is kept.

    Of a limit of 0 it is the value, and 1 more where that is above 0; bounds may be below.
    """
    return value / limit if limit else value + (value > 0)
