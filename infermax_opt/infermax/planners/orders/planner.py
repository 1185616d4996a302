"""Plans along an order of the requests that a local search improves.

A plan backwards that places requests one by one, each where it fits, wastes little of the KV as long as there
are many to choose from; the last ones, with which the schedule begins, are what is left over.  So it is the
end of the order that is searched most.  A plan takes milliseconds, and less where its beginning stays.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule
from infermax_opt.infermax.planners.moments import after_share, passed
from infermax_opt.infermax.planners.orders import _kernel
from infermax_opt.infermax.planners.orders._kernel import FAR, Columns
from infermax_opt.infermax.planners.plan._early_evictions import Early, occupy
from infermax_opt.infermax.planners.plan._early_search import refilled_whole, whole_refills
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._options import (
    EarlyWay,
    PlannerOptions,
    decide,
    rules_of,
    typical_slots,
    widths_of,
)
from infermax_opt.infermax.planners.plan._placement import Kernels, expected_horizon, longest_stay
from infermax_opt.infermax.planners.plan._profile import Profiles, Trial
from infermax_opt.infermax.planners.plan._run import Plan, run_kernel
from infermax_opt.infermax.planners.plan.planner import Planner
from infermax_opt.infermax.planners.polish.polish import compiled_regroup
from infermax_opt.infermax.replay.fast import valid_replay

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["orders_help", "orders_plans"]

#: Most output tokens: with more a plan takes too long.
MAX_TOKENS = 2_000_000
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
#: Share of the time for plans without early starts, where those with them follow.
WHOLE_SHARE = 0.4
#: Batches between two ends of equal requests, as a multiple of what the refill of a full memory takes, beyond
#: which what evictions save is worth more than they cost: a beam finds better plans there.
OFTEN = 2.0
#: Seconds between two plans with early starts that become schedules.
PAUSE = 2.0
#: What it counts if a full memory is a batch later through the longest request, in fixed times of a batch.
LATER = 0.5


def orders_help(instance: Instance) -> bool:
    """Whether a plan takes so little time that many orders can be tried."""
    return (
        instance.offline
        and instance.objective.is_makespan
        and instance.policy.hybrid_batching
        and len(instance.requests) <= MAX_REQUESTS
        and instance.output_tokens <= MAX_TOKENS
    )


def orders_plans(
    instance: Instance,
    planner: Planner,
    *,
    known: Schedule | None = None,
    done: Callable[[], bool] = lambda: False,
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
    done : callable, optional
        Asked whether nothing better is wanted.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one a fixed number of orders is tried.

    Yields
    ------
    name : str
        ``orders``, or ``orders:early`` with early starts.
    schedule : Schedule
    """
    several, early = len(instance.types) > 1, planner.early and not _evicts_often(instance)
    if not orders_help(instance) or not (several or early):
        return
    order, options = _first_order(instance, known), planner.chosen.in_order()
    if several:
        search, best = _Search(instance, options, order, seed), FAR
        for _ in _spells(search, after_share(WHOLE_SHARE, deadline) if early else deadline, done):
            if search.seconds < best:
                best = search.seconds
                schedule = planner.follow(search.order.tolist(), options, deadline)
                if schedule is not None:
                    yield "orders", schedule
        order = search.order.tolist()
    if early and not done():
        yield from _early_plans(instance, planner, order, done, seed, deadline)


def _evicts_often(instance: Instance) -> bool:
    """Whether equal requests are so few that good plans evict all the time, not at first alone."""
    if len(instance.types) > 1:
        return False
    cost, system = instance.cost.floats, instance.system
    spacing = instance.types[0].output_tokens / typical_slots(instance)
    refill = cost.beta[0] * system.kv_capacity / max(cost.alpha[0] + cost.d0, 1e-12)
    return bool(spacing > OFTEN * refill)


