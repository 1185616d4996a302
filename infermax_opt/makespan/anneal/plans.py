"""Schedules of the makespan problem by annealing: when bins begin, where clients change, what fills levels.

A request is an arc from the bin in which it starts to the one in which its client starts the next one, and
fits if there are as many rounds between them as it has output tokens.  Moments of the bins and paths of
the clients are annealed without saying which request takes which arc (`_paths`).  Then the longest
request takes the longest arc and so on, bins begin as early as these allow (longest paths), and requests
exchange arcs where they may, until their prompts fill the levels of the prefill stages (`_packing`).

How many bins there are is tried out: short runs with several numbers first; then longer ones near the best,
from nothing or from the best schedule so far.
"""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from infermax_opt.core.compiled import compiled, in_plain_python
from infermax_opt.core.compiling_apart import under_limit
from infermax_opt.makespan.anneal import _packing as packing
from infermax_opt.makespan.anneal import _paths as paths
from infermax_opt.makespan.anneal._state import arcs_of, earliest, first_paths, follow_paths
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import Bin, MakespanSchedule, merged

__all__ = ["anneal_plans"]

#: Steps of each of the first runs, at least.
FIRST = 1_000_000
#: Steps of each of the first runs, per request.
FIRST_EACH = 1_500
#: Steps of one call of the kernel; between two calls the clock is looked at.
CHUNK = 500_000
#: Factor by which runs get longer from round to round.
GROWTH = 1.5
#: Steps of a run, per request, at most.
MOST_STEPS = 40_000
#: Rounds of runs where there is no deadline.
ROUNDS = 4
#: Numbers of bins of the first runs, relative to a guess.
WIDE = (1.0, 0.75, 1.3, 0.55)
#: Numbers of bins of later runs from nothing, one a round in turn, relative to the best so far.
NEAR = (1.1, 0.95, 1.25, 1.0)
# Temperatures: a change for the worse by so many missing tokens is taken with probability 1/e.
#: At the beginning of a run from nothing.
HOT = 4.0
#: At the beginning of runs from the best schedule so far.
WARM = (0.5, 0.8, 1.2)
#: At the end of a run.
COLD = 0.12
#: In the last steps of a run, in which practically nothing worse is taken.
FROZEN = 1e-6
#: Share of the steps of a run that are these last ones.
COOLED = 0.05
#: Units of output tokens of the longest request, at most.
MOST_UNITS = 4096
#: Weight of a round against a token that misses, times the root of the number of clients.
WEIGHT = 0.75
#: Steps per request in which prompts are exchanged.
EXCHANGES = 2_000
#: Steps in which prompts are exchanged, at most.
MOST_EXCHANGES = 3_000_000
#: Temperatures of the exchange at its beginning and at its end, in ticks between two levels.
EXCHANGE_HEAT = (0.2, 0.01)
#: Reward for free tokens in a prefill stage, as a share of the ticks between two levels.
SHARE = 0.5
#: Most entries of the lists of arcs at nodes; instances beyond are left to the other methods.
MOST_LISTED = 50_000_000
#: Seconds below which no further round begins.
LEAST_SECONDS = 0.2


def anneal_plans(
    instance: MakespanInstance,
    *,
    seed: int = 0,
    threads: int = 1,
    deadline: float | None = None,
    upper: Fraction | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[str, MakespanSchedule]]:
    """Ever better schedules.

    Parameters
    ----------
    instance : MakespanInstance
    seed : int
    threads : int
        Runs at a time.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without it, after a few rounds of runs.
    upper : Fraction, optional
        Makespan in seconds that is known already; only what is better is yielded.
    stop : callable, optional
        Says whether to stop sooner.

    Yields
    ------
    name : str
        Where the schedule comes from.
    schedule : MakespanSchedule
    """
    search = _AnnealingRuns(instance, seed, deadline, stop)
    best: Fraction | int | None = None if upper is None else upper * instance.ticks_per_second
    for run in search.runs(threads):
        if best is None or run.ticks < best:
            best = run.ticks
            yield "anneal", search.schedule(run)


