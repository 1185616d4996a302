"""Placements on a given number of workers, and ever better placements: by annealing of excesses.

See `infermax_opt.placement.heuristics._pack_kernel` for the search.  Runs grow longer from round to round,
and begin each from requests spread evenly, the largest first.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from infermax_opt.core.compiled import compiled
from infermax_opt.core.compiling_apart import under_limit
from infermax_opt.placement.data.instance import PlacementInstance
from infermax_opt.placement.data.limits import check_placeable
from infermax_opt.placement.data.schedule import Placement
from infermax_opt.placement.heuristics import _pack_kernel as kernel
from infermax_opt.placement.heuristics._columns import Columns
from infermax_opt.placement.heuristics.place import place
from infermax_opt.placement.replay._state import Workers, enter, peak

__all__ = ["anytime_placements", "pack"]

#: Steps of the runs of the first round, by how much they grow, and the most per request.
FIRST, GROWTH, MOST_STEPS = 200_000, 2.0, 200_000
#: Rounds where there is no deadline.
ROUNDS = 6
#: Temperatures at first and at last, in shares of a limit, in turn.
HEATS = ((0.003, 1e-5), (0.02, 3e-4), (0.01, 1e-5))
#: Seconds of one call of the kernel, and steps of the first one.
CALL, CHUNK = 0.1, 20_480
#: Factors of sizes where requests are spread out.
STRAY = (0.9, 1.1)
#: Starts of multi-start best-fit before packing.
STARTS = 30


def pack(
    instance: PlacementInstance,
    workers: int,
    *,
    seed: int = 0,
    threads: int = 1,
    deadline: float | None = None,
    start: Placement | None = None,
    stop: Callable[[], bool] | None = None,
) -> Placement | None:
    """Search for a placement on at most so many workers.

    Parameters
    ----------
    instance : PlacementInstance
    workers : int
        Those with ongoing requests included.
    seed : int
    threads : int
        Runs at a time.
    deadline : float, optional
        Moment of `time.monotonic` at which to give up; without it, after a few rounds of runs.
    start : Placement, optional
        A placement on any number of workers, from which the first run begins.
    stop : callable, optional
        Says whether to give up sooner.

    Returns
    -------
    Placement or None
        A valid one; None if none was found, which proves nothing.

    Raises
    ------
    InputError
        If a request fits on no worker.
    """
    check_placeable(instance)
    return _PackingSearch(instance, seed, threads, deadline, stop).run(workers, start)


def anytime_placements(
    instance: PlacementInstance,
    *,
    lower: int = 0,
    seed: int = 0,
    threads: int = 1,
    deadline: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> Iterator[tuple[str, Placement]]:
    """Ever better valid placements.

    Parameters
    ----------
    instance : PlacementInstance
    lower : int
        Workers that are known to be needed; with so many, nothing better is looked for.
    seed : int
    threads : int
        Runs at a time.
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without it, when packing gives up.
    stop : callable, optional
        Says whether to stop sooner.

    Yields
    ------
    name : str
        Where the placement comes from.
    placement : Placement

    Raises
    ------
    InputError
        If a request fits on no worker.
    """
    search = _PackingSearch(instance, seed, threads, deadline, stop)
    best: Placement | None = None
    count = 0
    for name in ("best-fit", "best-fit-size", "multi-start"):
        if best is not None and (count <= lower or search.halted()):
            return
        found = place(instance, name, seed=seed, starts=STARTS, target=lower, deadline=deadline, stop=stop)
        number = search.count(found)
        if best is None or number < count:
            best, count = found, number
            yield name, best
    # Steps double while they succeed; a step of more than one gets a single round.
    step, least = 1, max(1, lower)
    while best is not None and count > least and not search.halted():
        step = min(step, count - least)
        better = search.run(count - step, best, ROUNDS if step == 1 else 1)
        if better is not None:
            best, count, step = better, search.count(better), 2 * step
            yield "pack", best
        elif step == 1:
            return
        else:
            step = 1


@functools.cache
def _anneal() -> Callable[..., Any]:
    return compiled(kernel.anneal, kernel.HELPERS, allocates=False)


@functools.cache
def _fill() -> Callable[..., Any]:
    return compiled(kernel.fill, (enter,), allocates=False)


class _PackingSearch:
    """Searches for placements of one instance."""

    def __init__(
        self,
        instance: PlacementInstance,
        seed: int,
        threads: int,
        deadline: float | None,
        stop: Callable[[], bool] | None,
    ):
        self.instance, self.seed, self.threads = instance, seed, threads
        self.deadline, self.stop = deadline, stop
        self.columns = columns = Columns(instance, compiled=True)
        self.movable = columns.column(columns.limits.new)
        self.unit = 1.0 / np.maximum(columns.most, 1)
        self.speed = CHUNK / CALL

    def count(self, placement: Placement) -> int:
        """Workers in use."""
        return len(set(placement.workers.values()) | self.columns.limits.ongoing.keys())

    def halted(self) -> bool:
        """Whether to stop now."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or (self.stop is not None and self.stop())

    def run(self, workers: int, start: Placement | None, rounds: int = ROUNDS) -> Placement | None:
        """A placement on so many workers, if it is found.

        With a deadline, `ROUNDS` means as many as there is time for.
        """
        if start is not None and self.count(start) <= workers:
            return start
        columns = self.columns
        fresh = workers - columns.closed - len(columns.open)
        if fresh >= 0 and not len(self.movable):
            return columns.placement([])
        if fresh < 0 or self.hopeless(fresh):
            return None
        fresh = min(fresh, len(self.movable))
        steps, most = FIRST, MOST_STEPS * len(self.movable)
        with ThreadPoolExecutor(self.threads) as pool:
            for number in itertools.count():
                if self.halted() or (number >= rounds and (rounds < ROUNDS or self.deadline is None)):
                    break
                result = self.round(pool, fresh, [self.seed, workers, number], steps, start)
                if result is not None:
                    return columns.placement(result)
                steps, start = min(most, int(steps * GROWTH)), None
        return None

    def round(
        self, pool: ThreadPoolExecutor, fresh: int, seed: Sequence[int], steps: int, start: Placement | None
    ) -> list[int] | None:
        """A run in each thread, until one succeeds; the worker of each request, if one did."""
        found = threading.Event()
        run = under_limit(self.anneal)
        jobs = [pool.submit(run, fresh, [*seed, k], steps, start, found) for k in range(self.threads)]
        try:
            results = [job.result() for job in jobs]
        except KeyboardInterrupt:
            found.set()  # so that nothing waits for the runs
            raise
        return next((result for result in results if result is not None), None)

    def hopeless(self, fresh: int) -> bool:
        """Whether all requests together need more than all workers have."""
        columns, limits = self.columns, self.columns.limits
        members = [*limits.new, *(k for w in columns.open for k in limits.ongoing[w])]
        number = len(columns.open) + fresh
        room = sum(limits.worker_prompt[w] for w in columns.open) + fresh * limits.most_prompt
        return (
            sum(limits.context[k] for k in members) > number * limits.most_context
            or sum(limits.prompt[k] for k in members) > room
            or limits.kv_peak(members) > number * limits.most_kv
        )

    def anneal(
        self,
        fresh: int,
        seed: Sequence[int],
        steps: int,
        start: Placement | None,
        found: threading.Event,
    ) -> list[int] | None:
        """One run; the worker of each request, if no limit is exceeded."""
        columns, random = self.columns, np.random.default_rng(seed)
        workers = columns.workers(fresh)
        self.begin(workers, start, random)
        bad, place = columns.column([0] * (len(workers.head) + 1)), columns.column([-1] * len(workers.head))
        for w in range(len(workers.head)):
            workers.peak[w] = peak(workers, columns.requests, columns.grows, w, -1, -1)
            kernel.measure(workers, bad, place, w, columns.most)
        heat, done = HEATS[seed[2] % len(HEATS)], 0
        while done < steps and not found.is_set() and not self.halted():
            # Temperatures change where a call begins, so that its length changes nothing.
            part = min(steps - done, max(1, int(self.speed * CALL) // kernel.SAME) * kernel.SAME)
            began = time.monotonic()
            if _anneal()(
                columns.requests, workers, bad, place, self.movable, columns.most, self.unit, columns.grows,
                part, done, steps, *heat, random,
            ):  # fmt: skip
                found.set()
                return list(map(int, workers.worker))
            self.speed = part / max(1e-3, time.monotonic() - began)
            done += part
        return None

    def begin(self, workers: Workers, start: Placement | None, random: Any) -> None:
        """Put requests on workers: where they are, while workers last; others where there is most room."""
        columns, number = self.columns, len(workers.head)
        left = list(columns.limits.new)
        if start is not None:
            members: dict[int, list[int]] = {}
            for k in left:
                members.setdefault(start.workers[self.instance.requests[k].id], []).append(k)
            slots = {name: w for w, name in enumerate(columns.open)}
            # Workers with few requests are given up.
            for name in sorted(members, key=lambda some: -len(members[some])):
                if name not in columns.limits.ongoing and len(slots) < number:
                    slots[name] = len(slots)
            for name, w in slots.items():
                for k in members.pop(name, []):
                    enter(workers, columns.requests, k, w)
            left = [k for some in members.values() for k in some]
        # Sizes a little at random, so that no two runs begin alike.
        sizes = {k: max(columns.part(k)) * random.uniform(*STRAY) for k in left}
        order = columns.column(sorted(left, key=lambda k: -sizes[k]))
        _fill()(columns.requests, workers, order, self.unit)
