"""Plans for offline workloads whose output lengths are known.

A schedule of J batches costs at least alpha J plus work that is nearly the same in every
schedule.  J is bounded by the KV area (sum of what is held) over M and by the tokens over C, so
a good plan keeps the KV full, or every batch, from the first batch to the last:

- A request starts only where its whole life fits beside those placed before.
- Plans are made *backwards* as a rule: from the end a request sheds KV instead of growing, so
  whatever fits now fits for good, and there is always something that fits exactly now.
- Where tokens bind before KV does, forwards is better: what later tokens take of a batch is known there
  before prompts are, so that all batches are full.  With KV to spare each batch in which nobody decodes
  saves d0 (`infermax_opt.infermax.planners.plan._strides`).
- Every batch with prefill pays p0, so prompts are processed together, before they are needed; a
  request idles up to its second token (`infermax_opt.infermax.planners.polish._kernel`).
- The KV fills up slowly at the start.  Where KV is scarce, requests that are evicted later make
  use of what is free (`infermax_opt.infermax.planners.plan._early_evictions`).
- Where the batch time has several pieces, prompts ride along at the lower slope up to the knee
  (`infermax_opt.infermax.planners.plan._options.knee_share`).
- With "square" attention a prompt of I tokens in q chunks does I**2 / q of work but holds about
  I q / 2 of KV area; the chunk that balances them is sqrt(I alpha / (2 p1 M)) tokens.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.moments import passed
from infermax_opt.infermax.planners.plan._early_evictions import longest_pays
from infermax_opt.infermax.planners.plan._opening import groups_help, opening
from infermax_opt.infermax.planners.plan._options import (
    ArrivalsError,
    EarlyWay,
    PlannerOptions,
    balanced_width,
    crowding,
    decide,
    expected_batches,
)
from infermax_opt.infermax.planners.plan._run import Plan
from infermax_opt.infermax.planners.plan._write import batches_of
from infermax_opt.infermax.planners.polish.polish import polish

__all__ = ["ArrivalsError", "Planner", "PlannerOptions", "plan", "plans"]

#: Settings tried in a row without improvement, before `plans` without a deadline ends.
PATIENCE = 40
#: Relative difference of estimates that is rounding.
NOISE = 1e-9
#: A plan so much worse than the best one is not polished.
HOPELESS = 1.03
#: Longest output relative to the batches, from which on it is worth to look after the start.
RAMP = 0.005
#: Settings of early starts to try: of every age of the steady state, then those that fill what is free.
EARLY = (
    *(EarlyWay(early=share) for share in (1.0, 1.3, 0.7)),
    *(EarlyWay(room=room, young=young) for room, young in ((1.0, 0.8), (1.0, 1.5), (1.2, 0.8))),
)
#: Types of requests beyond which a plan takes so long that early starts are left to those along an order.
EARLY_TYPES = 24


def plan(instance: Instance, options: PlannerOptions | None = None, *, seed: int = 0) -> Schedule:
    """Plan an offline instance in one pass.

    Parameters
    ----------
    instance : Instance
    options : PlannerOptions, optional
    seed : int
        Of the noise in the priorities.

    Returns
    -------
    Schedule
        Valid for every offline instance.

    Raises
    ------
    ArrivalsError
        If requests arrive over time.
    InputError
        If the schedule would have more than `infermax_opt.infermax.replay.plain.MAX_BATCHES` batches.
    """
    return batches_of(instance, decide(instance, options or PlannerOptions(), seed))


def plans(
    instance: Instance, *, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Ever better plans of an offline instance, by estimated makespan; none with arrivals.

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed gives the same plans, as many as there is time for.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop, but for a plan in the making.  Without one it
        stops when `PATIENCE` settings in a row were no better.

    Yields
    ------
    name : str
        ``planner:`` and the number of settings tried.
    schedule : Schedule
    """
    yield from Planner(instance, seed=seed).improve(deadline)