@dataclass(frozen=True)
class _AnnealedPaths:
    """What a run found: makespan, bins in use, moments of nodes, nodes of arcs, and arcs of requests."""

    ticks: int
    bins: int
    time: Any
    source: Any
    target: Any
    taken: Any


@functools.cache
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return (
        compiled(paths.anneal, paths.HELPERS, allocates=False),
        compiled(packing.pack, packing.HELPERS, allocates=False),
    )


class _AnnealingRuns:
    """Runs for one instance."""

    def __init__(
        self, instance: MakespanInstance, seed: int, deadline: float | None, stop: Callable[[], bool] | None
    ):
        self.instance, self.seed, self.deadline, self.stop = instance, seed, deadline, stop
        self.ended = self.found = False
        requests = instance.requests
        self.clients = min(instance.clients, len(requests))
        #: Requests from the longest output to the shortest, and their tokens.
        self.order = sorted(range(len(requests)), key=lambda k: (-requests[k].output_tokens, k))
        self.output = np.array([requests[k].output_tokens for k in self.order], np.int64)
        self.prompt = np.array([requests[k].input_tokens for k in self.order], np.int64)
        #: Output tokens in units so large that the longest request has no more than `MOST_UNITS`.
        self.unit = max(1, -(-int(self.output[0]) // MOST_UNITS))
        self.units = -(-self.output // self.unit)
        self.round = self.unit * instance.round_ticks
        self.capacity = np.array([tokens for tokens, _ in instance.level_ticks], np.int64)
        self.ticks = np.array([ticks for _, ticks in instance.level_ticks], np.float64)
        #: Ticks between two levels, on average.
        self.step = max(1.0, float(self.ticks[-1]) / len(self.ticks))
        mean = float(self.prompt.mean())
        loads = [math.ceil(k * mean) for k in range(self.clients + 1)]
        prefill = [packing.stage(load, self.capacity, self.ticks, 0.0) for load in loads]
        #: Prefill of so many average prompts, in rounds.
        self.cost = np.array(prefill) / self.round
        self.weight = WEIGHT * math.sqrt(self.clients)

    def runs(self, threads: int) -> Iterator[_AnnealedPaths]:
        """Runs of growing length, round after round."""
        best: _AnnealedPaths | None = None
        n = len(self.output)
        steps, speed, most = in_plain_python(max(FIRST, FIRST_EACH * n)), math.inf, MOST_STEPS * n
        with ThreadPoolExecutor(threads) as pool:
            try:
                for number in itertools.count():
                    if self.halted():
                        return
                    plans = self.plans(best, number)
                    waves, left = -(-len(plans) // threads), self.left()
                    steps = int(min(steps, most, left * speed / waves))
                    began = time.monotonic()
                    jobs = [
                        pool.submit(under_limit(self.run), [self.seed, number, k], steps, *plan)
                        for k, plan in enumerate(plans)
                    ]
                    for job in jobs:
                        found = job.result()
                        if found is not None:
                            self.found = True
                            yield found
                            if best is None or found.ticks < best.ticks:
                                best = found
                    # A little less than that: the last round should end in time.
                    speed = 0.9 * steps * waves / (time.monotonic() - began)
                    steps = int(steps * GROWTH)
                    if number + 1 == ROUNDS if self.deadline is None else self.left() < LEAST_SECONDS:
                        return
            finally:
                self.ended = True

    def left(self) -> float:
        """Seconds left."""
        return math.inf if self.deadline is None else self.deadline - time.monotonic()

    def halted(self) -> bool:
        """Whether to stop now."""
        return self.ended or self.left() <= 0 or (self.stop is not None and self.stop())

    def plans(
        self, best: _AnnealedPaths | None, number: int
    ) -> list[tuple[int, float, _AnnealedPaths | None]]:
        """Runs of a round: numbers of bins, temperatures at first, and schedules to begin with."""
        n = len(self.output)
        if best is None:
            # Bins against rounds: rounding up to one of the lengths of arcs, as if these were spread evenly.
            rounds = self.output.sum() / self.clients
            some = max(1e-3, float(self.cost[1]) * self.unit)
            middle, factors = (2 * n * rounds / (self.clients * some)) ** (1 / 3), list(WIDE)
        else:
            middle, factors = best.bins, [NEAR[number % len(NEAR)]]
        least = -(-n // self.clients)
        most = min(n, max(least, MOST_LISTED // self.clients))
        plans: list[tuple[int, float, _AnnealedPaths | None]] = [
            (min(most, max(least, round(middle * factor))), HOT, None) for factor in factors
        ]
        return plans if best is None else [*plans, *((best.bins, hot, best) for hot in WARM)]

    def run(
        self, seed: Sequence[int], steps: int, bins: int, hot: float, begin: _AnnealedPaths | None
    ) -> _AnnealedPaths | None:
        """Anneal; None if stopped before, or out of time with a schedule at hand."""
        anneal, pack = _kernels()
        random = np.random.default_rng(seed)
        if begin is None:
            begun = first_paths(self.units, self.clients, bins, random)
        else:
            bins = len(begin.time) - 1
            begun = -(-begin.time // self.unit), begin.source, begin.target
        arcs = arcs_of(*begun, self.units, self.clients)
        cooled = int(steps * COOLED)
        for total, start, cold in ((steps - cooled, hot, COLD), (cooled, FROZEN, FROZEN)):
            for done in range(0, total, CHUNK):
                if self.left() <= 0:
                    break
                if self.halted():
                    return None
                part = min(CHUNK, total - done)
                anneal(arcs, self.cost, self.weight, part, done, total, start, cold, random)
        if self.left() <= 0 and self.found:
            # What follows takes seconds where requests are many.
            return None
        source, target = arcs.source, arcs.target
        # The longest request on the longest arc, and so on.
        taken = np.argsort(arcs.time[source] - arcs.time[target], kind="stable")
        moments = self.moments(taken, source, target, bins)
        load = np.zeros(bins, np.int64)
        np.add.at(load, source[taken], self.prompt)
        many = min(MOST_EXCHANGES, EXCHANGES * len(taken))
        pack(
            taken, moments[target] - moments[source], source, self.output, self.prompt, load,
            self.capacity, self.ticks, SHARE, many, *(heat * self.step for heat in EXCHANGE_HEAT), random,
        )  # fmt: skip
        moments = self.moments(taken, source, target, bins)
        stages = self.stages(source[taken], bins)
        prefill = sum(self.instance.prefill_ticks(tokens) or 0 for some in stages for tokens, _ in some)
        ticks = prefill + int(moments[-1]) * self.instance.round_ticks
        return _AnnealedPaths(ticks, sum(map(bool, stages)), moments, source, target, taken)

    def moments(self, taken: Any, source: Any, target: Any, bins: int) -> Any:
        """Moments of the nodes if bins begin as early as possible."""
        needed = np.zeros(len(source), np.int64)
        needed[taken] = self.output
        return earliest(source, target, needed, bins + 1)

    def stages(self, node: Any, bins: int) -> list[list[tuple[int, list[int]]]]:
        """Tokens and requests of the prefill stages at each moment: what one does not hold, others do."""
        found: list[list[tuple[int, list[int]]]] = [[] for _ in range(bins)]
        most = int(self.capacity[-1])
        for k in np.argsort(-self.prompt, kind="stable"):
            tokens, here = int(self.prompt[k]), found[node[k]]
            for index, (load, members) in enumerate(here):
                if load + tokens <= most:
                    members.append(int(k))
                    here[index] = load + tokens, members
                    break
            else:
                here.append((tokens, [int(k)]))
        return found

    def schedule(self, run: _AnnealedPaths) -> MakespanSchedule:
        """The schedule of a run."""
        bins = len(run.time) - 1
        client = follow_paths(run.source, run.target, self.clients, bins + 1)
        requests = self.instance.requests
        found = []
        for node, stages in enumerate(self.stages(run.source[run.taken], bins)):
            for _, members in stages:
                found.append(Bin({requests[self.order[k]].id: client[run.taken[k]] for k in members}))
            found.append(Bin(rounds=int(run.time[node + 1] - run.time[node])))
        return MakespanSchedule(self.instance.name, merged(found))
