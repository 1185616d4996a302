"""Questions such as "is there a schedule with a makespan of at most 1.8 s?", as people write them.

A limit is ``METRIC=LIMIT``.  LIMIT is a number, or a share of what a heuristic reaches: ``0.9*vllm``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from infermax_opt.core.checks import checked_decimal
from infermax_opt.core.errors import InputError
from infermax_opt.core.exact import decimal_text
from infermax_opt.core.values import AnyInstance

if TYPE_CHECKING:
    from infermax_opt.core.problem import AnyProblem

__all__ = ["parsed_limits"]


def parsed_limits(
    problem: AnyProblem,
    instance: AnyInstance,
    texts: Sequence[str],
    field: str = "at_most",
    *,
    names: Collection[str] | None = None,
) -> dict[str, Fraction]:
    """Limits by metric.

    Parameters
    ----------
    problem : Problem
        Of the instance.
    instance : instance
    texts : sequence of str
        ``METRIC=LIMIT`` each.
    field : str
        Names them in an error.
    names : collection of str, optional
        Metrics that may have such a limit; None: all.

    Raises
    ------
    InputError
        If one cannot be read, names no such metric, or a metric has two.
    """
    limits: dict[str, Fraction] = {}
    known = problem.metrics.definitions if names is None else names
    for text in texts:
        name, equals, limit = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is not METRIC=LIMIT", field=field)
        if name not in known:
            raise InputError(f"{name!r} is none of {', '.join(known)}", field=field)
        if name in limits:
            raise InputError(f"{name!r} has two limits", field=field)
        limits[name] = _limit(problem, instance, (name, field), limit)
    return limits


def _limit(problem: AnyProblem, instance: AnyInstance, of: tuple[str, str], text: str) -> Fraction:
    """A number, or a factor times the metric of a heuristic's schedule."""
    metric, field = of
    factor, star, heuristic = text.partition("*")
    number = checked_decimal(factor, f"{field}.{metric}")
    if not star:
        return number
    made = problem.run_heuristic(instance, heuristic).schedule
    metrics: Any = problem.verify(instance, made, made).metrics
    value = None if metrics is None else dict(metrics.items())[metric]
    if value is None:
        raise InputError(f"{heuristic!r} has no {metric} here", field=f"{field}.{metric}")
    # A decimal that ends, and no higher, so that files can hold it.
    return Fraction(decimal_text(number * value, digits=15, rounding="floor"))
