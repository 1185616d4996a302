"""Searches backwards (`infermax_opt.infermax.planners.backward.search`) with ever other settings.

How good one is hangs on details, so that many narrow ones find more than a single wide one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Schedule
from infermax_opt.infermax.planners.backward.search import (
    WIDTH,
    BackwardOptions,
    BackwardSearch,
    backward_helps,
)
from infermax_opt.infermax.planners.moments import passed
from infermax_opt.infermax.planners.polish.polish import polish

__all__ = ["BackwardPlanner"]

#: Most nodes kept after a batch.
MAX_WIDTH = 10_000
#: The best settings, of which one is changed; searches without a deadline; settings drawn in vain before
#: the search ends.
BEST, SEARCHES, PATIENCE = 3, 12, 100
#: A schedule so much worse than the best one is not polished; it is no reason to go on.
HOPELESS, NEAR = 1.002, 1.0005
#: Relative difference that is rounding.
NOISE = 1e-9

#: What is tried first.
OPENING = (
    BackwardOptions(pool=0), BackwardOptions(), BackwardOptions(early=0.0, pool=60),
    BackwardOptions(worth=0.8), BackwardOptions(early=1.5),
)  # fmt: skip


class BackwardPlanner:
    """A search for plans that can be continued.

    Parameters
    ----------
    instance : Instance
    seed : int
        The same seed gives the same plans, as far as time allows.
    """

    def __init__(self, instance: Instance, *, seed: int = 0):
        self.work = BackwardSearch(instance) if backward_helps(instance) else None
        self.rng, self.number = random.Random(seed), 0
        #: Makespan of the best schedule yielded.
        self.best = math.inf
        #: What was tried, best first.
        self.ranking: list[tuple[float, int, BackwardOptions]] = []
        self.opening = list(OPENING)
        #: Nodes per batch in all searches so far, and in those among them that are wider than others.
        self.spent = self.wide = 0

    def improve(
        self,
        upper: float,
        deadline: float | None = None,
        *,
        try_out: bool = False,
        done: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[str, Schedule]]:
        """Yield schedules better than a known one and those before.

        Parameters
        ----------
        upper : float
            Makespan in seconds to beat.
        deadline : float, optional
            Moment of `time.monotonic` at which to stop; without one it ends after `SEARCHES` searches.
        try_out : bool
            Whether to end after the first few searches where none of them comes near.
        done : callable
            Asked often whether nothing better is wanted.

        Yields
        ------
        name : str
            ``backward:`` and the number of the search.
        schedule : Schedule
        """

        def late() -> bool:
            return passed(deadline) or done()

        begun = self.number
        while self.work is not None and (deadline is not None or self.number < begun + SEARCHES):
            hopeless = not self.opening and self.ranking[0][0] > upper * NEAR
            if (try_out and hopeless) or late():
                return
            options = self._next()
            if options is None:
                return
            seconds, schedule = self._tried(self.work, options, upper, late)
            if schedule is not None and seconds < upper * (1 - NOISE):
                self.best = upper = seconds
                yield f"backward:{self.number}", schedule

    def _tried(
        self, work: BackwardSearch, options: BackwardOptions, upper: float, late: Callable[[], bool]
    ) -> tuple[float, Schedule | None]:
        """What a search finds with these settings, polished if it is near."""
        seconds, schedule = work.search(options, upper, late)
        if schedule is None and late():
            # Its time was too short, which says nothing about it.
            self.opening.insert(0, options)
            return math.inf, None
        self.number += 1
        self.ranking = sorted([*self.ranking, (seconds, self.number, options)], key=lambda one: one[:2])
        if schedule is None or seconds >= upper * HOPELESS:
            return math.inf, None
        saved, schedule = polish(work.instance, schedule)
        return seconds - saved, schedule

    def _next(self) -> BackwardOptions | None:
        """Settings to try next: good ones with a wider beam or changed; None if all were."""
        if self.opening:
            return self.opening.pop(0)
        tried = {options for _, _, options in self.ranking}
        # Of settings that find the same, only the first.
        values = {seconds: options for seconds, _, options in reversed(self.ranking) if seconds < math.inf}
        good = [values[seconds] for seconds in sorted(values)[:BEST]]
        for options in good:
            wider = replace(options, width=2 * options.width)
            # Half of the effort goes to wide searches.
            if wider.width <= MAX_WIDTH and wider not in tried and self.wide + wider.width <= self.spent:
                self.wide += wider.width
                return wider
        for _ in range(PATIENCE if good else 0):
            options = self._changed(self.rng.choice(good))
            if options not in tried:
                self.spent += options.width
                return options
        return None

    def _changed(self, options: BackwardOptions) -> BackwardOptions:
        """Change one to three settings at random."""
        rng = self.rng
        values: dict[str, float] = {
            "width": rng.choice([WIDTH, max(WIDTH, options.width // 2)]),
            "coarse": rng.choice([1, 1, 2, 3]),
            "pool": rng.choice([0, 4, 8, 15, 30, 60]),
            "early": rng.choice([0.0, 0.7, 1.0, 1.2, 1.5]),
            "worth": max(0.0, options.worth + rng.gauss(0, 0.1)),
            "price": options.price + rng.gauss(0, 0.02),
            "seed": rng.randrange(2**31),
        }
        for name in rng.sample(sorted(values), rng.choice([1, 2, 3])):
            options = replace(options, **{name: values[name]})  # type: ignore[arg-type]
        # What decides nothing is left as it is.
        return replace(
            options,
            worth=options.worth if options.early > 0 else 1.0,
            seed=options.seed if options.coarse > 1 else 0,
        )
