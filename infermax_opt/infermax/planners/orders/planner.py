"""Plans along an order of the requests that a local search improves.

A plan backwards that places requests one by one, each where it fits, wastes little of the KV as long as there
are many to choose from; the last ones, with which the schedule begins, are what is left over.  So it is the
end of the order that is searched most.  A plan takes milliseconds, and less where its beginning stays.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule
from infermax_opt.infermax.planners.orders import _kernel
from infermax_opt.infermax.planners.orders._kernel import FAR, Columns
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._options import PlannerOptions, rules_of, widths_of
from infermax_opt.infermax.planners.plan._placement import Kernels, expected_horizon, longest_stay
from infermax_opt.infermax.planners.plan._profile import Profiles, Trial
from infermax_opt.infermax.planners.plan.planner import Planner
from infermax_opt.infermax.planners.polish.polish import compiled_regroup
from infermax_opt.infermax.replay.fast import valid_replay

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["orders_help", "orders_plans"]

#: Most output tokens: with more a plan takes too long.
MAX_TOKENS = 1_000_000
#: Most requests.
MAX_REQUESTS = 5_000
#: Seconds between two choices of the part of the order that is searched; such choices without a deadline.
SPELL, SPELLS = 0.4, 24
#: Plans that each of them tries; with a deadline a sixteenth at first.
ROUNDS = 640
#: The part that is searched is a share of 2^-k of the order, k up to this.
HALVINGS = 4
#: How much worse a plan may be than that before it, in fixed times of a batch: one of these.
HEATS = (0.0, 1.0, 3.0)
#: What it counts if a full memory is a batch later through the longest request, in fixed times of a batch.
LATER = 0.5


def orders_help(instance: Instance) -> bool:
    """Whether requests differ, and a plan takes so little time that many orders can be tried."""
    return (
        instance.offline
        and instance.objective.is_makespan
        and instance.policy.hybrid_batching
        and len(instance.types) > 1
        and len(instance.requests) <= MAX_REQUESTS
        and instance.output_tokens <= MAX_TOKENS
    )


def orders_plans(
    instance: Instance,
    planner: Planner,
    *,
    known: Schedule | None = None,
    seed: int = 0,
    deadline: float | None = None,
) -> Iterator[tuple[str, Schedule]]:
    """Plans along ever better orders, each better than all that the planner had before.

    Parameters
    ----------
    instance : Instance
        One of those that `orders_help` names; others have no such plans.
    planner : Planner
        Its settings are those of the plans.
    known : Schedule, optional
        A valid one, whose order is the first; else the longest outputs come last.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one a fixed number of orders is tried.

    Yields
    ------
    name : str
        ``orders``.
    schedule : Schedule
    """
    if not orders_help(instance):
        return
    options = planner.chosen.in_order()
    search, rounds, spells, best = _Search(instance, options, known, seed), ROUNDS // 16, 0, FAR
    while spells < SPELLS if deadline is None else time.monotonic() < deadline:
        spells += 1
        began = time.monotonic()
        seconds = search.step(ROUNDS if deadline is None else rounds)
        took = time.monotonic() - began
        if deadline is not None:
            rounds = rounds * 2 if took < SPELL else max(1, rounds // 2) if took > 4 * SPELL else rounds
        if seconds >= best:
            continue
        best = seconds
        schedule = planner.follow(search.order.tolist(), options, deadline)
        if schedule is not None:
            yield "orders", schedule


class _Search:
    """A local search for an order.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions
        Of plans that place one request after the other.
    known : Schedule or None
        Whose order is the first.
    seed : int

    Attributes
    ----------
    order : int64 array
        The best one found so far.
    """

    def __init__(self, instance: Instance, options: PlannerOptions, known: Schedule | None, seed: int):
        import numpy as np

        self.instance, self.rng = instance, np.random.default_rng(seed)
        requests, integers = instance.requests, functools.partial(np.array, dtype=np.int64)
        self.rules = rules_of(instance, options, max(r.output_tokens for r in requests))
        longest = longest_stay(instance, self.rules)
        self.horizon = min(expected_horizon(instance, self.rules), MAX_BATCHES)
        self.columns = Columns(
            integers([r.input_tokens for r in requests]),
            integers([r.output_tokens for r in requests]),
            integers(widths_of(instance, options)),
            longest,
        )
        self.kernels = Kernels(
            _climb(), compiled_regroup(), integers, functools.partial(np.array, dtype=np.float64)
        )
        self.trial = Trial(*(self.kernels.zeros(size) for size in (longest, longest, 4)))
        self.reads = float(sum(area(r.input_tokens, r.output_tokens - 1) for r in requests))
        self.work = float(sum(prefill_work(1, r.input_tokens, 0) for r in requests)) * self.rules.exact
        self.order: npt.NDArray[np.int64] = integers(_first_order(instance, known))
        self.seconds = FAR

    def step(self, rounds: int) -> float:
        """Search a part of the order; the estimated makespan of the best one so far, in seconds."""
        count = len(self.order)
        low = 0 if self.seconds == FAR else count - max(2, count >> int(self.rng.integers(HALVINGS + 1)))
        fixed = max(self.instance.cost.floats.alpha)
        order = self.order.copy()
        profiles, kept = (Profiles(*(self.kernels.zeros(self.horizon) for _ in range(4))) for _ in range(2))
        seconds = self.kernels.loop(
            self.rules, self.columns, profiles, kept, self.trial, self.kernels.cost(self.instance), order,
            max(0, low), self.reads, self.work, rounds, fixed * float(self.rng.choice(HEATS)), fixed * LATER,
            int(self.rng.integers(2**31)),
        )  # fmt: skip
        if seconds >= FAR:  # a longer one may be needed
            self.horizon = min(2 * self.horizon, MAX_BATCHES)
        if seconds < self.seconds:
            self.seconds, self.order = seconds, order
        return self.seconds


def _first_order(instance: Instance, known: Schedule | None) -> list[int]:
    """Requests by when they end in a schedule, the last one first; else by outputs, the longest first."""
    if known is None:
        return sorted(range(len(instance.requests)), key=lambda i: -instance.requests[i].output_tokens)
    ends = valid_replay(instance, known).latencies(instance).lasts
    return sorted(range(len(ends)), key=lambda i: -ends[i])


@functools.cache
def _climb() -> Callable[..., Any]:
    found: Callable[..., Any] = compiled(_kernel.climb, _kernel.HELPERS, helpers_allocate=False)
    return found