class Planner:
    """A search for plans that can be continued.

    Parameters
    ----------
    instance : Instance
    seed : int
    """

    def __init__(self, instance: Instance, *, seed: int = 0):
        self.instance = instance
        self.rng = random.Random(seed)
        self.best = math.inf
        self.chosen = PlannerOptions()
        self.shuffle = seed
        self.opening = opening(instance) if instance.offline else []
        self.early = instance.offline and _early_helps(instance)
        #: Settings of early starts that are worth a try; those that are still to try here.
        self.early_ways = EARLY if self.early else ()
        self.ways = list(self.early_ways if len(instance.types) <= EARLY_TYPES else ())
        self.tried: set[PlannerOptions] = set()
        self.number = self.failed = 0
        #: Seconds that the last plan took.
        self.lasts = 0.0

    def improve(
        self, deadline: float | None = None, *, done: Callable[[], bool] = lambda: False
    ) -> Iterator[tuple[str, Schedule]]:
        """Yield what `plans` yields, until the deadline or until `done`; may be called again."""
        if not self.instance.offline:
            return
        while self.failed < PATIENCE or deadline is not None:
            if self.best < math.inf and (passed(deadline, self.lasts / 2) or done()):
                return
            options, shuffle = self._next()
            if options in self.tried and shuffle == self.shuffle:
                self.failed += 1
                if self.failed > 10 * PATIENCE:
                    return
                continue
            schedule = self._try(options, shuffle, deadline)
            if schedule is not None:
                yield f"planner:{self.number}", schedule

    def _try(self, options: PlannerOptions, shuffle: int, deadline: float | None) -> Schedule | None:
        """Plan by these settings; None if no better than the best so far."""
        self.tried.add(options)
        self.number += 1
        began = time.monotonic()
        seconds, schedule = _candidate(self.instance, options, shuffle, self.best, deadline)
        self.lasts = time.monotonic() - began
        if schedule is not None and seconds < self.best * (1 - NOISE):
            self.best, self.chosen, self.shuffle, self.failed = seconds, options, shuffle, 0
            return schedule
        if not (self.opening or self.ways):
            # Early starts take the time of several plans.
            self.failed += 4 if options.early > 0 or options.room > 0 else 1
        return None

    def follow(
        self, order: Sequence[int], options: PlannerOptions, deadline: float | None = None
    ) -> Schedule | None:
        """Plan along an order of the requests.

        Parameters
        ----------
        order : sequence of int
            The requests, in the order in which they are considered.
        options : PlannerOptions
        deadline : float, optional
            Moment of `time.monotonic` after which early starts are improved no further.

        Returns
        -------
        Schedule or None
            None if no better than the best so far.
        """
        seconds, schedule = _candidate(self.instance, options, self.shuffle, self.best, deadline, order)
        if schedule is None or seconds >= self.best * (1 - NOISE):
            return None
        self.best = seconds
        return schedule

    def take(self, plan: Plan) -> Schedule | None:
        """The schedule of a plan backwards with hybrid batching; None if no better than the best so far."""
        if plan.seconds >= self.best * (1 - NOISE):
            return None
        self.best = plan.seconds
        return batches_of(self.instance, plan)

    def _next(self) -> tuple[PlannerOptions, int]:
        """Settings to try next, and the seed of the noise."""
        if self.opening:
            return self.opening.pop(0), self.shuffle
        if self.ways:
            return self.chosen.with_early(self.ways.pop(0)), self.shuffle
        return _neighbour(self.instance, self.chosen, self.shuffle, self.early, self.rng)


def _candidate(
    instance: Instance,
    options: PlannerOptions,
    seed: int,
    best: float,
    deadline: float | None,
    order: Sequence[int] | None = None,
) -> tuple[float, Schedule | None]:
    """Estimated makespan of a plan, and its schedule if that might be below `best`."""
    found = decide(instance, options, seed, deadline, order)
    if not instance.objective.is_makespan or (options.backwards and instance.policy.hybrid_batching):
        return found.seconds, batches_of(instance, found) if found.seconds < best else None
    if found.seconds >= best * HOPELESS:
        return found.seconds, None
    saved, schedule = polish(instance, batches_of(instance, found))
    return found.seconds - saved, schedule


def _early_helps(instance: Instance) -> bool:
    """Whether early starts apply, and might pay: they take many times the time of a plan."""
    policy = instance.policy
    if not (policy.preemption and policy.hybrid_batching and instance.objective.is_makespan):
        return False
    batches = expected_batches(instance, instance.system.max_batch_tokens)
    if max(r.output_tokens for r in instance.requests) < RAMP * batches:
        return False
    return any(longest_pays(instance, kind) for kind in instance.types)


@dataclass(frozen=True)
class Change:
    """One setting that a neighbour may have; `name` is a field of `PlannerOptions`, or "seed"."""

    name: str
    value: Any


