"""Metrics of a valid schedule, exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from infermax_opt.core.values import SHARE
from infermax_opt.pipelining.data.instance import PipeliningInstance, area
from infermax_opt.pipelining.data.schedule import Pipelining
from infermax_opt.simple.records import MetricsRecord

__all__ = ["PipeliningMetrics", "measure"]


@dataclass(frozen=True)
class PipeliningMetrics(MetricsRecord):
    """Metrics of one schedule; those that are divided by nothing are None."""

    definitions: ClassVar[Mapping[str, str]] = {
        "capacity_per_token": "capacity / tokens, the reciprocal of what objective tokens maximises",
        "capacity_per_area": "capacity / area, of objective area",
        "capacity_per_request": "capacity / count, of objective count",
        "capacity_per_value": "capacity / value, of objective value",
        "tokens": "reserved lengths of the selected requests, buffer included and rounded up to blocks",
        "area": "token-iterations for which cells are in use: a request of g tokens has g (g + 1) / 2",
        "count": "selected requests",
        "value": "their values; undefined where a request has none",
        "tokens_per_capacity": "tokens / capacity: how often the reservation is sold",
        "growth_use": "area / (capacity * longest selected length)",
    }
    units: ClassVar[Mapping[str, str]] = {
        "capacity_per_token": "tokens/token",
        "capacity_per_area": "tokens/area",
        "capacity_per_request": "tokens/count",
        "capacity_per_value": "tokens/value",
        "tokens": "tokens",
        "area": "token-iterations",
        "count": "requests",
        "growth_use": SHARE,
    }

    capacity_per_token: Fraction | None
    capacity_per_area: Fraction | None
    capacity_per_request: Fraction | None
    capacity_per_value: Fraction | None
    tokens: int
    area: int
    count: int
    value: Fraction | None
    tokens_per_capacity: Fraction
    growth_use: Fraction | None


def measure(instance: PipeliningInstance, schedule: Pipelining) -> PipeliningMetrics:
    """Measure a valid schedule."""
    places = [instance.index[name] for name in schedule.offsets]
    sizes = [instance.sizes[k] for k in places]
    worth = [instance.requests[k].value for k in places]
    value = None if None in worth else sum((v for v in worth if v is not None), Fraction(0))
    tokens, areas = sum(sizes), sum(map(area, sizes))

    def each(total: Fraction | int | None) -> Fraction | None:
        return Fraction(instance.capacity) / total if total else None

    return PipeliningMetrics(
        capacity_per_token=each(tokens),
        capacity_per_area=each(areas),
        capacity_per_request=each(len(sizes)),
        capacity_per_value=each(value),
        tokens=tokens,
        area=areas,
        count=len(sizes),
        value=value,
        tokens_per_capacity=Fraction(tokens, instance.capacity),
        growth_use=Fraction(areas, instance.capacity * max(sizes)) if sizes else None,
    )