def _early_plans(
    instance: Instance,
    planner: Planner,
    order: Sequence[int],
    done: Callable[[], bool],
    seed: int,
    deadline: float | None,
) -> Iterator[tuple[str, Schedule]]:
    """Plans along orders in which some requests start early, in ever fewer batches.

    Parameters
    ----------
    instance : Instance
    planner : Planner
        It says how early starts are chosen.
    order : sequence of int
        That of a good plan without.
    done, seed, deadline
        As in `orders_plans`.
    """
    options = planner.chosen.in_order().with_early(EarlyWay())
    plan = _best_early_plan(instance, planner, order, deadline)
    if plan is None:
        return
    made, batches, fewer = plan.made, plan.batches, 1
    search = _Search(instance, options, order, seed, Early(made, batches))
    told, found = time.monotonic(), plan
    for _ in _spells(search, deadline, done):
        enough = search.batches <= search.least
        if enough:
            found = search.plan() or found
            batches = search.batches
        fewer = 2 * fewer if enough else max(1, fewer // 2)
        if batches - fewer != search.least:
            search.aim(batches - fewer)
        if deadline is None or time.monotonic() - told >= PAUSE:
            told = time.monotonic()
            yield from _told(planner, found)
    yield from _told(planner, found)


def _told(planner: Planner, plan: Plan) -> Iterator[tuple[str, Schedule]]:
    """The schedule of a plan, if it is better than all before."""
    schedule = planner.take(plan)
    if schedule is not None:
        yield "orders:early", schedule


def _best_early_plan(
    instance: Instance, planner: Planner, order: Sequence[int], deadline: float | None
) -> Plan | None:
    """The best plan along an order with early starts, chosen in one of the planner's ways."""
    options, best = planner.chosen.in_order(), None
    for way in planner.early_ways:
        if best is not None and passed(deadline):
            break
        plan = decide(instance, options.with_early(way), planner.shuffle, deadline, order)
        if any(plan.made) and (best is None or plan.seconds < best.seconds):
            best = plan
    return best


def _spells(search: _Search, deadline: float | None, done: Callable[[], bool]) -> Iterator[None]:
    """Search until nothing better is wanted, and come back about every `SPELL` seconds."""
    rounds, spells = ROUNDS if deadline is None else ROUNDS // 16, 0
    while not done() and (spells < SPELLS if deadline is None else not passed(deadline)):
        spells += 1
        began = time.monotonic()
        search.step(rounds)
        took = time.monotonic() - began
        if deadline is not None:
            rounds = rounds * 2 if took < SPELL else max(1, rounds // 2) if took > 4 * SPELL else rounds
        yield


class _Search:
    """A local search for an order.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions
        Of plans that place one request after the other.
    order : sequence of int
        The first one.
    seed : int
    early : Early, optional
        Early starts of all these plans.

    Attributes
    ----------
    order : int64 array
        The best one found so far.
    seconds : float
        Its estimated makespan; FAR if there is none.
    batches : int
        That it needs.
    least : int
        Batches that there are with early starts, or 0.
    """

    def __init__(
        self,
        instance: Instance,
        options: PlannerOptions,
        order: Sequence[int],
        seed: int,
        early: Early | None = None,
    ):
        import numpy as np

        self.instance, self.rng = instance, np.random.default_rng(seed)
        integers = functools.partial(np.array, dtype=np.int64)
        self.rules = rules_of(instance, options)
        self.horizon = min(expected_horizon(instance, self.rules), MAX_BATCHES)
        self.made = early.tokens if early else [0] * len(instance.requests)
        self.width = whole_refills(widths_of(instance, options), self.made)
        self.kernels = Kernels(
            _climb(), compiled_regroup(), integers, functools.partial(np.array, dtype=np.float64)
        )
        rest = [
            (r.input_tokens + m, r.output_tokens - m)
            for r, m in zip(instance.requests, self.made, strict=True)
        ]
        stay = longest_stay(instance, self.rules)
        self.columns = Columns(
            integers([inputs for inputs, _ in rest]), integers([outputs for _, outputs in rest]),
            integers(self.width), integers(self.made), stay + max(self.made) + 1, 0,
        )  # fmt: skip
        self.trial = Trial(*(self.kernels.zeros(size) for size in (stay, stay, 4)))
        self.reads = float(sum(area(inputs, outputs - 1) for inputs, outputs in rest))
        self.work = float(sum(prefill_work(1, inputs, 0) for inputs, _ in rest)) * self.rules.exact
        self.order: npt.NDArray[np.int64] = integers(order)
        self.aim(early.batches if early else 0)

    def aim(self, least: int) -> None:
        """Go on with so many batches, with early starts; without there is nothing to say."""
        self.least = max(least, max(self.made) + 2) if least else 0
        self.seconds, self.batches = FAR, MAX_BATCHES
        self.columns = self.columns._replace(least=self.least)
        if self.least:
            self.horizon = max(self.horizon, self.least + 2 * self.columns.longest)
        self._empty()

    def _empty(self) -> None:
        """Profiles of early starts alone."""
        self.profiles = Profiles(*(self.kernels.zeros(self.horizon) for _ in range(4)))
        if self.least:
            occupy(self.instance, Early(self.made, self.least), self.profiles)

    def step(self, rounds: int) -> float:
        """Search a part of the order; the estimated makespan of the best one so far, in seconds."""
        count = len(self.order)
        low = 0 if self.seconds == FAR else count - max(2, count >> int(self.rng.integers(HALVINGS + 1)))
        fixed = max(self.instance.cost.floats.alpha)
        order = self.order.copy()
        profiles, kept = (Profiles(*(column.copy() for column in self.profiles)) for _ in range(2))
        seconds, batches = self.kernels.loop(
            self.rules, self.columns, profiles, kept, self.trial, self.kernels.cost(self.instance), order,
            max(0, low), self.reads, self.work, rounds, fixed * float(self.rng.choice(HEATS)), fixed * LATER,
            int(self.rng.integers(2**31)),
        )  # fmt: skip
        if seconds >= FAR:  # a longer one may be needed
            self.horizon = min(2 * self.horizon, MAX_BATCHES)
            self._empty()
        if seconds < self.seconds:
            self.seconds, self.order, self.batches = seconds, order, batches
        return self.seconds

    def plan(self) -> Plan | None:
        """The plan along the best order with early starts; None if the planner places it otherwise."""
        early = Early(self.made, self.least)
        plan = run_kernel(self.instance, self.rules, self.order.tolist(), self.width, early)
        return plan if plan.batches <= self.least and refilled_whole(plan) else None


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
