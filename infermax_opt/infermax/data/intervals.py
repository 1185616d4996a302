"""Instances whose machine is only known within limits: each coefficient of the cost between two ends.

Such an instance holds the costs at both corners: ``cost`` is that of the fastest machine, all coefficients at
their low ends, ``slowest`` that of the slowest one.  A batch takes no less time for a larger coefficient, as
it is a maximum of sums of coefficients times numbers that are never negative.  So on every machine with
coefficients in between each batch takes between what it takes on these two; a machine may even have other
coefficients for each batch.  What follows for bounds and schedules: `infermax_opt.infermax.band`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.infermax.data.cost import CostModel
from infermax_opt.infermax.data.cost_format import cost_from_json, cost_to_json

if TYPE_CHECKING:
    from infermax_opt.infermax.data.instance import Instance

__all__ = [
    "check_intervals",
    "coefficients",
    "costs_from_json",
    "costs_to_json",
    "fastest",
    "refuse_intervals",
    "slowest",
]

#: Keys of a cost that hold a coefficient, or a list of these.
KEYS = ("batch", "decode", "prefill", "mixed", "prefix")


def fastest(instance: Instance) -> Instance:
    """The instance on the fastest of its machines."""
    return instance if instance.slowest is None else replace(instance, slowest=None)


def slowest(instance: Instance) -> Instance:
    """The instance on the slowest of its machines."""
    return instance if instance.slowest is None else replace(instance, cost=instance.slowest, slowest=None)


def coefficients(cost: CostModel) -> Iterator[tuple[str, Fraction]]:
    """Where each coefficient stands in a file, and its value."""
    for k, pair in enumerate(cost.batch):
        yield from ((f"cost.batch[{k}][{j}]", Fraction(value)) for j, value in enumerate(pair))
    for key, pair in (("decode", cost.decode), ("prefill", cost.prefill), ("mixed", cost.mixed)):
        yield from ((f"cost.{key}[{j}]", Fraction(value)) for j, value in enumerate(pair))
    yield "cost.prefix", Fraction(cost.prefix)


def check_intervals(instance: Instance) -> None:
    """Refuse corners that are not two ends of the same coefficients."""
    if instance.slowest is None:
        return
    ends = list(coefficients(instance.cost)), list(coefficients(instance.slowest))
    if len(ends[0]) != len(ends[1]) or instance.cost.attention is not instance.slowest.attention:
        raise InputError("has other pieces or attention than the cost", field="slowest")
    for (where, low), (_, high) in zip(*ends, strict=True):
        if low > high:
            text = f"{decimal_text(low)} to {decimal_text(high)} is no interval: it must not fall"
            raise InputError(text, field=where)


def refuse_intervals(instance: Instance, what: str) -> None:
    """Raise `InputError` where the machine is known within limits only, which `what` does not take.

    Parameters
    ----------
    instance : Instance
    what : str
        Begins the message.
    """
    if instance.slowest is not None:
        raise InputError(f"{what} takes one machine, not intervals of coefficients", field="cost")


# --- files --------------------------------------------------------------------------------------


def costs_from_json(value: object) -> tuple[CostModel, CostModel | None]:
    """Costs of the fastest and of the slowest machine, None for the latter where they are the same.

    A coefficient is a number, or a list of its low and its high end.

    Raises
    ------
    InputError
        Naming the offending field.
    """
    low, high = _each(value, lambda ends: ends[0]), _each(value, lambda ends: ends[1])
    cost = cost_from_json(low)
    return cost, None if low == high else cost_from_json(high)


def costs_to_json(low: CostModel, high: CostModel | None) -> dict[str, Any]:
    """Return the JSON value that `costs_from_json` reads."""
    if high is None:
        return cost_to_json(low)
    # Keys that one corner leaves out are those of coefficients that are 0 there.
    spelled = [cost_to_json(low), cost_to_json(high)]
    missing: dict[str, Any] = {"mixed": ["0", "0"], "prefix": "0"}
    return {
        key: _joined(spelled[0].get(key, missing.get(key)), one) if key in KEYS else one
        for key, one in spelled[1].items()
    }


def _joined(low: Any, high: Any) -> Any:
    """Coefficients of both corners as one value."""
    if isinstance(high, list):
        return [_joined(a, b) for a, b in zip(low, high, strict=True)]
    return high if low == high else [low, high]


def _each(value: object, end: Callable[[list[Any]], Any]) -> object:
    """A cost with one end of each coefficient."""
    if not isinstance(value, dict):
        return value
    depth = {"batch": 2, "decode": 1, "prefill": 1, "mixed": 1, "prefix": 0}
    return {
        key: _at(item, depth[key], end, f"cost.{key}") if key in depth else item
        for key, item in value.items()
    }


def _at(value: Any, depth: int, end: Callable[[list[Any]], Any], where: str) -> Any:
    """One end of each coefficient, which stand so many lists deep.

    Parameters
    ----------
    value : object
        What is no list there is left for whoever checks the cost.
    depth : int
    end : callable
    where : str
    """
    if not isinstance(value, list):
        return value
    if depth:
        return [_at(item, depth - 1, end, f"{where}[{k}]") for k, item in enumerate(value)]
    if len(value) != 2:
        raise InputError(f"holds {len(value)} values; an interval has two ends", field=where)
    return end(value)
