"""The best lower bound on each metric that the verifier accepts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from infermax_opt.core.compiling_apart import UNCOMPILED, OutOfTime, in_time
from infermax_opt.core.progress import Progress, Teller
from infermax_opt.core.registry import problem_of
from infermax_opt.core.result import AnyResult, LowerBound
from infermax_opt.core.values import AnyInstance

__all__ = ["MetricBound", "aimed_at", "best_bounds"]


@dataclass(frozen=True)
class MetricBound:
    """A metric and what no schedule is below.

    Attributes
    ----------
    metric : str
    instance : instance
        With that metric as its objective.
    lower : LowerBound or None
        The best one that was checked; None for none.
    stopped : bool
        Whether the search for better ones was stopped by hand.
    """

    metric: str
    instance: AnyInstance
    lower: LowerBound | None = None
    stopped: bool = False


def best_bounds(
    instance: AnyInstance,
    metrics: Sequence[str],
    *,
    time_limit: float,
    known: Sequence[LowerBound] = (),
    progress: Progress | None = None,
) -> tuple[MetricBound, ...]:
    """Bound several metrics of an instance: by closed forms first, then by a search for each in turn.

    Ctrl-C ends the searches; what was found until then counts.

    Parameters
    ----------
    instance : instance of any problem
    metrics : sequence of str
    time_limit : float
        Seconds for all searches; each has an equal share of what those before it left.
    known : sequence of LowerBound
        Bounds from elsewhere, with certificates; each counts for the metrics that it is proved for.
    progress : callable, optional
        As in `infermax_opt.solve`.

    Raises
    ------
    InputError
        If a metric cannot be minimised.
    """
    problem = problem_of(instance)
    aimed = aimed_at(instance, metrics)
    found = [list(problem.bounds(some, stop=lambda: True)) for some in aimed]
    searched = 0
    tell = Teller(progress)
    with suppress(KeyboardInterrupt):
        began = time.monotonic()
        for done, (metric, some) in enumerate(zip(metrics, aimed, strict=True)):
            now = time.monotonic()
            end = now + (time_limit - (now - began)) / (len(aimed) - done)
            tell(f"lower bound of {metric}, for {max(0.0, end - now):.3g} s at most", "metric", source=metric)
            late = partial(_passed, end)
            with suppress(OutOfTime), in_time(late) as limit:
                for lower in problem.bounds(some, stop=late):
                    found[done].append(lower)
            if limit.ended:
                tell(f"lower bound of {metric}: {': '.join(UNCOMPILED)}", "untried", source=metric)
            searched = done + 1
    return tuple(
        MetricBound(metric, aimed[k], _best_checked(aimed[k], [*found[k], *known]), k >= searched)
        for k, metric in enumerate(metrics)
    )


def aimed_at(instance: AnyInstance, metrics: Sequence[str]) -> list[AnyInstance]:
    """The instance with each of the metrics as its objective."""
    problem = problem_of(instance)
    return [
        instance if metric == instance.objective_name else problem.aimed(instance, metric, ())
        for metric in metrics
    ]


def _passed(moment: float) -> bool:
    return time.monotonic() > moment


def _best_checked(instance: AnyInstance, bounds: Sequence[LowerBound]) -> LowerBound | None:
    """The best bound that the verifier accepts."""
    problem = problem_of(instance)
    for lower in sorted(bounds, key=lambda lower: -lower.value):
        alone = AnyResult(instance.name, instance.sha256, instance.objective_name, lower=lower)
        check = problem.verify(instance, None, alone.claim())
        if check.ok and not check.unchecked:
            return lower
    return None