def _neighbour(
    instance: Instance, options: PlannerOptions, seed: int, early: bool, rng: random.Random
) -> tuple[PlannerOptions, int]:
    """Change one to three settings at random."""
    changes = _changes(instance, options, early and len(instance.types) <= EARLY_TYPES, rng)
    for change in rng.sample(changes, min(len(changes), rng.choice([1, 1, 2, 3]))):
        if change.name == "seed":
            seed = change.value
        else:
            options = replace(options, **{change.name: change.value})
    return options, seed


def _stride_changes(instance: Instance, options: PlannerOptions, rng: random.Random) -> list[Change]:
    if crowding(instance) <= 1 or instance.cost.floats.d0 <= 0:
        return []
    return [Change("stride", max(1, options.stride + rng.choice([-1, 1])))]


def _early_changes(options: PlannerOptions, rng: random.Random) -> list[Change]:
    room = max(0.0, options.room + rng.gauss(0, 0.1)) if options.room else rng.choice((0.0, 1.0))
    return [
        Change("early", max(0.0, options.early + rng.gauss(0, 0.3))),
        Change("young", options.young * math.exp(rng.gauss(0, 0.2))),
        Change("room", room),
    ]


def _apart_changes(options: PlannerOptions, rng: random.Random) -> list[Change]:
    """What may change of plans in which prompts and decodes keep apart."""
    changes = [Change("every", max(1, round(options.every * math.exp(rng.gauss(0, 0.7)))))]
    if options.gather > 0:
        changes.append(Change("gather", options.gather * math.exp(rng.gauss(0, 0.2))))
        changes.append(Change("alike", options.alike * math.exp(rng.gauss(0, 0.2))))
    return changes


def _changes(instance: Instance, options: PlannerOptions, early: bool, rng: random.Random) -> list[Change]:
    """What may change, each to a random value near the one it has; sorted by name."""
    changes = [
        Change("by_output", options.by_output + rng.gauss(0, 0.2)),
        Change("by_input", options.by_input + rng.gauss(0, 0.2)),
        Change("noise", max(0.0, options.noise + rng.gauss(0, 0.2))),
        Change("slack", max(0.0, options.slack + rng.gauss(0, 0.3))),
        Change("reserve", max(0.0, options.reserve * math.exp(rng.gauss(0, 0.2)))),
        Change("window", rng.choice([1, 2, 4, 8, 16, 32, 64])),
        Change("walk", rng.choice([4, 8, 16, 32, 64, 128, 512, 2048])),
        Change("choice", rng.choice([1, 1, 2, 3, 4])),
    ]
    hybrid = instance.policy.hybrid_batching
    if balanced_width(instance) is not None and options.chunk is not None and hybrid:
        # The width of chunks matters most: it is twice as likely to change, by much or by little.
        changes += [
            Change("chunk", options.chunk * math.exp(rng.gauss(0, 0.3))),
            Change("chunk", options.chunk * math.exp(rng.gauss(0, 0.1))),
        ]
    if len(instance.cost.batch) > 1:
        fill = options.fill * math.exp(rng.gauss(0, 0.3))
        changes.append(Change("fill", min(1.0, max(0.02, fill))))
    if groups_help(instance):
        changes += [
            Change("group", max(1, options.group + rng.choice([-2, -1, 1, 2, options.group]))),
            Change("spare", max(0.0, options.spare + rng.gauss(0, 0.001))),
        ]
    changes += _stride_changes(instance, options, rng)
    if early:
        changes += _early_changes(options, rng)
    if len(instance.types) > 1:
        changes.append(Change("last", min(1.0, max(0.0, options.last + rng.gauss(0, 0.2)))))
    if options.pilot > 0:
        changes.append(Change("pilot", options.pilot * math.exp(rng.gauss(0, 0.3))))
    if not hybrid:
        changes += _apart_changes(options, rng)
    changes.append(Change("seed", rng.randrange(2**31)))
    if len(instance.types) == 1:
        # The order of alike requests decides nothing, except which of them start early.
        alike = {"by_output", "by_input", "window", "walk", "choice"}
        alike |= set() if options.early > 0 or options.room > 0 else {"noise", "seed"}
        changes = [change for change in changes if change.name not in alike]
    return sorted(changes, key=lambda change: change.name)
