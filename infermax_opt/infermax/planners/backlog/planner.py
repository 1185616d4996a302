"""Plans for many different requests on little KV, where the batch time has a knee.

Up to the knee tokens are cheap, beyond it they are dear.  Where memory is scarce there are few decodes in a
batch, and prompts are most of its tokens: the batches are shortest together if all of them are near the knee.
Plans that process each prompt as soon as it is due leave many batches to decodes alone.  Here prompts wait in
a queue that is never empty, and hold KV for some batches longer.

That takes little KV if prompts come evenly.  So requests are chosen by when their prompts will be due, and
such that prompts and KV area are used up in step.  The plan is made from the last batch to the first
(`infermax_opt.infermax.planners.backlog._kernel`); a local search tries hundreds of settings.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from infermax_opt.core.compiled import compiled
from infermax_opt.infermax.data.cost import Extra, prefill_work
from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule, TooManyBatches
from infermax_opt.infermax.planners.backlog import _kernel
from infermax_opt.infermax.planners.backlog._kernel import Chunks, Columns, Forecast, Ways
from infermax_opt.infermax.planners.moments import passed
from infermax_opt.infermax.planners.plan._kernel import area
from infermax_opt.infermax.planners.plan._options import (
    PlannerOptions,
    filled_batches,
    knees,
    rules_of,
)
from infermax_opt.infermax.planners.plan._placement import expected_horizon
from infermax_opt.infermax.planners.plan._profile import Profiles, Rules
from infermax_opt.infermax.planners.plan._run import Plan
from infermax_opt.infermax.planners.plan._write import batches_of

__all__ = ["BacklogOptions", "BacklogPlanner", "backlog_helps", "backlog_plan"]

#: Fewest requests; most batches, as each takes about a hundred bytes.
FEW, MAX_BATCHES = 64, 2_000_000
#: Settings tried in a row without improvement, before a search without a deadline ends.
PATIENCE = 40
#: Relative difference of estimates that is rounding.
NOISE = 1e-9
#: The search ends if all of the first plans take more than so many times what is known, or none of so many
#: plans is better.
NEAR, TRIAL = 1.1, 60
#: Requests that may be compared.
WINDOWS = (16, 32, 64, 128, 256)


@dataclass(frozen=True)
class BacklogOptions:
    """What distinguishes one plan from another.

    Parameters
    ----------
    level : float
        Tokens up to which a batch takes prompts of the queue, relative to the knee.
    store : float
        Tokens of prompts in the queue, as a share of M, which wait for batches below that level.
    share : float
        Share of the tokens beyond those that a batch takes on top.
    rate : float
        Tokens of prompts that a batch is expected to take, relative to the mean where the KV is always full.
    window : int
        Requests that are compared.
    patience : float
        What it counts to wait for KV for a batch, in batches for which a prompt waits.
    balance : float
        What it counts if a request takes prompts and KV area further out of step.
    by_output, by_input : float
        Requests are considered by descending priority: the sum of these, times output tokens and input tokens
        (both relative to the largest) and a random number in [0, 1).
    """

    level: float = 1.0
    store: float = 0.08
    share: float = 0.02
    rate: float = 1.0
    window: int = 64
    patience: float = 0.03
    balance: float = 0.03
    by_output: float = 0.0
    by_input: float = 0.0


#: What is tried first.
OPENING = (
    BacklogOptions(), BacklogOptions(store=0.03, window=128), BacklogOptions(store=0.025, share=1.0),
    BacklogOptions(level=1.02, store=0.02, share=0.4, rate=1.1, balance=0.01),
    BacklogOptions(store=0.05, share=0.1),
)  # fmt: skip


def backlog_helps(instance: Instance) -> bool:
    """Whether the plans apply, and are likely to be good ones."""
    policy = instance.policy
    return (
        instance.offline
        and instance.objective.is_makespan
        and policy.hybrid_batching
        and policy.chunked_prefill
        and len(instance.types) > 1
        and len(instance.requests) >= FEW
        and _knee(instance) is not None
        and filled_batches(instance) < MAX_BATCHES / 2
    )


def backlog_plan(instance: Instance, options: BacklogOptions | None = None, *, seed: int = 0) -> Schedule:
    """A plan by given settings.

    Parameters
    ----------
    instance : Instance
        One of those that `backlog_helps` names.
    options : BacklogOptions, optional
    seed : int
        Of the order in which requests are considered.

    Returns
    -------
    Schedule
        A valid one.

    Raises
    ------
    InputError
        If it would have more than `MAX_BATCHES` batches.
    """
    found = _Work(instance).run(options or BacklogOptions(), seed)
    if found.batches < 0:
        raise TooManyBatches(f"the plan needs more than {MAX_BATCHES} batches")
    return batches_of(instance, found.plan())


class BacklogPlanner:
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
        self.chosen, self.order = OPENING[0], seed
        self.opening = list(OPENING)
        self.helps = backlog_helps(instance)
        self.number = self.failed = 0
        #: Seconds that the last plan took.
        self.lasts = 0.0

    @functools.cached_property
    def work(self) -> _Work:
        """What all plans have in common."""
        return _Work(self.instance)

    def improve(
        self,
        upper: float = math.inf,
        deadline: float | None = None,
        *,
        done: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[str, Schedule]]:
        """Ever better plans until the deadline, or until the search has come to an end; may be called again.

        Parameters
        ----------
        upper : float
            Makespan of a plan that is known, in seconds.  If no plan comes near it at first, that is all.
        deadline : float, optional
            Moment of `time.monotonic` at which to stop.
        done : callable, optional
            Asked whether nothing better is wanted.

        Yields
        ------
        name : str
            ``backlog:`` and the number of settings tried.
        schedule : Schedule
        """
        if not self.helps:
            return
        while self.opening or self.failed < PATIENCE or deadline is not None:
            if self.number > 0 and (passed(deadline, self.lasts / 2) or done()):
                return
            if not self.opening and self.best > upper * (NEAR if self.number < TRIAL else 1.0):
                return
            options, order = (self.opening.pop(0), self.order) if self.opening else self._neighbour()
            began = time.monotonic()
            found = self.work.run(options, order)
            self.lasts = time.monotonic() - began
            self.number += 1
            self.failed += 1
            if found.seconds < self.best * (1 - NOISE):
                self.best, self.chosen, self.order, self.failed = found.seconds, options, order, 0
                if found.seconds < upper:
                    yield f"backlog:{self.number}", batches_of(self.instance, found.plan())

    def _neighbour(self) -> tuple[BacklogOptions, int]:
        """Change one to three settings at random."""
        rng, best = self.rng, self.chosen
        changes: dict[str, Any] = {
            "level": best.level * math.exp(rng.gauss(0, 0.05)),
            "store": best.store * math.exp(rng.gauss(0, 0.4)) + 0.001 * rng.random(),
            "share": min(1.0, best.share * math.exp(rng.gauss(0, 0.6)) + 0.001 * rng.random()),
            "rate": best.rate * math.exp(rng.gauss(0, 0.1)),
            "window": rng.choice(WINDOWS),
            "patience": best.patience * math.exp(rng.gauss(0, 0.7)),
            "balance": best.balance * math.exp(rng.gauss(0, 0.7)),
            "by_output": best.by_output + rng.gauss(0, 0.1),
            "by_input": best.by_input + rng.gauss(0, 0.1),
            "order": rng.randrange(2**31),
        }
        names = rng.sample(sorted(changes), rng.choice([1, 1, 2, 3]))
        some = {name: changes[name] for name in names if name != "order"}
        return replace(best, **some), changes["order"] if "order" in names else self.order


def _knee(instance: Instance) -> int | None:
    """Fewest tokens, rounded down, at which two pieces of the batch time cross and a steeper one begins."""
    most = instance.system.max_batch_tokens
    whole = [int(knee) for knee in knees(instance)]
    return min((knee for knee in whole if 1 <= knee < most), default=None)


@dataclass(frozen=True)
class _Found:
    """What the loop decided; see `Plan`."""

    rules: Rules
    batches: int
    seconds: float
    count: int
    profiles: Profiles
    chunks: Chunks
    start: Any

    def plan(self) -> Plan:
        """As a plan of the list planner."""
        size, count = self.batches, self.count
        decodes = (self.profiles.tokens[:size] > self.profiles.prefill[:size]).tolist()
        made, held = [0] * len(self.start), self.profiles.kv[:size]
        columns = (self.chunks.time, self.chunks.request, self.chunks.tokens)
        chunks = list(zip(*(column[:count].tolist() for column in columns), strict=True))
        start = self.start.tolist()
        return Plan(self.rules, size, self.seconds, decodes, chunks, [], start, made, held, False)


class _Work:
    """Columns that all plans of an instance share.

    Parameters
    ----------
    instance : Instance
        One of those that `backlog_helps` names.
    """

    def __init__(self, instance: Instance):
        import numpy as np

        requests = instance.requests
        self.instance = instance
        self.rules = rules_of(instance, PlannerOptions())
        self.inputs = np.array([r.input_tokens for r in requests], np.int64)
        self.outputs = np.array([r.output_tokens for r in requests], np.int64)
        inputs, outputs = self.inputs.astype(np.float64), self.outputs.astype(np.float64)
        held, prompts = area(inputs, outputs), float(inputs.sum())
        self.excess = (inputs - prompts / held.sum() * held) / (prompts / len(requests))
        self.cost = instance.cost.columns
        self.extra = Extra(*map(float, instance.cost.extra))
        self.reads = float(area(inputs, outputs - 1).sum())
        self.pairs = float(sum(prefill_work(1, r.input_tokens, 0) for r in requests)) * self.rules.exact
        self.knee = _knee(instance) or 1
        batches = max(1.0, filled_batches(instance))
        #: Tokens, and prompt tokens among them, of a batch in the mean where the KV is always full.
        self.processed = sum(r.peak_kv for r in requests) / batches
        self.prompts = sum(r.input_tokens for r in requests) / batches
        self.horizon = min(expected_horizon(instance, self.rules), MAX_BATCHES)

    def run(self, options: BacklogOptions, seed: int, loop: Callable[..., Any] | None = None) -> _Found:
        """Plan by these settings, in columns that are made longer until they suffice."""
        import numpy as np

        count = len(self.inputs)
        while True:
            size = self.horizon
            start, longs = np.zeros(count, np.int64), functools.partial(np.zeros, dtype=np.int64)
            columns = Columns(self.inputs, self.outputs, self.excess, self._queue(options, seed), start)
            empty = functools.partial(np.full, fill_value=-1)
            forecast = Forecast(longs(size), empty(size), longs(size), longs(size), empty(count))
            parts = 2 * count + size
            chunks = Chunks(longs(parts), longs(parts), longs(parts), longs(count), longs(count))
            nothing = longs(0)
            profiles = Profiles(longs(size), longs(size), nothing, nothing)
            batches, seconds, made = (loop or _compiled())(
                self.rules, self._ways(options), columns, forecast, chunks, profiles,
                longs(self.rules.block), self.cost, self.extra, self.reads, self.pairs,
            )  # fmt: skip
            if batches >= 0 or size >= MAX_BATCHES:
                break
            self.horizon = min(2 * size, MAX_BATCHES)
        if batches < 0:
            seconds = math.inf
        return _Found(self.rules, batches, seconds, made, profiles, chunks, start)

    def _ways(self, options: BacklogOptions) -> Ways:
        """Settings in tokens."""
        return Ways(
            level=max(1, round(options.level * self.knee)),
            store=options.store * self.instance.system.kv_capacity,
            share=float(options.share),
            rate=max(1, round(options.rate * self.prompts)),
            speed=max(1, round(self.processed)),
            window=max(1, options.window),
            patience=float(options.patience),
            balance=float(options.balance),
        )

    def _queue(self, options: BacklogOptions, seed: int) -> Any:
        """Requests by priority, each with the next one; the last entry is the first request."""
        import numpy as np

        count = len(self.inputs)
        noise = np.random.default_rng(seed).random(count)
        priority = options.by_output * self.outputs / self.outputs.max()
        priority += options.by_input * self.inputs / self.inputs.max() + noise
        order = np.argsort(-priority, kind="stable")
        after = np.full(count + 1, count)
        after[count] = order[0]
        after[order[:-1]] = order[1:]
        return after


@functools.cache
def _compiled() -> Callable[..., Any]:
    return compiled(_kernel.backlog_loop, _kernel.HELPERS, helpers_allocate=False)
