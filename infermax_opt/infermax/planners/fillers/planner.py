"""Plans that fill holes: requests with little KV are served in pieces, where the others leave memory unused.

Where few requests fit at a time, much memory stays empty until one of them finishes: too little for a whole
request, or for too short a time.  A request with little KV can use it for a while, is evicted when the others
need it, and is refilled in the next hole.  So some requests, the fillers, are left out of a plan; the others
are planned along an order that is searched; then each filler has the life of least cost beside all that are
there, in one piece or several.  Which requests are fillers, and how many, is tried.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import MAX_BATCHES, Schedule
from infermax_opt.infermax.planners.lives._kernel import AWAY, FAR
from infermax_opt.infermax.planners.lives._level import enter_whole, kernel, level_of
from infermax_opt.infermax.planners.lives._write import lives_of, written
from infermax_opt.infermax.planners.orders.planner import orders_help, orders_plans
from infermax_opt.infermax.planners.plan._options import filled_batches, typical_slots
from infermax_opt.infermax.planners.plan.planner import Planner
from infermax_opt.infermax.replay.fast import valid_replay

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Lives = npt.NDArray[np.int8]

__all__ = ["fillers_help", "fillers_plans"]

#: Requests of mean size that fill the KV; where more do, holes are too small to pay for refills.
FEW = 8.0
#: Most batches times tokens of the longest request, which a filler takes time for; and times requests.
MAX_CELLS, MAX_LIVES = 60_000_000, 30_000_000
#: Shares of the requests that are fillers, one after the other at first; by how much one differs later.
SHARES, NEAR = (0.35, 0.25, 0.15, 0.45), 0.05
#: Spread of the sizes by which fillers are chosen, as a power of e, once all shares were tried.
SPREAD = 0.3
#: Time for the order of the others: a share of what is left, and seconds at least and at most.
ORDER_SHARE, LEAST_SECONDS, MOST_SECONDS = 0.08, 0.3, 6.0
#: Tries without a deadline.
TRIES = len(SHARES)
#: Seconds that a token of KV too much costs: it is never worth that.
DEAR = 1.0
#: Share of the time left that placing fillers may take.
PLACE_SHARE = 0.6
#: Seconds for which fillers are placed between two looks at the clock, and for a batch and a token, at first.
SPELL, PACE = 1.0, 1e-8


def fillers_help(instance: Instance) -> bool:
    """Whether requests differ, few fit, and may be evicted; and their lives can be searched one by one."""
    longest = max(request.output_tokens for request in instance.requests)
    steps = filled_batches(instance) + 2 * longest
    return (
        orders_help(instance)
        and len(instance.types) > 1
        and instance.policy.preemption
        and typical_slots(instance) <= FEW
        and longest * steps <= MAX_CELLS
        and len(instance.requests) * steps <= MAX_LIVES
        and enter_whole(instance)
    )


def fillers_plans(
    instance: Instance, known: Schedule | None, *, seed: int = 0, deadline: float | None = None
) -> Iterator[tuple[str, Schedule]]:
    """Plans with fillers, each better than those before and than the known one.

    Parameters
    ----------
    instance : Instance
        One of those that `fillers_help` names; others have no such plans.
    known : Schedule or None
        A valid one, whose order the others have at first; without one there are no plans.
    seed : int
    deadline : float, optional
        Moment of `time.monotonic` at which to stop; without one a fixed number of plans is tried.

    Yields
    ------
    name : str
        ``fillers``.
    schedule : Schedule
    """
    if known is None or not fillers_help(instance):
        return
    lives = lives_of(instance, known)
    if lives is None:  # prompts in chunks
        lives = _along_order(instance, known, seed, deadline)
    if lives is None:
        return
    search = _Search(instance, lives, seed)
    least = valid_replay(instance, known).ends[-1]
    tries = 0
    while tries < TRIES if deadline is None else search.most(deadline) > 0:
        schedule = search.plan(tries, deadline)
        tries += 1
        if schedule is None:
            continue
        ends = valid_replay(instance, schedule).ends[-1]
        if ends < least:
            least = ends
            search.better()
            yield "fillers", schedule


def _along_order(instance: Instance, known: Schedule, seed: int, deadline: float | None) -> Lives | None:
    """Lives of the best plan along an order that is searched for a while, from that of a known schedule."""
    best, now = known, time.monotonic()
    if deadline is not None:
        seconds = min(MOST_SECONDS, max(LEAST_SECONDS, ORDER_SHARE * (deadline - now)))
        deadline = min(deadline, now + seconds)
    planner = Planner(instance, seed=seed)
    planner.early = False  # the others stay whole
    for _, schedule in orders_plans(instance, planner, known=known, seed=seed, deadline=deadline):
        best = schedule
    return lives_of(instance, best)


class _Search:
    """Which requests are fillers.

    Parameters
    ----------
    instance : Instance
    lives : int8 array
        Of a valid schedule.
    seed : int
    """

    def __init__(self, instance: Instance, lives: Lives, seed: int):
        import numpy as np

        self.instance, self.lives = instance, lives
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.level, self.kinds = level_of(instance, 1)
        self.outputs = self.level.ends[self.kinds]
        #: KV that a request holds in the mean.
        self.size = np.array([r.input_tokens + r.output_tokens / 2 for r in instance.requests])
        self.share, self.best, self.pace = SHARES[0], SHARES[0], PACE

    def better(self) -> None:
        """The last plan was the best so far."""
        self.best = self.share

    def seconds(self, outputs: npt.NDArray[np.int64], steps: int) -> float:
        """About as long takes it to place a filler of so many output tokens, in the mean."""
        return self.pace * steps * float(outputs.mean())

    def most(self, deadline: float | None) -> int:
        """As many fillers as there is time to place."""
        if deadline is None:
            return len(self.size)
        each = self.seconds(self.outputs, self.lives.shape[1])
        return max(0, int(PLACE_SHARE * (deadline - time.monotonic()) / each))

    def plan(self, tries: int, deadline: float | None) -> Schedule | None:
        """One more plan; None where fillers find no place."""
        import numpy as np

        first = tries < len(SHARES)
        self.share = SHARES[tries] if first else self.best + NEAR * float(self.rng.standard_normal())
        count = len(self.size)
        spread = 0.0 if first else SPREAD
        order = np.argsort(self.size * np.exp(spread * self.rng.standard_normal(count)), kind="stable")
        fillers = min(max(1, round(self.share * count)), count - 1, self.most(deadline))
        if fillers == 0:
            return None
        others = np.sort(order[fillers:])
        alone = self._without(others, deadline)
        return None if alone is None else self._filled(others, alone, order[:fillers], deadline)

    def _without(self, others: npt.NDArray[np.int64], deadline: float | None) -> Lives | None:
        """Lives of the others alone."""
        part = self.instance.only(self.instance.requests[i] for i in others)
        return _along_order(part, written(part, self.lives[others]), self.seed, deadline)

    def _filled(
        self,
        others: npt.NDArray[np.int64],
        alone: Lives,
        fillers: npt.NDArray[np.int64],
        deadline: float | None,
    ) -> Schedule | None:
        """The others with all fillers beside them, if there is time to place them."""
        import numpy as np

        steps = min(MAX_BATCHES, alone.shape[1] + 2 * int(self.level.ends.max()))
        lives = np.full((len(self.size), steps), AWAY, np.int8)
        lives[others, : alone.shape[1]] = alone
        placed, waiting = others, self.rng.permutation(fillers)
        while len(waiting):
            began = time.monotonic()
            each = self.seconds(self.outputs[waiting], steps)
            if deadline is not None and began + each > deadline:
                return None
            some = max(1, int(SPELL / each))
            now, waiting = waiting[:some], waiting[some:]
            placed = np.concatenate([placed, now])
            rows, found = lives[placed], np.zeros((len(placed), steps), np.int8)
            # Nothing is taken out: lives that are not whole are put back, and that is all.
            seconds = kernel()(
                self.level, self.kinds[placed], rows, np.full(steps, DEAR), DEAR, int(self.level.ends.max()),
                1, 0, 1.0, 1.0, int(self.rng.integers(2**31)), found,
            )  # fmt: skip
            if seconds >= FAR:
                return None
            lives[placed] = found
            self.pace *= max(0.2, (time.monotonic() - began) / (each * len(now)))
        return written(self.instance, lives)
