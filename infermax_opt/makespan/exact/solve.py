"""Small makespan instances, solved to proven optimality: groupings of requests, then bins.

1. Every schedule gives each client a set of requests.  Sets are enumerated by the largest sum of output
   tokens in them, from the least possible one (P||Cmax) upwards.  As soon as that many rounds, with the
   closed-form prefill (`LeastTicks`), take no less than the best schedule known, all others are excluded.
   Prefill stages are short beside the decodes that they separate, so few sums come into question.
2. A grouping is left out if its bound says so (`infermax_opt.makespan.exact._bound`).
3. For the others, most promising first, the order on each client and the starts that share a bin are
   searched (`infermax_opt.makespan.exact._explore`).

All numbers are whole: ticks, over their greatest common divisor.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING

from infermax_opt.core.compiling_apart import under_limit
from infermax_opt.core.errors import InputError
from infermax_opt.core.result import LowerBound, Proof
from infermax_opt.engines.outcome import EngineOutcome, Termination
from infermax_opt.makespan.data.instance import MakespanInstance
from infermax_opt.makespan.data.schedule import MAX_BINS, MakespanSchedule
from infermax_opt.makespan.exact._groups import LeastTicks, groupings
from infermax_opt.makespan.exact._search import Arrays, Worker, greedy, kinds_of
from infermax_opt.makespan.machines.solve import solve_parallel_machines
from infermax_opt.makespan.replay.bins import replay_valid

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["MOST_REQUESTS", "exact_size", "require_size", "solve_makespan_exactly"]

#: Most requests: tables hold a number per set of them.
MOST_REQUESTS = 18
#: Ticks stay below, over their greatest common divisor.
LARGEST = 2**53
#: Groupings held at a time, and rated between two looks at the clock.
HELD, RATED = 1_000_000, 500
#: Seconds for a first grouping.
FIRST_SECONDS = 1.0


class _Halt(Exception):
    """The time is up or the caller wants no more; holds the termination."""


def exact_size(instance: MakespanInstance) -> bool:
    """Whether a proof within a minute is likely.

    Measured on one core.  Ten requests or fewer take seconds at most.  More of them need prefill
    stages that are short beside decodes, which leaves few groupings: with the cheapest stage of at most a
    sixth of the average decode twelve requests on six clients take up to 6 s; with a fiftieth 15 requests on
    four clients up to 26 s (at a twentieth some are not done after 10 s, 15 on five clients not after 100 s).
    """
    requests = instance.requests
    count, stage = len(requests), instance.level_ticks[0][1]
    if count > MOST_REQUESTS or _worst(instance) >= LARGEST:
        return False
    decodes = instance.round_ticks * sum(r.output_tokens for r in requests)
    for most, clients, part in ((12, 6, 6), (15, 4, 50)):
        if count <= most and instance.clients <= clients and part * stage * count <= decodes:
            return True
    return count <= 10


def require_size(instance: MakespanInstance) -> None:
    """Refuse what the search cannot take at all.

    Raises
    ------
    InputError
        If there are too many requests, or the numbers are too large for exact arithmetic in 64 bits.
    """
    if len(instance.requests) > MOST_REQUESTS:
        problem = f"{len(instance.requests)} requests; the exact search takes at most {MOST_REQUESTS}"
        raise InputError(problem, field="requests")
    worst = _worst(instance)
    if worst >= LARGEST:
        problem = f"a schedule may take {worst} of the units in which times are whole; the exact search takes"
        raise InputError(f"{problem} less than 2**53", field="decode")


def _unit(instance: MakespanInstance) -> int:
    return math.gcd(instance.round_ticks, *(ticks for _, ticks in instance.level_ticks))


def _worst(instance: MakespanInstance) -> int:
    """Units of a schedule that serves one request after the other."""
    worst = len(instance.requests) * instance.level_ticks[-1][1]
    worst += instance.round_ticks * sum(r.output_tokens for r in instance.requests)
    return worst // _unit(instance)


def solve_makespan_exactly(
    instance: MakespanInstance,
    *,
    warm: MakespanSchedule | None = None,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> EngineOutcome[MakespanSchedule]:
    """Search for a schedule of least makespan, and prove it.

    Parameters
    ----------
    instance : MakespanInstance
        At most `MOST_REQUESTS` requests; see `exact_size`.
    warm : MakespanSchedule, optional
        A valid schedule to improve on.
    time_limit : float, optional
        Seconds; compiling the search for the first time (it is kept on disk) is not interrupted.
    threads : int
        With one, the same arguments give the same result unless the time is up.
    seed : int
        Of the first grouping; the search draws no random numbers.
    progress : callable, optional
        Receives lines of text.
    stop : callable, optional
        Asked now and then whether to stop.

    Returns
    -------
    EngineOutcome
        Without a schedule if none is better than `warm`.  Its termination is ``optimal``, ``time_limit`` or
        ``interrupted``.  Its details are ``groupings`` (enumerated), ``searched`` (of these), ``nodes``.

    Raises
    ------
    InputError
        If there are too many requests, or the numbers are too large for exact arithmetic in 64 bits.
    ValueError
        If `warm` is not valid.
    """
    require_size(instance)
    unit = _unit(instance)
    deadline = None if time_limit is None else time.monotonic() + time_limit

    def poll() -> None:
        if deadline is not None and time.monotonic() >= deadline:
            raise _Halt(Termination.TIME_LIMIT)
        if stop is not None and stop():
            raise _Halt(Termination.INTERRUPTED)

    search = _GroupingSearch(instance, unit, warm, poll, progress)
    try:
        left = math.inf if deadline is None else deadline - time.monotonic()
        search.run(threads, seed, max(0.0, min(FIRST_SECONDS, left)))
        termination = Termination.OPTIMAL
    except _Halt as halt:
        termination = str(halt)
    details = {"groupings": search.enumerated, "searched": search.searched, "nodes": search.nodes}
    least = Fraction(min(search.lower, search.best) * unit, instance.ticks_per_second)
    return EngineOutcome(
        search.schedule, LowerBound(least, "exact", Proof.SOLVER), termination, details=details
    )


class _GroupingSearch:
    """State of a search; ticks are over `unit`."""

    def __init__(
        self,
        instance: MakespanInstance,
        unit: int,
        warm: MakespanSchedule | None,
        poll: Callable[[], None],
        progress: Callable[[str], None] | None,
    ):
        self.instance, self.unit, self.poll = instance, unit, poll
        self.say = progress or (lambda line: None)
        self.schedule: MakespanSchedule | None = greedy(instance)
        self.best = self._ticks(self.schedule)
        if warm is not None and self._ticks(warm) <= self.best:
            self.schedule, self.best = None, self._ticks(warm)
        self.least = LeastTicks(instance)
        self.lower = self.least(self.least.rounds) // unit
        self.enumerated = self.searched = self.nodes = 0
        # Equal ones side by side, long ones first: they have the fewest places to go.
        self.requests = sorted(
            instance.requests, key=lambda r: (r.output_tokens, r.input_tokens), reverse=True
        )
        self.clients = min(instance.clients, len(self.requests))

    def _ticks(self, schedule: MakespanSchedule) -> int:
        found = replay_valid(self.instance, schedule, MAX_BINS)
        return (sum(found.prefill_ticks) + sum(found.decode_ticks)) // self.unit

    def run(self, threads: int, seed: int, first_seconds: float) -> None:
        """Prove the best to be optimal; so many seconds at most for a first grouping."""
        low, step = self.least.rounds, 2
        if self.lower >= self.best:
            return
        self.poll()
        lengths = [r.output_tokens for r in self.requests]
        high = solve_parallel_machines(lengths, self.clients, time_limit=first_seconds, seed=seed).makespan
        self.arrays = Arrays(self.requests, self.clients, self.instance, self.unit)
        while self.lower < self.best:
            # Rounds of any better schedule.
            high = min(high, (self.best - 1 - self.least.prefill // self.unit) // self.arrays.decode)
            self._span(low, high, threads)
            low, high, step = high + 1, high + step, 2 * step
            self.lower = max(self.lower, min(self.best, self.least(low) // self.unit))

    def _span(self, low: int, high: int, threads: int) -> None:
        """Try all groupings whose largest sum is from `low` to `high`."""
        lengths = [r.output_tokens for r in self.requests]
        kinds = kinds_of(self.requests)
        held: list[npt.NDArray[np.int64]] = []
        batch: list[tuple[int, ...]] = []
        parts = 0
        for some in groupings(lengths, kinds, self.clients, low, high, self.poll):
            batch.append(some)
            if len(batch) == RATED:
                held.append(self._rated(batch))
                batch = []
                if sum(map(len, held)) >= HELD:
                    self._try(held, None, threads)
                    held = []
                    parts += 1
        held.append(self._rated(batch))
        # The bounds of these say something about all only if these are all.
        self._try(held, None if parts else self.least(high + 1) // self.unit, threads)
        self.say(
            f"largest sums up to {high}: {self.enumerated} groupings, best {self.best * self.unit} ticks"
        )

    def _rated(self, batch: Sequence[tuple[int, ...]]) -> npt.NDArray[np.int64]:
        """Roots of the groupings that may lead to something better."""
        self.poll()
        self.enumerated += len(batch)
        return self.arrays.roots(batch, self.best)

    def _try(self, held: Sequence[npt.NDArray[np.int64]], others: int | None, threads: int) -> None:
        """Search the groupings; `others`: what all those take that come later (None: unknown)."""
        import numpy as np

        roots = np.concatenate(held)
        bounds = roots[:, self.arrays.bound]
        order = iter(np.argsort(bounds, kind="stable").tolist())
        lock = threading.Lock()
        #: Bounds of the groupings that are being searched.
        open_bounds: dict[int, int] = {}

        def work(name: int) -> None:
            worker = Worker(self.arrays)
            while True:
                with lock:
                    open_bounds.pop(name, None)
                    k = next(order, None)
                    if k is None or bounds[k] >= self.best:
                        return
                    open_bounds[name] = int(bounds[k])
                    if others is not None:
                        self.lower = max(self.lower, min(self.best, others, *open_bounds.values()))
                    self.searched += 1
                worker.start(roots[k])
                while worker.open:
                    self.poll()
                    nodes = worker.nodes
                    worker.go(self.best)
                    with lock:
                        self.nodes += worker.nodes - nodes
                        if worker.best < self.best:
                            self.best = worker.best
                            self.schedule = self.arrays.schedule(self.instance, worker.found)
                            self.say(f"best {self.best * self.unit} ticks")

        if threads == 1:
            work(0)
            return
        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(under_limit(work), name) for name in range(threads)]:
                done.result()
